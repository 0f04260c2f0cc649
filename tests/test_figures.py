"""What the documents' tables say was measured is what was stored of the measurement."""

from __future__ import annotations

import pytest

from tests.evidence._figures import DOCUMENTS, ROOT, filled, named

ESPEAK = "| by espeak-ng | {} | `CALLERS=~/.cache/callers-espeak make evidence spoken` |\n"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_figures_are_those_that_were_measured(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert filled(text) == text, "python -m tests.evidence._figures writes them"
    assert sum(named(line) is not None for line in text.splitlines()) >= 11


def test_a_wrong_figure_is_found() -> None:
    wrong = ESPEAK.format("61 of 60 (zh 0/40, en 1/20)")
    assert filled(wrong) == ESPEAK.format("18 of 60 (zh 4/40, en 14/20)")
    with pytest.raises(ValueError, match="spoken-espeak: expected 4 numbers in the row, got 1"):
        filled(ESPEAK.format("61"))

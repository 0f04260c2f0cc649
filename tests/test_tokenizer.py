"""The text side of the thinker's vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from voice_agent.engine.protocols import Language
from voice_agent.tea.tokenizer import Vocabulary, number_of, number_tokens, piece

WEIGHTS = Path(__file__).parents[1] / "models/tea-omni/weights"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.load(WEIGHTS / "thinker.json")


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (0, ["U0"]),
        (18, ["T1", "U8"]),
        (205, ["H2", "T0", "U5"]),
        (2000, ["M2", "H0", "T0", "U0"]),
        (12.5, ["T1", "U2", ".5"]),
    ],
)
def test_number_tokens(value: float, tokens: list[str]) -> None:
    assert number_tokens(value) == tokens
    if value == int(value):
        assert number_of(tokens) == value


@pytest.mark.parametrize("value", [-1, 10_000])
def test_numbers_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="expected a number from 0 to 9999"):
        number_tokens(value)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("我要一杯少冰的珍珠奶茶。", [*list("我要一杯少冰的珍珠奶茶"), "."]),
        ("來杯熱紅茶", list("来杯热红茶")),
        ("2杯,18块", ["U2", "杯", ",", "T1", "U8", "块"]),
        ("来一杯 Latte", ["来", "一", "杯", "latte"]),
        ("One pearl milk tea, please!", ["one", "pearl", "milk", "tea", ",", "please", "!"]),
        ("0027", ["U0", "U0", "U2", "U7"]),
        ("70% sugar", ["T7", "U0", "%", "sugar"]),
        ("zyzzx", ["^", "_z", "_y", "_z", "_z", "_x"]),
        ("\N{GRINNING FACE} \n", []),
    ],
)
def test_text_tokens(vocabulary: Vocabulary, text: str, tokens: list[str]) -> None:
    assert vocabulary.text_tokens(text) == tokens


def test_a_long_text_keeps_its_end(vocabulary: Vocabulary) -> None:
    assert vocabulary.text_tokens("一" * 300 + "二", 96) == ["一"] * 95 + ["二"]


@pytest.mark.parametrize(
    ("language", "reply"),
    [
        ("zh", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("zh", "有的，抹茶拿铁二十二块一杯，要来一杯吗？"),
        ("en", "Sure, one pearl milk tea with less ice, eighteen yuan."),
        ("en", "I'm the ordering assistant. I can help you order drinks."),
        ("en", "Yes, the oolong tea is twelve yuan. Would you like one?"),
    ],
)
def test_joined_pieces_are_the_exact_reply(vocabulary: Vocabulary, language: Language, reply: str) -> None:
    tokens = vocabulary.text_tokens(reply)
    before = [None, *tokens]
    assert "".join(piece(t, b, language) for t, b in zip(tokens, before, strict=False)) == reply
    assert set(vocabulary.encode(tokens)) <= set(vocabulary.reply[language])


def test_save_and_load(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == vocabulary


def test_what_is_written_comes_first(vocabulary: Vocabulary) -> None:
    for ids in vocabulary.reply.values():
        assert max(ids) < vocabulary.outputs

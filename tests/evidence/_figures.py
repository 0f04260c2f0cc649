"""The measured figures in the documents' tables: `python -m tests.evidence._figures` writes those of `evidence/` there.

A row names its command, `make evidence NAME`, and the JSON of that name has its figures; `CALLERS=…-x make evidence
spoken` has a JSON of its own, and that of `make evaluate` lies beside the model's card. What a row says in words stays
as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VOICE = ROOT / "models" / "tea-omni" / "card" / "voice.json"
DOCUMENTS = ("README.md", "README.zh.md", "models/tea-omni/README.md")


def _times(figures: dict[str, float], digits: int = 0) -> list[str]:
    return [f"{figures[name]:.{digits}f}" for name in ("p50", "p95")]


def _exact(record: dict[str, Any]) -> list[str]:
    languages = [record[language] for language in ("zh", "en") if language in record]
    return [*record["exact"].split("/"), *(languages if len(languages) > 1 else [])]


FIGURES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "v2v": lambda record: _times(record["v2v_ms"]),
    "four-calls": lambda record: _times(record["four_calls_v2v_ms"]),
    "ttfc": lambda record: [f"{record[f'{drinks}_ttfc_ms']['p95']:.0f}" for drinks in ("one_drink", "three_drinks")],
    "ttfc (rtf)": lambda record: [f"{record['speaking_path_rtf']['mean']:.2f}"],
    "text": lambda record: [str(record["exact"]), str(record["trials"])],
    "spoken": _exact,
    "spoken-espeak": _exact,
    "spoken-accent": _exact,
    "barge-in": lambda record: [*_times(record["stop_ms"]), str(record["stale_frames"])],
    "asr": lambda record: _times(record["one_call"]["lag_ms"]),
    "aborts": lambda record: _times(record["stage_freed_ms"], 1),
    "hallucination": lambda record: [str(sum(record["turns"].values()))],
    "evaluate": lambda record: [f"{100 * record[name]:.1f}" for name in ("zh_cer", "en_wer")],
    "calls-ended": lambda record: [f"{record['grown']['rss_mib']:+d}"],
}
"""The numbers in the second cell of a row, in order."""

NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?:/\d+)?")


def named(row: str) -> str | None:
    """What a table's row has its figures from: the name of a record, and for the second kind of it a mark."""
    if "`make evaluate`" in row:
        return "evaluate"
    found = re.search(r"`(?:CALLERS=\S*callers-(\w+) )?make evidence ([a-z0-9-]+)`", row)
    if found is None:
        return None
    if found[2] == "ttfc" and "ms" not in row.split("|")[2]:
        return "ttfc (rtf)"
    return f"{found[2]}-{found[1]}" if found[1] else found[2]


def filled(document: str) -> str:
    """A document's text with the figures of `evidence/`. Raises ValueError for a row with more numbers or fewer."""
    return "".join(_row(line) if line.startswith("|") else line for line in document.splitlines(keepends=True))


def _row(line: str) -> str:
    name = named(line)
    if name not in FIGURES:
        return line
    path = VOICE if name == "evaluate" else ROOT / "evidence" / f"{name.split(' ')[0]}.json"
    record = json.loads(path.read_text("utf-8"))
    figures, cells = FIGURES[name](record), line.split("|")
    there = NUMBER.findall(cells[2])
    if len(there) != len(figures):
        raise ValueError(f"{name}: expected {len(figures)} numbers in the row, got {len(there)}: {line.strip()}")
    each = iter(figures)
    cells[2] = NUMBER.sub(lambda _: next(each), cells[2])
    return "|".join(cells)


def main() -> None:
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(filled(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

"""All stored pieces of the figures of turn taking, judged together."""

from __future__ import annotations

from typing import Any

from tests.evidence import turns_echo, turns_interruptions, turns_pauses, turns_selectivity, turns_v2v
from tests.evidence._calls import merged

TRIALS = 1

FIGURES = {
    "turns-v2v": turns_v2v.judge,
    "turns-pauses": turns_pauses.judge,
    "turns-interruptions": turns_interruptions.judge,
    "turns-selectivity": turns_selectivity.judge,
    "turns-echo": turns_echo.judge,
}


async def run(seed: int, trials: int) -> dict[str, Any]:
    told = {name: figure for name, judge in FIGURES.items() if (figure := merged(name, judge)) is not None}
    if not told:
        raise FileNotFoundError(f"expected pieces in evidence/, such as {next(iter(FIGURES))}-1.json, found none")
    missing = [name for name in FIGURES if name not in told]
    passed = not missing and all(figure["passed"] for figure in told.values())
    return {"name": "turns", "figures": told, "missing": missing, "passed": passed}

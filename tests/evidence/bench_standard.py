"""The bench's standard set against this project's server, in pieces of four to sixteen minutes.

PIECE names one; without it they are run one after the other (36 minutes). Pieces with an odd seed are the first run,
those with an even one the second: the same calls again, said at the same moments of a reply. All pieces are merged, and
the runs compared, by `make evidence bench-merge`.
"""

from __future__ import annotations

import os
from typing import Any

from tests.evidence._calls import named, placed
from voice_agent.bench.results import KINDS, CallResult, summaries, values_of

TRIALS = 1
"""Rounds of each piece."""

PIECES: dict[str, dict[str, int]] = {
    # Scenario: calls. Both runs together have 60 trials and more of every figure of a turn.
    "orders": {"order-zh": 3, "order-en": 3, "orders": 1, "echo-loop": 1},
    "interruptions": {"interruptions": 6},
    "distractions": {"distractions": 10},
    "pauses": {"pause-0300": 2, "pause-0600": 3, "pause-1000": 3, "pause-1500": 2},
}


def runs_of(stored: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The calls of the stored pieces by run. Raises FileNotFoundError unless there are both."""
    runs = {number: [call for p in stored if p["seed"] % 2 == number % 2 for call in p["each"]] for number in (1, 2)}
    if not all(runs.values()):
        raise FileNotFoundError("expected pieces of two runs in evidence/, bench-standard-NAME-1.json and -2.json")
    return runs


async def run(seed: int, trials: int) -> dict[str, Any]:
    chosen = os.environ.get("PIECE")
    if chosen is not None and chosen not in PIECES:
        raise ValueError(f"PIECE: expected one of {', '.join(PIECES)}, got {chosen!r}")
    told = {}
    each: list[dict[str, Any]] = []
    names = list(PIECES) if chosen is None else [chosen]
    for name in names:
        scenarios = [(named(scenario), calls * trials) for scenario, calls in PIECES[name].items()]
        done = await placed(f"bench-standard-{name}-{seed}", scenarios, (seed + 1) // 2, judged=True)
        told[name] = done.facts()
        each += [{"piece": name, **_of(call)} for call in done.calls]
    record = f"bench-standard-{chosen}-{seed}" if chosen else f"bench-standard-{seed}"
    passed = not any(facts["calls_failed"] for facts in told.values())
    calibration = told[names[0]]["calibration"]
    return {
        "name": record,
        "calibration": calibration,
        "pieces": told,
        "figures": _shown(each),
        "passed": passed,
        "each": each,
    }


def _of(call: CallResult) -> dict[str, Any]:
    """A call's trials by figure, and what it did not keep."""
    broken = [f"{check.where} {check.what}: {check.got}" for check in call.checks if not check.passed]
    return {
        "scenario": call.scenario,
        "recording": call.recording,
        "values": values_of([call]),
        "not_kept": broken,
    }


def pooled(each: list[dict[str, Any]]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in KINDS}
    for call in each:
        for name, trials in call["values"].items():
            values[name] += trials
    return {name: trials for name, trials in values.items() if trials}


def _shown(each: list[dict[str, Any]]) -> dict[str, Any]:
    values = pooled(each)
    shares = {name: f"{sum(v):.0f} of {len(v)}" for name, v in values.items() if KINDS[name].share}
    return {name: vars(summary) for name, summary in summaries(values).items()} | shares

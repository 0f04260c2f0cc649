"""`bench compare` on the two stored runs of `bench-standard`: as they are, and with a slowdown of a fifth planted.

Needs their pieces; places no calls. Both runs are of the same server: what is called changed between them is noise.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.evidence._calls import pieces
from tests.evidence.bench_standard import PIECES, pooled, runs_of
from voice_agent.bench.compare import LEAST_TRIALS, compare_trials

TRIALS = 1

SLOWER = 1.2
SLOWED = ("v2v_ms", "v2v_playout_ms", "answer_ms")


async def run(seed: int, trials: int) -> dict[str, Any]:
    stored = [piece for name in PIECES for piece in pieces(f"bench-standard-{name}")]
    was, now = (_by_scenario(calls) for calls in runs_of(stored).values())
    slow = {
        name: {figure: [SLOWER * ms if figure in SLOWED else ms for ms in of] for figure, of in values.items()}
        for name, values in now.items()
    }
    unplanted = [change for change in compare_trials(was, now) if change.verdict != "same"]
    planted = [change for change in compare_trials(was, slow) if change.verdict == "worse"]
    found = sorted({change.scenario for change in planted if change.figure == "v2v_ms"})
    turns = {name: len(values["v2v_ms"]) for name, values in now.items() if len(values["v2v_ms"]) >= LEAST_TRIALS}
    return {
        "turns": turns,
        "slower": SLOWER,
        "found_in": found,
        "not_found_in": sorted(set(turns) - set(found)),
        "changed_without_it": [asdict(change) for change in unplanted],
        "passed": "all" in found and not unplanted,
        "each": [asdict(change) for change in planted],
    }


def _by_scenario(calls: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    names = dict.fromkeys(call["scenario"] for call in calls)
    found = {name: pooled([call for call in calls if call["scenario"] == name]) for name in names}
    # All of them together are the scenario with the most trials.
    return {**found, "all": pooled(calls)}

"""Orders over the four reference networks, a lost packet, an outage and clocks that drift.

PIECE names one condition (clean, 40, 80, 150 or events), of five minutes at most; `make evidence bench-networks-merge`
judges them together. As root the networks lie between namespaces, else inside the callers' transport.
"""

from __future__ import annotations

import os
from typing import Any

from tests.evidence._calls import ROOT
from voice_agent.bench import conditions
from voice_agent.bench.calibrate import calibrate
from voice_agent.bench.results import KINDS, CallResult, summaries, values_of
from voice_agent.bench.scenario import find_scenarios

TRIALS = 1
"""Rounds of the networks."""

PIECES = dict(zip(("clean", "40", "80", "150"), conditions.NETWORKS, strict=True))
CALLS = {"clean": 5, "40": 3, "80": 3, "150": 5}
"""Of eight orders each: 40 for what is judged, 24 for what lies between."""


async def run(seed: int, trials: int) -> dict[str, Any]:
    chosen = os.environ.get("PIECE", "")
    if chosen not in (*PIECES, "events"):
        raise ValueError(f"PIECE: expected one of {', '.join((*PIECES, 'events'))}, got {chosen!r}")
    out = ROOT / "bench-out" / f"bench-networks-{chosen}-{seed}"
    error = await calibrate(out, calls=1, pairs=3, seed=seed)
    del error["trials"]
    events = chosen == "events"
    namespaces = conditions.privileged() and not events
    names = conditions.EVENTS if events else [PIECES[chosen]]
    # The events' scenarios say themselves how often they are placed.
    calls = None if events else CALLS[chosen] * trials
    found = await conditions.conditions(find_scenarios(["orders"]), out, calls, seed, namespaces, names)
    return {
        "name": f"bench-networks-{chosen}",
        "between": "namespaces" if namespaces else "inside the callers' transport",
        "calibration": error,
        "conditions": {name: shown(calls) for name, calls in found.items()},
        "added": conditions.added(conditions.v2v_by(found)),
        "passed": not any(call.failed for calls in found.values() for call in calls),
        "each": [{"condition": name, "v2v_ms": v2v} for name, v2v in conditions.v2v_by(found).items()],
    }


def shown(calls: list[CallResult]) -> dict[str, Any]:
    values = values_of(calls)
    shares = {name: f"{sum(v):.0f} of {len(v)}" for name, v in values.items() if KINDS[name].share}
    lost = {"packets_lost": sum(call.figures["stream"]["lost"] for call in calls)}
    return {name: vars(s) for name, s in summaries(values).items()} | shares | lost

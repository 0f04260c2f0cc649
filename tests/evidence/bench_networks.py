"""Orders over the four reference networks, a lost packet, an outage and clocks that drift.

PIECE names one condition (clean, 40, 80, 150 or events) of at most 12 minutes; `make evidence bench-networks-merge`
judges them together. As root the networks lie between namespaces, else inside the callers' transport.
"""

from __future__ import annotations

import os
from typing import Any

from tests.evidence._calls import ROOT
from voice_agent.bench import conditions
from voice_agent.bench.results import KINDS, CallResult, summaries, values_of
from voice_agent.bench.scenario import find_scenarios

TRIALS = 60
"""Turns of each network; of the lost packet, half as many calls."""

PIECES = dict(zip(("clean", "40", "80", "150"), conditions.NETWORKS, strict=True))


async def run(seed: int, trials: int) -> dict[str, Any]:
    chosen = os.environ.get("PIECE", "")
    if chosen not in (*PIECES, "events"):
        raise ValueError(f"PIECE: expected one of {', '.join((*PIECES, 'events'))}, got {chosen!r}")
    out = ROOT / "bench-out" / f"bench-networks-{chosen}-{seed}"
    namespaces = conditions.privileged()
    if chosen == "events":
        found = {}
        for name, calls in (("lost-packet", trials // 2), ("outage", 3), ("drifting-clock", 1), ("slow-clock", 1)):
            found |= await conditions.conditions([], out, max(1, calls), seed, False, [name])
    else:
        dialogue = find_scenarios(["dialogue"])
        found = await conditions.conditions(dialogue, out, -(-trials // 4), seed, namespaces, [PIECES[chosen]])
    return {
        "name": f"bench-networks-{chosen}",
        "between": "namespaces" if namespaces and chosen != "events" else "inside the callers' transport",
        "conditions": {name: shown(calls) for name, calls in found.items()},
        "passed": not any(call.failed for calls in found.values() for call in calls),
        "each": [{"condition": name, "v2v_ms": conditions.v2v_of(name, calls)} for name, calls in found.items()],
    }


def shown(calls: list[CallResult]) -> dict[str, Any]:
    values = values_of(calls)
    shares = {name: f"{sum(v):.0f} of {len(v)}" for name, v in values.items() if KINDS[name].share}
    return {name: vars(s) for name, s in summaries(values).items()} | shares

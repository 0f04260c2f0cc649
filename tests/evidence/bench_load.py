"""How many callers this server carries on this machine until TTFC p95 is 1.5 times that of one, and what gives way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.evidence._calls import ROOT, named, write_table
from voice_agent.bench.link import Target
from voice_agent.bench.load import LIMIT, Step, ramp
from voice_agent.bench.scenario import LIBRARY
from voice_agent.calling import own_server

TRIALS = 1
"""Calls of eight orders by each caller in a step, and again by as many callers as are held."""

CALLERS = (1, 2, 3, 4, 6, 8)
HEADS = [
    "callers",
    "TTFC p95, ms",
    "V2V p95, ms",
    "packet gap p99, ms",
    "calls failed",
    "cores busy",
    "MiB",
    "slots in use at most",
    "stages, p95 in ms",
    "stages, share of the time at work",
]


async def run(seed: int, trials: int) -> dict[str, Any]:
    out = ROOT / "bench-out" / f"bench-load-{seed}"
    async with own_server() as url:
        told = await ramp(
            Target(url=url), named("orders"), LIBRARY, out, CALLERS, calls_each=trials, hold_calls=trials, seed=seed
        )
    steps = [*told.steps, *([told.hold] if told.hold is not None else [])]
    return {
        "table": write_table("bench-load", HEADS, map(_row, steps)),
        "held": told.held,
        "limit": LIMIT,
        "saturated": told.saturated,
        "hold": None if told.hold is None else asdict(told.hold),
        "passed": told.held >= 1 and (told.hold is None or not told.hold.failed),
        "each": [asdict(step) for step in told.steps],
    }


def _row(step: Step) -> list[str]:
    def told(of: Mapping[str, float]) -> str:
        return ", ".join(f"{name.removesuffix('_ms')} {value:g}" for name, value in of.items())

    times = (step.ttfc_ms, step.v2v_ms, step.packet_gap_ms, step.busy, step.memory_mib)
    ttfc, v2v, gap, busy, memory = ("–" if value is None else f"{value:g}" for value in times)
    failed = f"{step.failed} of {step.calls}"
    return [
        f"{step.callers}",
        ttfc,
        v2v,
        gap,
        failed,
        busy,
        memory,
        *map(told, (step.slots, step.stages, step.utilisation)),
    ]

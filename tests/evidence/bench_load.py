"""How many callers this server carries on this machine until TTFC p95 is 1.5 times that of one, and what gives way."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.evidence._calls import ROOT, named
from voice_agent.bench.link import Target
from voice_agent.bench.load import LIMIT, ramp
from voice_agent.bench.scenario import LIBRARY
from voice_agent.calling import own_server

TRIALS = 1
"""Calls of eight orders by each caller in a step, and again by as many callers as are held."""

CALLERS = (1, 2, 3, 4, 6, 8)


async def run(seed: int, trials: int) -> dict[str, Any]:
    out = ROOT / "bench-out" / f"bench-load-{seed}"
    async with own_server() as url:
        told = await ramp(
            Target(url=url), named("orders"), LIBRARY, out, CALLERS, calls_each=trials, hold_calls=trials, seed=seed
        )
    return {
        "held": told.held,
        "limit": LIMIT,
        "saturated": told.saturated,
        "hold": None if told.hold is None else asdict(told.hold),
        "passed": told.held >= 1 and (told.hold is None or not told.hold.failed),
        "each": [asdict(step) for step in told.steps],
    }

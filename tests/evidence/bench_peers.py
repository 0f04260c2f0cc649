"""This server, pipecat and fastrtc by the same calls with the same Whisper weights; the peers answer with a recording.

PIECE names the server (this-server, pipecat, fastrtc); one takes six to seven minutes, and `--seed` gives as many
rounds as are wanted. `make evidence bench-peers-merge` puts them side by side. Makes the peers' environments the
first time.
"""

from __future__ import annotations

import os
from typing import Any

from tests.evidence._calls import ROOT, named
from tests.evidence.bench_standard import pooled
from voice_agent.bench.beside import OWN, started
from voice_agent.bench.calibrate import calibrate
from voice_agent.bench.peers import RECIPES
from voice_agent.bench.results import KINDS, summaries, values_of
from voice_agent.bench.runner import jobs, run_calls
from voice_agent.bench.scenario import LIBRARY

TRIALS = 1
"""Rounds."""

SCENARIOS = {
    "order-zh": 1,
    "order-en": 1,
    "interruptions": 1,
    "distractions": 1,
    "pause-0600": 1,
    "pause-1000": 1,
}
SERVERS = (OWN.replace(" ", "-"), *RECIPES)


async def run(seed: int, trials: int) -> dict[str, Any]:
    server = os.environ.get("PIECE", "")
    if server not in SERVERS:
        raise ValueError(f"PIECE: expected one of {', '.join(SERVERS)}, got {server!r}")
    out = ROOT / "bench-out" / f"bench-peers-{server}-{seed}"
    error = await calibrate(out, calls=1, pairs=3, seed=seed)
    del error["trials"]
    calls = []
    async with started(OWN if server == SERVERS[0] else server, out) as target:
        for name, count in SCENARIOS.items():
            calls += await run_calls(jobs(target, [(named(name), LIBRARY)], out, count * trials, seed))
    each = [
        {"scenario": call.scenario, "failed": call.figures["failed"], "values": values_of([call])} for call in calls
    ]
    return {
        "name": f"bench-peers-{server}-{seed}",
        "server": server,
        "calibration": error,
        "figures": shown(each),
        "passed": not any(call.failed for call in calls),
        "each": each,
    }


def shown(each: list[dict[str, Any]]) -> dict[str, Any]:
    """p50, p95 and count of each figure; of a share, how many of how many."""
    values = pooled(each)
    told = summaries(values)
    return {
        name: f"{sum(of):.0f} of {len(of)}"
        if KINDS[name].share
        else {"n": len(of), "p50": told[name].p50, "p95": told[name].p95}
        for name, of in values.items()
    }

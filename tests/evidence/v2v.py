"""Voice to voice at RTP arrival over loopback: one call of 20 one-drink orders, zh and en in turn."""

from __future__ import annotations

from typing import Any

from tests.evidence.tools import ORDER, ORDER_EN, loop_lag, quantiles
from voice_agent.calling import own_server, place_call

TRIALS = 20


async def run(seed: int, trials: int) -> dict[str, Any]:
    recordings = [(ORDER, ORDER_EN)[turn % 2] for turn in range(trials)]
    async with own_server() as url:
        report = await place_call(url, recordings)
        lag = await loop_lag(url)
    times = [turn.v2v_ms for turn in report.turns if turn.v2v_ms is not None]
    steps = sorted({name for turn in report.turns for name in turn.latency})
    figures = quantiles(times)
    return {
        "v2v_ms": figures,
        "steps": {name: quantiles([t.latency[name] for t in report.turns if name in t.latency]) for name in steps},
        "loop_lag": lag,
        "answered": sum(turn.answered for turn in report.turns),
        "passed": len(times) == trials and figures["p50"] <= 900 and figures["p95"] <= 1400,
        "each": [turn.__dict__ for turn in report.turns],
    }

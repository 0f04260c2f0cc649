"""The bench's library against this project's server: every figure, with the bench's own error first."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.evidence.tools import shown
from voice_agent.bench.calibrate import calibrate
from voice_agent.bench.link import Target
from voice_agent.bench.results import KINDS, summaries, values_of
from voice_agent.bench.runner import jobs, run_calls
from voice_agent.bench.scenario import find_scenarios
from voice_agent.calling import own_server

TRIALS = 10
"""Calls of each scenario; of the calls of twenty turns, a fifth."""


async def run(seed: int, trials: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        calibration = await calibrate(out, seed=seed)
        calls = []
        async with own_server() as url:
            for scenario, sounds in shown(find_scenarios([]), "scenario"):
                count = max(1, trials // 5) if len(scenario.turns) >= 20 else trials
                calls += await run_calls(jobs(Target(url=url), [(scenario, sounds)], out, count, seed))
    told = {}
    for name in dict.fromkeys(call.scenario for call in calls):
        values = values_of(call for call in calls if call.scenario == name)
        shares = {k: f"{sum(v):.0f} of {len(v)}" for k, v in values.items() if KINDS[k].share}
        told[name] = {k: s.__dict__ for k, s in summaries(values).items()} | shares
    del calibration["trials"]
    return {
        "calibration": calibration,
        "scenarios": told,
        "passed": calibration["passed"] and not any(call.failed for call in calls),
        "each": [
            {"scenario": call.scenario, "failed": [c.__dict__ for c in call.checks if not c.passed]} for call in calls
        ],
    }

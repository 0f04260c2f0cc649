"""The pieces of `bench-networks`, judged together."""

from __future__ import annotations

import json
from typing import Any

from tests.evidence._calls import ROOT
from voice_agent.bench import conditions
from voice_agent.bench.statistics import summarise

TRIALS = 1


async def run(seed: int, trials: int) -> dict[str, Any]:
    paths = sorted((ROOT / "evidence").glob("bench-networks-*.json"))
    stored = [json.loads(path.read_text("utf-8")) for path in paths]
    v2v = {entry["condition"]: entry["v2v_ms"] for piece in stored for entry in piece["each"]}
    names = (*conditions.NETWORKS, conditions.BEFORE_LOSS, *conditions.EVENTS)
    missing = [name for name in names if name not in v2v]
    if missing:
        raise FileNotFoundError(f"expected pieces with {', '.join(names)} in evidence/, found none with {missing[0]}")
    told = conditions.added(v2v)
    return {
        "name": "bench-networks",
        "v2v_ms": {name: vars(summarise(v2v[name])) for name in names},
        "added": told,
        "between": {piece["name"]: piece["between"] for piece in stored},
        "conditions": {name: told for piece in stored for name, told in piece["conditions"].items()},
        "calibration_v2v_error_p95": max(piece["calibration"]["v2v_ms"]["error_p95"] for piece in stored),
        "pieces": [{key: piece[key] for key in ("name", "commit", "began", "load_average_before")} for piece in stored],
        "passed": all(bar["passed"] for bar in told.values()),
    }

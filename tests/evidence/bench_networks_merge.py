"""The pieces of `bench-networks`, judged together."""

from __future__ import annotations

import json
from typing import Any

from tests.evidence._calls import ROOT
from tests.evidence.tools import quantiles
from voice_agent.bench import conditions

TRIALS = 1


async def run(seed: int, trials: int) -> dict[str, Any]:
    paths = sorted((ROOT / "evidence").glob("bench-networks-*.json"))
    stored = [json.loads(path.read_text("utf-8")) for path in paths]
    v2v = {entry["condition"]: entry["v2v_ms"] for piece in stored for entry in piece["each"]}
    names = (*conditions.NETWORKS, *conditions.EVENTS)
    missing = [name for name in names if name not in v2v]
    if missing:
        raise FileNotFoundError(f"expected pieces with {', '.join(names)} in evidence/, found none with {missing[0]}")
    told = conditions.added(v2v)
    return {
        "name": "bench-networks",
        "v2v_ms": {name: quantiles(v2v[name]) for name in names},
        "added": told,
        "between": {piece["name"]: piece["between"] for piece in stored},
        "passed": all(bar["added_ms"] <= bar["bar_ms"] for bar in told.values()),
    }

"""The pieces of `bench-networks`, judged together."""

from __future__ import annotations

import json
from typing import Any

from tests.evidence._calls import ROOT, write_table
from voice_agent.bench import conditions
from voice_agent.bench.statistics import summarise

TRIALS = 1

HEADS = ["each way", "V2V p50, ms (95 % interval)", "V2V p95, ms (95 % interval)", "turns", "answered", "assertions"]


async def run(seed: int, trials: int) -> dict[str, Any]:
    paths = sorted((ROOT / "evidence").glob("bench-networks-*.json"))
    stored = [json.loads(path.read_text("utf-8")) for path in paths]
    v2v = {entry["condition"]: entry["v2v_ms"] for piece in stored for entry in piece["each"]}
    names = (*conditions.NETWORKS, conditions.BEFORE_LOSS, *conditions.EVENTS)
    missing = [name for name in names if name not in v2v]
    if missing:
        raise FileNotFoundError(f"expected pieces with {', '.join(names)} in evidence/, found none with {missing[0]}")
    told = conditions.added(v2v)
    times = {name: summarise(v2v[name]) for name in names}
    every = {name: told for piece in stored for name, told in piece["conditions"].items()}
    rows = [
        [
            name,
            f"{s.p50:g} ({s.p50_low:g} … {s.p50_high:g})",
            f"{s.p95:g} ({s.p95_low:g} … {s.p95_high:g})",
            str(s.n),
            *(every[name][share] if name in every else "" for share in ("responded", "checks")),
        ]
        for name, s in times.items()
    ]
    return {
        "name": "bench-networks",
        "table": write_table("bench-networks", HEADS, rows),
        "v2v_ms": {name: vars(s) for name, s in times.items()},
        "added": told,
        "between": {piece["name"]: piece["between"] for piece in stored},
        "conditions": every,
        "calibration_v2v_error_p95": max(piece["calibration"]["v2v_ms"]["error_p95"] for piece in stored),
        "pieces": [{key: piece[key] for key in ("name", "commit", "began", "load_average_before")} for piece in stored],
        "passed": all(bar["passed"] for bar in told.values()),
    }

"""Both runs of the bench's pieces: every figure over all trials, and how far apart their medians are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.evidence._calls import pieces, write_table
from tests.evidence.bench_standard import PIECES, pooled, runs_of
from voice_agent.bench.results import KINDS, summaries

TRIALS = 60
"""What each figure of a turn has to have."""

SAME_SHARE = 0.05
SAME = {"_ms": 20.0, "_ppm": 20 / 3.6}
"""Medians of two runs are the same within that share or so much: 20 ms; of a clock's rate, 20 ms in an hour."""

HEADS = ["figure, in ms where not said otherwise", "p50 (95 % interval)", "p95", "p99", "n", "p50 of run 1 / run 2"]
PER_CALL = ("connect_ms", "burst_ms", "packet_gap_p99_ms", "packet_gap_max_ms", "lost_pct", "drift_ppm")


async def run(seed: int, trials: int) -> dict[str, Any]:
    stored = [piece for name in PIECES for piece in pieces(f"bench-standard-{name}")]
    runs = runs_of(stored)
    values = {number: pooled(each) for number, each in runs.items()}
    every = pooled([*runs[1], *runs[2]])
    told = summaries(every)
    figures: dict[str, Any] = {}
    few = [name for name in KINDS if name not in PER_CALL and len(every.get(name, ())) < trials]
    apart = []
    for name, of in every.items():
        if KINDS[name].share:
            figures[name] = f"{sum(of):.0f} of {len(of)}"
        else:
            medians = [float(np.median(values[number][name])) for number in (1, 2) if name in values[number]]
            near = max([SAME_SHARE * abs(medians[0]), *(near for unit, near in SAME.items() if name.endswith(unit))])
            same = len(medians) == 2 and abs(medians[1] - medians[0]) <= near
            figures[name] = {**vars(told[name]), "medians": [round(m, 2) for m in medians], "same": same}
            if not same:
                apart.append(name)
    rows = [[KINDS[name].title, *_cells(figure)] for name, figure in figures.items()]
    return {
        "name": "bench-standard",
        "table": write_table("bench-standard", HEADS, rows),
        "figures": figures,
        "medians_apart": apart,
        "fewer_trials": few,
        "calibration_v2v_error_p95": max(piece["calibration"]["v2v_ms"]["error_p95"] for piece in stored),
        "pieces": [{key: piece[key] for key in ("name", "commit", "began", "load_average_before")} for piece in stored],
        "passed": not apart and not few,
    }


def _cells(figure: dict[str, Any] | str) -> list[str]:
    """p50 with its interval, p95, p99, trials, and the median of each run; of a share, how many of how many alone."""
    if isinstance(figure, str):
        return ["", "", "", figure, ""]
    p50 = f"{figure['p50']:g} ({figure['p50_low']:g} … {figure['p50_high']:g})"
    medians = " / ".join(f"{median:g}" for median in figure["medians"])
    return [p50, f"{figure['p95']:g}", f"{figure['p99']:g}", str(figure["n"]), medians]

"""Deadline scheduling against first come and round robin, on a virtual clock with the measured steps of tea-omni.

Poisson arrivals at 80 and 95 % of what the busiest stage can bear (`tests/workload.json`), and 1 to 64 callers in
conversation. Times: `evidence/step-times.json`, made by `make evidence step-times`. Draws `evidence/scheduling.svg`.
"""

from __future__ import annotations

from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from tests.evidence.tools import ROOT, shown
from tests.simulation import DISCIPLINES, Simulation, Times, capacity_per_s, load_workload, summary

TRIALS = 1000  # replies of the workload
LOADS = (0.8, 0.95)
CALLERS = (1, 2, 4, 8, 16, 32, 48, 64)


async def run(seed: int, trials: int) -> dict[str, Any]:
    times, workload = Times.load(), load_workload()[:trials]
    per_s, each = capacity_per_s(times, workload)
    arriving: dict[str, dict[str, Any]] = {}
    for load in LOADS:
        runs = {}
        for discipline in shown(DISCIPLINES, f"load {load}"):
            simulation = Simulation(times, discipline)
            simulation.arrive(workload, load * per_s)
            runs[discipline.name] = summary(simulation)
        arriving[f"{load:.0%}"] = runs
    conversing: dict[int, dict[str, Any]] = {}
    for callers in shown(CALLERS, "callers"):
        runs = {}
        for discipline in DISCIPLINES:
            simulation = Simulation(times, discipline)
            simulation.converse(workload[: max(100, 12 * callers)], callers)
            runs[discipline.name] = summary(simulation)
        conversing[callers] = runs
    ratios = {
        load: round(runs["deadline"]["ttfc_ms"]["p95"] / runs["first come"]["ttfc_ms"]["p95"], 3)
        for load, runs in arriving.items()
    }
    draw(conversing)
    _print(arriving, conversing)
    return {
        "replies_per_s_at_capacity": round(per_s, 2),
        "replies_per_s_by_stage": {name: round(value, 2) for name, value in each.items()},
        "arriving": arriving,
        "ttfc_p95_to_first_come": ratios,
        "callers": conversing,
        "passed": max(ratios.values()) <= 0.6 and arriving["80%"]["deadline"]["underruns"] == 0,
    }


def draw(conversing: dict[int, dict[str, Any]]) -> None:
    """p95 TTFC, silence within replies and wasted frames over the number of callers."""
    matplotlib.rcParams.update({"svg.hashsalt": "voice-agent", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    shown_as = (
        ("p95 time to first chunk, ms", lambda run: run["ttfc_ms"]["p95"]),
        ("silence within replies, s a reply", lambda run: run["silence_s"] / run["replies"]),
        ("frames made and never heard, %", lambda run: 100 * run["wasted_share"]),
    )
    for axis, (title, value) in zip(axes, shown_as, strict=True):
        for discipline, colour in zip(DISCIPLINES, ("#c2410c", "#a16207", "#0f766e"), strict=True):
            values = [value(runs[discipline.name]) for runs in conversing.values()]
            axis.plot(list(conversing), values, marker="o", markersize=3, color=colour, label=discipline.name)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("callers")
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(conversing), [str(callers) for callers in conversing])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(ROOT / "evidence" / "scheduling.svg", metadata={"Date": None})
    plt.close(figure)


def _print(arriving: dict[str, dict[str, Any]], conversing: dict[int, dict[str, Any]]) -> None:
    print(f"{'':14}{'':14}{'TTFC p50':>9}{'p95':>7}{'p99':>7} ms{'underruns':>11}{'wasted':>9}")
    rows = [(f"load {load}", runs) for load, runs in arriving.items()]
    rows += [(f"{callers} callers", runs) for callers, runs in conversing.items()]
    for what, runs in rows:
        for name, run in runs.items():
            p50, p95, p99 = run["ttfc_ms"].values()
            print(f"{what:14}{name:14}{p50:9.0f}{p95:7.0f}{p99:7.0f}   {run['underruns']:11}{run['wasted_frames']:9}")

"""Several servers by the same scenarios in one run, and their figures in one table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from voice_agent.bench.link import Target
from voice_agent.bench.peers import recipe_of, serving
from voice_agent.bench.results import KINDS, Results, summaries
from voice_agent.bench.runner import OnCall, about, jobs, run_calls
from voice_agent.bench.scenario import Scenario
from voice_agent.calling import own_server

OWN = "this server"

SHOWN = (
    "v2v_ms",
    "answer_ms",
    "faded_ms",
    "yield_ms",
    "yield_playout_ms",
    "yielded",
    "stale_ms",
    "kept",
    "resume_ms",
    "repeated_ms",
    "skipped_ms",
    "responded",
    "early",
    "pause_tor",
    "burst_ms",
    "packet_gap_p99_ms",
    "connect_ms",
)
"""Figures that do not depend on what a server tells, for a peer tells nothing."""


@asynccontextmanager
async def started(name: str, out: Path) -> AsyncIterator[Target]:
    """This project's server (`OWN`) or a peer by its name, in a process of its own."""
    if name == OWN:
        async with own_server() as url:
            yield Target(url=url)
    else:
        async with serving(recipe_of(name), out) as url:
            yield Target(url=url, kind="offer")


async def beside(
    names: Sequence[str],
    scenarios: Sequence[tuple[Scenario, Path]],
    out: Path,
    trials: int | None,
    seed: int,
    calibration: dict[str, Any] | None,
    on_call: OnCall = lambda call: None,
) -> dict[str, Results]:
    """One server after the other, each alone on the machine, with the same recordings and seeds.

    The recordings of each lie in a folder of its name under `out`. Raises ValueError for a name without a recipe.
    """
    found: dict[str, Results] = {}
    for name in names:
        folder = out / name.replace(" ", "-")
        async with started(name, folder) as target:
            calls = await run_calls(jobs(target, scenarios, folder, trials, seed), on_call)
        facts = about(target, [scenario for scenario, _ in scenarios], seed) | {"server": name}
        found[name] = Results(facts, tuple(calls), calibration)
        found[name].save(folder / "results.json")
    return found


def side_by_side(found: Mapping[str, Results], scenario: str | None = None) -> str:
    """A Markdown table: a row a figure, a column a server; p50 / p95 (n), or a share. Of one scenario, or of all."""
    values = {name: results.values(scenario) for name, results in found.items()}
    told = {name: summaries(of) for name, of in values.items()}
    rows = [f"| figure | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for kind in (KINDS[name] for name in SHOWN):
        cells = []
        for name in found:
            trials = values[name].get(kind.name)
            if not trials:
                cells.append("–")
            elif kind.share:
                cells.append(f"{100 * sum(trials) / len(trials):.0f} % ({sum(trials):.0f} of {len(trials)})")
            else:
                s = told[name][kind.name]
                cells.append(f"{s.p50:g} / {s.p95:g} ({s.n})")
        if any(cell != "–" for cell in cells):
            rows.append(f"| {kind.title} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"

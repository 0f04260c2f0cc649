"""Calls of the bench to a server started for them, and pieces of a figure that are run one by one and merged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.evidence.tools import ROOT, loop_lag, quantiles
from voice_agent.bench.calibrate import calibrate
from voice_agent.bench.link import Target
from voice_agent.bench.quality import Judges
from voice_agent.bench.recording import Recording
from voice_agent.bench.results import CallResult
from voice_agent.bench.runner import jobs, judge, run_calls, uncut_paths
from voice_agent.bench.scenario import LIBRARY, Scenario, find_scenarios
from voice_agent.calling import own_server

SOUNDS = LIBRARY / "sounds"
REAL = ROOT.parent / "shared" / "audio"
CALLER_DBFS = -20.0
"""What the callers' recordings are levelled to (RMS); other sounds are so much louder or quieter than they."""


@dataclass(frozen=True)
class Placed:
    """`error`: the bench's own, measured just before; `recordings`: in the order of `calls`, `uncut` beside them."""

    error: dict[str, Any]
    calls: list[CallResult]
    recordings: list[Path]
    uncut: list[tuple[Path, ...]]
    lag: dict[str, float]

    def recording(self, number: int) -> Recording:
        return Recording.load(self.recordings[number])

    def facts(self) -> dict[str, Any]:
        """What every piece tells of its calls."""
        return {
            "calibration": self.error,
            "calls": len(self.calls),
            "calls_failed": sum(call.failed for call in self.calls),
            "loop_lag": self.lag,
        }


async def placed(
    name: str,
    scenarios: Iterable[tuple[Scenario, int]],
    seed: int,
    uncut: str | None = None,
    judged: bool = False,
    parallel: int = 1,
) -> Placed:
    """Place each scenario so many times, `parallel` calls at once. Their recordings are kept in `bench-out`.

    `uncut`: the scenarios differ in what is said over the agent alone, so that the calls without that, of this name,
    stand beside all of them. `judged`: the sound of each reply is judged too, after the calls.
    """
    out = ROOT / "bench-out" / name
    error = await calibrate(out, calls=1, pairs=3, seed=seed)
    del error["trials"]
    async with own_server() as url:
        target = Target(url=url)
        work = [job for scenario, n in scenarios for job in jobs(target, [(scenario, LIBRARY)], out, n, seed)]
        if uncut is not None:
            work = [job.model_copy(update={"uncut": uncut_paths(out, uncut)}) for job in work]
        calls = await run_calls(work, parallel=parallel)
        lag = await loop_lag(url)
    if judged:
        judges = Judges()
        calls = [judge(call, out, judges) for call in calls]
    return Placed(error, calls, [job.save for job in work], [job.uncut for job in work], lag)


def named(name: str) -> Scenario:
    """A scenario of the library."""
    return find_scenarios([name])[0][0]


def sound(path: Path, below_db: float = 0.0, most_ms: int = 3000) -> dict[str, Any]:
    """A sound file, so many dB below a caller's voice, at most so long."""
    pcm, _ = soundfile.read(path, dtype="float32", always_2d=True)
    level = 20 * np.log10(max(float(np.sqrt(np.mean(np.square(pcm)))), 1e-6))
    gain = float(np.clip(CALLER_DBFS - below_db - level, -60, 20))
    return {"file": str(path), "to_ms": most_ms, "gain_db": round(gain, 1)}


def pieces(name: str) -> list[dict[str, Any]]:
    """The stored pieces of a figure, by their seeds."""
    found = sorted((ROOT / "evidence").glob(f"{name}-[0-9]*.json"))
    return [json.loads(path.read_text("utf-8")) for path in found]


def merged(name: str, judge: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> dict[str, Any] | None:
    """All pieces' trials judged together; None if there are no pieces."""
    stored = pieces(name)
    if not stored:
        return None
    each = [trial for piece in stored for trial in piece["each"]]
    about = [{key: piece[key] for key in ("seed", "commit", "began", "load_average_before")} for piece in stored]
    errors = [piece["calibration"]["v2v_ms"]["error_p95"] for piece in stored]
    return {"pieces": about, "calibration_v2v_error_p95": max(errors), **judge(each)}


def write_table(name: str, heads: list[str], rows: Iterable[list[str]]) -> str:
    """Write `evidence`/NAME.md, a Markdown table; gives its name."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    path = ROOT / "evidence" / f"{name}.md"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path.name


def known(values: Iterable[float | None]) -> dict[str, Any]:
    """Quantiles of those that there are."""
    return quantiles([value for value in values if value is not None])


def share(hits: Iterable[bool]) -> dict[str, Any]:
    """How many of how many."""
    every = list(hits)
    return {"of": len(every), "hits": sum(every), "rate": round(sum(every) / len(every), 4) if every else None}


def at_most(figure: dict[str, Any], quantile: str, bar: float) -> bool:
    return figure["n"] > 0 and figure[quantile] <= bar


def at_least(figure: dict[str, Any], bar: float) -> bool:
    return figure["rate"] is not None and figure["rate"] >= bar

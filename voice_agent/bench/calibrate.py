"""How far off the bench is: an agent with known delays and hard cuts, called over the whole path.

The truth is what the agent logged when it handed each first and last sample to RTP, on the clock that both processes
share; the measured value is what the figures say. The difference is the error of everything between: packets,
decoder, detector, and how late the caller's own loop was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voice_agent.bench.caller import Job
from voice_agent.bench.figures import CallFigures, measure
from voice_agent.bench.link import Target
from voice_agent.bench.recording import Recording
from voice_agent.bench.runner import run_calls, synthetic_agent
from voice_agent.bench.scenario import Scenario
from voice_agent.bench.synthetic import Behaviour

BAR_MS = 15.0
DELAYS_MS = (100.0, 250.0, 400.0, 700.0, 1100.0, 1500.0)
STOP_MS = 220.0


@dataclass(frozen=True)
class Trial:
    """`set_ms`: the delay that the agent was told; `true_ms`: what it did; `measured_ms`: what the bench says."""

    figure: str
    set_ms: float
    true_ms: float
    measured_ms: float

    @property
    def error_ms(self) -> float:
        return self.measured_ms - self.true_ms


def scenario(pairs: int) -> Scenario:
    """A question, and an interruption of its reply at a random moment; `pairs` times."""
    turns: list[dict[str, Any]] = []
    for pair in range(pairs):
        # Lengths that fall on every phase of a 20 ms frame.
        question = {"tone_hz": 300, "ms": 403 + 37 * (pair % 5)}
        start = {"after": "call_start" if pair == 0 else "agent_speech_end", "delay_ms": [200, 400]}
        turns.append({"say": question, "start": start})
        cut = {"after": "agent_speech_start", "delay_ms": [250, 700]}
        turns.append({"say": {"tone_hz": 350, "ms": 507}, "start": cut, "expect": "stop"})
    return Scenario.model_validate({"name": "calibration", "turns": turns})


async def calibrate(
    out: Path, calls: int = 3, pairs: int = 6, seed: int = 1, on_call: Callable[[Any], None] = lambda call: None
) -> dict[str, Any]:
    """Place `calls` calls and give the errors: {"v2v_ms": {n, p50, p95, max}, "yield_ms": …, "passed", "trials"}."""
    behaviour = Behaviour(delays_ms=DELAYS_MS, reply_ms=1200, stop_ms=STOP_MS)
    asked = scenario(pairs)
    trials: list[Trial] = []
    async with synthetic_agent(behaviour.model_dump_json()) as url:
        target = Target(url=url)
        work = [
            Job(target=target, scenario=asked, folder=out, save=out / "calibration" / f"call-{i:03d}", seed=seed + i)
            for i in range(calls)
        ]
        await run_calls(work, on_call)
    for job in work:
        recording = Recording.load(job.save)
        if recording.failed:
            raise ConnectionError(f"calibration: {recording.failed}")
        trials += trials_of(recording, measure(recording), behaviour)
    return summary(trials)


def trials_of(recording: Recording, figures: CallFigures, behaviour: Behaviour) -> list[Trial]:
    """Each voice-to-voice and stop time of a call beside the agent's own log of it."""
    log = {
        kind: [e.data["at"] - figures.begin for e in recording.events if e.data["type"] == f"synthetic.{kind}"]
        for kind in ("started", "stopped")
    }
    trials = []
    for number, turn in enumerate(figures.turns):
        delay = behaviour.delays_ms[number % len(behaviour.delays_ms)]
        if turn.v2v_ms is not None:
            started = min(at for at in log["started"] if at > turn.until)
            trials.append(Trial("v2v_ms", delay, round(1000 * (started - turn.until), 1), turn.v2v_ms))
        if turn.yield_ms is not None and behaviour.stop_ms is not None:
            stopped = min(at for at in log["stopped"] if at > turn.at)
            trials.append(Trial("yield_ms", behaviour.stop_ms, round(1000 * (stopped - turn.at), 1), turn.yield_ms))
    return trials


def summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """Errors by figure. `passed`: p95 of the error's size is at most 15 ms for both."""
    told: dict[str, Any] = {}
    for figure in ("v2v_ms", "yield_ms"):
        errors = np.array([trial.error_ms for trial in trials if trial.figure == figure])
        if not len(errors):
            raise ConnectionError(f"calibration: expected trials of {figure}, got none")
        p50, p95 = np.percentile(errors, 50), np.percentile(np.abs(errors), 95)
        told[figure] = {
            "n": len(errors),
            "error_p50": round(float(p50), 1),
            "error_p95": round(float(p95), 1),
            "error_max": round(float(np.abs(errors).max()), 1),
        }
    passed = all(told[figure]["error_p95"] <= BAR_MS for figure in told)
    return {**told, "bar_ms": BAR_MS, "passed": passed, "trials": [asdict(trial) for trial in trials]}


def show(result: dict[str, Any]) -> str:
    """One line."""
    parts = [
        f"{name[:-3]} error p50 {result[name]['error_p50']:+.1f} ms, p95 {result[name]['error_p95']:.1f} ms "
        f"(n = {result[name]['n']})"
        for name in ("v2v_ms", "yield_ms")
    ]
    return f"calibration: {'; '.join(parts)}: {'within' if result['passed'] else 'NOT within'} {BAR_MS:g} ms"

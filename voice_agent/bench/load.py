"""How many calls a server carries: the same scenario by more and more callers at once, until it gets slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import numpy as np

from voice_agent.bench.link import Target
from voice_agent.bench.results import SERVER_STEPS, CallResult, values_of
from voice_agent.bench.runner import OnCall, jobs, run_calls
from voice_agent.bench.scenario import Scenario

LIMIT = 1.5
"""A server carries as many callers as leave the p95 of its time to first chunk within this of one caller's."""


@dataclass(frozen=True)
class Step:
    """`callers` at once. Times are p95 in ms, None where the server or the scenario gives none.

    `stages`: p95 of each step that the server tells; busy: share of this machine's cores, memory_mib: in use on it.
    `slots`: the most that each of the server's stages had in use; `utilisation`: the share of the time it worked.
    """

    callers: int
    calls: int
    failed: int
    ttfc_ms: float | None
    v2v_ms: float | None
    yield_ms: float | None
    packet_gap_ms: float | None
    busy: float | None
    memory_mib: float | None
    stages: dict[str, float] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    utilisation: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ramp:
    """`held`: the most callers within the limit, 0 if one was too many; `saturated`: the stage that grew the most.

    `hold`: as many callers as were held, for longer; None if that was not asked for, or there were none.
    """

    steps: tuple[Step, ...]
    held: int
    saturated: str
    hold: Step | None = None


async def ramp(
    target: Target,
    scenario: Scenario,
    folder: Path,
    out: Path,
    callers: Sequence[int],
    calls_each: int = 2,
    hold_calls: int = 0,
    seed: int = 1,
    on_call: OnCall = lambda call: None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Ramp:
    """Climb through `callers`, each placing `calls_each` calls one after the other; ends at the first beyond the limit.

    Then as many as were held place `hold_calls` calls each. Raises ValueError unless `callers` rises from 1.
    """
    if list(callers) != sorted(set(callers)) or not callers or callers[0] != 1:
        raise ValueError(f"expected numbers of callers that rise from 1, got {list(callers)}")

    async def step(count: int, each: int, place: str) -> Step:
        work = jobs(target, [(scenario, folder)], out / place, count * each, seed + count)
        async with watched(target) as machine:
            calls = await run_calls(work, on_call, parallel=count)
        told = summarise_step(count, calls, machine)
        on_step(told)
        return told

    steps: list[Step] = []
    for count in callers:
        steps.append(await step(count, calls_each, f"load-{count:02d}"))
        if held(steps) < count:
            break
    most = held(steps)
    hold = await step(most, hold_calls, f"load-{most:02d}-hold") if most and hold_calls else None
    return Ramp(tuple(steps), most, saturated(steps), hold)


def summarise_step(callers: int, calls: Sequence[CallResult], machine: Machine) -> Step:
    """One step's figures."""
    values = values_of(calls)
    stages: dict[str, list[float]] = {}
    for call in calls:
        for turn in call.figures["turns"]:
            for name in SERVER_STEPS:
                if name in turn["server"]:
                    stages.setdefault(name, []).append(turn["server"][name])
    return Step(
        callers=callers,
        calls=len(calls),
        failed=sum(call.failed for call in calls),
        ttfc_ms=_p95(values.get("ttfc_ms")),
        v2v_ms=_p95(values.get("v2v_ms")),
        yield_ms=_p95(values.get("yield_playout_ms")),
        packet_gap_ms=_p95(values.get("packet_gap_p99_ms")),
        busy=machine.busy,
        memory_mib=machine.memory_mib,
        stages={name: round(float(np.percentile(trials, 95)), 1) for name, trials in stages.items()},
        slots=machine.slots,
        utilisation=machine.utilisation,
    )


def held(steps: Sequence[Step]) -> int:
    """The most callers before the first step that failed calls or passed the limit.

    By TTFC; by voice to voice for a server that does not tell it.
    """
    most = 0
    for step in steps:
        one, now = (steps[0].ttfc_ms, step.ttfc_ms) if steps[0].ttfc_ms else (steps[0].v2v_ms, step.v2v_ms)
        if step.failed or one is None or now is None or now > LIMIT * one:
            break
        most = step.callers
    return most


def saturated(steps: Sequence[Step]) -> str:
    """The stage whose p95 grew the most from the first step to the last, in ms; "" if the server tells none."""
    first, last = steps[0].stages, steps[-1].stages
    growth = {name: last[name] - first[name] for name in first if name in last}
    return max(growth, key=lambda name: growth[name]).removesuffix("_ms") if growth and len(steps) > 1 else ""


def _p95(values: Sequence[float] | None) -> float | None:
    return round(float(np.percentile(values, 95)), 1) if values else None


@dataclass
class Machine:
    """This machine, and the server's stages where it tells of them, while calls ran; None and empty if not known."""

    busy: float | None = None
    memory_mib: float | None = None
    slots: dict[str, int] = field(default_factory=dict)
    utilisation: dict[str, float] = field(default_factory=dict)

    def note(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Two views of the server's engine, the first of them from the beginning."""
        for name, stage in now.items():
            self.slots[name] = max(self.slots.get(name, 0), stage["slots_in_use"])
            lived = stage["lived_s"] - before[name]["lived_s"] if name in before else 0.0
            if lived > 0:
                self.utilisation[name] = round((stage["busy_s"] - before[name]["busy_s"]) / lived, 3)


@asynccontextmanager
async def watched(target: Target) -> AsyncIterator[Machine]:
    """Watches while open; what it gives is complete after that."""
    machine = Machine()
    before = await asyncio.to_thread(_cpu)
    async with httpx.AsyncClient(trust_env=False, timeout=5, headers=target.headers()) as client:
        engine = await _engine(client, target)

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.5)
                used = await asyncio.to_thread(_memory)
                machine.memory_mib = max((m for m in (used, machine.memory_mib) if m is not None), default=None)
                machine.note(engine, await _engine(client, target))

        watching = asyncio.create_task(watch())
        try:
            yield machine
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
    after = await asyncio.to_thread(_cpu)
    if before is not None and after is not None and after[1] > before[1]:
        machine.busy = round((after[0] - before[0]) / (after[1] - before[1]), 3)


async def _engine(client: httpx.AsyncClient, target: Target) -> dict[str, Any]:
    """What this project's server tells of its stages; nothing from any other."""
    if target.kind != "webrtc":
        return {}
    try:
        engine = (await client.get(urljoin(target.url, "/v1/calls/stats"))).json()["engine"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return {}
    known = ("slots_in_use", "busy_s", "lived_s")
    return {name: stage for name, stage in engine.items() if all(key in stage for key in known)}


def _cpu() -> tuple[int, int] | None:
    """Ticks that the cores were busy, and all ticks, since boot; None where there is no /proc."""
    try:
        ticks = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return None
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _memory() -> float | None:
    """MiB in use on this machine; None where there is no /proc."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return None
    total, available = (int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return round((total - available) / 1024, 1)

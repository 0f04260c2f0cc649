"""Places the calls of a run: scenarios times trials, by callers in processes of their own."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from voice_agent.bench.caller import MAX_CALL_S, Job
from voice_agent.bench.checks import character_error, check, turn_window
from voice_agent.bench.figures import measure
from voice_agent.bench.link import Target
from voice_agent.bench.quality import Judges, error_of
from voice_agent.bench.recording import Recording, heard_text
from voice_agent.bench.results import CallResult
from voice_agent.bench.scenario import Scenario, uncut

START_S = 60.0

UNCUT_CALLS = 2
"""Calls of a scenario in which nothing is said over the agent: if one is understood otherwise, the other stands in."""

OnCall = Callable[[CallResult], None]


class CallerProcess:
    """A process that places one call at a time. An async context manager; leaving ends the process, by its pid.

    `prefix`: a command that runs another one, such as `ip netns exec NAME`.
    """

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = prefix

    async def __aenter__(self) -> CallerProcess:
        self._process = await asyncio.create_subprocess_exec(
            *self._prefix,
            sys.executable,
            "-m",
            "voice_agent.bench.caller",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def place(self, job: Job) -> str:
        """Place a call and wait for its end: "" or why there is no recording of it.

        Raises ConnectionError if the process died.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(job.model_dump_json(by_alias=True).encode() + b"\n")
        async with asyncio.timeout(MAX_CALL_S + START_S):
            line = await stdout.readline()
        if not line:
            raise ConnectionError(f"expected the end of the call {job.save.name}, got the end of its caller")
        return str(json.loads(line)["failed"])


def jobs(
    target: Target, scenarios: Iterable[tuple[Scenario, Path]], out: Path, trials: int | None, seed: int
) -> list[Job]:
    """The calls of a run, each with a seed of its own. `trials`: instead of each scenario's own."""
    return [
        Job(
            target=target,
            scenario=scenario,
            folder=folder,
            save=out / "calls" / f"{scenario.name}-{trial:03d}",
            seed=seed * 10_007 + trial,
            uncut=() if uncut(scenario) is None else uncut_paths(out, scenario.name)[: trials or scenario.trials],
        )
        for scenario, folder in scenarios
        for trial in range(trials or scenario.trials)
    ]


def uncut_paths(out: Path, name: str) -> tuple[Path, ...]:
    """Where the calls of a scenario are kept in which nothing is said over the agent."""
    return tuple(out / "calls" / f"{name}-uncut-{number}" for number in range(UNCUT_CALLS))


async def run_calls(
    work: Sequence[Job], on_call: OnCall = lambda call: None, parallel: int = 1, prefix: Sequence[str] = ()
) -> list[CallResult]:
    """Place the calls, `parallel` of them at a time; results in the order of `work`.

    Before them, for each scenario, the calls in which nothing is said over the agent. Raises ConnectionError if a
    call left no recording.
    """
    results: dict[int, CallResult] = {}
    waiting = iter(list(enumerate(work)))
    calm = iter(references(work))

    async def reference() -> None:
        async with CallerProcess(prefix) as process:
            for job in calm:
                await process.place(job)

    async def caller() -> None:
        async with CallerProcess(prefix) as process:
            for number, job in waiting:
                failed = await process.place(job)
                results[number] = await asyncio.to_thread(evaluate, job, failed)
                on_call(results[number])

    for placing in (reference, caller):
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(parallel, len(work))):
                    tasks.create_task(placing())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    return [results[number] for number in sorted(results)]


def references(work: Sequence[Job]) -> list[Job]:
    """The calls in which nothing is said over the agent, for those of `work` that say where they are kept."""
    found: dict[Path, Job] = {}
    for job in work:
        calm = uncut(job.scenario)
        for number, path in enumerate(job.uncut if calm is not None else ()):
            if path not in found:
                found[path] = job.model_copy(
                    update={"scenario": calm, "save": path, "uncut": (), "seed": job.seed + number}
                )
    return list(found.values())


def evaluate(job: Job, failed: str = "") -> CallResult:
    """Measure a recorded call and check what its scenario asserts. `failed`: there is no recording, and why."""
    path = job.save
    try:
        recording = Recording.load(path)
    except FileNotFoundError:
        raise ConnectionError(f"{job.scenario.name}: {failed}") from None
    figures = measure(recording, *_references(job.uncut))
    errors = []
    for number, turn in enumerate(figures.turns):
        text = job.scenario.turns[number].text
        understood = heard_text(recording.events, *turn_window(recording, figures, number))
        if text and understood and turn.expect != "ignore":
            errors.append(character_error(text, understood))
    return CallResult(
        job.scenario.name,
        f"{path.parent.name}/{path.name}",
        figures.view(),
        tuple(check(job.scenario, recording, figures)),
        recording.facts,
        tuple(errors),
    )


def judge(call: CallResult, out: Path, judges: Judges) -> CallResult:
    """A call of the run kept in `out`, with what the judges say of each reply in it."""
    recording = Recording.load(out / call.recording)
    replies = judges.replies(recording, measure(recording))
    error = error_of(replies)
    return replace(
        call, dnsmos=tuple(reply.mos for reply in replies), reply_cer=() if error is None else (round(error, 4),)
    )


def _references(paths: Sequence[Path]) -> list[Recording]:
    """The whole calls among those in which nothing was said over the agent."""
    kept = [Recording.load(path) for path in paths if path.with_suffix(".json").is_file()]
    return [recording for recording in kept if not recording.failed]


def about(target: Target, scenarios: Iterable[Scenario], seed: int) -> dict[str, Any]:
    """Where, when and what: for the results' head. No key is in it."""
    return {
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "target": target.model_dump(exclude={"key_from"}),
        "scenarios": {scenario.name: scenario.about for scenario in scenarios},
        "seed": seed,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


@asynccontextmanager
async def synthetic_agent(behaviour: str = "{}") -> AsyncIterator[str]:
    """Serve `synthetic.Behaviour` (JSON) in a process of its own; gives its address, and ends it by its pid."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "voice_agent.bench.synthetic",
        "--behaviour",
        behaviour,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            line = (await process.stdout.readline()).decode()
        if "http" not in line:
            raise ConnectionError(f"expected the synthetic agent's address, got {line.strip()!r}")
        yield line.split()[-1]
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()

"""One call by a scenario, and the program that callers run in processes of their own.

`python -m voice_agent.bench.caller` reads jobs, a JSON object a line, places each call when the one before is over,
saves its recording, and answers with a line for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from voice_agent.bench.figures import spans_of
from voice_agent.bench.link import Ends, Link, LinkOptions, Target
from voice_agent.bench.mouth import Mouth
from voice_agent.bench.priority import urgent
from voice_agent.bench.recording import RATE, Event, Line, Packet, Recording, Said
from voice_agent.bench.scenario import RATE as MOUTH_RATE
from voice_agent.bench.scenario import Scenario, render
from voice_agent.bench.script import Script
from voice_agent.client import CallRefused, voiced
from voice_agent.media.lag import LoopLag
from voice_agent.media.resample import Resampler

MAX_CALL_S = 900.0


class Job(BaseModel):
    """A call to place. `folder`: of the scenario's sounds; `save`: the recording's path without its ending.

    `uncut`: those of the same call in which nothing is said over the agent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Target
    scenario: Scenario
    folder: Path
    save: Path
    seed: int = 1
    uncut: tuple[Path, ...] = ()


class Caller:
    """Places the call of one job."""

    def __init__(self, job: Job) -> None:
        scenario = job.scenario
        self._job = job
        self._turns = [render(turn.say, job.folder) for turn in scenario.turns]
        self._mouth = Mouth(render(scenario.background, job.folder), scenario.echo)
        self._script: Script | None = None
        self._speaking = False
        self._over = asyncio.Event()
        self._sent: list[Packet] = []
        self._received: list[Packet] = []
        self._said: list[Said] = []
        self._events: list[Event] = []
        self._down_sent = Resampler(MOUTH_RATE, RATE)
        self._down_received = Resampler(MOUTH_RATE, RATE)
        self._played_to = 0.0

    async def run(self) -> Recording:
        """The recording of the call; one that could not be placed or broke off says so in `failed`."""
        failed = ""
        facts: dict[str, Any] = {"media_clock": self._job.target.kind in ("webrtc", "offer")}
        lag = LoopLag()
        began = time.monotonic()
        try:
            async with asyncio.timeout(MAX_CALL_S), self._link() as link, asyncio.TaskGroup() as tasks:
                facts["connected_ms"] = round(1000 * (time.monotonic() - began), 1)
                watching = tasks.create_task(lag.run())
                self._script = script = Script(self._job.scenario, self._job.seed, time.monotonic())
                waiting = {tasks.create_task(over.wait()) for over in (self._over, link.ended)}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                failed = "" if script.finished else "the server ended the call"
                for task in (watching, *waiting):
                    task.cancel()
        except CallRefused as error:
            failed = str(error)
        except (OSError, TimeoutError) as error:
            failed = f"no call: {error or type(error).__name__}"
        facts["caller_lag"] = lag.percentiles()
        return Recording(
            Line.of(self._sent, outgoing=True),
            Line.of(self._received),
            tuple(self._said),
            tuple(self._events),
            failed,
            facts,
        )

    def _link(self) -> Link:
        job, scenario = self._job, self._job.scenario
        ends = Ends(self._pull, self._on_sent, self._on_audio, self._on_event, self._on_clear)
        options = LinkOptions(scenario.network, scenario.clock_ppm, job.seed, scenario.session)
        if job.target.kind in ("webrtc", "offer"):
            from voice_agent.bench.webrtc import WebRtcLink

            return WebRtcLink(job.target, ends, options)
        from voice_agent.bench.websocket import WebSocketLink

        return WebSocketLink(job.target, ends, options)

    def _pull(self) -> npt.NDArray[np.int16]:
        script = self._script
        if script is not None:
            now = time.monotonic()
            if self._speaking and not self._mouth.busy:
                self._speaking = False
                script.said(now)
            number = script.step(now)
            if number is not None:
                self._begin(number)
            if script.finished:
                self._over.set()
        return self._mouth.frame()

    def _begin(self, number: int) -> None:
        turn, pcm = self._job.scenario.turns[number], self._turns[number]
        position = self._sent[-1].position + len(self._sent[-1].pcm) if self._sent else 0
        clean = (np.clip(Resampler(MOUTH_RATE, RATE).push(pcm), -1, 1) * 32767).astype(np.int16)
        voice = spans_of(clean, position)
        # A sound too quiet to be voice lasts from its first to its last sample.
        whole = ((position, position + len(clean)),)
        self._said.append(Said(str(number), turn.expect, voice or whole, turn.text))
        self._mouth.say(pcm)
        self._speaking = True

    def _on_sent(self, at: float, frame: npt.NDArray[np.int16]) -> None:
        low = self._down_sent.push(frame.astype(np.float32)).astype(np.int16)
        self._sent.append(Packet(at, len(self._sent) * len(low), len(self._sent), low))

    def _on_audio(self, at: float, position: int | None, sequence: int | None, pcm: npt.NDArray[np.float32]) -> None:
        self._mouth.hear(pcm)
        low = (np.clip(self._down_received.push(pcm), -1, 1) * 32767).astype(np.int16)
        for start in range(0, len(low), RATE // 50):
            piece = low[start : start + RATE // 50]
            if position is not None:
                place = position * RATE // MOUTH_RATE + start
            else:
                # A stream without a time line of its own is laid on the clock, end to end while it does not pause.
                begin = max(at, self._played_to)
                self._played_to = begin + len(piece) / RATE
                place = round(begin * RATE)
            number = len(self._received) if sequence is None else sequence
            self._received.append(Packet(at, place, number, piece))
            if self._script is not None:
                self._script.heard(at if position is not None else max(at, self._played_to), voiced(piece))

    def _on_clear(self, at: float) -> None:
        """What has not begun to play is never heard."""
        self._received = [packet for packet in self._received if packet.position <= at * RATE]
        self._played_to = at
        if self._script is not None:
            self._script.cleared(at)

    def _on_event(self, at: float, data: dict[str, Any]) -> None:
        self._events.append(Event(at, data))


async def place(job: Job, ahead_of_others: bool = False) -> Recording:
    """Place the call and save its recording. `ahead_of_others`: the call is `urgent`."""
    caller = Caller(job)
    with urgent() if ahead_of_others else contextlib.nullcontext(False) as allowed:
        recording = await caller.run()
    recording.facts["urgent"] = allowed
    job.save.parent.mkdir(parents=True, exist_ok=True)
    await asyncio.to_thread(recording.save, job.save)
    return recording


def main() -> None:
    for line in sys.stdin:
        job = Job.model_validate_json(line)
        try:
            failed = asyncio.run(place(job, ahead_of_others=True)).failed
        except (ValueError, OSError) as error:
            failed = str(error)
        print(json.dumps({"save": str(job.save), "failed": failed}), flush=True)


if __name__ == "__main__":
    main()

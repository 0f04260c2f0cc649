"""A call on fakes: an energy VAD, a recogniser that is told what it hears, a model without weights."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import torch

from tests.fakes import FakeCodec, FakeModel
from tests.media_fakes import Running, running_server
from voice_agent import wire
from voice_agent.agent import Agent, Call
from voice_agent.asr import Transcript
from voice_agent.config import Config
from voice_agent.ears import Ears
from voice_agent.engine.protocols import Message
from voice_agent.engine.reply import Engine
from voice_agent.media.speaker import Speaker
from voice_agent.session import Session
from voice_agent.vad import WINDOW, VadEvent

FRAME = 320
UNCLEAR = "<unclear>"
"""What a recogniser hears that does not believe what it has written."""


class EnergyVad:
    """Voiced is what is not zero; decisions a window of 512 samples."""

    def __init__(self) -> None:
        self.rest, self.now, self.voiced = np.zeros(0, np.int16), 0, False

    def push(self, pcm: np.ndarray) -> list[VadEvent]:
        self.rest, events = np.concatenate([self.rest, pcm]), []
        while len(self.rest) >= WINDOW:
            loud, self.rest = bool(np.any(self.rest[:WINDOW])), self.rest[WINDOW:]
            if loud and not self.voiced:
                events.append(VadEvent("onset", self.now))
            if not loud and self.voiced:
                events.append(VadEvent("offset", self.now))
            self.now += WINDOW
            self.voiced = loud
            events.append(VadEvent("speech" if loud else "silence", self.now))
        return events


@dataclass
class FakeStream:
    text: str
    language: str = "en"
    pushed: int = 0
    cancelled: bool = False
    urgent: bool = False
    on_partial: Callable[[Transcript], None] | None = None
    hold: asyncio.Event | None = None
    full: bool = False
    recorded: list[np.ndarray] = field(default_factory=list)
    finals: list[int] = field(default_factory=list)
    """Samples that had been pushed when each final was asked for."""

    def push(self, pcm: np.ndarray) -> None:
        if self.full:
            raise BufferError("the backlog is full")
        self.pushed += len(pcm)
        self.recorded.append(pcm)

    async def final(self) -> Transcript:
        self.finals.append(self.pushed)
        if self.hold is not None:
            await self.hold.wait()
        if self.text == UNCLEAR:
            return Transcript("", self.language, 1.0, verdict="unlikely")  # type: ignore[arg-type]
        return Transcript(text=self.text, language=self.language, seconds=1.0)  # type: ignore[arg-type]

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeAsr:
    """Hears the next of `texts` at each utterance."""

    texts: list[str]
    hold: asyncio.Event | None = None
    streams: list[FakeStream] = field(default_factory=list)
    language: str = "en"

    def open(self, language: Any, prompt: Any, likely: str) -> FakeStream:
        stream = FakeStream(self.texts[min(len(self.streams), len(self.texts) - 1)], self.language, hold=self.hold)
        self.streams.append(stream)
        return stream

    def others(self, stream: FakeStream) -> int:
        return 0


class LoudCodec(FakeCodec):
    """A buzz in place of levels that mark tokens."""

    def step(self, slots: Sequence[int], codes: torch.Tensor) -> list[np.ndarray]:
        chunks = super().step(slots, codes)
        return [0.3 * np.sign(np.sin(np.arange(len(chunk)) / 10)).astype(np.float32) for chunk in chunks]


class Till:
    """A state that tools change."""

    def __init__(self) -> None:
        self.sold: list[str] = []

    def view(self) -> dict[str, Any]:
        return {"sold": self.sold}


def sell(call: Call[Till], what: str) -> dict[str, Any]:
    """Sell something."""
    call.state.sold.append(what)
    return {"ok": True, "say": f"sold one {what}"}


class Bench:
    """Everything around one session."""

    def __init__(self, model: FakeModel, texts: list[str], speaker: Speaker | None = None, **config: Any) -> None:
        self.model, self.asr = model, FakeAsr(texts)
        self.engine = Engine(model, ahead_ms=3000)
        self.agent = Agent("sell things", [sell], state=Till)
        self.events: list[dict[str, Any]] = []
        self.speaker = speaker or Speaker(now=lambda: 0.0, sleep=lambda s: asyncio.sleep(0))

        async def listen(ears: Ears, pcm: np.ndarray, now_s: float) -> tuple[np.ndarray, list[VadEvent]]:
            await asyncio.sleep(0)
            return ears.push(pcm, now_s)

        self.runtime: Any = SimpleNamespace(
            agent=self.agent,
            config=Config.model_validate(config),
            engine=self.engine,
            asr=self.asr,
            schemas=self.agent.schemas(),
            open_ears=lambda reference: Ears(EnergyVad(), None, 1.0),
            listen=listen,
            prompt={},
            notice=lambda language: np.full(4800, 0.5, np.float32),
        )
        self.session = Session("call1", self.runtime, self.speaker, self.events.append)

    def kinds(self, prefix: str = "") -> list[str]:
        return [event["type"] for event in self.events if event["type"].startswith(prefix)]

    def last(self, kind: str) -> dict[str, Any]:
        return next(event for event in reversed(self.events) if event["type"] == kind)

    async def say(self, ms: int) -> None:
        for _ in range(ms // 20):
            self.session.feed(np.full(FRAME, 1000, np.int16))
            await asyncio.sleep(0.0005)

    async def hush(self, ms: int = 700) -> None:
        for _ in range(ms // 20):
            self.session.feed(np.zeros(FRAME, np.int16))
            await asyncio.sleep(0.0005)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    async def play(self, packets: int) -> None:
        """The RTP side pulls this many packets of 20 ms."""
        for _ in range(packets):
            await self.speaker.recv()
        await asyncio.sleep(0)

    @property
    def said(self) -> list[Message]:
        return list(self.session.conversation.messages)


@contextlib.asynccontextmanager
async def in_call(bench: Bench) -> AsyncIterator[Bench]:
    running = asyncio.ensure_future(bench.session.run())
    await asyncio.sleep(0)
    try:
        yield bench
    finally:
        bench.session.close("test over")
        await running
        bench.engine.close()
    assert bench.model.rows_in_use == 0
    check_published(bench.events)


@functools.cache
def published(kind: str) -> jsonschema.Draft202012Validator:
    """The published schema of the server's events of this type. Raises KeyError if there is none."""
    schema = wire.schemas()["server"]
    member = {"$ref": schema["discriminator"]["mapping"][kind], "$defs": schema["$defs"]}
    return jsonschema.Draft202012Validator(member)


def check_published(sent: Sequence[dict[str, Any]]) -> None:
    """All of this is as the published schema has it."""
    for event in sent:
        published(event["type"]).validate(event)


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def agent_server(model: FakeModel, texts: list[str], **settings: Any) -> AsyncIterator[tuple[Running, Bench]]:
    """A server whose calls are real sessions on the fakes of `Bench`."""
    bench = Bench(model, texts)

    def make(call_id: str, speaker: Speaker, send: Callable[[dict[str, Any]], None]) -> Session:
        return Session(call_id, bench.runtime, speaker, send)

    try:
        async with running_server(make=make, **settings) as server:
            yield server, bench
    finally:
        bench.engine.close()
    assert model.rows_in_use == 0

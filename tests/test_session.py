"""A call on fakes: an energy VAD, a recogniser that is told what it hears, a model without weights."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeModel, FakeThinker
from voice_agent.agent import Agent, Call
from voice_agent.asr import Transcript
from voice_agent.config import Config
from voice_agent.engine.protocols import Message, ToolCall
from voice_agent.engine.reply import Engine
from voice_agent.media.speaker import Speaker
from voice_agent.session import Session
from voice_agent.vad import WINDOW, VadEvent

FRAME = 320


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
    on_partial: Callable[[Transcript], None] | None = None
    hold: asyncio.Event | None = None
    full: bool = False

    def push(self, pcm: np.ndarray) -> None:
        if self.full:
            raise BufferError("the backlog is full")
        self.pushed += len(pcm)

    async def final(self) -> Transcript:
        if self.hold is not None:
            await self.hold.wait()
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

    def __init__(self, model: FakeModel, texts: list[str], **config: Any) -> None:
        self.model, self.asr = model, FakeAsr(texts)
        self.engine = Engine(model, ahead_ms=3000)
        self.agent = Agent("sell things", [sell], state=Till)
        self.events: list[dict[str, Any]] = []
        self.speaker = Speaker(now=lambda: 0.0, sleep=lambda s: asyncio.sleep(0))
        vads: list[EnergyVad] = []

        async def run_vad(vad: EnergyVad, pcm: np.ndarray) -> list[VadEvent]:
            await asyncio.sleep(0)
            return vad.push(pcm)

        runtime = SimpleNamespace(
            agent=self.agent,
            config=Config.model_validate(config),
            engine=self.engine,
            asr=self.asr,
            schemas=self.agent.schemas(),
            open_vad=lambda: vads.append(EnergyVad()) or vads[-1],
            run_vad=run_vad,
            prompt={},
            notice=lambda language: np.full(4800, 0.5, np.float32),
        )
        self.session = Session("call1", runtime, self.speaker, self.events.append)  # type: ignore[arg-type]

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


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


def test_a_turn_from_voice_to_voice() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["hello there"])) as bench:
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: "response.done" in bench.kinds())
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(25)
            await bench.until(lambda: "output_audio_buffer.stopped" in bench.kinds())
            order = [
                "session.created",
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "conversation.item.input_audio_transcription.completed",
                "response.created",
                "response.output_audio_transcript.delta",
                "response.output_audio_transcript.done",
                "response.done",
                "output_audio_buffer.started",
                "agent.turn.latency",
                "output_audio_buffer.stopped",
            ]
            kinds = bench.kinds()
            assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
            assert [message.text for message in bench.said] == ["hello there", "one two three four "]
            assert bench.last("agent.playout.heard")["text"] == "one two three four "
            assert bench.session.turn is None

    run(work)


def test_voice_over_a_reply_cuts_it_at_what_was_heard() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(FakeThinker(reply="word " * 30)), ["first", "second"])
        async with in_call(bench):
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms > 1000)
            await bench.play(26)  # 520 ms: five words of 100 ms are over
            await bench.say(300)
            await bench.until(lambda: "output_audio_buffer.cleared" in bench.kinds())
            assert bench.speaker.queued_ms == 0
            await bench.until(lambda: "agent.turn.receipts" in bench.kinds())
            kinds = bench.kinds()
            order = [
                "input_audio_buffer.speech_started",
                "output_audio_buffer.cleared",
                "conversation.item.truncated",
                "agent.turn.receipts",
            ]
            later = kinds[kinds.index("output_audio_buffer.started") :]
            assert [later.index(kind) for kind in order] == sorted(later.index(kind) for kind in order)
            assert bench.last("conversation.item.truncated")["audio_end_ms"] == 520
            assert [message.text for message in bench.said] == ["first", "word " * 5]
            assert [r["stage"] for r in bench.last("agent.turn.receipts")["receipts"]] == ["thinker", "talker", "codec"]
            await bench.until(lambda: bench.model.rows_in_use == 0)
            await bench.hush()
            await bench.until(lambda: len(bench.model.thinker.requests) == 2)
            assert [m.text for m in bench.model.thinker.requests[1].messages] == ["first", "word " * 5, "second"]

    run(work)


def test_speaking_on_before_the_reply_is_heard_joins_both_halves() -> None:
    async def work() -> None:
        model = FakeModel()
        model.thinker.gate.event.clear()
        async with in_call(Bench(model, ["one milk", "tea"])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.session.turn is not None)
            await bench.say(400)
            model.thinker.gate.event.set()
            await bench.hush()
            await bench.until(lambda: len(model.thinker.requests) >= 2 or "response.done" in bench.kinds())
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            assert [m.text for m in model.thinker.requests[-1].messages] == ["one milk tea"]

    run(work)


def test_speaking_on_while_the_words_are_still_recognised_joins_both_halves() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), ["one milk", "tea"])
        bench.asr.hold = asyncio.Event()
        async with in_call(bench):
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.session.turn is not None)
            await bench.say(400)
            await bench.hush()
            bench.asr.hold.set()
            await bench.until(lambda: bench.model.thinker.requests)
            assert [m.text for m in bench.model.thinker.requests[-1].messages] == ["one milk tea"]

    run(work)


def test_a_tool_that_ran_is_remembered_though_its_reply_was_cut_off() -> None:
    async def work() -> None:
        model = FakeModel(FakeThinker(calls=[ToolCall("c1", "sell", {"what": "tea"})]))
        async with in_call(Bench(model, ["a tea", "hello"])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: "agent.till.updated" in bench.kinds()[2:])
            await bench.say(400)
            await bench.hush()
            await bench.until(lambda: len(model.thinker.requests) == 2)
            messages = model.thinker.requests[1].messages
            assert [m.role for m in messages] == ["user", "assistant", "tool", "user"]
            assert messages[2].result == {"ok": True, "say": "sold one tea"}
            assert bench.session.call.state.sold.count("tea") >= 1

    run(work)


def test_silence_that_the_recogniser_makes_no_words_of_is_no_turn() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: "conversation.item.input_audio_transcription.completed" in bench.kinds())
            await bench.until(lambda: bench.session.turn is None)
            assert not bench.model.thinker.requests

    run(work)


def test_a_failing_stage_is_told_and_spoken_and_the_call_goes_on() -> None:
    async def work() -> None:
        model = FakeModel()
        model.thinker.fail_at = 2
        async with in_call(Bench(model, ["first", "second"])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: "agent.stage.failed" in bench.kinds())
            assert bench.last("agent.stage.failed")["stage"] == "thinker"
            assert bench.speaker.queued_ms == 200
            await bench.play(12)
            await bench.until(lambda: bench.session.turn is None)
            model.thinker.fail_at = None
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400)

    run(work)


def test_a_recogniser_that_does_not_keep_up_is_told_and_the_call_goes_on() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["first", "second"])) as bench:
            await bench.say(200)
            await bench.until(lambda: bench.asr.streams)
            bench.asr.streams[0].full = True
            await bench.say(200)
            await bench.until(lambda: "agent.stage.failed" in bench.kinds())
            assert bench.last("agent.stage.failed")["stage"] == "asr"
            await bench.hush()
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400)

    run(work)


def test_a_stage_that_stands_still_is_noticed() -> None:
    async def work() -> None:
        model = FakeModel()
        model.talker.gate.event.clear()
        async with in_call(Bench(model, ["first"], stall_ms=500)) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: "agent.stage.failed" in bench.kinds())
            model.talker.gate.event.set()
            assert bench.speaker.queued_ms == 200
            await bench.play(12)

    run(work)


@pytest.mark.parametrize(
    ("text", "recognised", "answered_in"),
    [
        ("large mango sago please", "zh", "en"),
        ("我要一杯 latte", "en", "zh"),
        ("latte", "zh", "zh"),
        ("yes please", "en", "en"),
    ],
)
def test_the_reply_is_in_the_language_that_the_words_are_written_in(
    text: str, recognised: str, answered_in: str
) -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [text])) as bench:
            bench.asr.language = recognised
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.model.thinker.requests)
            assert bench.model.thinker.requests[0].language == answered_in

    run(work)


def test_typed_words_are_answered() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["unused"])) as bench:
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
            bench.session.receive({"type": "conversation.item.create", "item": item})
            bench.session.receive({"type": "response.create"})
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            assert bench.model.thinker.requests[0].messages == (Message("user", "hi"),)

    run(work)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"type": "no.such.event", "event_id": "e1"}, "no.such.event"),
        ({"type": "conversation.item.create", "event_id": "e1", "item": {"type": "message"}}, "role"),
        ({"type": "response.create", "event_id": "e1"}, "expected a user message"),
        ({"type": "conversation.item.retrieve", "event_id": "e1", "item_id": "x"}, "expected an item of this call"),
        ({"type": "session.update", "event_id": "e1", "session": 3}, "session"),
        (
            {
                "type": "session.update",
                "event_id": "e1",
                "session": {"audio": {"input": {"transcription": {"language": "ja"}}}},
            },
            "expected 'zh' or 'en', got 'ja'",
        ),
    ],
)
def test_bad_events_get_an_error_that_names_them(event: dict[str, Any], told: str) -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            bench.session.receive(event)
            error = bench.last("error")["error"]
            assert told in error["message"]
            assert error["event_id"] == "e1"

    run(work)


def test_an_update_and_a_clear_are_answered_at_any_time() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            bench.session.receive({"type": "session.update", "session": {"type": "realtime", "voice": "x"}})
            bench.session.receive({"type": "output_audio_buffer.clear"})
            assert "session.updated" in bench.kinds()
            assert "error" not in bench.kinds()

    run(work)


def test_closing_in_the_middle_of_a_reply_frees_every_slot() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(FakeThinker(reply="word " * 200)), ["first"])
        async with in_call(bench):
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms > 500)
        assert all(stream.pushed for stream in bench.asr.streams)

    run(work)

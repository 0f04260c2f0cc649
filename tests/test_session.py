"""A call on fakes: what it does with voice, words, tools and failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.call_fakes import Bench, Till, in_call, run
from tests.fakes import FakeModel, FakeThinker
from voice_agent import session as module
from voice_agent.agent import Agent, Call
from voice_agent.engine.protocols import Message, ToolCall


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
            await bench.say(1000)
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


def test_a_turn_that_is_ended_in_the_middle_of_speech_is_recognised_to_its_end() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["a long story"], turn={"max_utterance_ms": 1200})) as bench:
            await bench.say(500)
            await bench.hush(300)
            await bench.until(lambda: bench.asr.streams[0].finals)
            await bench.say(600)
            await bench.until(lambda: "input_audio_buffer.committed" in bench.kinds())
            await bench.until(lambda: bench.model.thinker.requests)
            assert bench.asr.streams[0].finals[-1] >= 1200 * 16

    run(work)


def test_a_tool_that_ran_is_remembered_though_its_reply_was_cut_off() -> None:
    async def work() -> None:
        model = FakeModel(FakeThinker(calls=[ToolCall("c1", "sell", {"what": "tea"})]))
        async with in_call(Bench(model, ["a tea", "hello"])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: "agent.state.updated" in bench.kinds()[2:])
            await bench.say(400)
            await bench.hush()
            await bench.until(lambda: len(model.thinker.requests) == 2)
            messages = model.thinker.requests[1].messages
            assert [m.role for m in messages] == ["user", "assistant", "tool", "user"]
            assert messages[2].result == {"ok": True, "say": "sold one tea"}
            assert bench.session.call.state.sold.count("tea") >= 1

    run(work)


@pytest.mark.parametrize(
    ("name", "view", "told"),
    [
        ("Cart", {"lines": []}, {"type": "agent.cart.updated", "cart": {"lines": []}}),
        ("Cart", ["tea"], {"type": "agent.state.updated", "name": "cart", "state": ["tea"]}),
        ("Table", {"seats": 2}, {"type": "agent.state.updated", "name": "table", "state": {"seats": 2}}),
    ],
)
def test_a_state_is_told_as_a_cart_or_by_the_name_of_its_class(name: str, view: Any, told: dict[str, Any]) -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), ["hello"])
        bench.session.call.state = type(name, (), {"view": lambda self: view})()
        async with in_call(bench):
            await bench.until(lambda: told["type"] in bench.kinds())
            assert told.items() <= bench.last(told["type"]).items()

    run(work)


@pytest.mark.parametrize("ends", [True, False])
def test_a_tool_that_runs_when_the_call_ends_is_finished_and_remembered(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOOLS_S", 10 if ends else 0.05)

    async def work() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def sell(call: Call[Till], what: str) -> dict[str, Any]:
            begun.set()
            await go.wait()
            call.state.sold.append(what)
            return {"ok": True, "say": "sold"}

        bench = Bench(FakeModel(FakeThinker(calls=[ToolCall("c1", "sell", {"what": "tea"})])), ["a tea"])
        bench.runtime.agent = Agent("sell things", [sell], state=Till)
        async with in_call(bench):
            await bench.say(600)
            await bench.hush()
            await begun.wait()
            bench.session.close("the connection failed")
            await bench.until(lambda: bench.model.rows_in_use == 0)
            if ends:
                go.set()
        assert [message.role for message in bench.said] == ["user", "assistant", "tool"][: 3 if ends else 1]
        assert bench.session.call.state.sold == (["tea"] if ends else [])

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

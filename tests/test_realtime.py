"""The realtime protocol of a session on fakes; OpenAI's own Python types are the judge of every event."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import random
import typing
from dataclasses import replace
from typing import Any

import numpy as np
import openai.types.realtime as openai_types
import pydantic
import pytest

from tests.call_fakes import Bench, in_call, run
from tests.fakes import FakeModel, FakeThinker
from tests.generated import mutated
from voice_agent import Lines, wire
from voice_agent.engine.protocols import Message, ToolCall
from voice_agent.media.socket import SocketSpeaker
from voice_agent.session import NOTES, UNANSWERED

OURS: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(wire.ServerEvent)
THEIRS: dict[str, type[pydantic.BaseModel]] = {
    typing.get_args(member.model_fields["type"].annotation)[0]: member
    for member in typing.get_args(typing.get_args(openai_types.RealtimeServerEvent)[0])
}
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def check(bench: Bench) -> None:
    """Every event that was sent is one of the protocol, and no id was given twice."""
    ids = [event["event_id"] for event in bench.events]
    assert len(set(ids)) == len(ids)
    for event in bench.events:
        OURS.validate_python(event)
        if not event["type"].startswith("agent."):
            THEIRS[event["type"]].model_validate(event)


def ask(bench: Bench, kind: str, **fields: Any) -> None:
    bench.session.receive({"type": kind, "event_id": f"mine_{kind}", **fields})


def say(bench: Bench, text: str, **fields: Any) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **fields}
    ask(bench, "conversation.item.create", item=item)


def told(bench: Bench, kind: str) -> list[dict[str, Any]]:
    return [event for event in bench.events if event["type"] == kind]


def refused(bench: Bench, kind: str) -> str:
    """The code of the error that answers the latest event of this kind."""
    error = bench.last("error")["error"]
    assert error["event_id"] == f"mine_{kind}"
    assert error["message"]
    return str(error["code"])


def pcm(ms: int) -> str:
    return base64.b64encode(np.full(24 * ms, 1000, "<i2").tobytes()).decode()


def text_of(bench: Bench, item_id: str) -> str:
    ask(bench, "conversation.item.retrieve", item_id=item_id)
    content = bench.last("conversation.item.retrieved")["item"]["content"][0]
    return str(content.get("transcript", content.get("text")))


def test_a_spoken_turn_is_told_as_the_protocol_has_it() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["hello there"])) as bench:
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(25)
            await bench.until(lambda: "output_audio_buffer.stopped" in bench.kinds())
            kinds = [kind for kind in bench.kinds() if not kind.startswith("agent.")]
            once = [kind for i, kind in enumerate(kinds) if kind not in kinds[:i]]
            assert once == [
                "session.created",
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                "conversation.item.input_audio_transcription.completed",
                "response.created",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_audio_transcript.delta",
                "response.output_audio.done",
                "response.output_audio_transcript.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.done",
                "output_audio_buffer.started",
                "output_audio_buffer.stopped",
            ]
            user, agent = (event["item"] for event in told(bench, "conversation.item.added"))
            assert user["content"] == [{"type": "input_audio", "transcript": None}]
            assert [e["previous_item_id"] for e in told(bench, "conversation.item.added")] == [None, user["id"]]
            assert text_of(bench, user["id"]) == "hello there"
            assert text_of(bench, agent["id"]) == "one two three four "
            done = bench.last("response.done")["response"]
            assert done["output"][0]["id"] == agent["id"]
            assert (done["status"], done["output_modalities"]) == ("completed", ["audio"])
            words = told(bench, "response.output_audio_transcript.delta")
            assert {(e["response_id"], e["item_id"], e["output_index"], e["content_index"]) for e in words} == {
                (done["id"], agent["id"], 0, 0)
            }
            check(bench)

    run(work)


def test_a_cut_reply_is_told_in_the_order_that_clients_rely_on() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply="word " * 30)), ["first", "second"])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms > 1000)
            await bench.play(26)
            await bench.say(1000)
            await bench.until(lambda: "agent.turn.receipts" in bench.kinds())
            item_id = bench.last("conversation.item.truncated")["item_id"]
            assert text_of(bench, item_id) == "word " * 5
            item = bench.last("conversation.item.retrieved")["item"]
            assert item["status"] == "incomplete"
            check(bench)

    run(work)


def test_on_a_socket_the_response_is_over_after_its_last_audio() -> None:
    async def work() -> None:
        speaker = SocketSpeaker(as_events=True)
        async with in_call(Bench(FakeModel(), ["hello"], speaker=speaker)) as bench:
            say(bench, "hi")
            ask(bench, "response.create")
            await bench.until(lambda: "response.output_audio_transcript.done" in bench.kinds())
            assert "response.done" not in bench.kinds()
            heard = []
            while "output_audio_buffer.stopped" not in bench.kinds():
                frame = await speaker.speech()
                if frame is not None:
                    heard.append(bench.session.audio_delta(frame.tobytes()))
            response = bench.last("response.done")["response"]
            assert {event["response_id"] for event in heard if event} == {response["id"]}
            assert response["status"] == "completed"
            kinds = bench.kinds()
            assert kinds.index("response.output_audio.done") < kinds.index("response.done")
            check(bench)

    run(work)


def test_a_client_may_ask_for_text_alone() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            ask(bench, "session.update", session={"type": "realtime", "output_modalities": ["text"]})
            assert bench.last("session.updated")["session"]["output_modalities"] == ["text"]
            say(bench, "hi", id="mine")
            ask(bench, "response.create", response={"metadata": {"topic": "greeting"}})
            await bench.until(lambda: "response.done" in bench.kinds())
            assert bench.last("response.output_text.done")["text"] == "one two three four "
            response = bench.last("response.done")["response"]
            content = response["output"][0]["content"]
            assert content == [{"type": "output_text", "text": "one two three four "}]
            assert response["metadata"] == {"topic": "greeting"}
            assert bench.said == [Message("user", "hi"), Message("assistant", "one two three four ")]
            assert bench.session.turn is None
            assert not bench.speaker.queued_ms
            check(bench)

    run(work)


async def _call_weather(bench: Bench) -> dict[str, Any]:
    """Go on to the response that calls the client's tool; gives the call's item."""
    ask(bench, "session.update", session={"type": "realtime", "tools": [WEATHER]})
    say(bench, "how is the weather")
    ask(bench, "response.create")
    await bench.until(lambda: "response.done" in bench.kinds())
    item: dict[str, Any] = bench.last("response.output_item.done")["item"]
    return item


def output(bench: Bench, call_id: str, value: str) -> None:
    ask(
        bench,
        "conversation.item.create",
        item={"type": "function_call_output", "call_id": call_id, "output": value},
    )


def test_tools_of_the_client_run_on_the_client() -> None:
    async def work() -> None:
        model = FakeModel(FakeThinker(calls=[ToolCall("c1", "weather", {"city": "台北"})]))
        async with in_call(Bench(model, [""])) as bench:
            item = await _call_weather(bench)
            assert (item["status"], item["call_id"], item["name"]) == ("completed", "c1", "weather")
            assert json.loads(item["arguments"]) == {"city": "台北"}
            assert bench.last("response.function_call_arguments.done")["arguments"] == item["arguments"]
            assert bench.last("response.done")["response"]["output"] == [item]
            assert set(model.thinker.requests[0].tools) == {"sell", "weather"}
            assert "agent.tool.called" not in bench.kinds()
            output(bench, "c1", '{"say": "it rains"}')
            await asyncio.sleep(0.02)
            assert len(told(bench, "response.created")) == 1, "the client decides when the next response begins"
            ask(bench, "response.create")
            await bench.until(lambda: len(told(bench, "response.done")) == 2)
            assert bench.last("response.output_audio_transcript.done")["transcript"] == "it rains "
            await bench.until(lambda: bench.speaker.queued_ms >= 200)
            await bench.play(20)
            await bench.until(lambda: bench.session.turn is None)
            assert [message.role for message in bench.said] == ["user", "assistant", "tool", "assistant"]
            assert bench.said[2].result == {"say": "it rains"}
            assert "error" not in bench.kinds()
            check(bench)

    run(work)


def test_tools_of_both_sides_in_one_reply() -> None:
    async def work() -> None:
        calls = [ToolCall("c1", "sell", {"what": "tea"}), ToolCall("c2", "weather", {}), ToolCall("c3", "weather", {})]
        async with in_call(Bench(FakeModel(FakeThinker(calls=calls)), [""])) as bench:
            await _call_weather(bench)
            output(bench, "c2", "sun")
            ask(bench, "response.create")  # before the other output is there
            output(bench, "c3", '{"say": "and wind"}')
            await bench.until(lambda: len(told(bench, "response.done")) == 2)
            transcript = bench.last("response.output_audio_transcript.done")["transcript"]
            assert transcript == "sold one tea one two three four and wind "
            results = {message.call_id: message.result for message in bench.said if message.role == "tool"}
            sold = {"ok": True, "say": "sold one tea"}
            assert results == {"c1": sold, "c2": {"output": "sun"}, "c3": {"say": "and wind"}}
            assert bench.last("agent.tool.called")["name"] == "sell"
            check(bench)

    run(work)


def test_an_output_that_comes_after_a_barge_in_is_remembered() -> None:
    async def work() -> None:
        model = FakeModel(FakeThinker(calls=[ToolCall("c1", "weather", {})]))
        async with in_call(Bench(model, ["never mind"])) as bench:
            await _call_weather(bench)
            await bench.say(1000)
            output(bench, "c1", "late")
            ask(bench, "response.create")
            assert refused(bench, "response.create") == "nothing_to_answer"
            output(bench, "c1", "twice")
            assert refused(bench, "conversation.item.create") == "invalid_call_id"
            model.thinker.calls = ()
            await bench.hush()
            await bench.until(lambda: len(model.thinker.requests) == 2)
            assert model.thinker.requests[1].messages[2].result == {"output": "late"}
            check(bench)

    run(work)


def test_a_client_that_never_gives_its_output_costs_a_slot_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("voice_agent.live.CLIENT_TOOL_S", 0.1)

    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(calls=[ToolCall("c1", "weather", {})])), [""])) as bench:
            await _call_weather(bench)
            await bench.until(lambda: "agent.stage.failed" in bench.kinds())
            assert bench.last("agent.stage.failed")["stage"] == "tool"
            await bench.until(lambda: bench.model.rows_in_use == 0)

    run(work)


def test_replies_are_as_fast_as_the_client_asks_if_the_model_speaks_so() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            say(bench, "hi")
            for asked, speed in enumerate((None, 1.25), 1):
                if speed:
                    ask(bench, "session.update", session={"audio": {"output": {"speed": speed}}})
                    assert bench.last("session.updated")["session"]["audio"]["output"]["speed"] == speed
                ask(bench, "response.create")
                await bench.until(lambda asked=asked: len(bench.model.talker.speeds) == asked)
                ask(bench, "response.cancel")
                await bench.until(lambda: bench.session.turn is None)
            assert bench.model.talker.speeds == [1.0, 1.25]
            ask(bench, "session.update", session={"audio": {"output": {"speed": 0.3}}})
            assert refused(bench, "session.update") == "invalid_value"
            assert "expected 0.5 to 1.5" in bench.last("error")["error"]["message"]
            assert bench.session.settings.speed == 1.25

    run(work)


def test_tools_that_the_model_does_not_know_are_refused() -> None:
    class Particular(FakeModel):
        def check(self, tools: Any) -> None:
            if "weather" in tools:
                raise ValueError("expected ordering tools, got weather()")

    async def work() -> None:
        async with in_call(Bench(Particular(), [""])) as bench:
            ask(bench, "session.update", session={"tools": [WEATHER], "instructions": "other"})
            assert refused(bench, "session.update") == "invalid_value"
            assert "got weather()" in bench.last("error")["error"]["message"]
            assert bench.session.settings.instructions == "sell things", "a refused update changes nothing"
            assert "session.updated" not in bench.kinds()

    run(work)


def test_session_updates_are_merged() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            given = {
                "type": "realtime",
                "model": "gpt-realtime",
                "output_modalities": ["audio"],
                "instructions": "be brief",
                "tracing": "auto",
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": 24000},
                        "noise_reduction": None,
                        "transcription": {"model": "gpt-4o-mini-transcribe", "language": "zh"},
                        "turn_detection": {"type": "semantic_vad", "eagerness": "auto", "interrupt_response": True},
                    },
                    "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin", "speed": 1},
                },
            }
            ask(bench, "session.update", session=given)
            vad = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}}}
            ask(bench, "session.update", session=vad)
            session = bench.last("session.updated")["session"]
            assert session["instructions"] == "be brief"
            assert session["audio"]["input"]["transcription"]["language"] == "zh"
            assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 300
            config = bench.session.floor.policy.config
            assert (config.quick_ms, config.endpoint_ms, config.patience_ms) == (300, 300, 300)
            ask(bench, "session.update", session={"audio": {"input": {"turn_detection": None}}})
            assert bench.last("session.updated")["session"]["audio"]["input"]["turn_detection"] is None
            ask(bench, "session.update", session={"audio": {"output": {"format": {"type": "audio/pcmu"}}}})
            assert bench.last("error")["error"]["param"] == "session.audio.output.format.type"
            check(bench)

    run(work)


def test_a_client_says_which_language_the_agent_begins_in() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            lines = Lines(greeting={"zh": "你好", "en": "hello and welcome"})
            bench.runtime.agent = replace(bench.agent, lines=lines)
            ask(bench, "session.update", session={"agent": {"language": "fr"}})
            assert refused(bench, "session.update") == "invalid_event"
            assert bench.last("error")["error"]["param"] == "session.agent.language"
            ask(bench, "session.update", session={"agent": {"language": "en"}})
            assert bench.last("session.updated")["session"]["audio"]["input"]["transcription"]["language"] is None
            ask(bench, "response.create")
            await bench.until(lambda: "response.output_audio_transcript.done" in bench.kinds())
            said = bench.last("response.output_audio_transcript.done")["transcript"]
            assert said.split() == ["hello", "and", "welcome"]
            await bench.until(lambda: bench.model.talker.languages)
            assert bench.model.talker.languages == ["en"]
            check(bench)

    run(work)


def test_a_setting_that_cannot_be_served_is_refused_and_one_without_effect_is_not() -> None:
    def audio(side: str, **settings: Any) -> dict[str, Any]:
        return {"audio": {side: settings}}

    cannot: dict[str, dict[str, Any]] = {
        "tool_choice": {"tool_choice": "required"},
        "max_output_tokens": {"max_output_tokens": 100},
        "prompt": {"prompt": {"id": "pmpt_1"}},
        "audio.input.format.type": audio("input", format={"type": "audio/pcmu"}),
        "audio.output.format.type": audio("output", format={"type": "audio/pcma"}),
        "audio.input.format.rate": audio("input", format={"type": "audio/pcm", "rate": 16000}),
        "audio.output.speed": audio("output", speed=1.6),
        "audio.input.turn_detection.idle_timeout_ms": audio(
            "input", turn_detection={"type": "server_vad", "idle_timeout_ms": 6000}
        ),
    }
    without_effect = {
        "model": "gpt-realtime",
        "tracing": "auto",
        "truncation": "auto",
        "include": ["item.input_audio_transcription.logprobs"],
        "max_output_tokens": "inf",
        "audio": {
            "input": {
                "noise_reduction": {"type": "near_field"},
                "turn_detection": {"type": "server_vad", "threshold": 0.5},
            },
            "output": {"voice": "marin", "speed": 1.0},
        },
    }

    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            for field, session in cannot.items():
                ask(bench, "session.update", session=session)
                assert refused(bench, "session.update") == "invalid_event"
                error = bench.last("error")["error"]
                assert error["param"] == f"session.{field}"
                assert "got" in error["message"]
            for options in ({"tools": [WEATHER]}, {"tool_choice": "required"}, {"max_output_tokens": 9}):
                ask(bench, "response.create", response=options)
                assert refused(bench, "response.create") == "invalid_event"
            assert "session.updated" not in bench.kinds()
            ask(bench, "session.update", session=without_effect)
            assert bench.kinds()[-1] == "session.updated"

    run(work)


def test_a_client_may_end_its_turns_by_itself() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["by hand", "again"])) as bench:
            ask(bench, "session.update", session={"audio": {"input": {"turn_detection": None}}})
            ask(bench, "input_audio_buffer.commit")
            assert refused(bench, "input_audio_buffer.commit") == "input_audio_buffer_commit_empty"
            ask(bench, "input_audio_buffer.append", audio=pcm(300))
            ask(bench, "input_audio_buffer.clear")
            ask(bench, "input_audio_buffer.commit")
            assert refused(bench, "input_audio_buffer.commit") == "input_audio_buffer_commit_empty"
            ask(bench, "input_audio_buffer.append", audio=pcm(300))
            await bench.say(200)
            await bench.hush()
            ask(bench, "input_audio_buffer.commit")
            await bench.until(lambda: "conversation.item.input_audio_transcription.completed" in bench.kinds())
            assert bench.asr.streams[0].pushed == pytest.approx((300 + 200 + 700) * 16, abs=320)
            assert bench.session.turn is None
            assert not bench.kinds("input_audio_buffer.speech")
            ask(bench, "response.create")
            await bench.until(lambda: "response.done" in bench.kinds())
            assert [m.text for m in bench.model.thinker.requests[0].messages] == ["by hand"]
            check(bench)

    run(work)


@pytest.mark.parametrize("end", ["no words", "not recognised", "cancelled"])
def test_a_response_that_was_asked_for_is_told_and_ended_whatever_was_said(end: str) -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            bench.asr.hold = asyncio.Event()
            content = [{"type": "input_audio", "audio": pcm(500)}]
            ask(bench, "conversation.item.create", item={"type": "message", "role": "user", "content": content})
            if end == "not recognised":
                bench.session.unanswered[0].failed = True
            ask(bench, "response.create", response={"metadata": {"my": "id"}})
            assert told(bench, "response.created")[0]["response"]["metadata"] == {"my": "id"}
            if end == "cancelled":
                ask(bench, "response.cancel")
            bench.asr.hold.set()
            await bench.until(lambda: "response.done" in bench.kinds())
            response = bench.last("response.done")["response"]
            status = {"no words": "completed", "not recognised": "failed", "cancelled": "cancelled"}[end]
            assert (response["status"], response["output"]) == (status, [])
            assert response["id"] == bench.last("response.created")["response"]["id"]
            assert len(told(bench, "response.done")) == 1
            await bench.until(lambda: bench.session.turn is None)
            assert not bench.model.thinker.requests
            check(bench)

    run(work)


def test_a_turn_that_is_not_to_be_answered_waits_for_the_client() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["first", "second"])) as bench:
            quiet = {"type": "server_vad", "create_response": False}
            ask(bench, "session.update", session={"audio": {"input": {"turn_detection": quiet}}})
            for count in (1, 2):
                await bench.say(600)
                await bench.hush()
                kind = "conversation.item.input_audio_transcription.completed"
                await bench.until(lambda n=count, kind=kind: len(told(bench, kind)) == n)
            assert bench.session.turn is None
            ask(bench, "response.create")
            await bench.until(lambda: bench.model.thinker.requests)
            assert [m.text for m in bench.model.thinker.requests[0].messages] == ["first second"]
            check(bench)

    run(work)


def test_a_commit_ends_a_turn_before_the_silence_does() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["hurry"])) as bench:
            await bench.say(600)
            await bench.hush(300)
            await bench.until(lambda: bench.asr.streams[0].finals)
            await bench.say(1000)
            await bench.until(lambda: bench.asr.streams[0].pushed >= 1200 * 16)
            ask(bench, "input_audio_buffer.commit")
            await bench.until(lambda: "response.created" in bench.kinds())
            assert len(told(bench, "input_audio_buffer.committed")) == 1
            assert bench.asr.streams[0].finals[-1] >= 1200 * 16
            check(bench)

    run(work)


def test_a_recorded_item_is_recognised_and_answered() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["from a file"])) as bench:
            content = [{"type": "input_audio", "audio": pcm(500)}]
            item = {"type": "message", "role": "user", "content": content, "id": "tape"}
            ask(bench, "conversation.item.create", item=item)
            ask(bench, "response.create")
            await bench.until(lambda: bench.model.thinker.requests)
            assert text_of(bench, "tape") == "from a file"
            assert bench.model.thinker.requests[0].messages[0].text == "from a file"
            check(bench)

    run(work)


def test_words_that_cannot_be_recognised_are_told_and_the_call_goes_on() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["first", "second"])) as bench:
            await bench.say(200)
            await bench.until(lambda: bench.asr.streams)

            async def fail() -> None:
                raise RuntimeError("no")

            bench.asr.streams[0].final = fail  # type: ignore[assignment]
            await bench.say(400)
            await bench.hush()
            failed = "conversation.item.input_audio_transcription.failed"
            await bench.until(lambda: failed in bench.kinds() and bench.session.turn is None)
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.model.thinker.requests)
            assert bench.model.thinker.requests[0].messages[-1].text == "second"
            check(bench)

    run(work)


def test_items_are_inserted_deleted_and_read_in_their_order() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            say(bench, "two", id="b")
            ask(bench, "response.create")
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(25)
            await bench.until(lambda: bench.session.turn is None)
            first = {"type": "message", "role": "user", "id": "a", "content": [{"type": "input_text", "text": "one"}]}
            ask(bench, "conversation.item.create", item=first, previous_item_id="root")
            assert bench.last("conversation.item.added")["previous_item_id"] is None
            reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}
            ask(bench, "conversation.item.create", item=reply | {"id": "r"}, previous_item_id="a")
            assert [m.text for m in bench.said] == ["one", "yes", "two", "one two three four "]
            ask(bench, "conversation.item.create", item=reply, previous_item_id="nowhere")
            assert refused(bench, "conversation.item.create") == "invalid_value"
            say(bench, "again", id="a")
            assert refused(bench, "conversation.item.create") == "item_exists"
            ask(bench, "conversation.item.delete", item_id="a")
            assert bench.last("conversation.item.deleted")["item_id"] == "a"
            ask(bench, "conversation.item.retrieve", item_id="a")
            assert refused(bench, "conversation.item.retrieve") == "item_not_found"
            assert [m.text for m in bench.said] == ["yes", "two", "one two three four "]
            note = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be kind"}]}
            ask(bench, "conversation.item.create", item=note)
            say(bench, "three", id="c")
            ask(bench, "response.create")
            await bench.until(lambda: len(bench.model.thinker.requests) == 2)
            assert bench.model.thinker.requests[1].instructions == "sell things\nbe kind"
            check(bench)

    run(work)


def test_a_dialogue_that_a_client_brings_along_keeps_its_order() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            for number in (1, 2):
                say(bench, f"question {number}")
                item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "answer"}]}
                ask(bench, "conversation.item.create", item=item)
            say(bench, "question 3")
            ask(bench, "response.create")
            await bench.until(lambda: bench.model.thinker.requests)
            said = [message.text for message in bench.model.thinker.requests[0].messages]
            assert said == ["question 1", "answer", "question 2", "answer", "question 3"]
            check(bench)

    run(work)


def test_what_waits_for_an_answer_and_what_is_noted_are_bounded() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            for number in range(100):
                say(bench, f"word{number}")
                note = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": f"n{number}"}]}
                ask(bench, "conversation.item.create", item=note)
            ask(bench, "response.create")
            await bench.until(lambda: bench.model.thinker.requests)
            request = bench.model.thinker.requests[0]
            assert [message.text for message in request.messages[:2]] == ["word0", "word1"]
            assert request.messages[-1].text.split() == [f"word{n}" for n in range(100 - UNANSWERED, 100)]
            assert request.instructions.split()[-NOTES:] == [f"n{n}" for n in range(100 - NOTES, 100)]
            assert "n0" not in request.instructions.split()

    run(work)


def test_a_client_says_how_much_it_heard() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply="word " * 6)), [""])) as bench:
            say(bench, "hi")
            ask(bench, "response.create")
            await bench.until(lambda: bench.speaker.queued_ms >= 600)
            await bench.play(35)
            await bench.until(lambda: bench.session.turn is None)
            item_id = bench.last("response.output_item.done")["item"]["id"]
            ask(bench, "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=250)
            assert bench.last("conversation.item.truncated")["audio_end_ms"] == 250
            assert text_of(bench, item_id) == "word word "
            assert bench.said[-1].text == "word word "
            ask(bench, "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=9000)
            assert text_of(bench, item_id) == "word word ", "what was cut does not come back"
            say(bench, "more")
            ask(bench, "response.create")
            await bench.until(lambda: bench.speaker.queued_ms >= 600)
            await bench.play(20)
            item_id = bench.last("response.output_item.added")["item"]["id"]
            ask(bench, "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=120)
            assert bench.session.turn is None
            assert bench.said[-1].text == "word "
            ask(bench, "conversation.item.truncate", item_id="none", content_index=0, audio_end_ms=1)
            assert refused(bench, "conversation.item.truncate") == "item_not_found"
            check(bench)

    run(work)


def test_requests_that_come_at_the_wrong_time_are_answered_with_their_id() -> None:
    async def work() -> None:
        model = FakeModel(FakeThinker(reply="word " * 50))
        async with in_call(Bench(model, [""])) as bench:
            ask(bench, "output_audio_buffer.clear")
            assert "error" not in bench.kinds()
            ask(bench, "response.cancel")
            assert refused(bench, "response.cancel") == "response_cancel_not_active"
            ask(bench, "response.create")
            assert refused(bench, "response.create") == "nothing_to_answer"
            model.thinker.gate.event.clear()
            say(bench, "hi")
            ask(bench, "response.create")
            await bench.until(lambda: "response.created" in bench.kinds())
            ask(bench, "response.create")
            assert refused(bench, "response.create") == "conversation_already_has_active_response"
            ask(bench, "response.cancel", response_id="resp_other")
            assert refused(bench, "response.cancel") == "response_cancel_not_active"
            ask(bench, "response.cancel")
            details = bench.last("response.done")["response"]["status_details"]
            assert details == {"type": "cancelled", "reason": "client_cancelled"}
            model.thinker.gate.event.set()
            ask(bench, "response.create", response={"conversation": "none"})
            assert refused(bench, "response.create") == "invalid_event"
            check(bench)

    run(work)


def test_a_client_says_how_late_the_voice_reaches_its_ear() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), [""])) as bench:
            assert bench.session.playout_delay_ms == 0.0
            told_before = len(bench.events)
            ask(bench, "agent.playout.report", delay_ms=83.5)
            assert bench.session.playout_delay_ms == 83.5
            assert len(bench.events) == told_before, "it is answered by nothing"
            for delay_ms in (-1, 5001, float("nan"), float("inf"), "soon", None):
                ask(bench, "agent.playout.report", delay_ms=delay_ms)
                assert refused(bench, "agent.playout.report") == "invalid_event"
                assert bench.last("error")["error"]["param"] == "delay_ms"
            assert bench.session.playout_delay_ms == 83.5, "what is refused changes nothing"

    run(work)


VALID: list[dict[str, Any]] = [
    {"type": "session.update", "session": {"type": "realtime", "instructions": "x", "tools": [WEATHER]}},
    {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}},
    {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "hi"}]}},
    {"type": "conversation.item.create", "item": {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "hi"}]}},
    {"type": "conversation.item.create", "item": {"type": "message", "role": "system", "content": [
        {"type": "input_text", "text": "hi"}]}},
    {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "{}"}},
    {"type": "conversation.item.retrieve", "item_id": "a"},
    {"type": "conversation.item.delete", "item_id": "a"},
    {"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "audio_end_ms": 5},
    {"type": "response.create", "response": {"output_modalities": ["audio"], "instructions": "x"}},
    {"type": "response.cancel", "response_id": "r"},
    {"type": "output_audio_buffer.clear"},
    {"type": "input_audio_buffer.append", "audio": pcm(20)},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "agent.playout.report", "delay_ms": 83.5},
]  # fmt: skip


def test_a_thousand_events_valid_and_mutated_are_accepted_or_refused_by_their_id() -> None:
    async def work() -> None:
        chance = random.Random(7)
        async with in_call(Bench(FakeModel(), ["words"])) as bench:
            refusals = 0
            for number in range(1000):
                event = copy.deepcopy(chance.choice(VALID))
                if number % 2:
                    event = mutated(event, chance)
                event["event_id"] = f"e{number}"
                try:
                    wire.parse(event)
                    valid = True
                except ValueError:
                    valid = False
                assert valid or number % 2, event
                before = len(bench.events)
                bench.session.receive(event)
                errors = [e["error"] for e in bench.events[before:] if e["type"] == "error"]
                assert all(error["event_id"] == f"e{number}" for error in errors)
                assert valid or [error["code"] for error in errors] == ["invalid_event"], event
                refusals += not valid
                if number % 50 == 0:
                    await asyncio.sleep(0.001)
            assert refusals > 200
            check(bench)

    run(work)


def test_the_schemas_take_the_servers_events_and_the_clients() -> None:
    import jsonschema

    schemas = wire.schemas()
    client = jsonschema.Draft202012Validator(schemas["client"])
    server = jsonschema.Draft202012Validator(schemas["server"])
    for event in VALID:
        client.validate(event)
    chance = random.Random(3)
    mutants = [mutated(chance.choice(VALID), chance) for _ in range(200)]
    assert any(not client.is_valid(event) for event in mutants)

    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply="word " * 9)), ["hello", "stop"])) as bench:
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms > 600)
            await bench.play(20)
            await bench.say(1000)
            await bench.until(lambda: "agent.turn.receipts" in bench.kinds())
            for event in bench.events:
                server.validate(event)

    run(work)

"""A voice over a reply in a call on fakes: the reply is held, and then it goes on or is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from tests.call_fakes import Bench, in_call, run
from tests.fakes import FakeModel, FakeThinker
from voice_agent.asr import Transcript

REPLY = "word " * 30


async def in_a_reply(bench: Bench) -> None:
    await bench.say(600)
    await bench.hush()
    await bench.until(lambda: bench.speaker.queued_ms > 1000)
    await bench.play(26)


def hears(bench: Bench, text: str) -> None:
    """The recogniser has a hypothesis of what is being said now."""
    stream = bench.asr.streams[-1]
    assert stream.on_partial is not None
    seconds = stream.pushed / 16_000
    stream.on_partial(Transcript(text=text, language="en", seconds=seconds))


@pytest.mark.parametrize("heard", ["uh-huh", ""])
def test_a_backchannel_and_a_noise_hold_the_reply_for_a_moment_and_leave_no_trace(heard: str) -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply=REPLY)), ["first", heard])) as bench:
            await in_a_reply(bench)
            told = len(bench.events)
            turn, sent = bench.session.turn, bench.speaker.sent()
            await bench.say(300)
            await bench.until(lambda: bench.speaker.paused)
            steps = bench.engine.talker.view()["steps"]
            await bench.play(3)
            assert bench.speaker.sent() == sent
            await asyncio.sleep(0.05)
            assert bench.engine.talker.view()["steps"] == steps
            await bench.hush(400)
            await bench.until(lambda: not bench.speaker.paused)
            assert bench.session.turn is turn
            kinds = [e["type"] for e in bench.events[told:] if not e["type"].startswith(("response.", "agent.playout"))]
            assert kinds == ["agent.turn.paused", "agent.turn.resumed"]
            before = bench.speaker.sent()
            assert 0 <= sent - before <= 24 * 300
            for _ in range(400):
                await bench.play(1)
                await asyncio.sleep(0.0005)
                if bench.session.turn is None:
                    break
            assert [m.text for m in bench.said] == ["first", REPLY]
            assert len(bench.model.thinker.requests) == 1

    run(work)


def test_a_stop_word_cancels_as_soon_as_it_is_recognised() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply=REPLY)), ["first", "stop"])) as bench:
            await in_a_reply(bench)
            await bench.say(320)
            await bench.until(lambda: bench.speaker.paused)
            assert "output_audio_buffer.cleared" not in bench.kinds()
            assert bench.kinds().count("input_audio_buffer.speech_started") == 1
            hears(bench, "stop")
            assert bench.session.turn is None
            kinds = bench.kinds()[bench.kinds().index("agent.turn.paused") :]
            order = ["agent.turn.paused", "input_audio_buffer.speech_started", "output_audio_buffer.cleared"]
            assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
            assert "agent.turn.resumed" not in kinds
            assert bench.said[-1].text == "word " * 5

    run(work)


def test_a_reply_whose_caller_speaks_on_before_it_is_heard_waits_and_is_joined() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply=REPLY)), ["one", "more tea please"])) as bench:
            await bench.say(600)
            await bench.hush(700)
            await bench.until(lambda: bench.speaker.queued_ms > 500)
            await bench.say(500)
            await bench.until(lambda: bench.speaker.paused)
            await bench.play(5)
            assert bench.speaker.sent() == 0
            hears(bench, "more tea please")
            assert bench.session.turn is None
            await bench.hush(700)
            await bench.until(lambda: len(bench.model.thinker.requests) > 1)
            assert [m.text for m in bench.model.thinker.requests[-1].messages] == ["one more tea please"]

    run(work)


def test_a_client_that_stops_sending_in_the_middle_of_a_voice_holds_the_reply_for_a_bounded_time() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(FakeThinker(reply=REPLY)), ["first", "more"], turn={"pause_max_ms": 500})
        async with in_call(bench):
            await in_a_reply(bench)
            await bench.say(320)
            await bench.until(lambda: bench.speaker.paused)
            await bench.until(lambda: not bench.speaker.paused)
            assert bench.session.turn is not None
            assert "agent.turn.resumed" in bench.kinds()

    run(work)


def test_a_client_that_forbids_interruptions_hears_no_pause() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply=REPLY)), ["first", "stop"])) as bench:
            detection = {"type": "server_vad", "interrupt_response": False}
            session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
            bench.session.receive({"type": "session.update", "session": session})
            await in_a_reply(bench)
            await bench.say(400)
            hears(bench, "stop")
            assert not bench.speaker.paused
            assert bench.session.turn is not None

    run(work)


def test_what_the_client_has_not_played_yet_was_not_heard() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(FakeThinker(reply=REPLY)), ["first", "stop"])) as bench:
            bench.session.playout_reported(220.0)
            await in_a_reply(bench)
            await bench.say(320)
            hears(bench, "stop")
            # 520 ms were sent, and 220 ms of them lie between the server and the ear.
            assert bench.last("conversation.item.truncated")["audio_end_ms"] == 300
            assert bench.said[-1].text == "word " * 3

    run(work)

"""What the agent says without being asked: greeting, a word to a silent caller, goodbye."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from demos.ordering.agent import agent
from tests.call_fakes import UNCLEAR, Bench, in_call, run
from tests.fakes import FakeModel
from voice_agent.agent import Lines
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.manners import PROMPTS, Patience
from voice_agent.models import load_model
from voice_agent.tea.thinker import TeaThinker


def test_a_silent_caller_is_asked_twice_and_then_taken_leave_of() -> None:
    patience = Patience(100)
    assert patience.due(10**6) is None, "nobody has heard the agent yet"
    said, at = [], 0
    for _ in range(4):
        patience.agent_heard(at)
        assert patience.due(at + 99) is None
        said.append(patience.due(at + 100))
        assert patience.due(at + 500) is None, "once for each wait"
        patience.agent_speaks()
        at += 1000
    assert said == ["still_there", "still_there", "goodbye", "goodbye"]


def test_whatever_happens_a_caller_who_speaks_is_never_taken_leave_of_before_two_prompts() -> None:
    for seed in range(2000):
        chance, patience, prompts, now = random.Random(seed), Patience(50), 0, 0
        for _ in range(60):
            now += chance.randrange(40)
            match chance.randrange(4):
                case 0:
                    patience.agent_heard(now)
                case 1:
                    patience.agent_speaks()
                case 2 if chance.random() < 0.3:
                    patience.caller_speaks()
                    prompts = 0
            due = patience.due(now)
            if due == "still_there":
                prompts += 1
                assert prompts <= PROMPTS
            if due == "goodbye":
                assert prompts == PROMPTS


LINES = Lines(
    greeting={"zh": "welcome to you"},
    unclear={"zh": "say it again"},
    still_there={"zh": "still there now"},
    goodbye={"zh": "bye bye then"},
    idle_s=1.0,
)


async def hear_out(bench: Bench) -> None:
    await bench.until(lambda: bench.session.turn is not None and bench.session.turn.all_written)
    for _ in range(40):
        await bench.play(1)
    await bench.until(lambda: bench.session.turn is None)


def test_a_call_in_which_nobody_speaks() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), ["hello"])
        bench.runtime.agent = replace(bench.runtime.agent, lines=LINES)
        bench.session._patience = Patience(16_000)
        async with in_call(bench):
            bench.session.receive({"type": "response.create"})
            await hear_out(bench)
            for _ in range(3):
                await bench.hush(1300)
                await hear_out(bench)
            asked = [request.say for request in bench.model.thinker.requests]
            assert asked == ["welcome to you", "still there now", "still there now", "bye bye then"]
            await bench.until(bench.session._closed.is_set)
            assert all(message.role == "assistant" for message in bench.said)

    run(work)


def test_a_greeting_is_for_the_beginning_and_can_be_spoken_over() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), ["hello", "more"])
        bench.runtime.agent = replace(bench.runtime.agent, lines=LINES)
        async with in_call(bench):
            bench.session.receive({"type": "response.create"})
            await bench.until(lambda: bench.speaker.queued_ms >= 200)
            await bench.play(5)
            await bench.say(1000)
            await bench.until(lambda: "output_audio_buffer.cleared" in bench.kinds())
            await bench.hush(700)
            await bench.until(lambda: len(bench.model.thinker.requests) == 2)
            assert bench.model.thinker.requests[1].messages[-1].text == "hello"
            await hear_out(bench)
            bench.session.receive({"type": "response.create"})
            assert bench.last("error")["error"]["code"] == "nothing_to_answer"

    run(work)


def test_unclear_speech_is_asked_back_twice_and_understood_speech_begins_anew() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), [UNCLEAR, UNCLEAR, UNCLEAR, "", "hello", UNCLEAR])
        bench.runtime.agent = replace(bench.runtime.agent, lines=LINES)
        async with in_call(bench):
            for _ in range(6):
                bench.session.call.language = "zh"
                committed = bench.kinds().count("input_audio_buffer.committed")
                await bench.say(600)
                await bench.hush(700)
                await bench.until(lambda n=committed: bench.kinds().count("input_audio_buffer.committed") > n)
                for _ in range(40):
                    await bench.play(1)
                    await asyncio.sleep(0.002)
                await bench.until(lambda: bench.session.turn is None)
            asked = [request.say for request in bench.model.thinker.requests]
            assert asked == ["say it again", "say it again", "", "say it again"]

    run(work)


def test_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="expected idle_s above 0, got 0"):
        Lines(idle_s=0)


def test_the_thinker_says_a_given_text_word_for_word() -> None:
    thinker = load_model("tea-omni", slots=1).thinker
    assert isinstance(thinker, TeaThinker)
    for lines in (agent.lines.greeting, agent.lines.still_there, agent.lines.goodbye):
        for language, text in lines.items():
            thinker.start(0, ThinkRequest((Message("user"),), language, tools=agent.schemas(), say=text))
            said, hidden = "", []
            while not (thought := thinker.step([0])[0]).done:
                if thought.token is not None:
                    said += thought.token.text
                    hidden.append(thought.token.hidden)
            thinker.free(0)
            assert said == text
            known = thinker.hidden_of_reply(language, text)
            for one, other in zip(hidden, known, strict=True):
                assert float((one - other.hidden).abs().max()) < 1e-5 * float(other.hidden.abs().max())

"""A reply that is begun before the turn is certain: what becomes of it, and that a dropped one leaves no trace."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch

from tests.call_fakes import Bench, Till, in_call, run
from tests.fakes import FakeModel, FakeThinker
from tests.resumed import KINDS, dialogue, differences, play
from voice_agent import irreversible, live
from voice_agent.agent import Agent, Call
from voice_agent.engine.protocols import ToolCall
from voice_agent.engine.reply import Engine
from voice_agent.models import load_model


class Cart(Till):
    def fork(self) -> Cart:
        copy = Cart()
        copy.sold = list(self.sold)
        return copy


def sell(call: Call[Cart], what: str) -> dict[str, Any]:
    """Sell something."""
    call.state.sold.append(what)
    return {"ok": True, "say": "sold one two three four five six seven"}


@irreversible
def place(call: Call[Cart]) -> dict[str, Any]:
    """Place the order."""
    call.state.sold.append("placed")
    return {"ok": True, "say": "placed it all now"}


SOLD = ToolCall("c1", "sell", {"what": "tea"})
PLACED = ToolCall("c2", "place", {})


def bench_with(calls: list[ToolCall], texts: list[str], state: type[Till] = Cart) -> Bench:
    bench = Bench(FakeModel(FakeThinker(calls=calls)), texts)
    bench.runtime.agent = Agent("sell things", [sell, place] if state is Cart else [sell], state=state)
    bench.session.call = bench.runtime.agent.open_call("call1", "en")
    return bench


def trace(bench: Bench) -> tuple[object, ...]:
    """All that a turn could have left in the call."""
    session = bench.session
    return (list(session.call.state.sold), bench.said, list(bench.events), dict(session.open_calls), session.turn)


async def guessed(bench: Bench, samples_of_reply: bool = True) -> None:
    """Speech, then so little silence that a reply is begun and the turn is not yet over."""
    await bench.say(600)
    await bench.hush(300)
    await bench.until(lambda: bench.session.guess is not None and bench.session.guess.reply is not None)
    if samples_of_reply:
        await bench.until(lambda: bench.session.guess.reply.marks.first_chunk)  # type: ignore[union-attr]
    assert bench.session.turn is None


def test_a_guess_that_was_right_is_the_reply_and_was_ready_before_the_turn_was_over() -> None:
    async def work() -> None:
        async with in_call(bench_with([SOLD], ["a tea"])) as bench:
            await guessed(bench)
            assert bench.session.call.state.sold == []
            assert bench.speaker.queued_ms == 0
            assert bench.kinds("response") == bench.kinds("agent.tool") == []
            await bench.hush(400)
            await bench.until(lambda: bench.session.turn is not None)
            assert bench.speaker.queued_ms > 0
            assert len(bench.model.thinker.requests) == 1
            await bench.play(20)
            await bench.until(lambda: bench.session.call.state.sold == ["tea"])
            await bench.play(80)
            await bench.until(lambda: bench.session.turn is None)
            assert [m.role for m in bench.said] == ["user", "assistant", "tool", "assistant"]
            latency = bench.last("agent.turn.latency")
            parts = [value for name, value in latency.items() if name.endswith("_ms") and name != "v2v_ms"]
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(latency["v2v_ms"], abs=1)

    run(work)


def test_a_guess_that_was_wrong_leaves_no_trace() -> None:
    async def work() -> None:
        async with in_call(bench_with([SOLD], ["a tea", "a tea with milk"])) as bench:
            await bench.say(600)
            await bench.until(lambda: "input_audio_buffer.speech_started" in bench.kinds())
            before = trace(bench)
            await bench.hush(300)
            await bench.until(lambda: bench.session.guess is not None)
            await bench.until(lambda: bench.session.guess.reply.marks.first_chunk)  # type: ignore[union-attr]
            bench.asr.streams[0].text = "a tea with milk"
            await bench.say(300)
            await bench.until(lambda: bench.session.guess is None)
            await bench.until(lambda: bench.model.rows_in_use == 0)
            assert trace(bench) == before
            await bench.hush(700)
            await bench.play(100)
            await bench.until(lambda: bench.session.call.state.sold == ["tea"])
            assert [m.text for m in bench.model.thinker.requests[-1].messages] == ["a tea with milk"]

    run(work)


def test_a_tool_that_cannot_be_taken_back_waits_until_the_turn_is_certain() -> None:
    async def work() -> None:
        async with in_call(bench_with([SOLD], ["a tea"], Till)) as bench:
            await guessed(bench, samples_of_reply=False)
            await asyncio.sleep(0.05)
            assert bench.session.call.state.sold == []
            await bench.hush(400)
            await bench.until(lambda: bench.session.call.state.sold == ["tea"])

    run(work)


@pytest.mark.parametrize(("packets", "kept"), [(10, False), (20, True)])
def test_a_caller_who_goes_on_as_the_reply_begins_has_not_finished(packets: int, kept: bool) -> None:
    async def work() -> None:
        async with in_call(bench_with([SOLD], ["one tea", "with milk"])) as bench:
            await bench.say(600)
            await bench.hush(700)
            await bench.until(lambda: bench.speaker.queued_ms > 500)
            await bench.play(packets)
            await asyncio.sleep(0.12)
            await bench.say(1200)
            await bench.hush(700)
            await bench.until(lambda: len(bench.model.thinker.requests) > 1)
            messages = bench.model.thinker.requests[-1].messages
            if kept:
                assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
                assert bench.session.call.state.sold == ["tea"]
            else:
                assert [m.text for m in messages] == ["one tea with milk"]
                assert bench.session.call.state.sold == []

    run(work)


@pytest.mark.parametrize("to_the_end", [False, True])
def test_what_is_irreversible_is_kept_only_if_its_reply_was_heard_to_the_end(to_the_end: bool) -> None:
    async def work() -> None:
        async with in_call(bench_with([PLACED], ["that is all", "wait"])) as bench:
            await bench.say(600)
            await bench.hush(700)
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(18)
            assert bench.session.call.state.sold == []
            if to_the_end:
                await bench.play(10)
                await bench.until(lambda: bench.session.turn is None)
                assert bench.session.call.state.sold == ["placed"]
                assert [m.role for m in bench.said] == ["user", "assistant", "tool", "assistant"]
                return
            await bench.say(1200)
            await bench.hush(700)
            await bench.until(lambda: len(bench.model.thinker.requests) > 1)
            assert bench.session.call.state.sold == []
            assert [m.role for m in bench.model.thinker.requests[-1].messages] == ["user", "assistant", "user"]

    run(work)


def test_an_irreversible_tool_needs_a_state_that_can_be_forked() -> None:
    with pytest.raises(TypeError, match=r"expected a state with a fork\(\) method for place, got"):
        Agent("", [place], state=Till).open_call("call1", "en")


def test_a_guess_that_fails_is_none_and_the_turn_is_answered() -> None:
    async def work() -> None:
        async with in_call(bench_with([], ["hello"])) as bench:
            thinker = bench.model.thinker
            thinker.fail_at = 1
            await bench.say(600)
            await bench.hush(300)
            await bench.until(lambda: thinker.steps)
            await bench.until(lambda: bench.session.guess is None)
            thinker.fail_at = None
            await bench.hush(400)
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            assert "agent.stage.failed" not in bench.kinds()

    run(work)


def test_an_order_whose_every_turn_was_resumed_is_as_if_nothing_had_been_guessed() -> None:
    """On the real model and tools; the full count is that of `make evidence speculation`."""
    torch.set_num_threads(1)
    engine = Engine(load_model("tea-omni", slots=2))

    async def work() -> None:
        said = dialogue(random.Random(5), KINDS)
        resumed = await play(engine, said, resumed=True)
        plain = await play(engine, said, resumed=False)
        assert set(resumed.guesses) == set(KINDS)
        assert resumed.traces == []
        assert differences(resumed, plain) == []
        assert len(resumed.orders) == 1
        assert plain.tools_kept > 0
        assert resumed.cart["lines"] == []

    try:
        asyncio.run(asyncio.wait_for(work(), 90))
    finally:
        engine.close()


def test_a_trace_that_a_guess_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself: tools that run on the call's own cart are seen in all that it looks at."""
    torch.set_num_threads(1)
    engine = Engine(load_model("tea-omni", slots=2))
    monkeypatch.setattr(live, "fork_of", lambda call: call)

    async def work() -> None:
        said = dialogue(random.Random(5), ("after the tool", "after the tool", "after the tool"))
        resumed = await play(engine, said, resumed=True)
        plain = await play(engine, said, resumed=False)
        assert any(trace.endswith("cart") for trace in resumed.traces)
        assert differences(resumed, plain)

    try:
        asyncio.run(asyncio.wait_for(work(), 90))
    finally:
        engine.close()

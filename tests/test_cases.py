"""Reports from the field about who speaks when, as calls on fakes.

The clock is the caller's samples: with every frame of 20 ms that is fed one packet of the agent's voice is taken. The
level of each sent sample names the turn that it answers and the word of the reply that it speaks.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from demos.ordering import cart as ordering
from demos.ordering import tools
from tests.call_fakes import FRAME, Bench, Till, in_call
from tests.fakes import FakeCodec, FakeModel, FakeTalker, FakeThinker, JudgingThinker
from voice_agent import irreversible
from voice_agent.agent import Agent, Call
from voice_agent.asr import Transcript
from voice_agent.engine.protocols import CodecFrame, TextToken, ThinkRequest, Thought, ToolCall
from voice_agent.media.speaker import Speaker

TICK_MS = 20
WORD_MS = 100
"""What a word of a reply lasts: two frames of 50 ms."""


class NumberedThinker(FakeThinker):
    """Its reply to words that end in the digit n has tokens 100 n, 100 n + 1, …"""

    def start(self, slot: int, request: ThinkRequest) -> None:
        super().start(slot, request)
        number = int(request.messages[-1].text[-1]) if not request.say else 9
        self.rows[slot] = [self._numbered(thought, number) for thought in self.rows[slot]]

    @staticmethod
    def _numbered(thought: Thought, number: int) -> Thought:
        if thought.token is None:
            return thought
        token = thought.token
        return Thought(token=TextToken(100 * number + token.id, token.text, token.hidden))


class NumberedTalker(FakeTalker):
    """Frames carry the token that they speak."""

    def step(self, slots: Sequence[int]) -> list[CodecFrame | None]:
        frames = []
        for slot, frame in zip(slots, super().step(slots), strict=True):
            if frame is not None:
                token = self.rows[slot]["tokens"][frame.position].id
                frame = CodecFrame(torch.tensor([token]), frame.position)
            frames.append(frame)
        return frames


class Recorded(Speaker):
    """Keeps what it sends."""

    def __init__(self) -> None:
        super().__init__(now=lambda: 0.0, sleep=lambda s: asyncio.sleep(0))
        self.frames: list[np.ndarray] = []

    def _next_frame(self) -> np.ndarray:
        frame = super()._next_frame()
        self.frames.append(frame.copy())
        return frame


class Line(Bench):
    """A call whose both directions go on at the same pace."""

    def __init__(self, texts: list[str], *, reply: str = "word " * 40, **config: Any) -> None:
        self.out = Recorded()
        model = FakeModel(NumberedThinker(reply=reply), NumberedTalker(), FakeCodec())
        super().__init__(model, texts, self.out, **config)
        self.fed = 0

    @property
    def now_ms(self) -> int:
        return TICK_MS * self.fed

    async def tick(self, *, voiced: bool) -> None:
        self.session.feed(np.full(FRAME, 1000 if voiced else 0, np.int16))
        self.fed += 1
        while self.session.floor.hearing.now != self.fed * FRAME:
            await asyncio.sleep(0)
        await self.speaker.recv()
        await asyncio.sleep(0.0005)

    async def say(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            await self.tick(voiced=True)

    async def hush(self, ms: int = 700) -> None:
        for _ in range(ms // TICK_MS):
            await self.tick(voiced=False)

    async def turn(self, ms: int) -> int:
        """So much voice, and its answer; gives the silence after which it was a turn, in ms."""
        committed = self.kinds().count("input_audio_buffer.committed")
        await self.say(ms)
        over = self.now_ms
        while self.kinds().count("input_audio_buffer.committed") == committed:
            await self.hush(TICK_MS)
        took_ms = self.now_ms - over
        await self.quiet()
        return took_ms

    async def partial(self, text: str) -> None:
        """The recogniser has a hypothesis of what is being said now."""
        stream = self.asr.streams[-1]
        assert stream.on_partial is not None
        stream.on_partial(Transcript(text=text, language="en", seconds=stream.pushed / 16_000))

    async def quiet(self, most_ms: int = 20_000) -> None:
        """Until no reply is live."""
        until = self.now_ms + most_ms
        while self.session.turn is not None or self.speaker.queued_ms:
            assert self.now_ms < until, f"a reply was not over within {most_ms} ms"
            await self.tick(voiced=False)

    def heard(self, since_ms: int = 0, until_ms: int | None = None) -> list[int]:
        """The tokens that were sent in this time, one a run; fades and silence are none."""
        frames = self.out.frames[since_ms // TICK_MS : None if until_ms is None else until_ms // TICK_MS]
        tokens: list[int] = []
        for frame in frames:
            for level in frame[::40]:
                token = round(float(level) * 1000)
                exact = token >= 100 and abs(level * 1000 - token) < 1e-3
                if exact and (not tokens or tokens[-1] != token):
                    tokens.append(token)
        return tokens


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))  # type: ignore[arg-type]


def turns(tokens: Sequence[int]) -> set[int]:
    return {token // 100 for token in tokens}


# Barge-in and stale audio.


def test_b01_nothing_of_a_reply_that_was_cut_off_comes_later() -> None:
    """Case B01: a slow voice, interrupted at random places; each later reply is whole and in its own turn."""
    reply = "one two three four five six seven eight"
    slow = random.Random(3)

    class SlowCodec(FakeCodec):
        def step(self, slots: Sequence[int], codes: torch.Tensor) -> list[np.ndarray]:
            threading.Event().wait(slow.uniform(0, 0.004))
            return super().step(slots, codes)

    async def work() -> None:
        chance = random.Random(1)
        for _ in range(8):
            bench = Line(["q1", "q2", "q3"], reply=reply)
            bench.model.codec = bench.engine.codec.model = SlowCodec()
            async with in_call(bench):
                await bench.say(600)
                while not turns(bench.heard()):
                    await bench.hush(20)
                await bench.hush(chance.randrange(60, 700, 20))
                onset = bench.now_ms
                await bench.say(1000)
                await bench.hush(700)
                await bench.quiet()
                second = bench.now_ms
                await bench.say(600)
                await bench.hush(700)
                await bench.quiet()
                assert 1 not in turns(bench.heard(onset + 500))
                assert bench.heard(onset + 500, second) == [200 + word for word in range(8)]
                assert bench.heard(second) == [300 + word for word in range(8)]

    run(work)


@pytest.mark.parametrize("after_ms", [100, 300, 600, 900, 1200])
def test_b02_an_interruption_before_the_first_audio_counts(after_ms: int) -> None:
    """Case B02: thinker and voice are slow (600 and 800 ms); exactly one reply, to all that was said."""

    async def work() -> None:
        bench = Line(["q1", "q2"], reply="one two three four five six")
        thinker, talker = bench.model.thinker.gate.event, bench.model.talker.gate.event
        thinker.clear()
        talker.clear()

        async def wait(ms: int, since: int) -> None:
            """Silence, in which the stages move when their time has come."""
            until = bench.now_ms + ms
            while bench.now_ms < until:
                if bench.now_ms - since >= 600:
                    thinker.set()
                if bench.now_ms - since >= 1400:
                    talker.set()
                await bench.hush(TICK_MS)

        async with in_call(bench):
            await bench.say(600)
            await wait(after_ms, bench.now_ms)
            onset = bench.now_ms
            thinker.clear()
            talker.clear()
            bench.asr.streams[0].text = "q1" if after_ms >= 600 else "q1 q2"  # no turn was over before
            await bench.say(600)
            await wait(2500, bench.now_ms)
            await bench.quiet()
            assert turns(bench.heard(onset + 300)) == {2}
            assert bench.heard(onset + 300) == [200 + word for word in range(6)]
            assert [m.role for m in bench.said] == ["user", "assistant"]
            assert bench.said[0].text == "q1 q2"
            thinker.set()
            talker.set()

    run(work)


# A tool that takes its time.


class Cart(Till):
    """A till whose tools may run on a copy."""

    def fork(self) -> Cart:
        copy = Cart()
        copy.sold = list(self.sold)
        return copy


def serving(began: asyncio.Event, done: asyncio.Event) -> Callable[..., Any]:
    """A tool that tells when it began, and has done nothing before it may be done."""

    async def sell(call: Call[Any], what: str) -> dict[str, Any]:
        """Sell something."""
        began.set()
        await done.wait()
        call.state.sold.append(what)
        return {"ok": True, "say": "sold one tea for you"}

    return sell


@pytest.mark.parametrize("point", ["before the tool", "in the tool", "after the result"])
@pytest.mark.parametrize("state", [Till, Cart])
def test_b04_a_call_is_never_stuck_in_a_tool(point: str, state: type[Till]) -> None:
    """Case B04: a tool of 3 s, cut in on at each point; the plain question after it is always answered."""

    async def work() -> None:
        for _ in range(4):
            began, done = asyncio.Event(), asyncio.Event()
            bench = Line(["q1", "q2"], reply="it is two")
            bench.runtime.agent = Agent("sell things", [serving(began, done)], state=state)
            bench.session.call = bench.runtime.agent.open_call("call1", "en")
            thinker = bench.model.thinker
            thinker.calls = (ToolCall("c1", "sell", {"what": "tea"}),)
            if point == "before the tool":
                thinker.gate.event.clear()
            async with in_call(bench):
                await bench.say(600)
                await bench.hush(700)
                await bench.until(lambda b=bench: b.session.turn is not None)
                if point != "before the tool":
                    await bench.until(began.is_set)
                if point == "after the result":
                    bench.model.talker.gate.event.clear()
                    done.set()
                    await bench.until(lambda t=thinker: t.steps > 2)
                thinker.calls = ()
                await bench.say(700)
                thinker.gate.event.set()
                bench.model.talker.gate.event.set()
                asked = bench.now_ms
                while not bench.heard(asked):
                    await bench.hush(TICK_MS)
                    if bench.now_ms - asked >= 2300:
                        done.set()  # 3 s after it began
                    assert bench.now_ms - asked <= 4000
                await bench.quiet()

    run(work)


# Sounds that are nothing, and what was heard.


def test_b07_a_meaningless_sound_never_keeps_a_reply_silent() -> None:
    """Case B07: a cough, a noise or 嗯 at a random place of a reply of 4 s; it goes on where it stopped."""

    async def work() -> None:
        chance = random.Random(7)
        for number in range(12):
            heard, ms = (("", 160), ("", 300), ("嗯", 240))[number % 3]
            bench = Line(["q1", heard])
            async with in_call(bench):
                await bench.say(600)
                while not bench.heard():
                    await bench.hush(TICK_MS)
                start = bench.now_ms
                await bench.hush(chance.randrange(200, 3000, TICK_MS))
                await bench.say(ms)
                over = bench.now_ms
                await bench.until(lambda b=bench: "agent.turn.paused" in b.kinds())
                while "agent.turn.resumed" not in bench.kinds():
                    await bench.hush(TICK_MS)
                    assert bench.now_ms - over <= 2000
                    assert bench.now_ms - over <= 350 + TICK_MS
                await bench.quiet()
                # Every word was said in its order; one is said twice at most, from its beginning or from within.
                tokens = bench.heard(start)
                again = [place for place in range(1, len(tokens)) if tokens[place] <= tokens[place - 1]]
                assert len(again) <= 1
                repeated = [tokens[place - 1] - tokens[place] + 1 for place in again]
                assert all(words * WORD_MS <= 300 for words in repeated)
                assert list(dict.fromkeys(tokens)) == [100 + word for word in range(40)]
                assert bench.said[-1].text == "word " * 40

    run(work)


def test_b09_the_history_holds_what_was_heard_of_a_count() -> None:
    """Case B09: it counts to twenty and is stopped at random places; the history has the words that were sent."""
    count = (
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen twenty"
    )

    async def work() -> None:
        chance = random.Random(9)
        for _ in range(8):
            bench = Line(["q1", "q2"], reply=count)
            async with in_call(bench):
                await bench.say(600)
                while not bench.heard():
                    await bench.hush(TICK_MS)
                await bench.hush(chance.randrange(400, 1500, TICK_MS))
                await bench.say(400)
                await bench.partial("好了")
                assert bench.session.turn is None
                begun = count.split()[: bench.heard()[-1] - 99]
                stored = bench.said[-1].text.split()
                assert stored in (begun, begun[:-1])
                cut = bench.last("conversation.item.truncated")
                assert cut["agent"]["text"].split() == stored
                await bench.hush(700)
                await bench.until(lambda b=bench: len(b.model.thinker.requests) > 1)
                assert [m.text for m in bench.model.thinker.requests[-1].messages][1].split() == stored

    run(work)


# Answers.


class Asking(JudgingThinker):
    """Asks, and takes no words for a turn that have no full stop."""

    def __init__(self) -> None:
        super().__init__(reply="would you like anything else?")


@pytest.mark.parametrize(
    ("said", "asked_ms", "unasked_ms"),
    [
        *((word, 300, 300) for word in ("对", "不要", "好的", "no", "Yes.")),
        *((word, 300, 520) for word in ("要", "two", "两杯", "18")),
        *((word, 520, 1840) for word in ("嗯", "uh-huh")),
        *((word, 1840, 1840) for word in ("我要", "and")),
    ],
)
def test_b06_a_word_after_a_question_is_its_answer(said: str, asked_ms: int, unasked_ms: int) -> None:
    """Case B06, its third set: what needs no judge, with a judge that believes nothing."""

    async def work() -> None:
        bench = Line(["first.", said, "more.", said])
        bench.model.thinker = bench.engine.thinker.model = Asking()
        async with in_call(bench):
            for most_ms in (asked_ms, unasked_ms):
                await bench.turn(600)
                bench.model.thinker.reply = "fine thank you."
                took_ms = await bench.turn(300)
                assert took_ms <= most_ms + 3 * TICK_MS
                assert most_ms < 1000 or took_ms >= 1000

    run(work)


# A stage that stands still.


@pytest.mark.parametrize("stage", ["thinker", "talker"])
def test_b11_a_reply_that_never_goes_on_is_apologised_for(stage: str) -> None:
    """Case B11: six words and then nothing, or words and no sound; 喂 after each apology."""

    class Hanging(NumberedThinker):
        def step(self, slots: Sequence[int]) -> list[Thought]:
            if self.steps == 6 and stage == "thinker":
                self.gate.event.clear()
            return super().step(slots)

    async def work() -> None:
        bench = Line(["q1", "q2", "q3", "q4"], reply="word " * 40, stall_ms=500)
        bench.model.thinker = bench.engine.thinker.model = Hanging(reply="word " * 40)
        if stage == "talker":
            bench.model.talker.gate.event.clear()
        async with in_call(bench):
            await bench.say(600)
            for _ in range(3):
                await bench.hush(700)
                began = asyncio.get_running_loop().time()
                told = bench.kinds().count("agent.stage.failed")
                while bench.kinds().count("agent.stage.failed") == told:
                    await bench.hush(TICK_MS)
                    assert asyncio.get_running_loop().time() - began < 1.5
                await bench.quiet()
                words = sum(message.text.count("word") for message in bench.said)
                assert words <= len(bench.heard()) - bench.heard().count(500)
                await bench.say(400)
            notices = [frame for frame in bench.out.frames if np.allclose(frame, 0.5)]
            assert len(notices) >= 3 * 10
            bench.model.thinker.gate.event.set()
            bench.model.talker.gate.event.set()

    run(work)


# The order that must be placed once.


def one_latte() -> ordering.Cart:
    cart = ordering.Cart()
    cart.add("latte")
    return cart


@pytest.mark.parametrize("point", ["before the commit", "after the commit", "before the reply"])
def test_b19_an_order_is_placed_once_whatever_is_said_meanwhile(point: str) -> None:
    """Case B19: 对, 快点 or 好的 while or just after the order is placed: one order, known."""

    async def work() -> None:
        for number in range(6):
            said = ("对", "快点", "好的")[number % 3]
            began, done = asyncio.Event(), asyncio.Event()
            numbers: list[int] = []
            bench = Line(["q1", f"{said} q2", "q3"], reply="it is done")
            bench.runtime.agent = Agent("sell things", [slow_place(began, done, numbers)], state=one_latte)
            bench.session.call = bench.runtime.agent.open_call("call1", "en")
            bench.model.thinker.calls = (ToolCall("c1", "place", {}),)
            async with in_call(bench):
                await bench.say(600)
                await bench.hush(700)
                await bench.until(began.is_set)
                if point != "before the commit":
                    done.set()
                    await bench.until(lambda n=numbers: n)
                if point == "before the reply":
                    await bench.until(lambda b=bench: b.speaker.queued_ms)
                await bench.say(400)
                done.set()
                await bench.hush(900)
                await bench.quiet()
                # The request is made again, and answered with the number of the order that there is.
                await bench.say(600)
                await bench.hush(900)
                await bench.quiet()
                cart = bench.session.call.state
                assert len(cart.orders) == 1
                assert cart.lines == ()
                assert set(numbers) == {cart.orders[0].number}
                assert bench.said[-2].result["order_number"] == cart.orders[0].number

    run(work)


def slow_place(began: asyncio.Event, done: asyncio.Event, numbers: list[int]) -> Callable[..., Any]:
    """The clerk's own tool, after a while; `numbers` are those that it gave."""

    @irreversible
    async def place(call: Call[ordering.Cart]) -> dict[str, Any]:
        """Place the order."""
        began.set()
        await done.wait()
        given = tools.place(call)
        numbers.append(given["order_number"])
        return {**given, "say": f"the number is {given['order_number']}"}

    return place


# Whatever happens.


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_said_there_is_one_voice_and_the_next_question_is_answered(seed: int) -> None:
    """Random speech, silence, hypotheses and clients' requests; then a plain question."""

    async def work() -> None:
        chance = random.Random(seed)
        texts = [chance.choice(["", "嗯", "wait", "one q1", "two q2", "more q3"]) + "" for _ in range(40)]
        bench = Line([text if text[-1:].isdigit() else f"{text} q{n % 8 + 1}" for n, text in enumerate(texts)])
        bench.model.thinker.calls = (ToolCall("c1", "sell", {"what": "tea"}),) if seed % 3 == 0 else ()
        async with in_call(bench):
            for _ in range(14):
                match chance.randrange(6):
                    case 0 | 1:
                        await bench.say(chance.randrange(20, 1500, 20))
                    case 2 | 3:
                        await bench.hush(chance.randrange(20, 1500, 20))
                    case 4 if bench.session.floor.hearing.current is not None:
                        await bench.partial(chance.choice(["", "嗯", "wait", "one two three"]))
                    case 5:
                        kind = chance.choice(["response.cancel", "output_audio_buffer.clear"])
                        bench.session.receive({"type": kind})
                live = [turn for turn in (bench.session.turn, bench.session.guess) if turn is not None]
                assert len({turn.epoch for turn in live if turn is bench.session.turn}) <= 1
                assert bench.session.turn is None or bench.session.turn.epoch == bench.speaker.epoch
            await bench.hush(2500)
            await bench.quiet()
            asked = bench.now_ms
            bench.model.thinker.calls = ()
            await bench.say(600)
            bench.asr.streams[-1].text = "the last q7"
            await bench.hush(700)
            await bench.quiet()
            assert bench.heard(asked) == [700 + word for word in range(40)]
            assert bench.session.guess is None
            assert not bench.session.unanswered

    run(work)

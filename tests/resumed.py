"""Callers who go on after a reply was begun ahead, in calls on the real model and the real tools; words are scripted.

A dialogue is played twice: once with each of its turns resumed after a guess, once by a session that never guesses.
No audio is recognised, and no time is waited for: the caller's samples are the clock, which stands still while a guess
is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from demos.ordering.agent import agent as clerk
from demos.ordering.cart import Cart
from tests.call_fakes import Bench
from tests.fakes import FakeModel
from voice_agent.engine.protocols import Language
from voice_agent.engine.reply import Engine
from voice_agent.hearing import Utterance
from voice_agent.session import Session

Kind = Literal["at once", "after the tool", "after the first sound", "corrected", "twice"]
KINDS: tuple[Kind, ...] = ("at once", "after the tool", "after the first sound", "corrected", "twice")
CUT_AFTER_PACKETS = 30
"""A reply is cut off after so many packets of 20 ms, but for the one that tells of the placed order."""

_DRINKS: dict[Language, tuple[str, ...]] = {
    "zh": ("珍珠奶茶", "拿铁", "乌龙茶", "芋圆奶茶", "茉莉绿茶", "杨枝甘露", "柠檬红茶", "抹茶拿铁"),
    "en": ("pearl milk tea", "latte", "oolong tea", "taro milk tea", "jasmine green tea", "mango sago", "americano"),
}
_MORE: dict[Language, tuple[str, ...]] = {
    "zh": ("，少冰", "，半糖", "，大杯", "，再来一杯乌龙茶"),
    "en": (" with less ice", " with half sugar", ", large", " and one oolong tea"),
}


@dataclass(frozen=True)
class Resumed:
    """A turn: the transcripts at its pauses, each of which is guessed on, and that of all of it."""

    kind: Kind
    language: Language
    pauses: tuple[str, ...]
    whole: str
    to_the_end: bool = False


def dialogue(chance: random.Random, kinds: Sequence[Kind]) -> list[Resumed]:
    """An order of as many turns as there are kinds: drinks, a change, and the word to place it."""
    language: Language = chance.choice(("zh", "zh", "en"))
    zh = language == "zh"
    turns = []
    for place, kind in enumerate(kinds):
        if place == len(kinds) - 1:
            first, more = (
                ("就这些，下单吧", "，谢谢") if language == "zh" else ("that's all, place the order", ", thanks")
            )
        elif place == 2:
            first, more = ("第一杯改成大杯", "，去冰") if zh else ("make the first one large", ", no ice")
        else:
            drink = chance.choice(_DRINKS[language])
            first = f"我要{chance.choice('一两三')}杯{drink}" if zh else f"I'd like one {drink}"
            more = chance.choice(_MORE[language])
        pauses, whole = (first,), first + more
        if kind == "twice":
            polite = "，麻烦你" if zh else " please"
            pauses, whole = (first, first + more), first + more + polite
        elif kind == "corrected":
            # With more of the sound the recogniser understands the beginning differently.
            drink = chance.choice(_DRINKS[language])
            pauses = (f"来一杯{drink}" if zh else f"one {drink} please",)
        turns.append(Resumed(kind, language, pauses, whole, to_the_end=place == len(kinds) - 1))
    return turns


class Unguessing(Session):
    """Begins no reply before the turn is over."""

    def begin_guess(self, utterance: Utterance) -> None:
        pass


@dataclass
class Played:
    """What a dialogue left behind, and what happened on the way. `traces`: of guesses, as they were found."""

    cart: Any = None
    orders: list[int] = field(default_factory=list)
    history: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    guesses: Counter[str] = field(default_factory=Counter)
    traces: list[str] = field(default_factory=list)
    tools_kept: int = 0
    turns_guessed: int = 0


class Order(Bench):
    """A call of the clerk's on a shared engine."""

    def __init__(self, engine: Engine, session: type[Session]) -> None:
        super().__init__(FakeModel(), [""])
        self.engine.close()
        self.engine = self.runtime.engine = engine
        self.agent = self.runtime.agent = clerk
        self.runtime.schemas = clerk.schemas()
        self.session = session("call1", self.runtime, self.speaker, self.events.append)
        self.played, self.fed, self.replies, self.cuts = Played(), 0, 0, 0

    async def say(self, ms: int) -> None:
        await self._feed(ms, 1000)

    async def hush(self, ms: int = 700) -> None:
        await self._feed(ms, 0)

    async def _feed(self, ms: int, level: int) -> None:
        pcm = np.full(16 * ms, level, np.int16)
        self.session.feed(pcm)
        self.fed += len(pcm)
        await self.until(lambda: self.session.floor.hearing.now == self.fed)

    @property
    def cart(self) -> Cart:
        cart = self.session.call.state
        assert isinstance(cart, Cart)
        return cart

    @property
    def slots_in_use(self) -> int:
        return sum(stage.slots_in_use for stage in (self.engine.thinker, self.engine.talker, self.engine.codec))

    def state(self) -> dict[str, Any]:
        """All that a guess could have left in the call and in the stages."""
        session = self.session
        return {
            "cart": (self.cart.lines, self.cart.orders),
            "history": tuple(session.conversation.messages),
            "events": tuple(str(event) for event in self.events),
            "open calls": tuple(session.open_calls),
            "unanswered": tuple(session.unanswered),
            "language": session.call.language,
            "audio": (self.speaker.queued_ms, self.speaker.sent()),
            "turn": session.turn,
            "slots": self.slots_in_use,
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.session.run())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            self.session.close("the dialogue is over")
            await task

    async def hear(self, turn: Resumed, *, resumed: bool) -> None:
        """One turn, until its reply is over."""
        await self.say(600)
        stream = self.asr.streams[-1]
        stream.language = turn.language
        guesses = self.played.guesses.total()
        for text in turn.pauses if resumed else ():
            before = self.state()
            stream.text = text
            await self.hush(96)
            if await self._guess(turn.kind):
                self.played.guesses[turn.kind] += 1
            await self.say(300)
            await self.until(lambda: self.session.guess is None and self.slots_in_use == 0)
            after = self.state()
            self.played.traces += [f"{turn.kind}: {name}" for name in before if before[name] != after[name]]
        self.played.turns_guessed += self.played.guesses.total() > guesses
        stream.text = turn.whole
        while self.session.turn is None:
            await self.hush(100)
            if resumed:
                await self._until_first_sound()
        await self._play(to_the_end=turn.to_the_end)

    async def _guess(self, kind: Kind) -> bool:
        """Wait for the moment at which the caller is to go on. False: these words are not guessed on."""
        session = self.session
        # Words that are not likely enough to be all of it are judged, and no guess is begun.
        judged = await self._within(lambda: session.guess is not None and session.guess.reply is not None)
        guess = session.guess
        if not judged or guess is None:
            return False
        if kind == "after the tool":
            return await self._within(lambda: bool(guess._results))
        if kind in ("after the first sound", "twice"):
            return await self._until_first_sound()
        return True

    async def _until_first_sound(self) -> bool:
        guess = self.session.guess
        reply = guess.reply if guess is not None else None
        return reply is not None and await self._within(lambda: bool(reply.marks.first_chunk))

    @staticmethod
    async def _within(condition: Callable[[], bool], seconds: float = 3.0) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.001)
        return condition()

    async def _play(self, *, to_the_end: bool) -> None:
        turn = self.session.turn
        assert turn is not None
        # How much was written when a reply is cut off is a matter of time: here it is all of it.
        await self.until(lambda: self.kinds().count("response.done") > self.replies)
        self.replies += 1
        await self.until(lambda: turn.all_written or self.speaker.queued_ms >= 20 * CUT_AFTER_PACKETS)
        if to_the_end or self.speaker.queued_ms < 20 * CUT_AFTER_PACKETS:
            while self.session.turn is turn:
                if self.speaker.queued_ms or turn.all_written:
                    await self.play(1)
                await asyncio.sleep(0.0005)
        else:
            await self.play(CUT_AFTER_PACKETS)
            self.session.receive({"type": "output_audio_buffer.clear"})
            self.cuts += 1
        # The receipts of a reply that was cut off come late; they are its own, and no trace of the next guess.
        await self.until(lambda: self.slots_in_use == 0 and self.kinds().count("agent.turn.receipts") == self.cuts)


async def play(engine: Engine, turns: Sequence[Resumed], *, resumed: bool) -> Played:
    """A dialogue with each turn resumed after a guess, or else said in one go to a session that never guesses."""
    order = Order(engine, Session if resumed else Unguessing)
    async with order.running():
        for turn in turns:
            await order.hear(turn, resumed=resumed)
        played = order.played
        played.cart, played.orders = order.cart.view(), [placed.number for placed in order.cart.orders]
        played.history = [
            (
                message.role,
                message.text,
                [(call.name, dict(call.arguments)) for call in message.tool_calls],
                message.result,
            )
            for message in order.session.conversation.messages
        ]
        played.events = told(order.events)
        played.tools_kept = sum(event["type"] == "agent.tool.called" for event in order.events)
    return played


_VARYING = ("id", "_ms", "seconds", "expires_at")
_TIMED = ("agent.playout.heard", "agent.turn.latency", "agent.turn.receipts")


def told(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a client was told, without ids, times and what is told as time goes by."""
    return [_plain(event) for event in events if event["type"] not in _TIMED]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {
            key: _plain(of) for key, of in value.items() if not key.endswith(("id", "_ms", "seconds", "expires_at"))
        }
        return kept
    return [_plain(of) for of in value] if isinstance(value, list) else value


def differences(one: Played, other: Played) -> list[str]:
    """What a dialogue whose turns were resumed left differently."""
    left = ("cart", "orders", "history", "events", "tools_kept")
    return [name for name in left if getattr(one, name) != getattr(other, name)]

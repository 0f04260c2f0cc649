"""Text chats beside voice calls on tea-omni's stages: what each has of its own speed when the other is there.

Four callers hear each reply in real time and ask again a second later; four chats ask as soon as they are answered.
Each alone and both together, with the stages as threads of one process, and with thinker and speech in a process each.
"""

from __future__ import annotations

import asyncio
import functools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.evidence._listener import Listener
from tests.evidence.tools import ROOT, quantiles
from voice_agent.agent import Agent
from voice_agent.engine.placement import place_stages
from voice_agent.engine.places import Place
from voice_agent.engine.protocols import Message, StageName, ThinkRequest
from voice_agent.engine.reply import Engine
from voice_agent.evaluate import Dialogue, read_dialogues
from voice_agent.loading import load_agent
from voice_agent.runtime import SWITCH_INTERVAL_S
from voice_agent.tea.model import TeaOmni

TRIALS = 48  # spoken replies in each run
CALLS = CHATS = 4
PAUSE_S, TICK_S, TEXT_ALONE_S = 1.0, 0.05, 20.0
PLACES: dict[str, list[Place]] = {
    "threads of one process": [],
    "a process for the thinker, one for speech": [
        Place(stages=("thinker",), process=True),
        Place(stages=("talker", "codec"), process=True),
    ],
}


def load_tea(stages: Sequence[StageName], device: str) -> dict[StageName, Any]:
    """tea-omni's parts for a place."""
    if device not in ("", "cpu"):
        raise ValueError(f"expected the device cpu, got {device!r}")
    model = _tea()
    return {stage: getattr(model, stage) for stage in stages}


@functools.lru_cache(1)
def _tea() -> TeaOmni:
    torch.set_num_threads(1)
    return TeaOmni.load(slots=2 * (CALLS + CHATS))


@dataclass
class Heard:
    """What a run gave: TTFC of the spoken replies, tokens of the written ones, and how long it lasted."""

    ttfc_ms: list[float] = field(default_factory=list)
    tokens: int = 0
    lasted_s: float = 0.0

    def view(self) -> dict[str, Any]:
        voice = {"voice_ttfc_ms": quantiles(self.ttfc_ms)} if self.ttfc_ms else {}
        return voice | ({"text_tokens_per_s": round(self.tokens / self.lasted_s, 1)} if self.tokens else {})


class Reader(Listener):
    """Of a reply that is only read."""

    def on_text_done(self) -> None:
        self.done.set()


async def run(seed: int, trials: int) -> dict[str, Any]:
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as in a server
    agent = load_agent()
    asked = list(read_dialogues(ROOT / "tests" / "dialogues" / "hand_150.jsonl"))
    random.Random(seed).shuffle(asked)
    table = {}
    for name, places in PLACES.items():
        with _engine(places) as engine:
            await _measure(engine, agent, asked, voice=CALLS, text=CHATS)  # warm
            table[name] = {
                "voice alone": (await _measure(engine, agent, asked, voice=trials)).view(),
                "text alone": (await _measure(engine, agent, asked, text=CHATS, seconds=TEXT_ALONE_S)).view(),
                "mixed": (await _measure(engine, agent, asked, voice=trials, text=CHATS)).view(),
            }
    ratios = {name: _ratio(runs) for name, runs in table.items()}
    _print(table)
    return {"calls": CALLS, "chats": CHATS, "runs": table, "voice_ttfc_p95_mixed_to_alone": ratios,
            "passed": max(ratios.values()) <= 1.5}  # fmt: skip


def _print(table: dict[str, Any]) -> None:
    print(f"{'':44}{'':14}{'voice TTFC p50':>15}{'p95':>7} ms{'text tokens/s':>16}")
    for name, runs in table.items():
        for what, run in runs.items():
            voice = run.get("voice_ttfc_ms", {"p50": "", "p95": ""})
            print(f"{name:44}{what:14}{voice['p50']:>15}{voice['p95']:>7}{run.get('text_tokens_per_s', ''):>19}")


def _ratio(runs: dict[str, Any]) -> float:
    mixed, alone = (runs[name]["voice_ttfc_ms"]["p95"] for name in ("mixed", "voice alone"))
    return round(mixed / alone, 2)


@contextmanager
def _engine(places: Sequence[Place]) -> Iterator[Engine]:
    engine = Engine(_tea(), stages=place_stages(places, load_tea, ahead_ms=1500, threads=1))
    try:
        yield engine
    finally:
        engine.close()


async def _measure(
    engine: Engine, agent: Agent, asked: Sequence[Dialogue], *, voice: int = 0, text: int = 0, seconds: float = 0.0
) -> Heard:
    """`voice` spoken replies by `CALLS` callers, beside them (or for so many seconds) `text` chats."""
    heard, since = Heard(), time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        chats = [tasks.create_task(_chat(engine, agent, asked[number::text], heard)) for number in range(text)]
        async with asyncio.TaskGroup() as callers:
            for number in range(CALLS if voice else 0):
                callers.create_task(_call(engine, agent, asked[number::CALLS], voice // CALLS, heard))
        await asyncio.sleep(seconds)
        heard.lasted_s = time.perf_counter() - since
        for chat in chats:
            chat.cancel()
    return heard


def _request(agent: Agent, dialogue: Dialogue) -> ThinkRequest:
    return ThinkRequest((Message("user", dialogue.turns[0]),), dialogue.lang, tools=agent.schemas())


async def _call(engine: Engine, agent: Agent, asked: Sequence[Dialogue], turns: int, heard: Heard) -> None:
    for number in range(turns):
        await asyncio.sleep(PAUSE_S * random.random() * 2)
        listener = Listener(agent)
        reply = listener.reply = engine.reply(_request(agent, asked[number % len(asked)]), listener)
        began = 0.0
        while not listener.done.is_set() or _left_s(engine, listener, began) > 0:
            await asyncio.sleep(TICK_S)
            if listener.pcm and not began:
                began = time.perf_counter()
                heard.ttfc_ms.append(1000 * (reply.marks.first_chunk - reply.marks.submitted))
            if began:
                there = sum(map(len, listener.pcm))
                reply.played(min(there, int((time.perf_counter() - began) * engine.sample_rate)))
        _check(listener)


def _left_s(engine: Engine, listener: Listener, began: float) -> float:
    """How long the listener will still hear what is there."""
    return sum(map(len, listener.pcm)) / engine.sample_rate - (time.perf_counter() - began)


async def _chat(engine: Engine, agent: Agent, asked: Sequence[Dialogue], heard: Heard) -> None:
    for number in range(1 << 30):
        reader = Reader(agent)
        reply = reader.reply = engine.reply(_request(agent, asked[number % len(asked)]), reader, speak=False)
        try:
            await reader.done.wait()
        except asyncio.CancelledError:
            await reply.abort()
            raise
        finally:
            heard.tokens += len(reply.pieces)
        _check(reader)


def _check(listener: Listener) -> None:
    if listener.failed is not None:
        raise RuntimeError(f"stage {listener.failed[0]} failed") from listener.failed[1]

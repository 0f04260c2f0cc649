"""Stages in processes of their own: the output and throughput of 4 callers beside threads; processes killed in calls.

Callers: each hears its replies as fast as they are made. Kills: four WebRTC calls of a server whose talker and codec
are in a process that is killed while all of them hear a reply; each hears the notice, and asks again until it is
answered.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import yaml

from tests.evidence._listener import Listener
from tests.evidence.tools import quantiles, shown
from voice_agent.calling import own_server
from voice_agent.client import CallClient
from voice_agent.engine.placement import place_stages
from voice_agent.engine.places import Place
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import Engine
from voice_agent.loading import load_agent
from voice_agent.models import describe, load_parts
from voice_agent.qwen.config import QwenConfig
from voice_agent.runtime import SWITCH_INTERVAL_S

TRIALS = 20
CALLERS, REPLIES, ROUNDS = 4, 4, 2
MID_REPLY_S, CALL_S, MOST_TRIES = 0.3, 60.0, 3
SPEECH = Place(stages=("talker", "codec"), process=True)
PLACEMENTS: dict[str, list[Place]] = {
    "threads": [],
    "speech in a process": [SPEECH],
    "each stage in a process": [Place(stages=(stage,), process=True) for stage in ("thinker", "talker", "codec")],
}
SAID = (("我要一杯少冰的珍珠奶茶", "zh"), ("two large lattes with no sugar please", "en"))


async def run(seed: int, trials: int) -> dict[str, Any]:
    """`trials`: processes that are killed."""
    torch.set_num_threads(1)  # as in a server
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    agent = load_agent()
    rounds: dict[str, list[Round]] = {name: [] for name in PLACEMENTS}
    for name in shown(list(PLACEMENTS) * ROUNDS, "placement"):  # in turn, as a machine's other load comes and goes
        rounds[name].append(await _callers(agent, PLACEMENTS[name]))
    heard = rounds["threads"][0].heard
    throughput = {
        name: {
            "speech_s_per_s": [round(one.speech_s / one.took_s, 2) for one in several],
            "ttfc_ms": quantiles([ttfc for one in several for ttfc in one.ttfc_ms]),
            "largest_difference": max(_difference(heard, one.heard) for one in several),
        }
        for name, several in rounds.items()
    }
    kills = await _kills(trials)
    same = all(figures["largest_difference"] <= 1e-4 for figures in throughput.values())
    mended = kills["answered"] == kills["calls"] and kills["processes_started_again"] == trials
    fast = kills["calls_cut_off"] > 0 and kills["noticed_ms"]["max"] <= 1000
    return {
        "callers": CALLERS,
        "throughput": throughput,
        "kills": kills,
        "passed": same and mended and fast and kills["server_lives"],
    }


@dataclass(frozen=True)
class Round:
    """What the callers heard, the seconds of it, the seconds that it took, and each reply's TTFC."""

    heard: list[Listener]
    speech_s: float
    took_s: float
    ttfc_ms: list[float]


async def _callers(agent: Any, places: Sequence[Place]) -> Round:
    load = partial(load_parts, agent.model, CALLERS, QwenConfig())
    stages = await asyncio.to_thread(place_stages, places, load, ahead_ms=1500, threads=1)
    engine = Engine(describe(agent.model), stages=stages)

    async def caller(replies: int) -> list[tuple[Listener, float]]:
        return [await _reply(engine, agent, *SAID[number % len(SAID)]) for number in range(replies)]

    try:
        await asyncio.gather(*(caller(1) for _ in range(CALLERS)))  # warm
        began = time.perf_counter()
        made = await asyncio.gather(*(caller(REPLIES) for _ in range(CALLERS)))
        took_s = time.perf_counter() - began
    finally:
        await asyncio.to_thread(engine.close)
    heard = [listener for replies in made for listener, _ in replies]
    samples = sum(len(pcm) for listener in heard for pcm in listener.pcm)
    return Round(heard, samples / engine.sample_rate, took_s, [ttfc for replies in made for _, ttfc in replies])


async def _reply(engine: Engine, agent: Any, text: str, language: Any) -> tuple[Listener, float]:
    listener = Listener(agent)
    began = time.perf_counter()
    reply = listener.reply = engine.reply(
        ThinkRequest((Message("user", text),), language, tools=agent.schemas()), listener
    )
    while not listener.done.is_set():
        reply.played(sum(map(len, listener.pcm)))
        await asyncio.sleep(0.01)
    if listener.failed is not None:
        raise RuntimeError(f"stage {listener.failed[0]} failed") from listener.failed[1]
    return listener, 1000 * (reply.marks.first_chunk - began)


def _difference(some: Sequence[Listener], others: Sequence[Listener]) -> float:
    """Between samples of the same replies, decoded in other chunks. Infinite: other words, positions or length."""
    largest = 0.0
    for one, other in zip(some, others, strict=True):
        assert one.reply is not None
        assert other.reply is not None
        mine, theirs = np.concatenate(one.pcm), np.concatenate(other.pcm)
        if one.reply.spoken != other.reply.spoken or len(mine) != len(theirs):
            return float("inf")
        largest = max(largest, float(np.abs(mine - theirs).max()))
    return largest


async def _kills(trials: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.yaml"
        path.write_text(yaml.safe_dump({"engine": {"placement": [{"stages": ["talker", "codec"], "process": True}]}}))
        async with own_server("--config", str(path)) as url:
            each = [await _kill(url) for _ in shown(range(trials), "kill")]
            async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                lives = (await client.get(f"{url}/healthz")).status_code == 200
                stats = (await client.get(f"{url}/v1/calls/stats")).json()
    calls = [call for kill in each for call in kill]
    return {
        "processes_started_again": stats["engine"]["codec"]["restarts"],
        "calls": len(calls),
        "calls_cut_off": sum(call.noticed_ms is not None for call in calls),
        "noticed_ms": quantiles([call.noticed_ms for call in calls if call.noticed_ms is not None]),
        "asked_again": {tries: sum(call.asked_again == tries for call in calls) for tries in range(1, MOST_TRIES + 1)},
        "answered": sum(call.answered for call in calls),
        "server_lives": lives,
    }


@dataclass
class Victim:
    """A call that is in mid reply when the speech process is killed, and then asks again until it is answered.

    noticed_ms: from the kill until its client was told; None: the reply was whole by then.
    """

    killed_at: list[float]
    speaks: asyncio.Event = field(default_factory=asyncio.Event)
    noticed_ms: float | None = None
    asked_again: int = 0
    answered: bool = False

    async def run(self, url: str) -> None:
        failed = False
        async with asyncio.timeout(CALL_S), CallClient(url) as call:
            call.write(SAID[0][0])
            async for event in call.events():
                kind = event.data["type"]
                if kind == "response.created":
                    failed = False
                elif kind == "agent.stage.failed":
                    failed = True
                    if self.noticed_ms is None and self.killed_at:
                        self.noticed_ms = round(1000 * (time.perf_counter() - self.killed_at[0]), 1)
                elif kind == "output_audio_buffer.started" and not failed:
                    self.speaks.set()
                    self.answered = self.asked_again > 0
                    if self.answered:
                        return
                elif kind == "output_audio_buffer.stopped":  # of a reply, or of the notice that it failed
                    if self.asked_again == MOST_TRIES:
                        return
                    self.asked_again += 1
                    call.write(SAID[0][0])


async def _kill(url: str) -> list[Victim]:
    """Callers at once; the speech process is killed when all of them hear their reply."""
    killed_at: list[float] = []
    victims = [Victim(killed_at) for _ in range(CALLERS)]
    async with asyncio.TaskGroup() as tasks:
        for victim in victims:
            tasks.create_task(victim.run(url))
        for victim in victims:
            await victim.speaks.wait()
        await asyncio.sleep(MID_REPLY_S)
        killed_at.append(time.perf_counter())
        os.kill(_speech_process(), signal.SIGKILL)
    return victims


def _speech_process() -> int:
    """The one child of the server, which is the one child of this process that has one."""
    (process,) = (child for server in _children(os.getpid()) for child in _children(server))
    return process


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]

"""Aborts at random moments on the shipped model: slots, threads, tasks, descriptors and memory as before."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from pathlib import Path
from typing import Any

import torch

from tests.evidence._listener import Listener
from tests.evidence.tools import quantiles, shown
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import Engine
from voice_agent.loading import load_agent
from voice_agent.models import load_model

TRIALS = 1000
REQUESTS = (
    ("我要一杯少冰的珍珠奶茶", "zh"),
    ("two large lattes with no sugar please", "en"),
    ("重复一下我点了什么", "zh"),
)


async def run(seed: int, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    chance = random.Random(seed)
    agent = load_agent()
    engine = Engine(load_model(agent.model, slots=4), ahead_ms=1500)
    freed: list[float] = []
    try:
        for _ in range(50):
            await _abort(engine, agent, chance)
        before = _footprint()
        for _ in shown(range(trials), "abort"):
            freed += await _abort(engine, agent, chance)
        after = _footprint()
        in_use = {stage.name: stage.slots_in_use for stage in (engine.thinker, engine.talker, engine.codec)}
    finally:
        engine.close()
    grown = {name: after[name] - before[name] for name in before}
    steady = grown["threads"] == grown["tasks"] == grown["descriptors"] == 0 and grown["rss_mib"] <= 20
    return {
        "before": before,
        "after": after,
        "slots_in_use": in_use,
        "stage_freed_ms": quantiles(freed),
        "passed": steady and not any(in_use.values()),
    }


async def _abort(engine: Engine, agent: Any, chance: random.Random) -> list[float]:
    text, language = chance.choice(REQUESTS)
    listener = Listener(agent)
    request = ThinkRequest((Message("user", text),), language, tools=agent.schemas())  # type: ignore[arg-type]
    listener.reply = engine.reply(request, listener)
    await asyncio.sleep(chance.choice((0, 0.005, 0.02, 0.05, 0.1)) * chance.random() * 2)
    return [receipt.ms for receipt in await listener.reply.abort()]


def _footprint() -> dict[str, int]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") >> 20,
    }

"""Calls ended in every way against a server of its own: tasks, slots, descriptors, sockets and memory as before."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx

from tests.evidence.tools import ORDER, shown
from tests.media_fakes import ENDINGS, end_one_call
from voice_agent.calling import own_server
from voice_agent.client import CallClient, CallRefused

TRIALS = 200
WARM_UP = 20
AT_ONCE = 4
SETTLE_S = 45.0
IDLE_S = 5.0
"""After the last call the server and its process collect what was left, and give memory back, within seconds."""
GROWTH = {"tasks": 0, "threads": 2, "descriptors": 2, "sockets": 2, "rss_mib": 20}


async def run(seed: int, trials: int) -> dict[str, Any]:
    chance = random.Random(seed)
    ways = [chance.choice(ENDINGS) for _ in range(trials)]
    async with own_server() as url:
        for _ in range(2):
            await _in_a_reply(url)
        fresh = await _settled(url)
        await _all(url, [ENDINGS[number % len(ENDINGS)] for number in range(WARM_UP)])
        before = await _settled(url)
        await _all(url, ways)
        await _settled(url)
        await _in_a_reply(url)
        after = await _settled(url)
    grown = {name: after["process"][name] - before["process"][name] for name in GROWTH}
    return {
        "ways": {way: ways.count(way) for way in ENDINGS},
        "ended": after["calls"]["ended"],
        "before_warm_up": fresh["process"],
        "before": before["process"],
        "after": after["process"],
        "grown": grown,
        "engine_before": before.get("engine"),
        "engine_after": after.get("engine"),
        "calls_left": after["calls"]["active"],
        "passed": after["calls"]["active"] == 0 and all(grown[name] <= most for name, most in GROWTH.items()),
    }


async def _all(url: str, ways: list[str]) -> None:
    waiting = iter(shown(ways, "call"))

    async def caller() -> None:
        for way in waiting:
            while True:
                try:
                    await end_one_call(url, way)
                    break
                except CallRefused as refused:
                    # Killed callers hold their slots until the server has noticed.
                    if refused.status not in (429, 503):
                        raise
                    await asyncio.sleep(1)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))


async def _in_a_reply(url: str) -> None:
    """A caller who is gone in the middle of a real reply."""
    async with CallClient(url, connect_s=30) as call:
        await call.play(ORDER)
        async with asyncio.timeout(30):
            await call.wait_for("output_audio_buffer.started")


async def _settled(url: str) -> dict[str, Any]:
    """The server's figures once no call is left and its pools are idle."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client, asyncio.timeout(SETTLE_S):
        while True:
            figures: dict[str, Any] = (await client.get(f"{url}/v1/calls/stats")).json()
            if figures["calls"]["active"] == 0:
                await asyncio.sleep(IDLE_S)
                return dict((await client.get(f"{url}/v1/calls/stats")).json())
            await asyncio.sleep(0.5)

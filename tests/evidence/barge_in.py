"""Barge-in at random moments of a reply: how soon it stops, what of it comes later, how fast the stages free."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from tests.evidence.tools import ORDER, ORDER_EN, quantiles, shown
from voice_agent.calling import own_server
from voice_agent.client import CallClient, Event, Piece, voiced

TRIALS = 100
STOP_MS = 450


async def run(seed: int, trials: int) -> dict[str, Any]:
    chance = random.Random(seed)
    each = []
    async with own_server() as url:
        for _ in shown(range(trials), "barge-in"):
            each.append(await trial(url, chance.uniform(0.1, 1.6)))
    stops = [trial["stop_ms"] for trial in each if trial["stop_ms"] is not None]
    in_time = sum(stop <= STOP_MS for stop in stops)
    stale = sum(trial["stale_frames"] for trial in each)
    freed = [receipt["ms"] for trial in each for receipt in trial["receipts"]]
    return {
        "stop_ms": quantiles(stops),
        "stopped_in_time": f"{in_time}/{trials}",
        "stale_frames": stale,
        "stage_freed_ms": quantiles(freed),
        "passed": in_time >= 0.98 * trials and stale == 0,
        "each": each,
    }


async def trial(url: str, delay_s: float) -> dict[str, Any]:
    """One call: an order, and `delay_s` into the spoken reply another voice over it."""
    async with CallClient(url) as call:
        events: list[Event] = []
        started, cleared, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
        marks = {
            "output_audio_buffer.started": started,
            "output_audio_buffer.cleared": cleared,
            "agent.turn.receipts": told,
        }

        async def listen() -> None:
            async for event in call.events():
                events.append(event)
                if event.data["type"] in marks:
                    marks[event.data["type"]].set()

        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(listen())
            await asyncio.sleep(0.5)
            await call.play(ORDER)
            await asyncio.wait_for(started.wait(), 20)
            await asyncio.sleep(delay_s)
            begins = len(call.sent)
            call.say(ORDER_EN)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), 5)
            await asyncio.sleep(0.4)
            call.hush()
            listening.cancel()
        onset = next(piece.at for piece in call.sent[begins:] if voiced(piece.pcm)) - 0.02
        return {"delay_s": round(delay_s, 3), **_outcome(call.received, events, onset, cleared.is_set())}


def _outcome(received: list[Piece], events: list[Event], onset: float, cleared: bool) -> dict[str, Any]:
    kinds = [event.data["type"] for event in events]
    cut_at = events[kinds.index("output_audio_buffer.cleared")].at if cleared else None
    later = [e.at for e in events if e.data["type"] == "output_audio_buffer.started" and cut_at and e.at > cut_at]
    until = later[0] if later else float("inf")
    heard = [piece.at + 0.02 for piece in received if voiced(piece.pcm) and onset < piece.at < until]
    receipts = next((e.data["receipts"] for e in events if e.data["type"] == "agent.turn.receipts"), [])
    # A packet may be on its way when the event is sent: stale is what arrives more than two packets after it.
    stale = [at for at in heard if cut_at is not None and at > cut_at + 0.06]
    return {
        "stop_ms": round(1000 * (max(heard) - onset), 1) if heard and cleared else (0.0 if cleared else None),
        "stale_frames": len(stale),
        "receipts": receipts,
    }

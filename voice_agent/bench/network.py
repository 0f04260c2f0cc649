"""A bad network inside the caller's own transport, where no network namespaces can be had.

Every datagram of an established connection, media and data alike, passes an `Impairment` on its way out and in.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Network(BaseModel):
    """One direction's delay (normal around `delay_ms`), loss, and what happens at set times after the start.

    Independent delays reorder packets; `reorder: false` keeps their order. `lose_at_s`: the first packet from each of
    these times on is lost; `outage_s`: nothing passes from the first to the second time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_ms: float = Field(0, ge=0, le=5000)
    jitter_ms: float = Field(0, ge=0, le=1000)
    loss_pct: float = Field(0, ge=0, lt=100)
    reorder: bool = True
    lose_at_s: tuple[float, ...] = ()
    outage_s: tuple[float, float] | None = None


class Impairment:
    """When each datagram of one direction arrives. Sans-IO; times in seconds on the clock of `now`."""

    def __init__(self, network: Network, seed: int, start: float) -> None:
        self._network = network
        self._random = random.Random(seed)
        self._start = start
        self._losses = sorted(network.lose_at_s)
        self._last = start

    def arrival(self, now: float) -> float | None:
        """When what is sent now arrives; None: never."""
        network, since = self._network, now - self._start
        if self._losses and since >= self._losses[0]:
            self._losses.pop(0)
            return None
        if network.outage_s and network.outage_s[0] <= since < network.outage_s[1]:
            return None
        if self._random.random() * 100 < network.loss_pct:
            return None
        at = now + max(0.0, self._random.gauss(network.delay_ms, network.jitter_ms)) / 1000
        if not network.reorder:
            at = self._last = max(at, self._last)
        return at


class _Pipe:
    """Holds each datagram until it is due. At most `limit` are under way; beyond that the newest is dropped."""

    def __init__(self, impairment: Impairment, deliver: Callable[[bytes], Awaitable[None]], limit: int = 2000) -> None:
        self._impairment = impairment
        self._deliver = deliver
        self._limit = limit
        self._due: list[tuple[float, int, bytes]] = []
        self._number = itertools.count()
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        at = self._impairment.arrival(time.monotonic())
        if at is not None and len(self._due) < self._limit:
            heapq.heappush(self._due, (at, next(self._number), data))
            self._news.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._news.clear()
            wait = self._due[0][0] - time.monotonic() if self._due else None
            if wait is not None and wait <= 0:
                await self._deliver(heapq.heappop(self._due)[2])
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                continue


def impair(ice_transport: Any, network: Network, seed: int, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
    """Put `network` on both directions of an aiortc ICE transport that has not started; gives the tasks to cancel."""
    start = time.monotonic()
    send, receive = ice_transport._send, ice_transport._recv
    arrived: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=2000)  # bounded like the pipe before it

    async def out(data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the connection is gone; its own receiver says so
            await send(data)

    async def arrive(data: bytes) -> None:
        await arrived.put(data)

    outgoing = _Pipe(Impairment(network, 2 * seed, start), out)
    incoming = _Pipe(Impairment(network, 2 * seed + 1, start), arrive)

    async def listen() -> None:
        try:
            while True:
                incoming.put(await receive())
        except ConnectionError:
            await arrived.put(None)

    listening: list[asyncio.Task[None]] = []

    async def delayed_receive() -> bytes:
        # aioice can be read once the connection is up, which is when DTLS asks first.
        if not listening:
            listening.append(tasks.create_task(listen()))
            running.append(listening[0])
        data = await arrived.get()
        if data is None:
            raise ConnectionError("the connection is closed")
        return data

    async def delayed_send(data: bytes) -> None:
        outgoing.put(data)

    ice_transport._send, ice_transport._recv = delayed_send, delayed_receive
    running = [tasks.create_task(outgoing.run()), tasks.create_task(incoming.run())]
    return running

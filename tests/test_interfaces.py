"""Calls on a machine with more interfaces than one (containers, VPN, bridge), and with a STUN server or without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import aioice.stun
import numpy as np
import pytest

from tests.media_fakes import running_server
from tests.networks import Host, host, needs_namespaces
from voice_agent.client import CallClient, voiced

pytestmark = needs_namespaces

CONNECTS = 10


class Stun(asyncio.DatagramProtocol):
    """Tells whoever asks its address; or, `dead`, nothing."""

    def __init__(self, dead: bool) -> None:
        self._dead = dead

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._dead:
            return
        asked = aioice.stun.parse_message(data)
        method, kind = aioice.stun.Method.BINDING, aioice.stun.Class.RESPONSE
        answer = aioice.stun.Message(method, kind, transaction_id=asked.transaction_id)
        answer.attributes["XOR-MAPPED-ADDRESS"] = addr
        self._transport.sendto(bytes(answer), addr)


@asynccontextmanager
async def stun_server(address: str, dead: bool) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Stun(dead), local_addr=(address, 0))
    yield f"stun:{address}:{transport.get_extra_info('sockname')[1]}"
    transport.close()


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    """Three bridges with an address each."""
    with host("172.30.1.1") as machine:
        for number in (1, 2, 3):
            machine.ip("link", "add", f"bridge{number}", "type", "bridge")
            machine.ip("addr", "add", f"172.30.{number}.1/24", "dev", f"bridge{number}")
            machine.ip("link", "set", f"bridge{number}", "up")
        yield machine


async def times(url: str, server_candidates: set[str]) -> tuple[float, float]:
    """Place a call whose agent speaks at once: seconds until the answer, and until its first sound."""
    began = time.monotonic()
    async with asyncio.timeout(20), CallClient(url) as call:
        call.send({"type": "response.create", "seconds": 0.1})
        while not any(voiced(piece.pcm) for piece in call.received):
            await asyncio.sleep(0.005)
        first = next(piece.at for piece in call.received if voiced(piece.pcm))
        sdp = call._pc.remoteDescription.sdp
        server_candidates.update(line.split()[4] for line in sdp.splitlines() if line.startswith("a=candidate:"))
        return call.answer_s, first - began


@pytest.mark.parametrize(
    ("stun", "answer_s"), [("none", 1.0), ("reachable", 1.0), ("unreachable", 2.0)], ids=lambda value: str(value)
)
def test_an_answer_waits_for_no_stun_server_longer_than_allowed(machine: Host, stun: str, answer_s: float) -> None:
    async def calls() -> list[tuple[float, float]]:
        async with stun_server(machine.address, stun == "unreachable") as url:
            known = () if stun == "none" else ({"urls": url},)
            offered: set[str] = set()
            async with running_server(host_candidates=(), ice_servers=known, max_calls=CONNECTS) as server:
                # Those who wait for a server that does not answer wait together.
                at_once = 2 if stun == "unreachable" else 1
                found = []
                for _ in range(CONNECTS // at_once):
                    found += await asyncio.gather(*[times(server.url, offered) for _ in range(at_once)])
            assert {f"172.30.{number}.1" for number in (1, 2, 3)} <= offered
            return found

    answers, sounds = np.array(machine.start(calls).result(120)).T
    p95 = [round(float(np.percentile(seconds, 95)), 2) for seconds in (answers, sounds)]
    print(f"STUN {stun}: answer p95 {p95[0]} s, first sound p95 {p95[1]} s")
    assert p95[0] <= answer_s
    assert p95[1] <= 3.0

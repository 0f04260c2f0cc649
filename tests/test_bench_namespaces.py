"""The network between two namespaces: real packets of real programs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from voice_agent.bench.namespaces import joined
from voice_agent.bench.network import Network

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/net/tun").exists() or shutil.which("ip") is None,
        reason="needs root, ip and TUN devices",
    ),
]

ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 9000))
print("up", flush=True)
while True:
    data, sender = server.recvfrom(2000)
    server.sendto(data, sender)
"""

PROBE = """
import json, socket, sys, time
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.setblocking(False)
left, came = {}, {}
for number in range(260):
    if number < 200:
        left[number] = time.monotonic()
        probe.sendto(str(number).encode(), (sys.argv[1], 9000))
    time.sleep(0.005)
    try:
        while True:
            back = int(probe.recv(100))
            came[back] = time.monotonic() - left[back]
    except BlockingIOError:
        pass
print(json.dumps(sorted(came.values())))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def namespaces() -> set[str]:
    folder = Path("/run/netns")
    return {path.name for path in folder.glob("bench-*")} if folder.exists() else set()


async def test_packets_are_held_and_lost_each_way_and_nothing_is_left_behind() -> None:
    before = namespaces()
    async with joined(Network(delay_ms=40, jitter_ms=5, loss_pct=10)) as (near, far):
        pipe = asyncio.subprocess.PIPE
        echo = await asyncio.create_subprocess_exec(*far.prefix, sys.executable, "-c", ECHO, stdout=pipe)
        try:
            assert echo.stdout is not None
            assert await echo.stdout.readline() == b"up\n"
            probe = await asyncio.create_subprocess_exec(
                *near.prefix, sys.executable, "-c", PROBE, far.address, stdout=pipe
            )
            told, _ = await probe.communicate()
        finally:
            echo.terminate()
            await echo.wait()
    trips = np.array(json.loads(told)) * 1000
    assert 130 <= len(trips) <= 190  # 0.9² of 200 are 162
    # Two ways of 40 ± 5 ms, and what a busy machine adds.
    assert 70 <= np.percentile(trips, 20) <= 140
    assert namespaces() == before


async def test_without_root_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionError, match="expected root"):
        async with joined(Network()):
            pass

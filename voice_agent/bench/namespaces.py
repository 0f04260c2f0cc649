"""A bad network between two network namespaces, where one is root: whole programs talk over it, unchanged.

Two TUN devices, one in each namespace, are joined by a program that holds every IP packet for as long as an
`Impairment` says, or drops it. Linux alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import secrets
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from voice_agent.bench.network import Impairment, Network

ADDRESSES = ("10.213.0.1", "10.213.0.2")
DEVICE = "bench0"
START_S = 10.0

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


@dataclass(frozen=True)
class Side:
    """A namespace: `prefix` goes before a command that is to run in it, `address` is its own."""

    prefix: tuple[str, ...]
    address: str


@asynccontextmanager
async def joined(network: Network, seed: int = 1) -> AsyncIterator[tuple[Side, Side]]:
    """Two fresh namespaces with `network` between them, each way; removed in the end.

    Raises PermissionError without root, FileNotFoundError without `ip` or TUN devices, ConnectionError if they do not
    come up.
    """
    if os.geteuid() != 0:
        raise PermissionError("expected root for network namespaces, got another user: put the network in the scenario")
    if not await asyncio.to_thread(Path("/dev/net/tun").exists):
        raise FileNotFoundError("expected /dev/net/tun for a network between namespaces, found none")
    names = [f"bench-{secrets.token_hex(3)}-{side}" for side in "ab"]
    made: list[str] = []
    emulator: asyncio.subprocess.Process | None = None
    try:
        for name in names:
            await _ip("netns", "add", name)
            made.append(name)
        command = [sys.executable, "-m", "voice_agent.bench.namespaces", *names, network.model_dump_json(), str(seed)]
        emulator = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert emulator.stdout is not None
        async with asyncio.timeout(START_S):
            line = await emulator.stdout.readline()
        if line != b"up\n":
            raise ConnectionError(f"expected the network between {names[0]} and {names[1]} to come up, got {line!r}")
        for name, own, peer in ((names[0], *ADDRESSES), (names[1], *reversed(ADDRESSES))):
            await _ip("-n", name, "addr", "add", own, "peer", peer, "dev", DEVICE)
            await _ip("-n", name, "link", "set", DEVICE, "up", "mtu", "1500")
            await _ip("-n", name, "link", "set", "lo", "up")
        first, second = (Side(("ip", "netns", "exec", name), own) for name, own in zip(names, ADDRESSES, strict=True))
        yield first, second
    finally:
        if emulator is not None and emulator.returncode is None:
            emulator.terminate()
            await emulator.wait()
        for name in made:
            await _ip("netns", "del", name)


async def _ip(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("ip", *arguments, stderr=asyncio.subprocess.PIPE)
    _, told = await process.communicate()
    if process.returncode:
        raise ConnectionError(f"ip {' '.join(arguments)}: {told.decode().strip()}")


@asynccontextmanager
async def server_in(side: Side, port: int = 8080) -> AsyncIterator[str]:
    """`voice-agent serve` in a namespace; gives its address there, and ends it by its pid.

    Raises ConnectionError if it does not come up.
    """
    command = [*side.prefix, sys.executable, "-m", "voice_agent", "serve", "--host", side.address, "--port", str(port)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(90):
                line = (await process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        if "http" not in line:
            raise ConnectionError(f"expected the server to print its address, got {line.strip()!r}")
        yield f"http://{side.address}:{port}"
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


def _open_tun(namespace: str) -> int:
    """A TUN device inside the namespace, as a descriptor that this process keeps."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        libc.setns(home, _CLONE_NEWNET)
    finally:
        os.close(home)
        os.close(there)
    return tun


async def _emulate(names: tuple[str, str], network: Network, seed: int) -> None:
    loop = asyncio.get_running_loop()
    first, second = (_open_tun(name) for name in names)
    start = time.monotonic()

    def deliver(device: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # a device that is down or full loses packets, as networks do
            os.write(device, packet)

    def forward(source: int, target: int, impairment: Impairment) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(source, 65_535)
                now = time.monotonic()
                at = impairment.arrival(now)
                if at is not None:
                    loop.call_later(at - now, deliver, target, packet)

    for direction, (source, target) in enumerate(((first, second), (second, first))):
        loop.add_reader(source, forward, source, target, Impairment(network, 2 * seed + direction, start))
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_emulate((sys.argv[1], sys.argv[2]), Network.model_validate_json(sys.argv[3]), int(sys.argv[4])))

"""Network namespaces of a test's own. A router joins two hosts, and may drop the UDP between them. Root, on Linux."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

NAMESPACES = os.geteuid() == 0 and shutil.which("ip") is not None
"""Whether this user can make them."""

needs_namespaces = pytest.mark.skipif(not NAMESPACES, reason="needs root and ip for network namespaces")

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Host:
    """A namespace: `prefix` goes before a command that is to run in it, `address` is its own. Without a name: here."""

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.name] if self.name else []

    def program(self, program: Path, folder: Path) -> Path:
        """A program, made in the folder, that is this one run on the host."""
        made = folder / program.name
        made.write_text(f'#!/bin/sh\nexec {" ".join(self.prefix)} {program} "$@"\n')
        made.chmod(0o755)
        return made

    def ip(self, *arguments: str) -> None:
        _ip("-n", self.name, *arguments)

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run this in a thread and an event loop of its own, whose sockets are those of the host."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                if self.name:
                    _enter(self.name)
                done.set_result(asyncio.run(work()))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name=self.name).start()
        return done

    @contextmanager
    def holding(self, opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Hold this open as `start` runs things, until the block ends."""
        value: Future[T] = Future()
        over = threading.Event()

        async def hold() -> None:
            async with opened as held:
                value.set_result(held)
                await asyncio.to_thread(over.wait)

        done = self.start(hold)
        done.add_done_callback(lambda done: None if value.done() else value.set_exception(done.exception()))
        try:
            yield value.result(30)
        finally:
            over.set()
            done.result(30)


@contextmanager
def host(address: str) -> Iterator[Host]:
    """A host with loopback alone; removed in the end."""
    name = f"voice-{secrets.token_hex(3)}"
    _ip("netns", "add", name)
    try:
        host = Host(name, address)
        # Addresses of IPv6 come a second late, and a browser then gives up what it is loading.
        for scope in ("all", "default"):
            subprocess.run([*host.prefix, "sysctl", "-q", "-w", f"net.ipv6.conf.{scope}.disable_ipv6=1"], check=True)
        host.ip("link", "set", "lo", "up")
        yield host
    finally:
        _ip("netns", "del", name)


@contextmanager
def free_ports() -> Iterator[Host]:
    """A host with loopback alone, whose ports are all free; this machine, with whatever listens on it, without root."""
    if not NAMESPACES:
        yield Host("", "127.0.0.1")
        return
    with host("127.0.0.1") as alone:
        yield alone


@contextmanager
def routed(*, udp: bool) -> Iterator[tuple[Host, Host, Host]]:
    """A client, a server, and the router between them, which forwards their packets: those of UDP if `udp`."""
    with host("10.214.1.2") as client, host("10.214.2.2") as server, host("10.214.0.1") as router:
        router.ip("addr", "add", router.address, "dev", "lo")
        subprocess.run([*router.prefix, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], check=True)
        for near, far in ((client, server), (server, client)):
            gateway = near.address.removesuffix(".2") + ".1"
            device = f"to-{gateway}"
            router.ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", near.name)
            router.ip("addr", "add", f"{gateway}/24", "dev", device)
            router.ip("link", "set", device, "up")
            near.ip("addr", "add", f"{near.address}/24", "dev", "eth0")
            near.ip("link", "set", "eth0", "up")
            near.ip("route", "add", "default", "via", gateway)
            if not udp:
                router.ip("rule", "add", "from", near.address, "to", far.address, "ipproto", "udp", "blackhole")
        yield client, server, router


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ConnectionError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _enter(name: str) -> None:
    """Move the calling thread into the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    there = os.open(Path("/run/netns") / name, os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")
    finally:
        os.close(there)

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
from pathlib import Path

import pytest

from voice_agent.engine.heap import WhenQuiet, give_back
from voice_agent.media import heap

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class _Calls:
    def __init__(self) -> None:
        self.active = 0
        self._busy, self._idle = asyncio.Event(), asyncio.Event()

    def place(self) -> None:
        self.active += 1
        self._busy.set()
        self._idle.clear()

    def end(self) -> None:
        self.active -= 1
        if not self.active:
            self._busy.clear()
            self._idle.set()

    async def busy(self) -> None:
        await self._busy.wait()

    async def idle(self) -> None:
        await self._idle.wait()


async def test_memory_is_given_back_once_after_the_last_call_and_not_between_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap, "QUIET_S", 0.05)
    calls, given = _Calls(), []

    def give() -> bool:
        given.append(calls.active)
        return True

    keeper = asyncio.ensure_future(heap.give_back_when_idle(calls, give))  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    assert given == []
    calls.place()
    calls.place()
    await asyncio.sleep(0.1)
    calls.end()
    await asyncio.sleep(0.1)
    assert given == []
    calls.end()
    await asyncio.sleep(0.02)
    calls.place()
    await asyncio.sleep(0.1)
    assert given == []
    calls.end()
    await asyncio.sleep(0.15)
    assert given == [0]
    await asyncio.sleep(0.1)
    assert given == [0]
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)


def test_memory_is_given_back_once_each_time_that_work_rests() -> None:
    given: list[float] = []
    now = 0.0
    quiet = WhenQuiet(lambda: given.append(now))
    for tenth in range(100):
        now = tenth / 10
        # Work until 2 s and from 5 s to 6 s.
        quiet.saw(min(tenth, 20) + max(0, min(tenth, 60) - 50), now)
    assert given == [3.0, 7.0]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_memory_that_lies_free_under_a_block_in_use_goes_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    size, count = 4096, 16_384
    blocks = [libc.malloc(size) for _ in range(count)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks[:-1]:
        libc.free(block)
    before = _resident()
    assert give_back()
    assert before - _resident() >= size * count // 2
    libc.free(blocks[-1])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

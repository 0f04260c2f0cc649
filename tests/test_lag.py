from __future__ import annotations

import asyncio
import sys
import time

import pytest

from voice_agent.media.lag import LoopLag, process_figures

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_blocked_loop_shows() -> None:
    lag = LoopLag(period_s=0.01)
    assert lag.percentiles() == {"p50_ms": 0, "p99_ms": 0, "max_ms": 0}
    probe = asyncio.ensure_future(lag.run())
    await asyncio.sleep(0.02)
    time.sleep(0.1)  # noqa: ASYNC251  (what it is to notice)
    await asyncio.sleep(0.02)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert lag.percentiles()["max_ms"] >= 60


async def test_memory_counts_the_processes_that_a_server_starts() -> None:
    alone = (await process_figures())["rss_mib"]
    grown = "import sys; held = bytearray(b'x' * (100 << 20)); print(flush=True); sys.stdin.read()"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", grown, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    both = (await process_figures())["rss_mib"]
    await child.communicate(b"")
    assert alone is not None
    assert both is not None
    assert 100 <= both - alone <= 150

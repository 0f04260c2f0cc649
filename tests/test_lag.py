from __future__ import annotations

import asyncio
import time

import pytest

from voice_agent.media.lag import LoopLag

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

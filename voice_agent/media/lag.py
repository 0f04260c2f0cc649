"""What tells whether a server is well: how late its event loop runs what is due, and what its process holds."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from pathlib import Path

import numpy as np
import psutil


class LoopLag:
    """Samples the loop's lateness every `period_s`; keeps the last `window` samples."""

    def __init__(self, period_s: float = 0.05, window: int = 1200) -> None:
        self._period_s = period_s
        self._late_ms: deque[float] = deque(maxlen=window)

    async def run(self) -> None:
        """Probe until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._period_s
            await asyncio.sleep(self._period_s)
            self._late_ms.append((loop.time() - due) * 1000)

    def percentiles(self) -> dict[str, float]:
        """Lateness in ms over the window: p50, p99 and max; 0 before the first sample."""
        late = np.array(self._late_ms) if self._late_ms else np.zeros(1)
        return {
            "p50_ms": round(float(np.percentile(late, 50)), 2),
            "p99_ms": round(float(np.percentile(late, 99)), 2),
            "max_ms": round(float(late.max()), 2),
        }


async def process_figures() -> dict[str, int | None]:
    """Tasks, descriptors and sockets of this process; None where /proc is missing.

    `threads`: those that libraries start without Python's knowledge too. `rss_mib`: resident memory in MiB, that of its
    child processes included.
    """
    figures: dict[str, int | None] = {"tasks": len(asyncio.all_tasks()), "threads": psutil.Process().num_threads()}
    return figures | await asyncio.to_thread(_proc_figures)


def _proc_figures() -> dict[str, int | None]:
    proc = Path("/proc/self")
    if not proc.is_dir():
        return {"descriptors": None, "sockets": None, "rss_mib": None}
    targets = []
    for entry in (proc / "fd").iterdir():
        try:
            targets.append(os.readlink(entry))
        except OSError:
            continue  # the descriptor of this very listing
    return {
        "descriptors": len(targets),
        "sockets": sum(target.startswith("socket:") for target in targets),
        "rss_mib": _resident_mib(),
    }


def _resident_mib() -> int:
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            total += process.memory_info().rss
    return total >> 20

"""How late the event loop runs what is due: the figure that tells whether anything blocks it."""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np


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

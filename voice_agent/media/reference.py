"""The far end of a call as it was sent: what an echo canceller compares the microphone with."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from voice_agent.media.resample import Resampler

RATE = 16_000
KEPT_S = 4
"""Older samples are overwritten."""

_SLACK = RATE // 1000  # a due time that is rounded leaves no gap


class Reference:
    """The last `KEPT_S` seconds of the agent's audio, int16 @ 16 kHz, placed in time.

    A position is a time in seconds on the sender's clock, times 16,000. Written by the event loop, read by any thread.
    """

    def __init__(self, rate: int) -> None:
        """`rate`: of the samples that are pushed, in Hz."""
        self._resampler = Resampler(rate, RATE)
        self._ring = np.zeros(KEPT_S * RATE, np.int16)
        self._begin = self._end = 0
        self._lock = threading.Lock()

    def push(self, pcm: npt.NDArray[np.float32], at_s: float) -> None:
        """`pcm`, float32[T] in [-1, 1], is sent at `at_s`: it is heard from then on, or after what was sent before.

        A listener plays without a gap what reaches it in time; what comes later than that leaves one.
        """
        samples = (np.clip(self._resampler.push(pcm), -1, 1) * 32767).astype(np.int16)
        start = round(at_s * RATE)
        with self._lock:
            if start > self._end + _SLACK:
                if start - self._end >= len(self._ring):
                    self._begin = self._end = start
                else:
                    self._put(np.zeros(start - self._end, np.int16))
            self._put(samples)

    def _put(self, samples: npt.NDArray[np.int16]) -> None:
        self._ring[np.arange(self._end, self._end + len(samples)) % len(self._ring)] = samples
        self._end += len(samples)

    def read(self, start: int, samples: int) -> npt.NDArray[np.int16]:
        """int16[samples] from position `start` on; silence where nothing was sent, or is not known any more."""
        out = np.zeros(samples, np.int16)
        with self._lock:
            first = max(start, self._begin, self._end - len(self._ring))
            last = min(start + samples, self._end)
            if first < last:
                out[first - start : last - start] = self._ring[np.arange(first, last) % len(self._ring)]
        return out

"""The caller's mouth and microphone: what is said, the noise around it, and the agent's echo, 20 ms at a time."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from voice_agent.bench.scenario import RATE, Echo

FRAME = RATE // 50
"""Samples of 20 ms at 48 kHz."""


class Mouth:
    """Mixes a turn, a background that repeats, and what is heard of the agent.

    `background`: float32[T] @ 48 kHz, T may be 0.
    """

    def __init__(self, background: npt.NDArray[np.float32], echo: Echo | None = None) -> None:
        self._background = background
        self._background_at = 0
        self._queue: deque[npt.NDArray[np.float32]] = deque()
        self._gain = 0.0 if echo is None else 10 ** (echo.gain_db / 20)
        self._delay = np.zeros(0 if echo is None else echo.delay_ms * RATE // 1000, np.float32)
        self._echo = self._delay
        self._dry = False
        self._echoes = echo is not None

    @property
    def busy(self) -> bool:
        """Whether a turn is being said."""
        return bool(self._queue)

    def say(self, pcm: npt.NDArray[np.float32]) -> None:
        """Begin a turn with the next frame: float32[T] @ 48 kHz; its last frame is filled up with silence."""
        padded = np.concatenate((pcm, np.zeros(-len(pcm) % FRAME, np.float32)))
        self._queue.extend(padded.reshape(-1, FRAME))

    def hear(self, pcm: npt.NDArray[np.float32]) -> None:
        """What the loudspeaker plays: float32[T] @ 48 kHz. At most 5 s wait; more is dropped.

        What comes too late to be heard without a gap is heard after the whole delay again, not in pieces.
        """
        if self._echoes:
            self._echo = np.concatenate((self._delay if self._dry else self._echo, pcm))[: 5 * RATE]
            self._dry = False

    def frame(self) -> npt.NDArray[np.int16]:
        """The next 20 ms: int16[960] @ 48 kHz."""
        mix = self._queue.popleft().copy() if self._queue else np.zeros(FRAME, np.float32)
        if len(self._background):
            at = (self._background_at + np.arange(FRAME)) % len(self._background)
            mix += self._background[at]
            self._background_at += FRAME
        if self._echoes:
            part, self._echo = self._echo[:FRAME], self._echo[FRAME:]
            mix[: len(part)] += self._gain * part
            self._dry = len(part) < FRAME
        return np.asarray(np.clip(mix, -1, 1) * 32767, np.int16)

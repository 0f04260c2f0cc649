"""What listens to a call on the worker thread: the echo canceller, and the voice detector behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from voice_agent.vad import WINDOW

if TYPE_CHECKING:
    from voice_agent.vad import VadEvent


class Canceller(Protocol):
    """As `voice_agent.media.echo.EchoCanceller`."""

    def push(self, mic: npt.NDArray[np.int16], now_s: float) -> npt.NDArray[np.int16]: ...

    def echo_share(self, start: int, end: int) -> float: ...


class Detector(Protocol):
    """As `voice_agent.vad.StreamingVad`."""

    def push(self, pcm: npt.NDArray[np.int16]) -> list[VadEvent]: ...


@dataclass
class Ears:
    """One call's. `canceller` None: the caller's audio is taken as it comes.

    A voiced window of which at least `likely_echo` was the agent's own voice is not told: nobody spoke in it.
    """

    detector: Detector
    canceller: Canceller | None
    likely_echo: float

    def push(self, pcm: npt.NDArray[np.int16], now_s: float) -> tuple[npt.NDArray[np.int16], list[VadEvent]]:
        """The next samples, int16[T] @ 16 kHz, the last of which came at `now_s` on the speaker's clock.

        Gives the samples without the agent's echo, up to 10 ms later, and what the detector heard in them.
        """
        if self.canceller is None:
            return pcm, self.detector.push(pcm)
        clean = self.canceller.push(pcm, now_s)
        return clean, [event for event in self.detector.push(clean) if not self._is_echo(event)]

    def echo_share(self, start: int, end: int) -> float:
        """How much of what came from sample `start` to `end` was the agent's own voice, 0 to 1."""
        return 0.0 if self.canceller is None else self.canceller.echo_share(start, end)

    def _is_echo(self, event: VadEvent) -> bool:
        assert self.canceller is not None
        if event.kind not in ("onset", "speech"):
            return False
        start = event.at if event.kind == "onset" else event.at - WINDOW
        return self.canceller.echo_share(start, start + WINDOW) >= self.likely_echo

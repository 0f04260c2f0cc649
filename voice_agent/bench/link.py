"""What a caller needs of a connection, whatever protocol it speaks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from voice_agent.bench.network import Network

Kind = Literal["webrtc", "offer", "realtime", "pcm"]


class Target(BaseModel):
    """A server to call, and how.

    webrtc: OpenAI Realtime over WebRTC, which this project's server speaks. offer: a route that takes an SDP offer as
    JSON and answers with one (pipecat's SmallWebRTC, fastrtc). realtime: OpenAI Realtime over a WebSocket. pcm: a
    WebSocket with bare PCM16. `url`: of the server, or of the route itself if it has a path. `key_from`: the
    environment variable that holds a Bearer key. `rate`: of bare PCM, in Hz.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(pattern=r"^(http|ws)s?://\S+$")
    kind: Kind = "webrtc"
    key_from: str | None = None
    hosts: tuple[str, ...] | None = None
    rate: int = Field(24_000, ge=8000, le=48_000)
    connect_s: float = Field(15, gt=0, le=120)

    def headers(self) -> dict[str, str]:
        """Raises ValueError if the key's variable is not set."""
        if self.key_from is None:
            return {}
        key = os.environ.get(self.key_from)
        if not key:
            raise ValueError(f"expected a key in the environment variable {self.key_from}, found none")
        return {"Authorization": f"Bearer {key}"}


def target_of(url: str, kind: str, key_from: str | None = None) -> Target:
    """Raises ValueError with one sentence."""
    try:
        target = Target.model_validate({"url": url, "kind": kind, "key_from": key_from})
    except ValidationError as error:
        told = "; ".join(f"{e['loc'][0]}: {e['msg']}, got {e['input']!r}" for e in error.errors())
        raise ValueError(told) from None
    target.headers()
    return target


@dataclass
class Ends:
    """The caller's side of a connection. All of it runs on the event loop.

    `pull`: the next 20 ms to send, int16[960] @ 48 kHz. `sent`: it left (seconds on `time.monotonic`). `arrived`: a
    piece of audio came: when, its first sample by the sender's count at 48 kHz (None: follows on the last one or on
    silence), its number (None: none were lost), and float32[T] @ 48 kHz. `event`: what the server told. `clear`:
    audio of a stream without a time line that has not begun to play is dropped.
    """

    pull: Callable[[], npt.NDArray[np.int16]]
    sent: Callable[[float, npt.NDArray[np.int16]], None]
    arrived: Callable[[float, int | None, int | None, npt.NDArray[np.float32]], None]
    event: Callable[[float, dict[str, Any]], None]
    clear: Callable[[float], None]


@dataclass(frozen=True)
class LinkOptions:
    """`network`: put between the caller and the server; `clock_ppm`: how much faster the caller's clock runs."""

    network: Network | None = None
    clock_ppm: float = 0.0
    seed: int = 1
    session: dict[str, Any] | None = None


class Link(Protocol):
    """A connection, as an async context manager: entering connects, leaving hangs up.

    Entering raises CallRefused, ConnectionError or TimeoutError. `ended` is set when the server ends the call.
    """

    ended: asyncio.Event

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: Any) -> None: ...


class Unwrap:
    """Counters of `bits` bits that wrap around, as ones that do not."""

    def __init__(self, bits: int) -> None:
        self._size = 1 << bits
        self._last: int | None = None

    def __call__(self, value: int) -> int:
        if self._last is None:
            self._last = value
        self._last += (value - self._last + self._size // 2) % self._size - self._size // 2
        return self._last

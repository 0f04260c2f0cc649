"""PCM16 as it crosses a border: mono, little-endian."""

from __future__ import annotations

import base64
import binascii

import numpy as np
import numpy.typing as npt

from voice_agent.media.resample import Resampler

Pcm16 = npt.NDArray[np.int16]


def from_bytes(data: bytes) -> Pcm16:
    """int16[T] from its bytes. Raises ValueError for half a sample."""
    if len(data) % 2:
        raise ValueError(f"expected PCM16, an even number of bytes, got {len(data)}")
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)


def from_base64(text: str) -> Pcm16:
    """int16[T] from base64. Raises ValueError for what is not base64 of PCM16."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"expected base64 of PCM16, got {text[:20]!r}…") from None
    return from_bytes(data)


def from_float(pcm: npt.NDArray[np.float32]) -> Pcm16:
    """int16[T] from float32[T] in [-1, 1]; louder is clipped."""
    return (np.clip(pcm, -1, 1) * 32767).astype(np.int16)


def to_bytes(pcm: Pcm16) -> bytes:
    return pcm.astype("<i2", copy=False).tobytes()


class PcmResampler:
    """Converts a stream of int16 samples from one rate (Hz) to another, sample-exact; see `Resampler`."""

    def __init__(self, rate_in: int, rate_out: int) -> None:
        self._resampler = None if rate_in == rate_out else Resampler(rate_in, rate_out)

    def push(self, pcm: Pcm16) -> Pcm16:
        """The next piece: int16[T] → int16[about T * rate_out / rate_in]."""
        if self._resampler is None:
            return pcm
        return from_float(self._resampler.push(pcm.astype(np.float32) / np.float32(32768)))

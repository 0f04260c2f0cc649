"""Opus packets of 20 ms, encoded and decoded with libopus through PyAV."""

from __future__ import annotations

import fractions
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

RATE = 48_000
FRAME = 960
"""Samples of a 20 ms packet at 48 kHz."""

TIME_BASE = fractions.Fraction(1, RATE)


class OpusEncoder:
    """Encodes mono 48 kHz audio, one packet a frame, with timestamps that advance by 960 each."""

    def __init__(self, bit_rate: int = 64_000) -> None:
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, AudioCodecContext)
        codec.bit_rate = bit_rate
        codec.format = "s16"
        codec.layout = "mono"
        codec.sample_rate = RATE
        codec.time_base = TIME_BASE
        codec.options = {"application": "voip"}
        self._codec: AudioCodecContext | None = codec
        self._timestamp = 0

    def close(self) -> None:
        """Free the encoder now, and not when the garbage collector finds it: FFmpeg keeps two threads for it."""
        self._codec = None

    def encode(self, pcm: npt.NDArray[np.int16]) -> av.Packet[Any]:
        """`pcm`: int16[960] → a packet whose `pts` counts samples at 48 kHz from 0."""
        if pcm.shape != (FRAME,) or pcm.dtype != np.int16:
            raise ValueError(f"expected int16[{FRAME}], got {pcm.dtype}{list(pcm.shape)}")
        if self._codec is None:
            raise RuntimeError("expected an open encoder: it was closed")
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(pcm.tobytes())
        frame.sample_rate = RATE
        frame.time_base = TIME_BASE
        frame.pts = self._timestamp
        (encoded,) = self._codec.encode(frame)
        packet = av.Packet(bytes(encoded))
        packet.pts = self._timestamp
        packet.time_base = TIME_BASE
        self._timestamp += FRAME
        return packet


class OpusDecoder:
    """Decodes packets of any duration and channel count to mono 48 kHz."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "r")
        assert isinstance(codec, AudioCodecContext)
        codec.format = "s16"
        codec.layout = "stereo"
        codec.sample_rate = RATE
        self._codec = codec

    def decode(self, payload: bytes) -> npt.NDArray[np.float32]:
        """One payload → float32[T] in [-1, 1], the mean of both channels.

        Raises av.FFmpegError for a payload that is damaged.
        """
        pieces = [frame.to_ndarray().reshape(-1, 2) for frame in self._codec.decode(av.Packet(payload))]
        stereo = pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.zeros((0, 2), np.int16)])
        mono: npt.NDArray[np.float32] = stereo.sum(axis=1, dtype=np.float32) * np.float32(1 / 65536)
        return mono

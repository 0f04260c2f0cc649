"""The caller's audio: RTP packets in, 16 kHz samples out, continuous in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import av
import numpy as np
import numpy.typing as npt
from aiortc.rtp import RtpPacket

from voice_agent.media import opus
from voice_agent.media.jitter import Conceal, JitterBuffer, JitterConfig
from voice_agent.media.resample import Resampler

RATE = 16_000


class Concealer:
    """Fills gaps in 48 kHz audio: the last 20 ms played backwards and faded out, then silence.

    Backwards because it joins the last sample without a jump; faded because a gap that sounds like speech would
    be recognised as speech.
    """

    def __init__(self) -> None:
        self._last = np.zeros(opus.FRAME, dtype=np.float32)
        self._filled = 0  # samples since the last real one

    def heard(self, pcm: npt.NDArray[np.float32]) -> None:
        """Real audio: float32[T] @ 48 kHz."""
        self._last = pcm[-opus.FRAME :] if len(pcm) >= opus.FRAME else np.concatenate((self._last, pcm))[-opus.FRAME :]
        self._filled = 0

    def fill(self, samples: int) -> npt.NDArray[np.float32]:
        """float32[samples] @ 48 kHz to stand in for what is missing."""
        out = np.zeros(samples, dtype=np.float32)
        if self._filled < opus.FRAME:
            fade = self._last[::-1] * np.linspace(1, 0, opus.FRAME, dtype=np.float32)
            part = fade[self._filled : self._filled + samples]
            out[: len(part)] = part
        self._filled += samples
        return out


class IncomingAudio:
    """Orders, decodes, conceals and resamples one caller's packets, on the event loop.

    `feed` gets int16[T] @ 16 kHz as soon as it is known; T is 320 for a usual packet. Damaged packets are concealed.
    """

    def __init__(
        self,
        feed: Callable[[npt.NDArray[np.int16]], None],
        loop: asyncio.AbstractEventLoop,
        config: JitterConfig | None = None,
    ) -> None:
        self.jitter = JitterBuffer(config)
        self.damaged = 0
        self._feed = feed
        self._loop = loop
        self._decoder = opus.OpusDecoder()
        self._concealer = Concealer()
        self._resampler = Resampler(opus.RATE, RATE)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def packet(self, packet: RtpPacket) -> None:
        """Take a packet as it arrives."""
        if self._closed:
            return
        now_ms = self._loop.time() * 1000
        try:
            self.jitter.push(packet.sequence_number, packet.timestamp, packet.payload, now_ms)
        except ValueError:
            self.damaged += 1
            return
        self._advance(now_ms)
        if self._timer is None:
            self._arm()

    def close(self) -> None:
        """Stop the timer; nothing is fed any more. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due_ms = self.jitter.due_ms()
        if due_ms is not None and not self._closed:
            self._timer = self._loop.call_at(due_ms / 1000, self._due)

    def _due(self) -> None:
        # Every packet moves the time on; moving the timer with each would cost more than a call too early.
        self._timer = None
        self._advance(self._loop.time() * 1000)
        self._arm()

    def _advance(self, now_ms: float) -> None:
        for item in self.jitter.pull(now_ms):
            if isinstance(item, Conceal):
                pcm = self._concealer.fill(item.samples)
            else:
                try:
                    pcm = self._decoder.decode(item.payload)
                    self._concealer.heard(pcm)
                except av.FFmpegError:
                    self.damaged += 1
                    pcm = self._concealer.fill(opus.FRAME)
            out = self._resampler.push(pcm)
            if len(out):
                self._feed((np.clip(out, -1, 1) * 32767).astype(np.int16))

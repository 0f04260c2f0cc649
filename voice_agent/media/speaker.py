"""The agent's outgoing audio: a paced, flushable queue of 24 kHz samples that leaves as 20 ms Opus packets."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from voice_agent.media.opus import RATE as RTP_RATE
from voice_agent.media.opus import OpusEncoder
from voice_agent.media.reference import Reference
from voice_agent.media.resample import Resampler

RATE = 24_000
FRAME = 480
"""Samples of a 20 ms frame at 24 kHz."""

REWIND_MS = 300
"""How far `Speaker.resume` can go back: what was sent is kept for so long."""

_FRAME_S = FRAME / RATE
_FADE = RATE * 5 // 1000
_REWIND = RATE * REWIND_MS // 1000
_QUIET = RATE * 10 // 1000  # window of the short-time energy that finds a place to go on from
_QUIET_STEP = RATE * 5 // 1000
_QUIET_RATIO = 2.0  # windows within 3 dB of the quietest are as quiet; the latest of them repeats least
_QUIET_FLOOR = 1e-8  # mean square of what counts as silence: -80 dBFS


class Pacer:
    """An absolute 20 ms schedule, sans-IO: the n-th frame is due at start + n * 20 ms, so it never drifts.

    After a late loop the missed frames follow at once, at most `burst` of them; what is missed beyond that shifts
    the schedule and is added to `shifted_s`.
    """

    def __init__(self, burst: int = 3) -> None:
        self._burst = burst
        self._next: float | None = None
        self.shifted_s = 0.0

    def due(self, now: float) -> float:
        """The time, in seconds on the clock of `now`, at which the next frame is to leave."""
        due = now if self._next is None else self._next
        earliest = now - self._burst * _FRAME_S
        if due < earliest:
            self.shifted_s += earliest - due
            due = earliest
        self._next = due + _FRAME_S
        return due


def quiet_place(pcm: npt.NDArray[np.float32]) -> int:
    """Where speech can go on without beginning inside a syllable: the middle of the quietest 10 ms of float32[T].

    Of places that are about as quiet, the last. The end, T, when there is less than one window.
    """
    if len(pcm) < _QUIET:
        return len(pcm)
    windows = np.lib.stride_tricks.sliding_window_view(pcm, _QUIET)[::_QUIET_STEP]
    energy = np.mean(np.square(windows), axis=1) + _QUIET_FLOOR
    last = int(np.flatnonzero(energy <= energy.min() * _QUIET_RATIO)[-1])
    return last * _QUIET_STEP + _QUIET // 2


class Speaker(MediaStreamTrack):
    """Queue and pacing of a call's outgoing audio. All methods belong to the event loop.

    Every sample belongs to an epoch, the reply it is part of. `flush` opens the next epoch and is the only way to
    do so: from its return on no sample of an older epoch can be sent, whoever still tries to write it.
    Packets leave every 20 ms for as long as the call lasts, with silence when there is nothing to say.

    `pause` silences a reply without giving any of it up, `resume` lets it go on where it was cut. Which samples were
    sent is counted without those that faded out: they are spoken again.
    """

    kind = "audio"
    as_events = False
    """Whether the audio reaches the client as events of the protocol, and not as a stream beside them."""

    def __init__(
        self,
        capacity_ms: int = 4000,
        now: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__()
        self.epoch = 0
        self.on_started: Callable[[int], None] | None = None
        self.on_drained: Callable[[int, int], None] | None = None
        self.pacer = Pacer()
        self.reference = Reference(RATE)
        self.packets = 0
        self.underruns = 0
        self._capacity = capacity_ms * RATE // 1000
        self._now = now
        self._sleep = sleep
        self._queue: deque[npt.NDArray[np.float32]] = deque()
        self._queued = 0
        self._sent = 0
        self._complete = False
        self._speaking = False
        self._paused = False
        self._soft = False
        self._flowing = False
        self._carries_reply = False
        self._recent: deque[npt.NDArray[np.float32]] = deque()
        self._recent_samples = 0
        self._last_sample = np.float32(0)
        self._fade: npt.NDArray[np.float32] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._resampler = Resampler(RATE, RTP_RATE)
        self._encoder = OpusEncoder()

    @property
    def queued_ms(self) -> float:
        """Audio of the current epoch that is written and not yet sent."""
        return self._queued / RATE * 1000

    @property
    def paused(self) -> bool:
        """Whether a reply waits until `resume`, or `flush`."""
        return self._paused

    def now(self) -> float:
        """Seconds on the clock that the packets are sent by."""
        return self._now()

    def sent(self) -> int:
        """Samples (24 kHz) of the current epoch that were handed to RTP. `resume` with a rewind takes some back."""
        return self._sent

    def write(self, epoch: int, pcm: npt.NDArray[np.float32]) -> bool:
        """Queue `pcm`: float32[T] in [-1, 1] @ 24 kHz. False, and nothing kept, if `epoch` is not the current one.

        Raises BufferError, and keeps nothing, if the queue would hold more than its capacity; wait for `room`. A pause
        changes nothing about that: the queue fills, and writers wait.
        """
        if epoch != self.epoch or self.readyState != "live":
            return False
        if pcm.ndim != 1 or pcm.dtype != np.float32:
            raise ValueError(f"expected float32[T], got {pcm.dtype}{list(pcm.shape)}")
        if self._complete:
            raise ValueError(f"expected no more audio of epoch {epoch} after its end, got {len(pcm)} samples")
        if self._queued + len(pcm) > self._capacity:
            raise BufferError(f"expected at most {self._capacity} samples queued, got {self._queued + len(pcm)}")
        if len(pcm):
            self._queue.append(pcm)
            self._queued += len(pcm)
        return True

    def end(self, epoch: int) -> None:
        """The last sample of the reply was written: `on_drained` follows when it was sent. Old epochs are ignored."""
        if epoch == self.epoch:
            self._complete = True

    def flush(self, epoch: int) -> int:
        """Open the epoch `epoch` and drop all that is queued, at once. Returns the samples of the old epoch sent.

        The packet that is already on its way cannot be called back. The next one begins with a ramp of 5 ms from
        the last sample's level to zero, so that the cut makes no click; it holds no sample of the old epoch. The new
        epoch is not paused.
        """
        if epoch <= self.epoch:
            raise ValueError(f"expected an epoch above {self.epoch}, got {epoch}")
        sent = self._sent
        self.epoch = epoch
        self._queue.clear()
        self._recent.clear()
        self._queued = self._sent = self._recent_samples = 0
        self._complete = self._speaking = self._paused = self._soft = self._flowing = False
        if self._last_sample != 0:
            self._fade = self._last_sample * np.linspace(1, 0, _FADE, dtype=np.float32)
        self._wake()
        return sent

    def pause(self) -> None:
        """Silence the reply from the next packet on and keep all of it; until `resume`, packets of silence leave.

        That packet fades to silence over the samples that were due in it. They do not count as sent: they are the
        first to be spoken when the reply goes on. While paused `on_started` and `on_drained` are not called.
        """
        self._paused = True

    def resume(self, rewind_ms: int = 0) -> None:
        """Go on with the first sample that faded, or with the first of all if none was sent; nothing is skipped.

        `rewind_ms`: 0 to 300. Go further back, by up to so much of what was sent, to a quiet place between syllables;
        `sent` goes back by as much, and the queue may hold that much beyond its capacity. Without a pause nothing
        happens. Raises ValueError for a rewind outside those limits.
        """
        if not 0 <= rewind_ms <= REWIND_MS:
            raise ValueError(f"expected a rewind of 0 to {REWIND_MS} ms, got {rewind_ms}")
        if not self._paused:
            return
        self._paused = False
        # Where no packet has left since `pause`, nothing was cut.
        if rewind_ms and self._speaking and not self._flowing:
            self._rewind(rewind_ms * RATE // 1000)

    def _rewind(self, most: int) -> None:
        recent = np.concatenate(self._recent)
        heard = recent[-most:]
        again = heard[quiet_place(heard) :]
        if len(again):
            self._queue.appendleft(again)
            self._queued += len(again)
            self._sent -= len(again)
            self._recent = deque([recent[: len(recent) - len(again)]])
            self._recent_samples = len(self._recent[0])
            self._soft = True

    async def room(self, epoch: int, below_ms: int) -> bool:
        """Wait until less than `below_ms` is queued. False at once when the epoch is over, or the call."""
        while epoch == self.epoch and self.readyState == "live":
            if self.queued_ms < below_ms:
                return True
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((below_ms, waiter))
            await waiter
        return False

    def stop(self) -> None:
        """End the track for good; whoever waits for room is woken."""
        super().stop()
        self._encoder.close()
        self._queue.clear()
        self._queued = 0
        self._wake()

    async def recv(self) -> av.Packet[Any]:
        """The next packet, when it is due. Called by the RTP sender alone."""
        due = self.pacer.due(self._now())
        delay = due - self._now()
        # Also on time: a sender that catches up must leave the loop to the others between two packets.
        await self._sleep(max(delay, 0))
        if self.readyState != "live":
            raise MediaStreamError("the track has ended")
        frame = self._next_frame()
        self.reference.push(frame, due)
        pcm = self._resampler.push(frame)
        self.packets += 1
        return self._encoder.encode((np.clip(pcm, -1, 1) * 32767).astype(np.int16))

    def _ready(self) -> int:
        """How many samples are due in the next packet: part of a frame waits for the rest, unless no more comes."""
        return min(self._queued, FRAME) if self._complete or self._queued >= FRAME else 0

    def _next_frame(self) -> npt.NDArray[np.float32]:
        take = 0 if self._paused else self._ready()
        frame = np.zeros(FRAME, dtype=np.float32)
        if take:
            frame[:take] = self._take(take)
        elif self._paused:
            frame = self._fade_out()
        elif self._speaking and not self._complete:
            self.underruns += 1
        self._carries_reply = bool(take) or bool(frame.any())
        self._flowing = take > 0
        if self._complete and not self._queued and not self._paused and (self._speaking or not self._sent):
            self._speaking = self._complete = False
            self._call(self.on_drained, self.epoch, self._sent)
        self._last_sample = frame[-1]
        if self._fade is not None:
            frame[:_FADE] += self._fade
            self._fade = None
        return frame

    def _take(self, samples: int) -> npt.NDArray[np.float32]:
        """The next samples of the reply, which are sent with this; they begin softly after a fade."""
        pcm = self._peek(samples)
        left = samples
        while left:
            head = self._queue.popleft()
            if len(head) > left:
                self._queue.appendleft(head[left:])
            left -= min(left, len(head))
        self._queued -= samples
        self._sent += samples
        self._recent.append(pcm)
        self._recent_samples += samples
        while self._recent_samples - len(self._recent[0]) >= _REWIND:
            self._recent_samples -= len(self._recent.popleft())
        if not self._speaking:
            self._speaking = True
            self._call(self.on_started, self.epoch)
        self._wake()
        if self._soft:
            self._soft = False
            rise = min(_FADE, samples)
            pcm = pcm.copy()
            pcm[:rise] *= np.linspace(0, 1, rise, dtype=np.float32)
        return pcm

    def _fade_out(self) -> npt.NDArray[np.float32]:
        """The first frame of a pause: what was due in it, from full level to none; after that silence."""
        frame = np.zeros(FRAME, dtype=np.float32)
        if self._flowing:
            self._soft = True
            due = self._peek(min(self._queued, FRAME))
            if len(due) < _FADE:
                due = np.full(_FADE, self._last_sample)
            frame[: len(due)] = due * np.linspace(1, 0, len(due), dtype=np.float32)
        return frame

    def _peek(self, samples: int) -> npt.NDArray[np.float32]:
        """The first samples of the queue, which stay there; there must be so many."""
        parts, left = [], samples
        for head in self._queue:
            if not left:
                break
            parts.append(head[:left])
            left -= len(parts[-1])
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)

    def _wake(self) -> None:
        over = self.readyState != "live"
        waiting = []
        for below_ms, waiter in self._waiters:
            if waiter.done():
                continue
            if over or self._queued == 0 or self.queued_ms < below_ms:
                waiter.set_result(None)
            else:
                waiting.append((below_ms, waiter))
        self._waiters = waiting

    @staticmethod
    def _call(callback: Callable[..., None] | None, *args: int) -> None:
        """From the loop, so that a failing callback cannot end the RTP stream."""
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback, *args)

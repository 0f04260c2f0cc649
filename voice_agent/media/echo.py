"""Echo cancellation on the server: the agent's own voice is taken out of what the caller's microphone hears.

The far end is known exactly, as it is what was sent (`Reference`). WebRTC's AEC3, by `pywebrtc-audio`, cancels echo
that comes within half a second of it; where the path is longer (network, the client's jitter buffer, loudspeaker and
room), the far end is held back by most of the delay, which is measured for each call. While the agent is silent, and
as long as no echo was found, the microphone is passed on as it is: a caller with a headset is heard unchanged.

Cancelling needs some tenths of a second of echo to learn the path, and never is complete. So the canceller also says
how much of what it heard was the agent (`EchoCanceller.echo_share`), for whoever has to decide whether an onset of
voice is the caller's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pywebrtc_audio

from voice_agent.media.reference import RATE, Reference

FRAME = 160
"""Samples of a 10 ms frame, in which all is decided."""

LIKELY_ECHO = 0.9
"""From this `echo_share` on, an onset of voice is more likely the agent's than the caller's."""

MAX_DELAY_MS = 1500
"""The longest path of an echo that is looked for."""

_MS = RATE // 1000
_ACTIVE = 1e3  # -60 dBFS: a quieter far end makes no echo worth cancelling, a quieter microphone heard none
_AUDIBLE = 3e2  # -65 dBFS: what a microphone hears below it is no echo that anybody would take for a voice
_HOLD = 700 * _MS  # AEC3's range and a room's reverberation
_REACH = 400 * _MS  # AEC3 follows delays up to half a second
_LEAD = 100 * _MS  # what is left to AEC3 of a delay beyond that: jitter on either side of it
_LATENCY = 128  # of AEC3's output
_MOVED_IDLE = 10 * _MS  # how far the microphone's clock may be off before the far end is moved: in silence
_MOVED = 40 * _MS  # and in speech, where AEC3 has to follow at once
_CLOCK = RATE  # samples of which the earliest arrival is sought; so long it takes to notice that some never came

_SPECTRUM = 512  # samples of a window for the coherence
_SMOOTHING = float(np.exp(-10 / 150))  # 150 ms in frames of 10 ms
_SHARES = 300  # frames of which the share is known: 3 s


class DelayEstimator:
    """How far the microphone is behind the far end, by their generalised cross-correlation.

    That is Knapp & Carter, *The generalized correlation method for estimation of time delay*, 1976, with the
    cross-spectrum averaged over blocks and each frequency weighted by how much these agree. A delay counts when its
    peak stands out in two blocks in a row. Lags are looked for at 4 kHz, from 0 to `MAX_DELAY_MS`.
    """

    BLOCK = 500 * _MS
    HOP = 130 * _MS
    SPAN = BLOCK + MAX_DELAY_MS * _MS
    """Samples of far end that a block is compared with: both end together."""

    _SIZE = 32_768
    _LOWEST = 200 * _SIZE // RATE  # the bin of 200 Hz: below it there is hum
    _BINS = _SIZE // 8  # up to 2 kHz
    _FORGETTING = 0.94
    _STANDS_OUT = 14.0  # times the root mean square of the lags around it; unrelated speech stays below 12.5
    _AROUND = 750 * 4
    _AGREE_MS = 2.0

    def __init__(self) -> None:
        self.delay_ms: float | None = None
        self.reset()

    def reset(self) -> None:
        """The path may have changed: forget what was averaged, though not the delay."""
        self._cross = np.zeros(self._BINS, np.complex128)
        self._power = np.zeros(self._BINS)
        self._candidate: float | None = None

    @property
    def latest_ms(self) -> float | None:
        """The delay by the last block alone, where it showed one: sooner known, less surely."""
        return self.delay_ms if self._candidate is None else self._candidate

    def take(self, mic: npt.NDArray[np.int16], far: npt.NDArray[np.int16]) -> None:
        """The next blocks, int16[BLOCK] and int16[SPAN] @ 16 kHz, whose last samples were heard and sent together."""
        if _energy(mic) < _ACTIVE:
            return
        heard = np.fft.rfft(mic, self._SIZE)[: self._BINS]
        # The block is the end of the span, moved to its beginning by the transform.
        sent = np.fft.rfft(far, self._SIZE)[: self._BINS]
        shift = np.exp(-2j * np.pi * np.arange(self._BINS) * (self.SPAN - self.BLOCK) / self._SIZE)
        cross = heard * shift * np.conj(sent)
        cross[: self._LOWEST] = 0
        self._cross = self._FORGETTING * self._cross + cross
        self._power = self._FORGETTING * self._power + np.abs(cross)
        weighted = self._cross / np.maximum(self._power, 1e-9)
        lags = np.fft.irfft(weighted, 2 * self._BINS)[: MAX_DELAY_MS * 4]
        peak = int(np.argmax(lags))
        # Where no voice meets another there is nothing to stand out from: only lags near this one are compared with it.
        first = min(max(0, peak - self._AROUND // 2), len(lags) - self._AROUND)
        around = lags[first : first + self._AROUND]
        if lags[peak] < self._STANDS_OUT * np.sqrt(np.mean(np.square(around))):
            self._candidate = None
            return
        found = peak / 4
        if self._candidate is not None and abs(found - self._candidate) <= self._AGREE_MS:
            self.delay_ms = found
        self._candidate = found


class Coherence:
    """How much of a signal's energy is linearly explained by another, in the last 150 ms or so: 0 to 1.

    The magnitude-squared coherence (Carter, *Coherence and time delay estimation*, 1987), averaged with the signal's
    spectrum as weight.
    """

    def __init__(self) -> None:
        bins = _SPECTRUM // 2 + 1
        self._window = np.hanning(_SPECTRUM)
        self._signals = np.zeros((2, _SPECTRUM))
        self._cross = np.zeros(bins, np.complex128)
        self._power = np.zeros((2, bins))

    def push(self, signal: npt.NDArray[np.int16], cause: npt.NDArray[np.int16]) -> float:
        """The next frames, int16[FRAME] each, in step."""
        self._signals = np.concatenate([self._signals[:, FRAME:], np.stack([signal, cause])], axis=1)
        spectra = np.fft.rfft(self._signals * self._window)
        self._power = _SMOOTHING * self._power + (1 - _SMOOTHING) * np.square(np.abs(spectra))
        self._cross = _SMOOTHING * self._cross + (1 - _SMOOTHING) * spectra[0] * np.conj(spectra[1])
        explained = np.square(np.abs(self._cross)) / np.maximum(self._power[1], 1e-9)
        return float(min(1.0, explained.sum() / max(self._power[0].sum(), 1e-9)))


@dataclass(frozen=True)
class _Share:
    """Of the frame that ends with sample `end`: its energy, and that part of it which no echo explains."""

    end: int
    heard: float
    unexplained: float


class EchoCanceller:
    """One call's canceller. `push` belongs to one thread at a time; it costs a few per cent of a core at most.

    `delay_ms`: from sending to the echo's return, once it is known. It includes the network both ways.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._aec = pywebrtc_audio.EchoCanceller(RATE, 1, 0)
        self._estimator = DelayEstimator()
        self._coherence = Coherence()
        self._received = 0
        self._done = 0
        self._waiting = np.zeros(0, np.int16)
        # Where on the sender's clock the microphone began, by its earliest arrivals of now and of the span before.
        self._earliest = [np.inf, np.inf]
        self._offset = 0
        self._held_back = 0
        self._silent_for = _HOLD
        self._active = False
        self._block = np.zeros(DelayEstimator.BLOCK, np.int16)
        self._shares: deque[_Share] = deque(maxlen=_SHARES)

    @property
    def delay_ms(self) -> float | None:
        return self._estimator.delay_ms

    def push(self, mic: npt.NDArray[np.int16], now_s: float) -> npt.NDArray[np.int16]:
        """The next samples of the microphone, int16[T] @ 16 kHz, any T; the last of them arrived at `now_s`.

        `now_s` is on the clock of the reference. Gives int16[T'] without the echo: all whole frames of 10 ms that
        there are by now, so that the n-th sample out is the n-th in. Raises ValueError for other audio.
        """
        if mic.dtype != np.int16 or mic.ndim != 1:
            raise ValueError(f"expected int16[T], got {mic.dtype}{list(mic.shape)}")
        self._received += len(mic)
        self._observe(len(mic), now_s)
        self._waiting = np.concatenate([self._waiting, mic])
        whole = len(self._waiting) // FRAME * FRAME
        frames = self._waiting[:whole].reshape(-1, FRAME)
        self._waiting = self._waiting[whole:]
        return np.concatenate([self._frame(frame) for frame in frames]) if whole else np.zeros(0, np.int16)

    def echo_share(self, start: int, end: int) -> float:
        """Of what the microphone heard from sample `start` to `end`, the share that was the agent's voice, 0 to 1.

        Of energy, whether it was cancelled or is left over; 0 where the agent is silent. Known of the last 3 s. May be
        asked from another thread.
        """
        frames = [share for share in tuple(self._shares) if start < share.end <= end + FRAME - 1]
        heard = sum(share.heard for share in frames)
        return max(0.0, 1 - sum(share.unexplained for share in frames) / heard) if heard else 0.0

    def _observe(self, samples: int, now_s: float) -> None:
        """Follow the microphone's clock by the samples that came with the least delay."""
        before = self._received - samples
        if before // _CLOCK != self._received // _CLOCK:
            self._earliest = [self._earliest[1], np.inf]
        self._earliest[1] = min(self._earliest[1], now_s * RATE - self._received)
        began = round(min(self._earliest))
        if before == 0:
            self._offset = began
        elif abs(began - self._offset) > (_MOVED if self._silent_for < _HOLD else _MOVED_IDLE):
            # The echo is as far behind the far end as before: what AEC3 has learnt still holds.
            self._offset = began
            self._estimator.reset()

    def _frame(self, mic: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        at = self._offset + self._done
        self._done += FRAME
        far = self._reference.read(at - self._held_back, FRAME)
        self._follow(mic, at + FRAME)
        loud = _energy(far) > _ACTIVE
        self._silent_for = 0 if loud else self._silent_for + FRAME
        was_active, speaking = self._active, self._silent_for < _HOLD
        # Until an echo was found there is none: AEC3, which expects one, would take the caller's voice for it.
        active = self._active = speaking and self.delay_ms is not None
        if not (speaking or was_active):
            self._shares.append(_Share(self._done, _energy(mic), _energy(mic)))
            return mic
        clean = self._aec.process(mic, far)
        if not (active or was_active):
            self._shares.append(_Share(self._done, _energy(mic), _energy(mic)))
            return mic
        self._shares.append(self._shared(clean, at))
        if active and was_active:
            return clean
        rise = np.linspace(0, 1, FRAME, dtype=np.float32)
        one, other = (mic, clean) if active else (clean, mic)
        return (one * (1 - rise) + other * rise).astype(np.int16)

    def _shared(self, clean: npt.NDArray[np.int16], at: int) -> _Share:
        """Of the frame that was just done. `clean` is of the frame before it, so its energy is compared with that."""
        latest_ms = self._estimator.latest_ms
        delay = self._held_back if latest_ms is None else round(latest_ms * _MS)
        explained = self._coherence.push(clean, self._reference.read(at - delay - _LATENCY, FRAME))
        return _Share(self._done, _energy(self._block[-2 * FRAME : -FRAME]), _energy(clean) * (1 - explained))

    def _follow(self, mic: npt.NDArray[np.int16], end: int) -> None:
        """Measure the delay, and hold the far end back where AEC3 does not reach."""
        self._block = np.concatenate([self._block[FRAME:], mic])
        if self._done % DelayEstimator.HOP:
            return
        far = self._reference.read(end - DelayEstimator.SPAN, DelayEstimator.SPAN)
        if _energy(far) < _ACTIVE or _energy(self._block) < _AUDIBLE:
            return
        self._estimator.take(self._block, far)
        if self.delay_ms is None:
            return
        delay = round(self.delay_ms * _MS)
        if not self._held_back <= delay <= self._held_back + _REACH:
            self._held_back = max(0, delay - _LEAD)
            self._aec.reset()


def _energy(pcm: npt.NDArray[np.int16]) -> float:
    """Mean square of int16[T]."""
    return float(np.mean(np.square(pcm, dtype=np.float64)))

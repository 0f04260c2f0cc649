"""Streaming sample-rate conversion by a rational factor, sample-exact and with about a millisecond of delay.

A polyphase FIR filter: a Kaiser-windowed sinc designed once, of which every output sample evaluates one phase
(Crochiere & Rabiner, *Multirate Digital Signal Processing*, 1983, ch. 3). Block converters such as soxr hand out
their samples in bursts of 10 to 30 ms; here 20 ms in are exactly 20 ms out, which the sample counts rely on.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

_STOP_BAND_DB = 80.0
_TRANSITION = 0.2  # width of the transition band, as a share of the lower Nyquist frequency


@lru_cache(maxsize=8)
def _phases(up: int, down: int) -> npt.NDArray[np.float32]:
    """The filter split into phases: float32[up, taps], each reversed for a dot product with past samples."""
    cutoff = 1.0 / max(up, down)
    width = np.pi * cutoff * _TRANSITION
    length = int(np.ceil((_STOP_BAND_DB - 7.95) / (2.285 * width))) + 1
    length += -length % up
    beta = 0.1102 * (_STOP_BAND_DB - 8.7)
    at = np.arange(length) - (length - 1) / 2
    taps = cutoff * np.sinc(cutoff * at) * np.kaiser(length, beta)
    phases = taps.reshape(-1, up).T
    phases = phases / phases.sum(axis=1, keepdims=True)
    return np.ascontiguousarray(phases[:, ::-1], dtype=np.float32)


class Resampler:
    """Converts a stream of mono float32 samples from `rate_in` to `rate_out` (Hz).

    Each call to `push` gives every output sample that its input decides: after n input samples there have been
    ceil(n * rate_out / rate_in) of them, whatever the sizes of the pieces. The delay is `delay_ms`.
    """

    def __init__(self, rate_in: int, rate_out: int) -> None:
        if rate_in <= 0 or rate_out <= 0:
            raise ValueError(f"expected positive sample rates, got {rate_in} and {rate_out}")
        common = int(np.gcd(rate_in, rate_out))
        self._up, self._down = rate_out // common, rate_in // common
        self._phases = _phases(self._up, self._down)
        self._history = np.zeros(self._phases.shape[1] - 1, dtype=np.float32)
        self._consumed = 0  # input samples so far
        self._produced = 0  # output samples so far
        self.delay_ms = (self._phases.size - 1) / 2 / (rate_in * self._up) * 1000

    def push(self, pcm: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Convert the next piece: float32[T] → float32[about T * rate_out / rate_in]; any T, also 0."""
        up, down = self._up, self._down
        total = -(-(self._consumed + len(pcm)) * up // down)
        out = np.empty(total - self._produced, dtype=np.float32)
        if len(out):
            line = np.concatenate((self._history, pcm.astype(np.float32, copy=False)))
            windows = np.lib.stride_tricks.sliding_window_view(line, self._phases.shape[1])
            for first in range(min(up, len(out))):
                at = (self._produced + first) * down
                rows = windows[at // up - self._consumed :: down]
                out[first::up] = rows[: len(out[first::up])] @ self._phases[at % up]
        keep = len(self._history)
        if len(pcm) >= keep:
            self._history = pcm[len(pcm) - keep :].astype(np.float32)
        else:
            self._history = np.concatenate((self._history[len(pcm) :], pcm)).astype(np.float32, copy=False)
        self._consumed += len(pcm)
        self._produced = total
        return out

"""Whether a reply that was spoken over went on as it would have without: what of it was repeated, what was left out.

Events say what a server believes; this is measured on the sound. The same call is placed once without the sounds that
disturb it, and what was received is found again in that reply by normalised cross-correlation. It takes a voice that
says the same words the same way twice. Sans-IO; sound is int16[T] @ 24 kHz.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voice_agent.bench.detect import voice_spans
from voice_agent.bench.recording import RATE

Pcm = npt.NDArray[np.int16]

SURE = 0.7
"""Correlation from which a piece is the same sound; other words of the same voice stay below 0.5."""

ALIKE = 0.97
"""A piece that fits elsewhere nearly as well (a tone, a word said twice the same way) cannot be placed."""

PIECE_S = 0.4
LEAST_VOICE_S = 0.1
"""What is looked for, and how much voice has to be in it."""

FADE_S = 0.02
"""A reply that pauses or goes on is faded for so long."""

PAUSE_S = 0.06
"""Silence beyond the reply's own from which it was paused."""

NEAR_S = 1.0
"""A reply goes on from within a second of where it was."""

FADED_DB = 3.0
FADED_DBFS = -40.0
_NEAR = RATE // 50
_BLOCK = RATE // 200
_RUN = 4


@dataclass(frozen=True)
class Course:
    """How a reply ran after something was said over it; times in samples of the received line.

    `faded`: the first sample that is quieter than in the uncut reply. `resumed`: where it went on after its last pause;
    None if it was not paused, or never went on. `went_on`: the same, if it was from about where it had been: a new
    reply may open with the same words. `repeated`, `skipped`: seconds of voice heard twice, and never. `other`: what
    came then is not this reply. `complete`: it was heard to its end. `due`: it had more to say at the onset.
    """

    faded: int | None
    resumed: int | None
    went_on: int | None
    repeated: float
    skipped: float
    other: bool
    complete: bool
    due: bool


def locate(piece: Pcm, whole: Pcm) -> int | None:
    """Where `piece` begins in `whole`, in samples; None if it is not in it, is in it twice, or has hardly any voice."""
    if len(piece) > len(whole) or voice_s(piece) < LEAST_VOICE_S:
        return None
    wanted, among = piece.astype(np.float64), whole.astype(np.float64)
    size = 1 << (len(whole) + len(piece) - 1).bit_length()
    spectrum = np.fft.rfft(among, size) * np.conj(np.fft.rfft(wanted, size))
    products = np.fft.irfft(spectrum, size)[: len(whole) - len(piece) + 1]
    energy = np.concatenate(([0.0], np.cumsum(np.square(among))))
    around = np.maximum(energy[len(piece) :] - energy[: -len(piece)], 1.0)
    scores = products / np.sqrt(around * float(np.sum(np.square(wanted))))
    best = int(np.argmax(scores))
    found = float(scores[best])
    scores[max(0, best - _NEAR) : best + _NEAR] = 0
    return best if found >= SURE and scores.max(initial=0.0) < ALIKE * found else None


def voice_s(pcm: Pcm) -> float:
    """Seconds of voice in a sound."""
    return sum(end - start for start, end in voice_spans(pcm, 0.0)) / RATE


def follow(heard: Pcm, onset: int, until: int, voices: Sequence[tuple[int, int]], uncut: Pcm) -> Course | None:
    """The course of the reply that sounds at the sample `onset` of the received line `heard`.

    `until`: where the next reply may begin; `voices`: the stretches of voice of `heard`, with pauses of 0.1 s and more
    between them; `uncut`: the same reply when nobody speaks over it. None if the two are not the same sound.
    """
    # A long piece is surer; a short one is still found where the stream had faltered before.
    starts = [max(0, onset - round(length * PIECE_S * RATE)) for length in (2, 1)]
    lags = [found - start for start in starts if (found := locate(heard[start:onset], uncut)) is not None]
    if not lags:
        return None
    lag = first_lag = lags[0]  # from a sample of `heard` to that of `uncut`
    running = [span for span in voices if span[1] > onset and span[0] < until]
    stopped = onset
    if running and running[0][0] <= onset:
        stopped = running.pop(0)[1]
    resumed: int | None = None
    went_on: int | None = None
    repeated = skipped = 0.0
    other = False
    for goes_on, ends in running:
        begin = goes_on + round(FADE_S * RATE)
        piece = heard[begin : begin + round(PIECE_S * RATE)]
        place = locate(piece, uncut)
        if place is None and voice_s(piece) >= LEAST_VOICE_S:
            other = True
            break
        # What is too short to be found is taken to follow on what was.
        after = lag if place is None else place - begin
        left, here = stopped + lag, goes_on + after
        if goes_on - stopped - max(0, here - left) >= PAUSE_S * RATE:
            resumed = goes_on
            if place is not None and abs(here - left) <= NEAR_S * RATE:
                went_on = goes_on
        if here < left:
            repeated += voice_s(uncut[max(0, here) : left])
        else:
            skipped += _beyond_fade(uncut[max(0, left) : here])
        lag, stopped = after, ends
    complete = not other and voice_s(uncut[max(0, stopped + lag) :]) < PAUSE_S
    faded = _faded(heard, uncut, onset, until, first_lag)
    due = voice_s(uncut[max(0, onset + first_lag) :]) >= PAUSE_S
    return Course(faded, resumed, went_on, round(repeated, 4), round(skipped, 4), other, complete, due)


def _beyond_fade(pcm: Pcm) -> float:
    """Seconds of voice, but for what a fade makes too quiet to be voice."""
    seconds = voice_s(pcm)
    return seconds if seconds > 2 * FADE_S else 0.0


def _faded(heard: Pcm, uncut: Pcm, onset: int, until: int, lag: int) -> int | None:
    """The first sample after `onset` from which `heard` is quieter than `uncut` for 20 ms of voice."""
    end = min(len(heard), until, len(uncut) - lag)
    blocks = max(0, (end - onset) // _BLOCK)
    here, there = (_level(pcm[at : at + blocks * _BLOCK]) for pcm, at in ((heard, onset), (uncut, onset + lag)))
    voiced = there > FADED_DBFS
    quieter = here < there - FADED_DB
    at = np.flatnonzero(voiced)
    for rank in range(len(at) - _RUN + 1):
        if quieter[at[rank : rank + _RUN]].all():
            return int(onset + at[rank] * _BLOCK)
    return None


def _level(pcm: Pcm) -> npt.NDArray[np.float64]:
    """dBFS of each 5 ms."""
    power = np.square(pcm.astype(np.float64) / 32768).reshape(-1, _BLOCK).mean(axis=1)
    levels: npt.NDArray[np.float64] = 10 * np.log10(np.maximum(power, 1e-12))
    return levels

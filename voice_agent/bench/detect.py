"""Where there is voice in a recording, to 2 ms: everything louder than -45 dBFS that lasts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voice_agent.bench.recording import RATE

VOICED_DBFS = -45.0
BLOCK = RATE // 500
"""Samples of 2 ms, the resolution of a start and an end."""

MIN_VOICE_S = 0.02
"""Shorter sounds are clicks. Inside a voice, silence up to this long (between two pitch pulses) is part of it."""


def voiced_blocks(pcm: npt.NDArray[np.int16], threshold_dbfs: float = VOICED_DBFS) -> npt.NDArray[np.bool_]:
    """Which 2 ms blocks of `pcm` (int16[T] @ 24 kHz) are louder than the threshold: bool[ceil(T / 48)].

    RMS, 0 dBFS = a full-scale square wave; the last block may be short.
    """
    if not len(pcm):
        return np.zeros(0, np.bool_)
    starts = np.arange(0, len(pcm), BLOCK)
    energy = np.add.reduceat(np.square(pcm.astype(np.float64) / 32768), starts)
    sizes = np.diff(np.append(starts, len(pcm)))
    loud: npt.NDArray[np.bool_] = energy / sizes > 10 ** (threshold_dbfs / 10)
    return loud


def voice_spans(
    pcm: npt.NDArray[np.int16], join_s: float = 0.3, threshold_dbfs: float = VOICED_DBFS
) -> list[tuple[int, int]]:
    """Stretches of voice in int16[T] @ 24 kHz, as (first sample, sample after the last), pauses up to `join_s` inside.

    A start is at most 2 ms too early, an end at most 2 ms too late.
    """
    loud = np.concatenate(([False], voiced_blocks(pcm, threshold_dbfs), [False]))
    edges = np.flatnonzero(loud[1:] != loud[:-1]) * BLOCK
    raw = [(int(start), min(int(end), len(pcm))) for start, end in edges.reshape(-1, 2)]
    sounds = [span for span in join(raw, MIN_VOICE_S) if span[1] - span[0] >= MIN_VOICE_S * RATE]
    return join(sounds, join_s)


def join(spans: list[tuple[int, int]], join_s: float) -> list[tuple[int, int]]:
    """Spans (in samples, in order) with those that are at most `join_s` apart made one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start - joined[-1][1] <= join_s * RATE:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined

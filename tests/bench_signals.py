"""Recorded calls made of tones at known times, for the tests of the bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from voice_agent.bench.recording import RATE, Event, Line, Packet, Recording, Said

FRAME = RATE // 50


def tones(seconds: float, spans: Sequence[tuple[float, float]], hz: float = 440.0, level: float = 0.3) -> np.ndarray:
    """int16[T] @ 24 kHz: a hard-cut tone in each span (seconds), else digital silence."""
    pcm = np.zeros(round(seconds * RATE), np.float64)
    for start, end in spans:
        first, last = round(start * RATE), round(end * RATE)
        pcm[first:last] = level * np.sin(2 * np.pi * hz * (np.arange(last - first) + 0.25) / RATE)
    return np.asarray(pcm * 32767, np.int16)


def line(
    pcm: np.ndarray,
    outgoing: bool = False,
    begin: float = 0.0,
    delay: Callable[[int], float] = lambda packet: 0.0,
    lost: Sequence[int] = (),
) -> Line:
    """`pcm` as 20 ms packets in real time from `begin`; packet i is `delay(i)` seconds late. Sent frames leave full."""
    packets = [
        Packet(begin + i * 0.02 + (0.02 if outgoing else 0) + delay(i), i * FRAME, i, pcm[i * FRAME : (i + 1) * FRAME])
        for i in range(len(pcm) // FRAME)
        if i not in lost
    ]
    return Line.of(sorted(packets, key=lambda packet: packet.at), outgoing)


def call(
    seconds: float,
    said: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    heard: Sequence[tuple[float, float]],
    events: Sequence[tuple[float, dict]] = (),
    received: Line | None = None,
) -> Recording:
    """A call in which the caller says each turn's spans, with what is expected of it, and hears tones in `heard`."""
    spoken = [span for _, spans in said for span in spans]
    turns = tuple(
        Said(str(number), expect, tuple((round(a * RATE), round(b * RATE)) for a, b in spans))  # type: ignore[arg-type]
        for number, (expect, spans) in enumerate(said)
    )
    return Recording(
        line(tones(seconds, spoken, 300), outgoing=True),
        received if received is not None else line(tones(seconds, heard)),
        turns,
        tuple(Event(at, data) for at, data in events),
    )

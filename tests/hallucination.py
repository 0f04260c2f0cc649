"""Sounds that are no speech, and what the listening side makes of them: every transcript with words is a false turn.

The audio is made from a seed, runs through voice activity detection and recognition as a call's would, with the menu
prompt on and the language detected, and is fed as fast as it is processed. After each sound a recorded order follows,
which has to be recognised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from demos.ordering.menu import default_menu
from voice_agent.vad import SileroModel, StreamingVad, VadConfig
from voice_agent.whisper import Recognizer

RATE = 16_000
BLOCK = 10 * RATE
PRE_ROLL = 4800
END_OF_TURN = 8000
"""Silence after an offset (500 ms) that ends a turn."""
STEADY = ("silence", "room", "fan")
"""Sounds that must not give a single turn; each of the others may give one in ten minutes."""
PROMPT = default_menu().vocabulary()
"""The words that the demo's calls tell the recogniser to expect, by language."""
ORDER = Path(__file__).parent / "data" / "order_zh.flac"
ORDER_WORDS = "珍珠奶茶"

Pcm = npt.NDArray[np.float32]
Maker = Callable[[np.random.Generator, int], Pcm]


def coloured(rng: np.random.Generator, length: int, tilt_db_per_octave: float, low: float, high: float) -> Pcm:
    """Noise float32[length] of RMS 1 between two frequencies in Hz, its spectrum tilted."""
    spectrum = np.fft.rfft(rng.standard_normal(length))
    hertz = np.fft.rfftfreq(length, 1 / RATE)
    octaves = np.log2(np.maximum(hertz, 1.0))
    spectrum *= np.where((hertz >= low) & (hertz <= high), 10 ** (tilt_db_per_octave * octaves / 20), 0.0)
    noise = np.fft.irfft(spectrum, length)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)), np.float32)


def at_level(pcm: Pcm, dbfs: float) -> Pcm:
    """Scaled to this RMS."""
    return np.asarray(pcm * (10 ** (dbfs / 20) / max(1e-9, float(np.sqrt(np.mean(pcm**2))))), np.float32)


def silence(rng: np.random.Generator, length: int) -> Pcm:
    return np.zeros(length, np.float32)


def room(rng: np.random.Generator, length: int) -> Pcm:
    """A quiet room: falling spectrum, -50 dBFS."""
    return at_level(coloured(rng, length, -4.5, 40, 7000), -50)


def fan(rng: np.random.Generator, length: int) -> Pcm:
    """A fan: falling noise, the hum of the motor and of the blades, both slowly wandering, -40 dBFS."""
    time_s = np.arange(length) / RATE
    wander = 1 + 0.02 * np.sin(2 * np.pi * 0.13 * time_s + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(wander) / RATE
    hum = sum(np.sin(phase * hertz) / number for number, hertz in enumerate((50, 100, 147, 294, 441), start=1))
    beat = 1 + 0.15 * np.sin(phase * 24.5)
    return at_level(np.asarray(coloured(rng, length, -6, 40, 5000) * beat + 0.4 * hum, np.float32), -40)


def keyboard(rng: np.random.Generator, length: int) -> Pcm:
    """Typing in bursts: each key a knock of 3 to 8 kHz and a lower thud, 5 to 9 a second."""
    pcm = 10 ** (-62 / 20) * coloured(rng, length, -3, 60, 7000)
    at = 0
    while at < length - 4000:
        for _ in range(int(rng.integers(4, 30))):
            if at >= length - 4000:
                break
            span = int(rng.integers(500, 1200))
            decay = np.exp(-np.arange(span) / rng.uniform(60, 200))
            knock = coloured(rng, span, 0, 2500, 7800) * decay
            thud = coloured(rng, span, 0, 150, 900) * decay**0.5
            pcm[at : at + span] += np.float32(rng.uniform(0.02, 0.12)) * (knock + 0.5 * thud).astype(np.float32)
            at += int(rng.uniform(0.1, 0.2) * RATE)
        at += int(rng.uniform(0.3, 2.5) * RATE)
    return pcm


def breath(rng: np.random.Generator, length: int) -> Pcm:
    """Breathing into the microphone: in through the nose, out through the mouth, with formant-like bands."""
    pcm = 10 ** (-65 / 20) * coloured(rng, length, -3, 60, 7000)
    at = int(rng.uniform(0, 1) * RATE)
    while at < length - 4 * RATE:
        for low, high, level in ((700, 6000, 0.012), (300, 2600, 0.025)):
            span = int(rng.uniform(0.7, 1.5) * RATE)
            rise = np.sin(np.pi * np.linspace(0, 1, span)) ** 1.5
            air = coloured(rng, span, -3, low, high) + 0.6 * coloured(rng, span, 0, low * 1.5, low * 2.2)
            pcm[at : at + span] += np.float32(level * rng.uniform(0.5, 1.5)) * (air * rise).astype(np.float32)
            at += span + int(rng.uniform(0.05, 0.3) * RATE)
        at += int(rng.uniform(0.5, 1.5) * RATE)
    return pcm


def music(rng: np.random.Generator, length: int) -> Pcm:
    """Background music, -35 dBFS: chords, a plucked melody, bass and drums at a steady beat."""
    pcm = np.zeros(length + 2 * RATE, np.float64)
    beat = int(RATE * 60 / rng.uniform(80, 130))
    scale = np.array([0, 2, 4, 5, 7, 9, 11])
    root = 220 * 2 ** (rng.integers(-4, 5) / 12)
    for number, at in enumerate(range(0, length, beat)):
        degree = (0, 5, 3, 4)[number // 4 % 4]
        if number % 4 == 0:
            for third in (0, 2, 4):
                _add_note(pcm, at, root * 2 ** (_tone(scale, degree + third) / 12), 4 * beat, 0.08, 6, 1e9)
        _add_note(pcm, at, root / 2 * 2 ** (_tone(scale, degree) / 12), beat, 0.15, 3, RATE * 0.3)
        for half in range(2):
            step = int(rng.integers(0, 7))
            _add_note(pcm, at + half * beat // 2, 2 * root * 2 ** (_tone(scale, step) / 12), beat, 0.12, 8, RATE * 0.2)
        drum = coloured(rng, 1600, -6 if number % 2 else 0, 60, 7800) * np.exp(-np.arange(1600) / 300)
        pcm[at : at + 1600] += 0.05 * drum
    return at_level(np.asarray(pcm[:length], np.float32), -35)


def _tone(scale: npt.NDArray[np.int64], degree: int) -> float:
    return float(scale[degree % 7] + 12 * (degree // 7))


def _add_note(
    pcm: npt.NDArray[np.float64], at: int, hertz: float, span: int, level: float, partials: int, decay: float
) -> None:
    span = min(span, len(pcm) - at)
    time_s = np.arange(span) / RATE
    note = sum(np.sin(2 * np.pi * hertz * k * time_s) / k**1.3 for k in range(1, partials + 1))
    fade = np.minimum(1, np.minimum(np.arange(span), np.arange(span)[::-1]) / 80)
    pcm[at : at + span] += level * note * fade * np.exp(-np.arange(span) / decay)


SOUNDS: dict[str, Maker] = {
    "silence": silence,
    "room": room,
    "fan": fan,
    "keyboard": keyboard,
    "breath": breath,
    "music": music,
}


@dataclass
class Outcome:
    """What came of one sound. `speech`: how often voice activity was found; `turns`: transcripts with words."""

    sound: str
    seconds: float
    speech: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)
    order: str = ""
    judged_windows: float = 0.0
    compute_s: float = 0.0

    @property
    def passed(self) -> bool:
        allowed = 0 if self.sound in STEADY else max(1, round(self.seconds / 600))
        return len(self.turns) <= allowed and ORDER_WORDS in self.order


def utterances(vad: StreamingVad, blocks: Iterator[Pcm]) -> Iterator[npt.NDArray[np.int16]]:
    """Audio of each turn that voice activity makes of a signal: from 300 ms before its onset to 500 ms after it."""
    recent = np.zeros(0, np.int16)
    recent_end = 0
    onset: int | None = None
    ended: int | None = None
    for block in blocks:
        pcm = np.asarray(np.clip(block, -1, 1) * 32767, np.int16)
        for at in range(0, len(pcm), 320):
            chunk = pcm[at : at + 320]
            recent = np.concatenate([recent, chunk])[-25 * RATE :]
            recent_end += len(chunk)
            for event in vad.push(chunk):
                if event.kind == "onset":
                    onset, ended = event.at if onset is None else onset, None
                elif event.kind == "offset":
                    ended = event.at
                elif event.kind == "silence" and ended is not None and event.at - ended >= END_OF_TURN:
                    assert onset is not None
                    start = max(0, len(recent) - (recent_end - (onset - PRE_ROLL)))
                    yield recent[start:]
                    onset = ended = None


def listen(sound: str, blocks: Iterator[Pcm], seconds: float, recognizer: Recognizer, silero: SileroModel) -> Outcome:
    """Run a signal through voice activity detection and recognition."""
    outcome = Outcome(sound, seconds)
    vad = StreamingVad(VadConfig(), silero)
    began = time.perf_counter()
    for pcm in utterances(vad, blocks):
        outcome.speech += 1
        transcript = recognizer.transcribe(pcm.astype(np.float32) / 32768.0, None, PROMPT)
        if transcript.text:
            outcome.turns.append(transcript.text)
        else:
            outcome.rejected[transcript.verdict] = outcome.rejected.get(transcript.verdict, 0) + 1
    outcome.compute_s = round(time.perf_counter() - began, 1)
    outcome.judged_windows = round(vad.windows_judged / max(1, vad.windows_seen), 3)
    return outcome


def run(sound: str, seconds: float, seed: int, recognizer: Recognizer, silero: SileroModel) -> Outcome:
    """One sound for so long, then the recorded order over the same sound."""
    make = SOUNDS[sound]
    blocks = max(1, round(seconds * RATE / BLOCK))
    order, _ = soundfile.read(ORDER, dtype="float32")

    def signal() -> Iterator[Pcm]:
        for number in range(blocks):
            yield make(np.random.default_rng([seed, number]), BLOCK)
        tail = make(np.random.default_rng([seed, blocks]), BLOCK)
        tail[2 * RATE : 2 * RATE + len(order)] += order
        yield tail[: 2 * RATE + len(order) + 3 * RATE]

    outcome = listen(sound, signal(), seconds, recognizer, silero)
    if outcome.turns:
        outcome.order = outcome.turns.pop()
    return outcome

"""How a reply sounds to judges that know nothing of the server: DNSMOS, and what a recogniser makes of it.

DNSMOS P.835 (https://arxiv.org/abs/2110.01763) scores a recording from 1 to 5 without a reference. The recogniser is
Whisper base, without the words of any menu; its error counts words that were lost on the way along with unclear ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voice_agent.bench.checks import character_error, turn_window
from voice_agent.bench.figures import CallFigures
from voice_agent.bench.recording import RATE, Recording, reply_text
from voice_agent.bench.spoken import plain
from voice_agent.media.resample import Resampler

JUDGE_RATE = 16_000
LEAST_S = 0.5
EDGE_S = 0.1
MOST_S = 27.0
"""Whisper's window; a reply that is longer is judged by its beginning."""

Transcribe = Callable[[npt.NDArray[np.float32]], str]
Score = Callable[[npt.NDArray[np.float32]], float]


@dataclass(frozen=True)
class Judged:
    """One reply. `mos`: DNSMOS overall; `cer`: of what was recognised against what the server says it said; None if
    something was said over it, or the server says nothing."""

    turn: int
    seconds: float
    mos: float
    words: str
    said: str
    cer: float | None


class Judges:
    """Both judges; loading them takes seconds. `score`, `transcribe`: others in their place, at 16 kHz.

    Raises ModuleNotFoundError without speechmos.
    """

    def __init__(self, score: Score | None = None, transcribe: Transcribe | None = None) -> None:
        self._score = score if score is not None else _dnsmos()
        self.transcribe = transcribe if transcribe is not None else whisper()

    def replies(self, recording: Recording, figures: CallFigures) -> list[Judged]:
        """Each reply of a call, whole or as far as it was heard; one of less than half a second is none."""
        judged = []
        for number, turn in enumerate(figures.turns):
            if turn.expect not in ("respond", "stop"):
                continue
            pcm = reply_pcm(recording, figures, number)
            if len(pcm) < (LEAST_S + 2 * EDGE_S) * JUDGE_RATE:
                continue
            said = reply_text(recording.events, *turn_window(recording, figures, number))
            words = self.transcribe(pcm)
            mos = self._score(pcm)
            following = figures.turns[number + 1 : number + 2]
            whole = not following or following[0].expect in ("respond", "join")
            error = character_error(said, words) if said and whole else None
            judged.append(Judged(number, round(len(pcm) / JUDGE_RATE, 2), round(mos, 3), words, said, error))
        return judged


def error_of(replies: Sequence[Judged]) -> float | None:
    """CER of all that these replies said, one after the other; None if nothing of it can be compared.

    A reply of six characters is heard to the sixth or not, and so half of them without an error.
    """
    compared = [(reply.cer, len(plain(reply.said))) for reply in replies if reply.cer is not None]
    characters = sum(length for _, length in compared)
    return sum(cer * length for cer, length in compared) / characters if characters else None


def reply_pcm(recording: Recording, figures: CallFigures, number: int) -> npt.NDArray[np.float32]:
    """What was heard between a turn and the next that is not to be ignored, without the silence around.

    float32[T] @ 16 kHz in [-1, 1].
    """
    following = [turn for turn in figures.turns[number + 1 :] if turn.expect != "ignore"]
    start = figures.turns[number].until
    until = following[0].at if following else np.inf
    voices = [voice for voice in figures.agent if start < voice.start < until]
    if not voices:
        return np.zeros(0, np.float32)
    return heard_pcm(recording, figures.begin + voices[0].start, figures.begin + voices[-1].end)


def heard_pcm(recording: Recording, start: float, end: float) -> npt.NDArray[np.float32]:
    """What arrived from `start` to `end`, in seconds on the recording's clock, and 0.1 s around it; at most 27 s.

    float32[T] @ 16 kHz in [-1, 1].
    """
    line = recording.received
    first, last = line.between(start - EDGE_S, end + EDGE_S)
    part = line.pcm[first : min(last, first + round(MOST_S * RATE))] * np.float32(1 / 32768)
    return np.asarray(np.clip(Resampler(RATE, JUDGE_RATE).push(part), -1, 1), np.float32)


def _dnsmos() -> Score:
    from speechmos import dnsmos

    def score(pcm: npt.NDArray[np.float32]) -> float:
        told: dict[str, Any] = dnsmos.run(pcm, sr=JUDGE_RATE)
        return float(told["ovrl_mos"])

    return score


def whisper() -> Transcribe:
    """Whisper base, in Mandarin or English, whichever it hears."""
    from voice_agent.whisper import Recognizer

    recognizer = Recognizer()

    def transcribe(pcm: npt.NDArray[np.float32]) -> str:
        return recognizer.transcribe(pcm, None, "").text

    return transcribe

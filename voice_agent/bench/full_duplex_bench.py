"""Full-Duplex-Bench v1 (https://arxiv.org/abs/2503.04721) on recorded calls: its take-over rates and latencies.

Its rules differ from this bench's own. Pauses of the caller up to 0.6 s and of the agent up to 0.5 s are none. A sound
of the agent takes the turn unless a recogniser finds no words in it, or it is shorter than 1 s with at most 3 words.
Latency runs from the caller's end to the beginning of what takes the turn, and its mean is what is published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from voice_agent.bench.detect import join, voice_spans
from voice_agent.bench.quality import Transcribe, heard_pcm
from voice_agent.bench.recording import RATE, Recording

USER_JOIN_S = 0.6
AGENT_JOIN_S = 0.5
SHORT_S = 1.0
FEW_WORDS = 3


@dataclass(frozen=True)
class Trial:
    """`task`: pause, turn or interruption. `latency_s`: None where the agent did not take the turn."""

    task: str
    took_over: bool
    latency_s: float | None


@dataclass(frozen=True)
class Score:
    """`rate`: share of the trials in which the agent took the turn; of pauses low is good, of the others high."""

    trials: int
    rate: float
    latency_s: float | None


def word_count(text: str) -> int:
    """Words of alphabets, and each character of Chinese."""
    return len(re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", text))


def takes_turn(seconds: float, words: int) -> bool:
    return words > 0 and (seconds >= SHORT_S or words > FEW_WORDS)


def trials(recording: Recording, transcribe: Transcribe) -> list[Trial]:
    """Every pause, turn and interruption of a call."""
    sent, received = recording.sent, recording.received
    spans = voice_spans(received.pcm, AGENT_JOIN_S)
    agent = [(received.time(start), received.time(end - 1) + 1 / RATE) for start, end in spans]

    def first_turn(after: float, before: float) -> float | None:
        for start, end in agent:
            if after < start < before and takes_turn(
                end - start, word_count(transcribe(heard_pcm(recording, start, end)))
            ):
                return start
        return None

    found = []
    for number, said in enumerate(recording.said):
        if said.expect not in ("respond", "stop"):
            continue
        voice = join(list(said.voice), USER_JOIN_S)
        for (_, pause), (goes_on, _) in pairwise(voice):
            start = first_turn(sent.time(pause - 1), sent.time(goes_on))
            found.append(Trial("pause", start is not None, None if start is None else start - sent.time(pause - 1)))
        following = recording.said[number + 1 : number + 2]
        end = sent.time(voice[-1][1] - 1)
        start = first_turn(end, sent.time(following[0].voice[0][0]) if following else np.inf)
        task = "turn" if said.expect == "respond" else "interruption"
        found.append(Trial(task, start is not None, None if start is None else start - end))
    return found


def scores(found: Iterable[Trial]) -> dict[str, Score]:
    """By task, for those that have trials."""
    told: dict[str, Score] = {}
    every = list(found)
    for task in ("pause", "turn", "interruption"):
        of = [trial for trial in every if trial.task == task]
        late = [trial.latency_s for trial in of if trial.latency_s is not None]
        if of:
            rate = sum(trial.took_over for trial in of) / len(of)
            told[task] = Score(len(of), round(rate, 3), round(float(np.mean(late)), 3) if late else None)
    return told

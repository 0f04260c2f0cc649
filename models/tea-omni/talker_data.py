"""What the talker learns from: the teachers' phones with their times.

The English teacher's durations come from a learnt aligner whose boundaries lie late by a constant, and its pauses
are counted in part to the word before: both are mended here from the audio. `item` gives both languages alike:
an edge phone, the phones, an edge phone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from phones import EDGE, PAUSES, inventory
from speech import Line, audio

from voice_agent.tea.codec import SAMPLE_RATE

# Found as the shift at which vowels are loudest against stops and fricatives (see the model card).
EN_LATE_SECONDS = 0.05
SILENCE_HOP = 120
EDGE_SECONDS = 0.05
SHORTEST_SECONDS = 0.0125


@dataclass(frozen=True)
class Item:
    """One utterance. `wav`: path in the teacher's folder; `phones`: of the shared inventory; `seconds`: float64[N].

    `words`: of every word or character the place of its first phone.
    """

    language: str
    wav: str
    text: str
    phones: tuple[str, ...]
    seconds: npt.NDArray[np.float64]
    words: tuple[int, ...]


def item(line: Line, folder: Path, language: str) -> Item:
    """The utterance of a line of `folder`/meta.jsonl."""
    return _zh(line) if language == "zh" else _en(line, folder)


def _zh(line: Line) -> Item:
    pieces = [token["text"] for token in line["tokens"]]
    phones = [
        (_named(name, "zh", pieces[token]), seconds, token)
        for (name, seconds), token in zip(line["phones"], line["phone_token"], strict=True)
    ]
    if line["phones"][0][0] == "sil":
        phones[0] = (EDGE, phones[0][1], -1)
    else:
        phones.insert(0, (EDGE, 0.0, -1))
    return _finished("zh", line, phones)


def _en(line: Line, folder: Path) -> Item:
    tokens = line["tokens"]
    names = [name for name, _, _ in line["phones"]]
    owners = [owner for _, _, owner in line["phones"]]
    ends = np.cumsum([seconds for _, seconds, _ in line["phones"]]) - EN_LATE_SECONDS
    ends[-1] += EN_LATE_SECONDS
    _mend_pauses(names, ends, _silent(audio(folder, line).numpy()))
    seconds = np.diff(np.concatenate([np.zeros(1), ends]))
    phones = [(EDGE, float(seconds[0]), -1)]
    for name, length, owner in zip(names[1:-1], seconds[1:-1], owners[1:-1], strict=True):
        phones.append((_named(name, "en", tokens[owner]), float(length), owner))
    if names[-2] == "sil":
        name, length, owner = phones[-1]
        phones[-1] = (name, length + float(seconds[-1]), owner)
    else:
        phones.append((EDGE, float(seconds[-1]), -1))
    return _finished("en", line, phones)


def _named(name: str, language: str, token: str) -> str:
    if name == "sil":
        return PAUSES.get(token, PAUSES[","])
    return name if name == EDGE else f"{language}/{name}"


def _silent(pcm: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Whether each hop of `SILENCE_HOP` samples is silent."""
    hops = len(pcm) // SILENCE_HOP
    power = (pcm[: hops * SILENCE_HOP].reshape(hops, SILENCE_HOP) ** 2).mean(1)
    return power < max(1e-6, float(power.max()) * 1e-4)


def _mend_pauses(names: list[str], ends: npt.NDArray[np.float64], silent: npt.NDArray[np.bool_]) -> None:
    """Move the borders of every pause to those of the longest silence near it."""
    rate = SAMPLE_RATE / SILENCE_HOP
    for index, name in enumerate(names):
        if name != "sil" or index == len(names) - 1:
            continue
        last = index == len(names) - 2
        low = ends[index - 2] + 0.02 if index >= 2 else 0.0
        high = len(silent) / rate if last else ends[index] + (ends[index + 1] - ends[index]) / 2
        hops = np.arange(int(low * rate), min(len(silent), int(high * rate)))
        runs = np.split(hops, np.flatnonzero(np.diff(silent[hops].astype(int))) + 1)
        runs = [run for run in runs if len(run) and silent[run[0]]]
        if not runs:
            continue
        longest = max(runs, key=len)
        begin, end = longest[0] / rate, (longest[-1] + 1) / rate
        if end - begin < 0.03:
            continue
        if index >= 1:
            ends[index - 1] = max(begin, low + 0.01)
            end = max(end, ends[index - 1] + SHORTEST_SECONDS)
        ends[index] = end


def _finished(language: str, line: Line, phones: list[tuple[str, float, int]]) -> Item:
    """With an edge of `EDGE_SECONDS` at the end, taken from the pause before it. `phones`: name, seconds, token."""
    if phones[-1][0] != EDGE:
        last, length, owner = phones[-1]
        edge = min(EDGE_SECONDS, length / 2) if last.startswith("sil") else 0.0
        phones[-1] = (last, length - edge, owner)
        phones.append((EDGE, edge, -1))
    seconds = np.array([length for _, length, _ in phones])
    total = seconds.sum()
    seconds = seconds.clip(SHORTEST_SECONDS)
    seconds *= total / seconds.sum()
    words = tuple(
        place
        for place, ((_, _, before), (name, _, owner)) in enumerate(pairwise(phones), 1)
        if owner != before and not name.startswith("sil/")
    )
    return Item(language, line["wav"], line["text"], tuple(name for name, _, _ in phones), seconds, words)


def phone_inventory(items: Iterable[Item]) -> list[str]:
    """The shared inventory over all of these utterances."""
    return inventory(phone for item in items for phone in item.phones)

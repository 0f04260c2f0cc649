"""What the talker learns from: teachers' phones with times, and the codec's latents of the same audio.

The English teacher's durations come from a learnt aligner whose boundaries lie late by a constant, and its pauses
are counted in part to the word before: both are mended here from the audio. `item(…)` gives both languages alike:
an edge phone, the phones with their tokens, an edge phone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
from phones import EDGE, PAUSES, inventory

SAMPLE_RATE = 24000
# Found as the shift at which vowels are loudest against stops and fricatives (see the model card).
EN_LATE_SECONDS = 0.05
SILENCE_HOP = 120
EDGE_SECONDS = 0.05
SHORTEST_SECONDS = 0.0125


@dataclass(frozen=True)
class Item:
    """One utterance. `phones`: of the shared inventory, `seconds`: float64[N], `tokens`: the token of each phone."""

    language: str
    name: str
    text: str
    pieces: tuple[str, ...]
    phones: tuple[str, ...]
    seconds: npt.NDArray[np.float64]
    tokens: tuple[int, ...]


def load(folder: Path, language: str) -> Iterator[Item]:
    """The utterances of one teacher's folder, in the order in which they were made."""
    for line in (folder / "meta.jsonl").read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        yield _zh(value) if language == "zh" else _en(value, folder)


def _zh(value: dict[str, Any]) -> Item:
    pieces = [token["text"] for token in value["tokens"]]
    timed = [
        (name, seconds, token) for (name, seconds), token in zip(value["phones"], value["phone_token"], strict=True)
    ]
    if timed[0][0] == "sil":
        timed[0] = (EDGE, timed[0][1], 0)
    else:
        timed.insert(0, (EDGE, 0.0, 0))
    phones = [(_named(name, "zh", pieces[token]), seconds, token) for name, seconds, token in timed]
    return _finished("zh", value["wav"], value["text"], pieces, phones)


def _en(value: dict[str, Any], folder: Path) -> Item:
    audio, rate = soundfile.read(folder / value["wav"], dtype="float32")
    assert rate == SAMPLE_RATE
    tokens = value["tokens"]
    names = [name for name, _, _ in value["phones"]]
    owners = [owner for _, _, owner in value["phones"]]
    ends = np.cumsum([seconds for _, seconds, _ in value["phones"]]) - EN_LATE_SECONDS
    ends[-1] += EN_LATE_SECONDS
    _mend_pauses(names, ends, _silent(audio))
    seconds = np.diff(np.concatenate([np.zeros(1), ends]))
    phones = [(EDGE, float(seconds[0]), 0)]
    for name, length, owner in zip(names[1:-1], seconds[1:-1], owners[1:-1], strict=True):
        phones.append((_named(name, "en", tokens[owner]), float(length), owner))
    if names[-2] == "sil":
        name, length, owner = phones[-1]
        phones[-1] = (name, length + float(seconds[-1]), owner)
    else:
        phones.append((EDGE, float(seconds[-1]), len(tokens) - 1))
    return _finished("en", value["wav"], value["text"], tokens, phones)


def _named(name: str, language: str, token: str) -> str:
    if name == "sil":
        return PAUSES.get(token, PAUSES[","])
    return name if name == EDGE else f"{language}/{name}"


def _silent(audio: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Whether each hop of `SILENCE_HOP` samples is silent."""
    hops = len(audio) // SILENCE_HOP
    power = (audio[: hops * SILENCE_HOP].reshape(hops, SILENCE_HOP) ** 2).mean(1)
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


def _finished(language: str, name: str, text: str, pieces: list[str], phones: list[tuple[str, float, int]]) -> Item:
    """With an edge of `EDGE_SECONDS` at the end, taken from the pause before it."""
    if phones[-1][0] != EDGE:
        last, length, owner = phones[-1]
        edge = min(EDGE_SECONDS, length / 2) if last.startswith("sil") else 0.0
        phones[-1] = (last, length - edge, owner)
        phones.append((EDGE, edge, owner))
    seconds = np.array([length for _, length, _ in phones])
    total = seconds.sum()
    seconds = seconds.clip(SHORTEST_SECONDS)
    seconds *= total / seconds.sum()
    tokens = tuple(owner for _, _, owner in phones)
    return Item(language, name, text, tuple(pieces), tuple(n for n, _, _ in phones), seconds, tokens)


def phone_inventory(items: list[Item]) -> list[str]:
    """The shared inventory over all of these utterances."""
    return inventory(phone for item in items for phone in item.phones)

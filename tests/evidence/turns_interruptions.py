"""True interruptions at random moments of a reply: when it fades, whether it ever comes back, what is remembered of it.

Pieces with an odd seed are of five short words, those with an even one of eight sentences, in both languages, with two
calls at a time; nine pieces are 221 interruptions. What is remembered is compared with what a recogniser that knows
nothing of the server makes of the recording: its words are laid against the whole reply.
"""

from __future__ import annotations

import re
from typing import Any

from tests.evidence._calls import at_least, at_most, known, named, placed, share
from voice_agent.bench.checks import character_error, turn_window
from voice_agent.bench.figures import CallFigures, measure
from voice_agent.bench.quality import Transcribe, reply_pcm, whisper
from voice_agent.bench.recording import Recording, reply_text

TRIALS = 24
SCENARIOS = {1: ("barge-in-words", 5), 0: ("barge-in-sentences", 8)}
"""By what is left of the seed; with the interruptions in one call."""

FADED_P50_MS, FADED_P95_MS = 140.0, 220.0
DECIDED_P95_MS = 900.0
NEAR_CHARACTERS, NEAR_WORDS = 3, 1
CLEAR = 0.5
"""The most errors with which the recogniser's text still says where the reply ended."""


async def run(seed: int, trials: int) -> dict[str, Any]:
    scenario, per_call = SCENARIOS[seed % 2]
    told = await placed(f"turns-interruptions-{seed}", [(named(scenario), -(-trials // per_call))], seed, parallel=2)
    transcribe = whisper()
    each = []
    for number, call in enumerate(told.calls):
        recording = told.recording(number)
        figures = measure(recording)
        calm = [_full_replies(path) for path in told.uncut[number]]
        for index, turn in enumerate(call.figures["turns"]):
            if turn["expect"] != "stop" or turn["stopped"] is None:
                continue
            fields = ("faded_ms", "yield_ms", "stopped", "came_back", "stale_ms")
            heard = _remembered(recording, figures, index, [c[index - 1] for c in calm if index - 1 in c], transcribe)
            trial = {key: turn[key] for key in fields} | {"call": call.recording, "turn": index}
            each.append(trial | {"decided_ms": _decided(recording, figures, index), "memory": heard})
    return {"name": f"turns-interruptions-{seed}", **told.facts(), **judge(each), "each": each}


def _full_replies(path: Any) -> dict[int, str]:
    """By turn, of the call in which nobody interrupts."""
    recording = Recording.load(path)
    figures = measure(recording)
    return {
        number: reply_text(recording.events, *turn_window(recording, figures, number))
        for number in range(len(figures.turns))
    }


def _decided(recording: Recording, figures: CallFigures, index: int) -> float | None:
    """The caller's onset → the server tells that the reply is over, in ms."""
    start, until = turn_window(recording, figures, index)
    for event in recording.events:
        if start < event.at < until and event.data["type"] == "output_audio_buffer.cleared":
            return round(1000 * (event.at - start), 1)
    return None


def _remembered(
    recording: Recording, figures: CallFigures, index: int, fulls: list[str], transcribe: Transcribe
) -> dict[str, Any] | None:
    """What is stored of the reply that was cut, and what was heard of it; None if there was no cut to store."""
    start, until = turn_window(recording, figures, index)
    cuts = [
        event.data["agent"]["text"]
        for event in recording.events
        if event.data["type"] == "conversation.item.truncated" and start < event.at < until
    ]
    pcm = reply_pcm(recording, figures, index - 1)
    begun = [text for text in fulls if cuts and _units(text)[: len(_units(cuts[0]))] == _units(cuts[0])]
    full = next(iter([*begun, *fulls]), "")
    if not cuts or not full or not len(pcm):
        return None
    words = transcribe(pcm)
    stored, heard, unit = _units(cuts[0]), boundary(_units(words), _units(full)), _unit(full)
    near = NEAR_CHARACTERS if unit == "character" else NEAR_WORDS
    # Where hardly a word was recognised there is no boundary to compare with.
    clear = character_error("".join(_units(full)[:heard]) or full, "".join(_units(words))) <= CLEAR
    return {
        "clear": clear,
        "stored": cuts[0],
        "recognised": words,
        "full": full,
        "off_by": len(stored) - heard,
        "unit": unit,
        "near": abs(len(stored) - heard) <= near,
    }


def _unit(text: str) -> str:
    return "character" if re.search(r"[\u4e00-\u9fff]", text) else "word"


def _units(text: str) -> list[str]:
    """Characters of Chinese, words of alphabets; without punctuation."""
    return re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", text.casefold())


def boundary(heard: list[str], full: list[str]) -> int:
    """How many units of `full` were heard: the prefix of it that is nearest to what was recognised (edit distance)."""
    row = list(range(len(full) + 1))  # of the empty recognition to each prefix
    for number, unit in enumerate(heard, 1):
        before, row[0] = row[0], number
        for at, wanted in enumerate(full, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (unit != wanted))
    return min(range(len(row)), key=lambda at: (row[at], abs(at - len(heard))))


def judge(each: list[dict[str, Any]]) -> dict[str, Any]:
    faded = known(trial["faded_ms"] for trial in each)
    gone = share(bool(trial["stopped"]) and not trial["came_back"] and not trial["stale_ms"] for trial in each)
    decided = known(trial["decided_ms"] for trial in each)
    memory = [trial["memory"] for trial in each if trial["memory"] is not None]
    near = share(trial["near"] for trial in memory if trial["clear"])
    return {
        "faded_ms": faded,
        "yield_ms": known(trial["yield_ms"] for trial in each),
        "never_comes_back": gone,
        "decided_ms": decided,
        "history_is_what_was_heard": near,
        "history_off_by": known(abs(trial["off_by"]) for trial in memory if trial["clear"]),
        "recognised_clearly": share(trial["clear"] for trial in memory),
        "bars": {
            "faded_p50_ms": FADED_P50_MS, "faded_p95_ms": FADED_P95_MS, "never_comes_back": 0.98,
            "decided_p95_ms": DECIDED_P95_MS, "history": 0.90,
        },
        "passed": at_most(faded, "p50", FADED_P50_MS)
        and at_most(faded, "p95", FADED_P95_MS)
        and at_least(gone, 0.98)
        and at_most(decided, "p95", DECIDED_P95_MS)
        and at_least(near, 0.90),
    }  # fmt: skip

"""Thinking pauses: three sentences in identical recordings, with 0 to 1.5 s of silence where they are unfinished.

A piece has 12 trials of each length; the settings are those of the row of V2V, which stands beside it here.
"""

from __future__ import annotations

from typing import Any

from tests.evidence._calls import known, named, placed, share

TRIALS = 4
"""Calls of each length, with three sentences each."""

LENGTHS_MS = (0, 300, 600, 1000, 1500)


async def run(seed: int, trials: int) -> dict[str, Any]:
    scenarios = [(named(f"pause-{length:04d}"), trials) for length in LENGTHS_MS]
    told = await placed(f"turns-pauses-{seed}", scenarios, seed)
    each = []
    for number, call in enumerate(told.calls):
        begin = told.recording(number)
        for index, turn in enumerate(call.figures["turns"]):
            # The sentences have no silence of 0.3 s of their own: every pause is the one that was put in.
            each.append(
                {
                    "pause_ms": int(call.scenario.rsplit("-", 1)[1]),
                    "sentence": index,
                    "pauses": turn["pauses"],
                    "taken_over": turn["taken_over"],
                    "early": turn["early"],
                    "v2v_ms": turn["v2v_ms"],
                    "turns_heard": _committed(begin.events, call.figures, index),
                }
            )
    return {"name": f"turns-pauses-{seed}", **told.facts(), **judge(each), "each": each}


def _committed(events: Any, figures: dict[str, Any], index: int) -> int:
    """Turns of the caller that the server committed of this sentence."""
    turns = figures["turns"]
    start = turns[index]["at"]
    until = turns[index + 1]["at"] if index + 1 < len(turns) else float("inf")
    times = [e.at - figures["begin"] for e in events if e.data["type"] == "input_audio_buffer.committed"]
    return sum(start < at < until for at in times)


def judge(each: list[dict[str, Any]]) -> dict[str, Any]:
    rates = {}
    for length in LENGTHS_MS:
        trials = [trial for trial in each if trial["pause_ms"] == length]
        rates[str(length)] = {
            "taken_over": share(trial["taken_over"] > 0 for trial in trials),
            "one_turn": share(trial["turns_heard"] == 1 for trial in trials),
            "v2v_ms": known(trial["v2v_ms"] for trial in trials),
        }
    short = [trial for trial in each if 0 < trial["pause_ms"] <= 1000]
    long = [trial for trial in each if trial["pause_ms"] == 1500]
    told = {
        "to_1000_ms": share(trial["taken_over"] > 0 for trial in short),
        "at_1500_ms": share(trial["taken_over"] > 0 for trial in long),
    }
    return {
        "pause_tor": told,
        "by_length": rates,
        "bars": {"to_1000_ms": 0.05, "at_1500_ms": 0.20},
        "passed": all(
            told[name]["rate"] is not None and told[name]["rate"] <= bar
            for name, bar in (("to_1000_ms", 0.05), ("at_1500_ms", 0.20))
        ),
    }

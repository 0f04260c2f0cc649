"""Sounds over a reply that are no interruption: backchannels, coughs and bursts, noises, other talkers.

A piece has 14, 10, 5 and 5 of them, in two calls at a time; six pieces are 84, 60, 30 and 30. Sounds of the library and
people's recordings, where they lie beside the checkout, take turns.
"""

from __future__ import annotations

import random
from typing import Any

from tests.evidence._calls import REAL, SOUNDS, at_least, at_most, known, placed, share, sound
from voice_agent.bench.scenario import Scenario

TRIALS = 1
"""Rounds of 34 sounds."""

RESUMED_P95_MS = 350.0
REPEATED_MS, SKIPPED_MS = 300.0, 0.0

BACKCHANNELS = (
    "mm-zh", "mm-mm-zh", "oh-zh", "right-zh", "good-zh", "uh-huh", "okay", "mm-high-zh", "mm-mm-high-zh",
    "right-high-zh", "uh-huh-low", "hmm", "okay-low", "right-en",
)  # fmt: skip
BURSTS = ("cough", "cough-twice", "knock", "ring")
REAL_BURSTS = ("cough.wav", "burst_dog.wav", "burst_phone.wav")
TALKERS = ("other-talker-zh", "other-talker-en")
REAL_TALKERS = ("babble.wav", "en_spk1.wav", "en_spk2.wav", "zh_news.wav")
BELOW_DB = 15.0
ORDERS = ("five-drinks-zh", "five-drinks-en")
PER_CALL = 7


def _library(names: tuple[str, ...], below_db: float = 0.0) -> list[dict[str, Any]]:
    return [sound(SOUNDS / f"{name}.flac", below_db) for name in names]


def _real(names: tuple[str, ...], below_db: float = 0.0) -> list[dict[str, Any]]:
    return [sound(REAL / name, below_db, most_ms=2000) for name in names if (REAL / name).is_file()]


def _sounds(seed: int, trials: int) -> list[tuple[str, dict[str, Any]]]:
    """The piece's sounds with their kinds, in a random order."""
    chance = random.Random(seed)
    noises = [
        {"noise_ms": chance.randint(200, 600), "level_db": -24, "seed": seed * 100 + n} for n in range(5 * trials)
    ]
    if (REAL / "noise_room.wav").is_file():
        noises[::2] = [sound(REAL / "noise_room.wav", 4.0, most_ms=1500) for _ in noises[::2]]
    kinds = {
        "backchannel": (14, _library(BACKCHANNELS) + _real(("zh_backchannel.wav",))),
        "burst": (10, _library(BURSTS) + _real(REAL_BURSTS, 3.0)),
        "noise": (5, noises),
        "other talker": (5, _library(TALKERS, BELOW_DB) + _real(REAL_TALKERS, BELOW_DB)),
    }
    found = []
    for kind, (count, of) in kinds.items():
        start = seed * count
        found += [(kind, of[(start + n) % len(of)]) for n in range(count * trials)]
    chance.shuffle(found)
    return found


async def run(seed: int, trials: int) -> dict[str, Any]:
    chosen = _sounds(seed, trials)
    calls = [chosen[at : at + PER_CALL] for at in range(0, len(chosen), PER_CALL)]
    scenarios = [(_call(number, call), 1) for number, call in enumerate(calls)]
    told = await placed(f"turns-selectivity-{seed}", scenarios, seed, uncut="sounds", parallel=2)
    each = []
    for call, sounds in zip(told.calls, calls, strict=True):
        disturbed = [turn for turn in call.figures["turns"] if turn["expect"] == "ignore"]
        for (kind, of), turn in zip(sounds, disturbed, strict=False):
            over = turn["responded"] is None  # a reply was running
            fields = ("kept", "resume_ms", "resume_gap_ms", "repeated_ms", "skipped_ms", "faded_ms")
            what = str(of.get("file", "noise")).rsplit("/", 1)[-1]
            each.append({"kind": kind, "sound": what, "over_a_reply": over, **{key: turn[key] for key in fields}})
    return {"name": f"turns-selectivity-{seed}", **told.facts(), **judge(each), "each": each}


def _call(number: int, sounds: list[tuple[str, dict[str, Any]]]) -> Scenario:
    turns: list[dict[str, Any]] = []
    for place, (_, of) in enumerate(sounds):
        turn: dict[str, Any] = {"say": sound(SOUNDS / f"{ORDERS[place % 2]}.flac", most_ms=20_000)}
        if place:
            turn["start"] = {"after": "agent_speech_end", "delay_ms": 600}
        over = {"after": "agent_speech_start", "delay_ms": [200, 2000]}
        turns += [turn, {"say": of, "expect": "ignore", "start": over}]
    return Scenario.model_validate({"name": f"sounds-{number:02d}", "turns": turns})


def judge(each: list[dict[str, Any]]) -> dict[str, Any]:
    over = [trial for trial in each if trial["over_a_reply"]]
    kept = share(bool(trial["kept"]) for trial in over)
    resumed = known(trial["resume_ms"] for trial in over)
    repeated = known(trial["repeated_ms"] for trial in over)
    skipped = known(trial["skipped_ms"] for trial in over)
    kinds = dict.fromkeys(trial["kind"] for trial in each)
    return {
        "selectivity": kept,
        "by_kind": {kind: share(bool(trial["kept"]) for trial in over if trial["kind"] == kind) for kind in kinds},
        "into_silence": share(bool(trial["kept"]) for trial in each if not trial["over_a_reply"]),
        "found_again": share(trial["repeated_ms"] is not None for trial in over if trial["kept"]),
        "paused": share(trial["resume_ms"] is not None for trial in over if trial["repeated_ms"] is not None),
        "resume_after_sound_ms": resumed,
        "repeated_ms": repeated,
        "skipped_ms": skipped,
        "bars": {
            "selectivity": 0.95, "resumed_p95_ms": RESUMED_P95_MS, "repeated_ms": REPEATED_MS, "skipped_ms": SKIPPED_MS,
        },
        "passed": at_least(kept, 0.95)
        and (resumed["n"] == 0 or at_most(resumed, "p95", RESUMED_P95_MS))
        and at_most(repeated, "max", REPEATED_MS)
        and at_most(skipped, "max", SKIPPED_MS),
    }  # fmt: skip

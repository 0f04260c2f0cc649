"""The agent hears itself: its voice comes back at -10, -20 and -30 dB after 60, 120 and 250 ms, and nobody else speaks.

Pieces 1 to 6 are three calls at once, one for each delay, with five minutes of agent speech each: two pieces for each
level. 7 and 8 are 20 interruptions each by a real voice over an echo of -20 dB.
"""

from __future__ import annotations

from typing import Any

from tests.evidence._calls import SOUNDS, Placed, known, placed, share
from voice_agent.bench.recording import Recording
from voice_agent.bench.scenario import Scenario

TRIALS = 30
"""Replies of ten seconds."""

GAINS_DB, DELAYS_MS = (-10, -20, -30), (60, 120, 250)
PIECES = 2 * len(GAINS_DB)
CUTS = ("stop-zh", "wait-en", "not-right-zh", "latte-instead-en", "no-more-zh", "make-it-large-en", "wait-please-zh")
PAUSE_S = 1.5


async def run(seed: int, trials: int) -> dict[str, Any]:
    if not 1 <= seed <= PIECES + 2:
        raise ValueError(f"expected the piece as a seed from 1 to {PIECES + 2}, got {seed}")
    name = f"turns-echo-{seed}"
    if seed > PIECES:
        scenario = _interrupting(max(1, trials * 2 // 3), {"gain_db": -20, "delay_ms": 120})
        told = await placed(name, [(scenario, 1)], seed)
        each = _cuts(told)
    else:
        gain = GAINS_DB[(seed - 1) // 2]
        scenarios = [(_listening(trials, {"gain_db": gain, "delay_ms": delay}), 1) for delay in DELAYS_MS]
        told = await placed(name, scenarios, seed, parallel=len(DELAYS_MS))
        each = [_own_voice(told, number, gain, delay) for number, delay in enumerate(DELAYS_MS)]
    return {"name": name, **told.facts(), **judge(each), "each": each}


def _file(name: str) -> dict[str, Any]:
    return {"file": str(SOUNDS / f"{name}.flac")}


def _listening(replies: int, echo: dict[str, int]) -> Scenario:
    """Two orders, and then the agent reads them back again and again."""
    turns: list[dict[str, Any]] = [{"say": _file("five-drinks-zh")}, {"say": _file("five-drinks-en")}]
    turns += [{"say": _file("read-back-zh")} for _ in range(replies)]
    for turn in turns[1:]:
        turn["start"] = {"after": "agent_speech_end", "delay_ms": 1500, "timeout_ms": 20_000}
    return Scenario.model_validate({"name": f"own-voice-{echo['delay_ms']}", "turns": turns, "echo": echo})


def _interrupting(cuts: int, echo: dict[str, int]) -> Scenario:
    turns: list[dict[str, Any]] = []
    for number in range(cuts):
        start = {"after": "agent_speech_end", "delay_ms": 1000} if number else {"after": "call_start"}
        over = {"after": "agent_speech_start", "delay_ms": [300, 2000]}
        turns.append({"say": _file(f"five-drinks-{('zh', 'en')[number % 2]}"), "start": start})
        turns.append({"say": _file(CUTS[number % len(CUTS)]), "expect": "stop", "start": over})
    return Scenario.model_validate({"name": "voice-over-echo", "turns": turns, "echo": echo})


def _own_voice(told: Placed, number: int, gain: int, delay: int) -> dict[str, Any]:
    call, recording = told.calls[number], told.recording(number)
    heard = [voice["end"] - voice["start"] for voice in call.figures["agent"]]

    def count(kind: str) -> int:
        return sum(event.data["type"] == kind for event in recording.events)

    return {
        "gain_db": gain,
        "delay_ms": delay,
        "agent_minutes": round(sum(heard) / 60, 2),
        "self_interruptions": count("output_audio_buffer.cleared"),
        "own_turns": max(0, count("input_audio_buffer.committed") - len(call.figures["turns"])),
        "pauses_s": _pauses(recording),
        "unanswered": sum(not turn["responded"] for turn in call.figures["turns"]),
    }


def _pauses(recording: Recording) -> list[float]:
    """Seconds from each pause of a reply until it goes on, or the reply is over."""
    found: list[float] = []
    since: float | None = None
    for event in recording.events:
        kind = event.data["type"]
        if kind == "agent.turn.paused":
            since = event.at
        elif since is not None and kind in ("agent.turn.resumed", "output_audio_buffer.cleared"):
            found.append(round(event.at - since, 3))
            since = None
    return found


def _cuts(told: Placed) -> list[dict[str, Any]]:
    return [
        {"cut": True, "stopped": bool(turn["stopped"]), "yield_ms": turn["yield_ms"]}
        for call in told.calls
        for turn in call.figures["turns"]
        if turn["expect"] == "stop" and turn["stopped"] is not None
    ]


def judge(each: list[dict[str, Any]]) -> dict[str, Any]:
    cuts = [trial for trial in each if "cut" in trial]
    alone = [trial for trial in each if "cut" not in trial]
    told: dict[str, Any] = {}
    passed = True
    for gain in dict.fromkeys(trial["gain_db"] for trial in alone):
        of = [trial for trial in alone if trial["gain_db"] == gain]
        minutes = sum(trial["agent_minutes"] for trial in of)
        pauses = [pause for trial in of for pause in trial["pauses_s"]]
        counts = {key: sum(trial[key] for trial in of) for key in ("self_interruptions", "own_turns", "unanswered")}
        # A pause that its own voice causes is an interruption too, however short.
        quiet = not counts["self_interruptions"] and not counts["own_turns"] and not pauses
        short = len(pauses) <= minutes and all(pause <= PAUSE_S for pause in pauses)
        passed &= not counts["own_turns"] and (short if gain == -10 else quiet)
        told[f"{gain} dB"] = {
            "agent_minutes": round(minutes, 1),
            "delays_ms": sorted({trial["delay_ms"] for trial in of}),
            **counts,
            "pauses": len(pauses),
            "longest_pause_s": max(pauses, default=0.0),
        }
    stopped = share(trial["stopped"] for trial in cuts)
    if cuts:
        told["real voice over -20 dB"] = {"stopped": stopped, "yield_ms": known(trial["yield_ms"] for trial in cuts)}
        passed &= stopped["rate"] >= 0.95
    return {"by_level": told, "passed": passed}

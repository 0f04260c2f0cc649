"""What a scenario asserts of a call, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from voice_agent.bench.figures import CallFigures, TurnFigures
from voice_agent.bench.recording import RATE, Recording, heard_text, reply_text
from voice_agent.bench.scenario import Scenario, Turn
from voice_agent.bench.spoken import plain

TONE_SHARE = 0.5
"""A 20 ms frame is a tone when this share of its energy lies within 25 Hz of it."""


@dataclass(frozen=True)
class Check:
    """One assertion. `where`: the turn, or "call"; the numbers are in the unit of its name."""

    where: str
    what: str
    expected: str
    got: str
    passed: bool


def check(scenario: Scenario, recording: Recording, figures: CallFigures) -> list[Check]:
    """Every assertion of the scenario, and what `expect` asks of each turn. A turn that was never said fails."""
    checks = []
    if recording.failed:
        checks.append(Check("call", "call", "a whole call", recording.failed, False))
    for number, turn in enumerate(scenario.turns):
        if number >= len(figures.turns):
            checks.append(Check(str(number), "said", "the turn", "the call was over", False))
            continue
        checks += _turn(turn, recording, figures, number)
    if scenario.asserts.cart is not None:
        checks.append(_cart(scenario.asserts.cart, recording))
    if scenario.asserts.max_gap_ms is not None:
        most, got = scenario.asserts.max_gap_ms, figures.stream.gap_max_ms
        checks.append(Check("call", "max_gap_ms", f"≤ {most:g}", f"{got:g}", got <= most))
    return checks


def _turn(turn: Turn, recording: Recording, figures: CallFigures, number: int) -> list[Check]:
    measured, asserts, where = figures.turns[number], turn.asserts, str(number)
    checks = [_expected(turn, measured, where)]

    def at_most(what: str, most: float | None, got: float | None) -> None:
        if most is not None:
            shown = "none" if got is None else f"{got:g}"
            checks.append(Check(where, what, f"≤ {most:g}", shown, got is not None and got <= most))

    at_most("within_ms", asserts.within_ms, measured.yield_playout_ms if turn.expect == "stop" else measured.v2v_ms)
    at_most("answer_within_ms", asserts.answer_within_ms, measured.answer_ms)
    # Beside an uncut call it is known whether the reply was paused, and from the sound's end on; else there is its gap.
    known = measured.repeated_ms is not None
    at_most(
        "resume_within_ms", asserts.resume_within_ms, measured.resume_ms or 0.0 if known else measured.resume_gap_ms
    )
    window = turn_window(recording, figures, number)
    if asserts.cer is not None:
        at_most("cer", asserts.cer, character_error(turn.text, heard_text(recording.events, *window)))
    reply = reply_text(recording.events, *window)
    for words in asserts.reply_has:
        found = words.casefold() in reply.casefold()
        checks.append(Check(where, "reply_has", words, reply or "no transcript", found))
    if asserts.absent_hz is not None:
        heard = tone_ms(recording, asserts.absent_hz, figures.begin + measured.until)
        checks.append(Check(where, "absent_hz", f"no {asserts.absent_hz:g} Hz", f"{heard:g} ms of it", heard == 0))
    return checks


def _expected(turn: Turn, measured: TurnFigures, where: str) -> Check:
    """What `expect` asks: one sentence of what happened."""
    if turn.expect == "respond":
        got = "early" if measured.early else "answered" if measured.responded else "no reply"
        passed = bool(measured.responded) and not measured.early and not measured.taken_over
        got = "took over in a pause" if measured.taken_over else got
    elif turn.expect == "stop":
        got = {None: "nothing to stop", True: "stopped", False: "went on"}[measured.stopped]
        passed = measured.stopped is True
    elif turn.expect == "ignore":
        got = "kept" if measured.kept else "reply ended" if measured.responded is None else "answered"
        passed = bool(measured.kept)
    else:
        got = "took over" if measured.taken_over else "waited"
        passed = not measured.taken_over
    return Check(where, "expect", turn.expect, got, passed)


def turn_window(recording: Recording, figures: CallFigures, number: int) -> tuple[float, float]:
    """From a turn's onset to the next one's, on the clock of the recording's events."""
    turns = figures.turns
    until = turns[number + 1].at + figures.begin if number + 1 < len(turns) else np.inf
    return turns[number].at + figures.begin, until


def _cart(expected: tuple[dict[str, Any], ...], recording: Recording) -> Check:
    from voice_agent.evaluate import CartLine, lines_of, same

    cart: Any = None
    placed: Any = None
    for event in recording.events:
        if event.data.get("type") == "agent.cart.updated":
            cart = event.data["cart"]
        elif event.data.get("type") == "agent.tool.called" and event.data.get("name") == "place":
            result = event.data.get("result")
            placed = result["cart"] if isinstance(result, dict) and result.get("ok") else placed
    reached = lines_of(cart) or lines_of(placed)
    wanted = [CartLine.model_validate(line) for line in expected]
    return Check("call", "cart", _brief(wanted), _brief(reached), same(reached, wanted))


def _brief(lines: Any) -> str:
    return "; ".join(f"{line.quantity} {line.drink} {line.size} {line.ice} {line.sugar}" for line in lines) or "empty"


def tone_ms(recording: Recording, hz: float, after: float) -> float:
    """How much of a tone was heard after a moment, in ms, by 20 ms frames."""
    line = recording.received
    size = RATE // 50
    window = np.hanning(size)
    wave = np.exp(-2j * np.pi * hz * np.arange(size) / RATE) * window
    frames = 0
    for start in range(0, len(line.pcm) - size + 1, size):
        frame = line.pcm[start : start + size].astype(np.float64) / 32768
        energy = float(np.sum(np.square(frame * window)))
        if energy < 1e-4 or line.time(start) <= after:
            continue
        # The energy of a sine under this window, from the one coefficient at its frequency.
        share = 2 * abs(np.sum(frame * wave)) ** 2 * float(np.sum(window**2)) / float(np.sum(window)) ** 2 / energy
        frames += share > TONE_SHARE
    return frames * 20.0


def character_error(expected: str, got: str) -> float:
    """Edit distance by characters over the length of `expected`, of both as they are said (`spoken.plain`).

    Raises ValueError if `expected` is empty.
    """
    a, b = plain(expected), plain(got)
    if not a:
        raise ValueError("expected words to compare with, got none")
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return round(row[-1] / len(a), 4)

"""What the pieces of evidence conclude from their trials."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evidence import turns_echo, turns_interruptions, turns_pauses, turns_selectivity, turns_v2v
from tests.evidence.turns_interruptions import boundary

FULL = list("好的一杯珍珠奶茶十八块")


@pytest.mark.parametrize(
    ("heard", "units"),
    [("好的一杯珍珠", 6), ("好的一杯真珠奶", 7), ("", 0), ("好的一杯珍珠奶茶十八块", 11), ("好的乙杯真", 5)],
)
def test_the_boundary_is_the_prefix_nearest_to_what_was_recognised(heard: str, units: int) -> None:
    assert boundary(list(heard), FULL) == units


def interruption(**more: Any) -> dict[str, Any]:
    memory = {"clear": True, "off_by": 1, "near": True}
    good = {"faded_ms": 100.0, "yield_ms": 120.0, "stopped": True, "came_back": False, "stale_ms": 0.0}
    return {**good, "decided_ms": 700.0, "memory": memory, **more}


def test_replies_that_come_back_or_fade_late_do_not_pass() -> None:
    assert turns_interruptions.judge([interruption()] * 100)["passed"]
    assert not turns_interruptions.judge([interruption()] * 97 + [interruption(came_back=True)] * 3)["passed"]
    assert not turns_interruptions.judge([interruption()] * 90 + [interruption(faded_ms=300.0)] * 10)["passed"]
    assert not turns_interruptions.judge([interruption(faded_ms=None)] * 10)["passed"]


def test_skipped_or_late_replies_do_not_pass() -> None:
    good: dict[str, Any] = {"kind": "burst", "over_a_reply": True, "kept": True}
    good |= {"resume_ms": 300.0, "repeated_ms": 100.0, "skipped_ms": 0.0}
    assert turns_selectivity.judge([good] * 20)["passed"]
    for wrong in ({"kept": False}, {"resume_ms": 400.0}, {"repeated_ms": 350.0}, {"skipped_ms": 60.0}):
        assert not turns_selectivity.judge([good] * 10 + [{**good, **wrong}] * 2)["passed"]


def test_pauses_and_echo_are_judged_by_their_levels() -> None:
    def pause(length: int, taken: int) -> dict[str, Any]:
        return {"pause_ms": length, "taken_over": taken, "turns_heard": 1, "v2v_ms": 400.0}

    patient = [pause(1000, 0)] * 20 + [pause(1500, 0)] * 16 + [pause(1500, 1)] * 4
    assert turns_pauses.judge(patient)["passed"]
    assert not turns_pauses.judge([*patient, pause(600, 1), pause(600, 1)])["passed"]

    def echo(gain: int, **more: Any) -> dict[str, Any]:
        calm = {"self_interruptions": 0, "own_turns": 0, "unanswered": 0, "pauses_s": []}
        return {"gain_db": gain, "delay_ms": 60, "agent_minutes": 5.0, **calm, **more}

    assert turns_echo.judge([echo(-10, pauses_s=[0.5, 1.2]), echo(-20)])["passed"]
    assert not turns_echo.judge([echo(-10, pauses_s=[0.5, 1.8])])["passed"]
    assert not turns_echo.judge([echo(-20, pauses_s=[0.1])])["passed"]
    assert not turns_echo.judge([echo(-10, own_turns=1)])["passed"]


def test_a_slow_tail_does_not_pass() -> None:
    quick = {"v2v_ms": 350.0, "eot_delay_ms": 200.0, "early": False, "voice": "a"}
    assert turns_v2v.judge([quick] * 20)["passed"]
    assert not turns_v2v.judge([quick] * 17 + [{**quick, "v2v_ms": 900.0}] * 3)["passed"]

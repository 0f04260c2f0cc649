"""When a turn ends, on a virtual clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.turn_caller import MS, Caller
from voice_agent.turn import WINDOW, TurnConfig, TurnPolicy, silence_needed_ms


@pytest.fixture
def caller() -> Caller:
    return Caller(TurnPolicy(TurnConfig()))


@pytest.fixture
def judged() -> Caller:
    return Caller(TurnPolicy(TurnConfig(), judged=True))


def test_a_turn_is_committed_after_the_endpoint_silence(caller: Caller) -> None:
    caller.speak(1000)
    caller.hush(480)
    assert caller.kinds == ["speech_started", "speculate"]
    caller.hush(64)
    assert caller.kinds == ["speech_started", "speculate", "speech_stopped", "commit"]
    assert caller.actions[-1].at == caller.last_voiced


def test_a_pause_inside_a_turn_does_not_end_it(caller: Caller) -> None:
    for _ in range(3):
        caller.speak(600)
        caller.hush(400)
    caller.hush(200)
    assert caller.kinds.count("commit") == 1
    assert caller.kinds.count("speech_started") == 1


def test_one_window_of_voice_makes_a_speculation_void(caller: Caller) -> None:
    caller.speak(600)
    caller.hush(200)
    assert caller.new() == ["speech_started", "speculate"]
    caller.speak(32)
    assert caller.new() == ["unspeculate"]
    caller.hush(200)
    assert caller.new() == ["speculate"]


def test_a_click_is_no_turn(caller: Caller) -> None:
    caller.speak(64)
    caller.hush(600)
    assert caller.kinds == ["speech_started", "speech_stopped", "discard"]


def test_speech_that_never_ends_is_committed_at_its_bound(caller: Caller) -> None:
    caller.speak(26_000)
    assert caller.kinds == ["speech_started", "speech_stopped", "commit", "speech_started"]
    bound = caller.actions[2].at
    assert 25_000 * MS <= bound < 25_000 * MS + WINDOW
    assert caller.actions[3].at == bound


@pytest.mark.parametrize(
    ("complete", "committed_after_ms"), [(1.0, 256), (0.9, 256), (0.6, 512), (0.3, 1376), (0.15, 1824), (0.0, 1824)]
)
def test_the_surer_the_end_the_shorter_the_silence(judged: Caller, complete: float, committed_after_ms: int) -> None:
    judged.speak(1000)
    judged.hush(128)
    judged.actions += judged.policy.turn_end(complete, judged.now)
    while "commit" not in judged.kinds:
        judged.hush(32)
    assert (judged.now - judged.last_voiced) // MS == committed_after_ms


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_silence_needed_falls_with_completeness(one: float, other: float) -> None:
    config = TurnConfig()
    low, high = sorted((one, other))
    assert config.quick_ms <= silence_needed_ms(config, high) <= silence_needed_ms(config, low) <= config.patience_ms


def test_a_late_judgement_ends_the_turn_at_once(judged: Caller) -> None:
    judged.speak(1000)
    judged.hush(900)
    assert "commit" not in judged.kinds
    judged.actions += judged.policy.turn_end(0.9, judged.now)
    assert judged.kinds[-2:] == ["speech_stopped", "commit"]


def test_a_judgement_that_never_comes_holds_the_turn_for_its_bound_alone(judged: Caller) -> None:
    judged.speak(1000)
    judged.hush(1760)
    assert "commit" not in judged.kinds
    judged.hush(64)
    assert judged.kinds[-1] == "commit"


def test_a_judgement_of_less_than_was_said_is_void(judged: Caller) -> None:
    judged.speak(1000)
    judged.hush(200)
    before = judged.now
    judged.speak(300)
    assert judged.policy.turn_end(1.0, before) == []
    judged.actions += judged.policy.turn_end(1.0, judged.now)
    judged.hush(300)
    assert judged.kinds[-1] == "commit"
    judged.speak(300)
    judged.hush(300)
    assert judged.kinds[-1] == "speculate"


def test_with_nothing_to_answer_over_a_backchannel_is_a_turn(caller: Caller) -> None:
    caller.speak(300)
    caller.hush(200)
    caller.hear("好的")
    caller.hush(400)
    assert caller.kinds == ["speech_started", "speculate", "speech_stopped", "commit"]


def test_impossible_durations_are_refused() -> None:
    with pytest.raises(ValidationError, match="speculate_ms <= endpoint_ms"):
        TurnConfig(endpoint_ms=400, speculate_ms=500)
    with pytest.raises(ValidationError, match="quick_ms <= endpoint_ms <= patience_ms"):
        TurnConfig(endpoint_ms=200)
    with pytest.raises(ValidationError, match="endpoint"):
        TurnConfig.model_validate({"endpoint": 500})

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from voice_agent.turn import WINDOW, Action, TurnConfig, TurnPolicy
from voice_agent.vad import VadEvent

MS = 16


class Caller:
    """Makes the VAD events of somebody who speaks and falls silent, window by window."""

    def __init__(self, policy: TurnPolicy) -> None:
        self.policy, self.now, self.speaking = policy, 0, False
        self.actions: list[Action] = []

    def _give(self, kind: str, at: int) -> None:
        self.actions += self.policy.on(VadEvent(kind, at))  # type: ignore[arg-type]

    def speak(self, ms: int) -> None:
        if not self.speaking:
            self._give("onset", self.now)
            self.speaking = True
        for _ in range(max(1, ms * MS // WINDOW)):
            self.now += WINDOW
            self._give("speech", self.now)

    def hush(self, ms: int) -> None:
        if self.speaking:
            self._give("offset", self.now)
            self.speaking = False
        for _ in range(max(1, ms * MS // WINDOW)):
            self.now += WINDOW
            self._give("silence", self.now)

    @property
    def kinds(self) -> list[str]:
        return [action.kind for action in self.actions]


@pytest.fixture
def caller() -> Caller:
    return Caller(TurnPolicy(TurnConfig()))


def test_a_turn_is_committed_after_the_endpoint_silence(caller: Caller) -> None:
    caller.speak(1000)
    spoken_until = caller.now
    caller.hush(480)
    assert caller.kinds == ["speech_started", "speculate"]
    caller.hush(64)
    assert caller.kinds == ["speech_started", "speculate", "speech_stopped", "commit"]
    assert caller.actions[-1].at == spoken_until


def test_a_pause_inside_a_turn_does_not_end_it(caller: Caller) -> None:
    for _ in range(3):
        caller.speak(600)
        caller.hush(400)
    caller.hush(200)
    assert caller.kinds.count("commit") == 1
    assert caller.kinds.count("speech_started") == 1


def test_speaking_on_makes_a_new_speculation(caller: Caller) -> None:
    caller.speak(600)
    caller.hush(200)
    caller.speak(600)
    caller.hush(200)
    assert caller.kinds.count("speculate") == 2


def test_a_click_is_no_turn(caller: Caller) -> None:
    caller.speak(64)
    caller.hush(600)
    assert caller.kinds == ["speech_started", "speech_stopped", "discard"]


def test_voice_over_a_reply_cuts_in_after_the_configured_time_and_once(caller: Caller) -> None:
    caller.policy.reply_began()
    caller.speak(160)
    assert "interrupt" not in caller.kinds
    caller.speak(1000)
    assert caller.kinds.count("interrupt") == 1
    cut = next(action for action in caller.actions if action.kind == "interrupt")
    assert 200 * MS <= cut.at < 200 * MS + 2 * WINDOW


def test_short_voice_over_a_reply_neither_cuts_in_nor_is_a_turn(caller: Caller) -> None:
    caller.policy.reply_began()
    caller.speak(160)
    caller.hush(600)
    assert caller.kinds == ["speech_started", "speech_stopped", "discard"]


def test_two_short_sounds_with_a_gap_do_not_add_the_gap_to_the_voice(caller: Caller) -> None:
    caller.policy.reply_began()
    caller.speak(64)
    caller.hush(400)
    caller.speak(64)
    assert "interrupt" not in caller.kinds


def test_speech_that_never_ends_is_committed_at_its_bound(caller: Caller) -> None:
    caller.speak(26_000)
    assert caller.kinds == ["speech_started", "speech_stopped", "commit", "speech_started"]
    bound = caller.actions[2].at
    assert 25_000 * MS <= bound < 25_000 * MS + WINDOW
    assert caller.actions[3].at == bound


def test_impossible_durations_are_refused() -> None:
    with pytest.raises(ValidationError, match="speculate_ms <= endpoint_ms"):
        TurnConfig(endpoint_ms=200, speculate_ms=300)
    with pytest.raises(ValidationError, match="endpoint"):
        TurnConfig.model_validate({"endpoint": 500})


@given(st.lists(st.tuples(st.sampled_from(["speak", "hush", "reply", "done"]), st.integers(32, 3000)), max_size=60))
def test_whatever_happens_the_policy_keeps_its_promises(steps: list[tuple[str, int]]) -> None:
    caller = Caller(TurnPolicy(TurnConfig()))
    replying = False
    for what, ms in steps:
        before = len(caller.actions)
        if what == "speak":
            caller.speak(ms)
        elif what == "hush":
            caller.hush(ms)
        elif what == "reply":
            caller.policy.reply_began()
            replying = True
        else:
            caller.policy.reply_ended()
            replying = False
        new = [action.kind for action in caller.actions[before:]]
        assert replying or "interrupt" not in new
        if "interrupt" in new:
            caller.policy.reply_ended()
            replying = False
    caller.hush(1000)
    # Each opened utterance is closed exactly once, in order, and nothing stays open after a second of silence.
    depth = 0
    for kind in caller.kinds:
        if kind == "speech_started":
            depth += 1
        elif kind in ("commit", "discard"):
            depth -= 1
        assert depth in (0, 1)
    assert depth == 0
    assert [action.at for action in caller.actions if action.kind == "commit"] == sorted(
        action.at for action in caller.actions if action.kind == "commit"
    )

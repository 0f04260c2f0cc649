"""Turn taking on a virtual clock: each rule by itself, and what holds whatever happens."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from voice_agent.turn import WINDOW, Action, TurnConfig, TurnPolicy, silence_needed_ms
from voice_agent.vad import VadEvent

MS = 16
HANGOVER = 3
"""Windows after the last voiced one before the detector says that it was the last."""


class Caller:
    """Somebody who speaks and falls silent, window by window, and a recogniser that says what it is told."""

    stride = WINDOW
    """Samples from one event to the next: a window, or coarser."""

    def __init__(self, policy: TurnPolicy, level_db: float | None = None) -> None:
        self.policy, self.level_db = policy, level_db
        self.now, self.last_voiced = 0, 0
        self.speaking = False
        self.actions: list[Action] = []

    def give(self, kind: str, at: int) -> None:
        self.actions += self.policy.on(VadEvent(kind, at, self.level_db if kind == "speech" else None))  # type: ignore[arg-type]

    def speak(self, ms: int) -> None:
        if not self.speaking:
            self.last_voiced, self.speaking = self.now, True
            self.give("onset", self.now)
        for _ in range(max(1, ms * MS // self.stride)):
            self.now += self.stride
            self.last_voiced = self.now
            self.give("speech", self.now)

    def hush(self, ms: int) -> None:
        for _ in range(max(1, ms * MS // self.stride)):
            self.now += self.stride
            if self.speaking and self.now - self.last_voiced >= HANGOVER * WINDOW:
                self.give("offset", self.last_voiced)
                self.speaking = False
            self.give("silence", self.now)

    def hear(self, text: str, *, late_ms: int = 0) -> None:
        """The recogniser's hypothesis of all that was said up to `late_ms` ago."""
        self.actions += self.policy.words(text, self.now - late_ms * MS)

    def reply(self, *, audible: bool = True) -> None:
        self.policy.reply_began()
        if audible:
            self.policy.reply_audible()

    @property
    def kinds(self) -> list[str]:
        return [action.kind for action in self.actions]

    def new(self) -> list[str]:
        """What was done since this was asked last."""
        kinds, self.actions = self.kinds, []
        return kinds


@pytest.fixture
def caller() -> Caller:
    return Caller(TurnPolicy(TurnConfig()))


@pytest.fixture
def judged() -> Caller:
    return Caller(TurnPolicy(TurnConfig(), judged=True))


# The end of a turn.


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


# Voice over a reply.


def test_voice_over_a_reply_pauses_it_at_once(caller: Caller) -> None:
    caller.reply()
    caller.speak(32)
    assert caller.kinds == ["speech_started", "pause"]


@pytest.mark.parametrize("audible", [True, False])
def test_words_cancel_the_reply_and_become_a_turn(caller: Caller, audible: bool) -> None:
    caller.reply(audible=audible)
    caller.speak(640)
    caller.hear("我要一杯")
    assert caller.new() == ["speech_started", "pause", "interrupt"]
    caller.policy.reply_ended(heard_all=False)
    caller.speak(400)
    caller.hush(600)
    assert caller.new() == ["speculate", "speech_stopped", "commit"]


@pytest.mark.parametrize("text", ["停", "等一下", "不对", "不要了", "换一个", "wait", "Stop!", "hold on", "No."])
def test_a_stop_word_cancels_as_soon_as_it_is_recognised(caller: Caller, text: str) -> None:
    caller.reply()
    caller.speak(200)
    caller.hear(text)
    assert caller.kinds == ["speech_started", "pause", "interrupt"]


@pytest.mark.parametrize("text", ["嗯", "好的", "对对对", "好灯", "uh-huh", "Okay.", ""])
def test_a_backchannel_or_no_words_let_the_same_reply_go_on(caller: Caller, text: str) -> None:
    caller.reply()
    caller.speak(400)
    caller.hush(128)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear(text)
    assert caller.new() == ["resume", "speech_stopped", "discard"]
    caller.hush(3000)
    assert caller.new() == []


def test_a_hypothesis_that_covers_the_sound_decides_when_the_sound_has_ended(caller: Caller) -> None:
    caller.reply()
    caller.speak(400)
    caller.hear("好的")
    caller.hush(96)
    assert caller.kinds[-3:] == ["resume", "speech_stopped", "discard"]


def test_only_the_final_transcript_says_that_there_were_no_words(caller: Caller) -> None:
    caller.reply()
    caller.speak(400)
    caller.hear("")
    caller.hush(128)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("不得", late_ms=96)
    assert caller.new() == ["interrupt"]


def test_a_word_to_stop_is_obeyed_even_in_doubt_and_no_other_is(caller: Caller) -> None:
    caller.reply()
    caller.speak(640)
    caller.actions += caller.policy.words("", caller.now, doubted="我要一杯")
    assert caller.new() == ["speech_started", "pause"]
    caller.actions += caller.policy.words("", caller.now, doubted="Wait!")
    assert caller.new() == ["interrupt"]


def test_a_click_over_a_reply_needs_no_words_to_be_let_go(caller: Caller) -> None:
    caller.reply()
    caller.speak(64)
    caller.hush(96)
    assert caller.kinds == ["speech_started", "pause", "resume", "speech_stopped", "discard"]


def test_words_may_be_the_beginning_of_a_backchannel(caller: Caller) -> None:
    caller.reply()
    caller.speak(480)
    caller.hear("名字")
    assert caller.new() == ["speech_started", "pause"]
    caller.speak(32)
    caller.hear("名字")
    assert caller.new() == ["interrupt"]


def test_a_hypothesis_counts_for_the_voice_that_it_covers(caller: Caller) -> None:
    caller.reply()
    caller.speak(640)
    caller.hear("讨", late_ms=320)
    caller.speak(96)
    caller.hush(96)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("好的")
    assert caller.new() == ["resume", "speech_stopped", "discard"]


def test_other_words_in_too_short_a_sound_are_not_believed(caller: Caller) -> None:
    caller.reply()
    caller.speak(300)
    caller.hear("本境")
    caller.hush(96)
    assert caller.kinds[-3:] == ["resume", "speech_stopped", "discard"]


def test_before_a_reply_is_heard_a_short_word_goes_on_with_what_was_said(caller: Caller) -> None:
    caller.reply(audible=False)
    caller.speak(300)
    caller.hush(96)
    caller.hear("奶茶")
    assert caller.kinds == ["speech_started", "pause", "speculate", "interrupt"]


def test_a_short_sound_is_waited_for_no_longer_than_a_backchannel_may_be(caller: Caller) -> None:
    caller.reply()
    caller.speak(192)
    caller.hush(224)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hush(32)
    assert caller.new() == ["resume"]


def test_a_late_word_to_stop_cancels_a_reply_that_has_not_gone_on(caller: Caller) -> None:
    caller.reply()
    caller.speak(352)
    caller.hush(448)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("停")
    assert caller.new() == ["interrupt"]


def test_a_sound_of_which_a_part_is_known_is_not_waited_for(caller: Caller) -> None:
    caller.reply()
    caller.speak(352)
    caller.hear("本", late_ms=96)
    caller.hush(224)
    assert "resume" not in caller.new()
    caller.hush(32)
    assert caller.new() == ["resume"]


def test_the_reply_does_not_wait_for_the_recogniser_for_ever(caller: Caller) -> None:
    caller.reply()
    caller.speak(512)
    caller.hush(480)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hush(32)
    assert caller.new() == ["resume"]
    caller.hear("我要两杯")
    assert caller.new() == ["pause", "interrupt"]
    caller.policy.reply_ended(heard_all=False)
    caller.hush(500)
    assert caller.new() == ["speech_stopped", "commit"]


def test_words_that_never_come_are_forgotten(caller: Caller) -> None:
    caller.reply()
    caller.speak(500)
    caller.hush(1600)
    assert caller.new() == ["speech_started", "pause", "speculate", "resume", "speech_stopped", "discard"]


def test_a_reply_that_is_not_heard_yet_can_wait_for_the_words(caller: Caller) -> None:
    caller.reply(audible=False)
    caller.speak(500)
    caller.hush(800)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("再来一杯")
    assert caller.new() == ["interrupt"]


def test_a_long_voice_cancels_while_the_recogniser_says_nothing(caller: Caller) -> None:
    caller.reply()
    caller.speak(832)
    assert caller.new() == ["speech_started", "pause"]
    caller.speak(32)
    assert caller.new() == ["interrupt"]


def test_a_long_sound_without_words_does_not_hold_the_reply(caller: Caller) -> None:
    caller.reply()
    for _ in range(3):
        caller.speak(400)
        caller.hear("")
    assert caller.new() == ["speech_started", "pause", "resume"]
    caller.speak(20_000)
    assert caller.new() == []
    caller.hear("等一下")
    assert caller.new() == ["pause", "interrupt"]


def test_a_sound_that_was_let_go_does_not_pause_again_at_its_bound(caller: Caller) -> None:
    caller.reply()
    for _ in range(3):
        caller.speak(400)
        caller.hear("")
    caller.speak(60_000)
    assert caller.kinds.count("pause") == 1
    assert "commit" not in caller.kinds


def test_a_backchannel_without_end_is_decided_too(caller: Caller) -> None:
    caller.reply()
    for _ in range(5):
        caller.speak(320)
        caller.hear("对对对对")
    assert caller.new() == ["speech_started", "pause", "resume"]


def test_a_much_quieter_voice_is_another_talkers(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.new()
    caller.speak(256)
    caller.hear("我要一杯珍珠奶茶")
    assert caller.new() == ["speech_started", "pause", "resume"]
    caller.speak(2000)
    caller.hear("我要一杯珍珠奶茶 少冰")
    caller.hush(96)
    assert caller.new() == ["speech_stopped", "discard"]
    caller.level_db = -27.0
    caller.speak(640)
    caller.hear("我要两杯")
    assert caller.new() == ["speech_started", "pause", "interrupt"]


def test_with_no_reply_live_a_quiet_voice_is_a_turn_like_any_other(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.new()
    caller.level_db = -40.0
    caller.speak(1000)
    caller.hush(600)
    assert caller.new() == ["speech_started", "speculate", "speech_stopped", "commit"]


def test_the_caller_is_heard_over_a_quieter_talker(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.speak(640)
    caller.level_db = -20.0
    caller.new()
    caller.speak(640)
    caller.hear("等一下")
    assert caller.new() == ["pause", "interrupt"]


def test_somebody_else_who_talks_on_pauses_the_reply_once(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.new()
    for _ in range(8):
        caller.speak(900)
        caller.hear("今天天气真好 我们去哪里")
        caller.hush(1200)
    assert caller.new().count("pause") == 1


def test_the_caller_pauses_the_reply_as_ever_while_somebody_else_talks(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.speak(900)
    caller.hush(1200)
    caller.level_db = -22.0
    caller.new()
    caller.speak(32)
    assert caller.new() == ["speech_started", "pause"]


def test_a_faint_voice_that_had_no_time_to_be_known_is_a_turn_when_the_reply_is_over(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.speak(900)
    caller.hush(1200)
    caller.new()
    caller.speak(96)
    caller.policy.reply_ended(heard_all=True)
    caller.level_db = -20.0
    caller.speak(600)
    caller.hush(600)
    assert caller.new() == ["speech_started", "speculate", "speech_stopped", "commit"]


def test_sounds_that_are_nothing_pause_a_reply_so_often_and_then_words_alone(caller: Caller) -> None:
    caller.reply()
    for _ in range(9):
        caller.speak(300)
        caller.hush(1600)
    most = caller.policy.config.most_pauses
    assert caller.new().count("pause") == most
    caller.speak(640)
    assert "pause" not in caller.new()
    caller.hear("等一下")
    assert caller.new() == ["pause", "interrupt"]
    caller.policy.reply_ended(heard_all=False)
    caller.hush(600)
    caller.reply()
    caller.new()
    caller.speak(32)
    assert "pause" in caller.new()


@pytest.mark.parametrize("text", ["要", "好的", "no"])
def test_what_is_said_over_the_last_moments_of_a_reply_is_an_answer(caller: Caller, text: str) -> None:
    caller.reply()
    caller.policy.reply_closing()
    caller.speak(300)
    caller.hush(128)
    caller.hear(text)
    assert caller.new() == ["speech_started", "pause", "speculate", "interrupt"]


def test_a_backchannel_that_was_let_go_answers_the_question_that_has_ended_meanwhile(caller: Caller) -> None:
    caller.reply()
    caller.speak(400)
    caller.hush(512)
    assert caller.new()[-1] == "resume"
    caller.policy.reply_ended(heard_all=True)
    caller.hear("好的")
    caller.hush(200)
    assert caller.new() == ["speech_stopped", "commit"]


def test_a_reply_that_ends_by_itself_leaves_an_ordinary_utterance(caller: Caller) -> None:
    caller.reply()
    caller.speak(300)
    caller.policy.reply_ended(heard_all=False)
    caller.hear("好的")
    caller.hush(600)
    assert caller.kinds == ["speech_started", "pause", "speculate", "speech_stopped", "commit"]


def test_a_reply_that_begins_while_the_caller_speaks_is_paused_and_judged(caller: Caller) -> None:
    caller.speak(300)
    caller.reply(audible=False)
    caller.speak(32)
    assert caller.new() == ["speech_started", "pause"]
    caller.speak(300)
    caller.hear("一杯奶茶")
    assert caller.new() == ["interrupt"]


def test_a_reply_that_is_not_cancelled_after_all_is_not_paused_twice(caller: Caller) -> None:
    caller.reply()
    caller.speak(640)
    caller.hear("我要一杯")
    caller.speak(3000)
    assert caller.kinds == ["speech_started", "pause", "interrupt"]


def test_impossible_durations_are_refused() -> None:
    with pytest.raises(ValidationError, match="speculate_ms <= endpoint_ms"):
        TurnConfig(endpoint_ms=400, speculate_ms=500)
    with pytest.raises(ValidationError, match="quick_ms <= endpoint_ms <= patience_ms"):
        TurnConfig(endpoint_ms=200)
    with pytest.raises(ValidationError, match="endpoint"):
        TurnConfig.model_validate({"endpoint": 500})


# Whatever happens.

TEXTS = ["", "嗯", "好的", "停", "我要一杯珍珠奶茶", "wait", "本", "okay okay"]
STEPS = st.one_of(
    st.tuples(st.just("speak"), st.integers(32, 3000)),
    st.tuples(st.just("hush"), st.integers(32, 3000)),
    st.tuples(st.just("hear"), st.sampled_from(TEXTS)),
    st.tuples(st.just("turn_end"), st.floats(0, 1)),
    st.tuples(st.sampled_from(["began", "audible", "closing", "heard", "failed"]), st.just(0)),
    st.tuples(st.just("level"), st.sampled_from([-20.0, -26.0, -40.0])),
)


class Watched(Caller):
    """Does what a session does with each action, and checks that it makes sense at that moment."""

    def __init__(self, policy: TurnPolicy) -> None:
        super().__init__(policy, level_db=-20.0)
        self.live = self.paused = self.speculating = self.open = False
        self.voiced = self.voice_seen = 0
        self.paused_since = self.resumed = 0
        self.checked = 0
        self.committed: list[int] = []

    def check(self) -> None:
        config = self.policy.config
        for action in self.actions[self.checked :]:
            self.obey(action)
        self.checked = len(self.actions)
        late = self.now - self.paused_since if self.paused else 0
        assert late <= config.pause_max_ms * MS + 4 * WINDOW + self.stride
        assert not self.open or self.now - self.last_voiced <= config.patience_ms * MS + WINDOW + self.stride

    def obey(self, action: Action) -> None:
        kind = action.kind
        if kind == "speech_started":
            assert not self.open
            self.open, self.voiced = True, 0
            return
        assert self.open, kind
        if kind == "pause":
            assert self.live
            assert not self.paused
            self.paused, self.paused_since = True, self.now
        elif kind == "resume":
            assert self.live
            assert self.paused
            self.paused, self.resumed = False, self.resumed + 1
            assert self.resumed <= self.policy.config.most_pauses
        elif kind == "interrupt":
            assert self.live
            assert self.paused
            self.end_reply(heard_all=False)
        elif kind == "speculate":
            assert not self.speculating
            self.speculating = True
        elif kind == "unspeculate":
            assert self.speculating
            self.speculating = False
        elif kind in ("commit", "discard"):
            assert not self.paused
            self.open = self.speculating = False
            if kind == "commit":
                assert self.voiced >= self.policy.config.min_voice_ms * MS
                self.committed.append(action.at)
                self.end_reply(heard_all=False)
                self.begin_reply()

    def begin_reply(self) -> None:
        assert not self.live
        self.policy.reply_began()
        self.live, self.resumed = True, 0

    def end_reply(self, *, heard_all: bool) -> None:
        if self.live:
            self.live = self.paused = False
            self.policy.reply_ended(heard_all=heard_all)

    def give(self, kind: str, at: int) -> None:
        if kind == "speech":
            self.voiced += at - self.voice_seen
        if kind == "onset" or not self.speaking or kind == "speech":
            self.voice_seen = max(self.voice_seen, at)
        super().give(kind, at)
        self.check()

    def step(self, what: str, value: Any) -> None:
        if what == "speak":
            self.speak(value)
        elif what == "hush":
            self.hush(value)
        elif what == "hear":
            self.hear(value)
        elif what == "turn_end":
            self.actions += self.policy.turn_end(value, self.now)
        elif what == "began" and not self.live:
            self.begin_reply()
        elif what == "audible":
            self.policy.reply_audible()
        elif what == "closing":
            self.policy.reply_closing()
        elif what in ("heard", "failed"):
            self.end_reply(heard_all=what == "heard")
        elif what == "level":
            self.level_db = value
        self.check()


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(STEPS, max_size=60))
def test_whatever_happens_the_policy_keeps_its_promises(judged: bool, steps: list[tuple[str, Any]]) -> None:
    """Every pause is decided within its bound, no turn without a voice, and nothing stays open in lasting silence."""
    watch(Watched(TurnPolicy(TurnConfig(), judged=judged)), steps)


def watch(caller: Watched, steps: list[tuple[str, Any]]) -> None:
    for what, value in steps:
        caller.step(what, value)
    caller.hush(2500)
    assert not caller.open
    assert not caller.paused
    assert not caller.speculating
    assert caller.committed == sorted(caller.committed)


def test_it_keeps_them_in_thousands_of_calls() -> None:
    """The same with events a quarter of a second apart, which is a thousand and more calls a second."""

    class Coarse(Watched):
        stride = 8 * WINDOW

    for seed in range(4000):
        chance = random.Random(seed)
        steps: list[tuple[str, Any]] = []
        for _ in range(chance.randrange(4, 16)):
            kind = chance.choice(["speak", "hush", "speak", "hush", "hear", "turn_end", "level", "reply"])
            values: dict[str, tuple[str, Any]] = {
                "speak": ("speak", chance.randrange(32, 2000)),
                "hush": ("hush", chance.randrange(32, 2500)),
                "hear": ("hear", chance.choice(TEXTS)),
                "turn_end": ("turn_end", chance.random()),
                "level": ("level", chance.choice([-20.0, -26.0, -40.0])),
                "reply": (chance.choice(["began", "audible", "closing", "heard", "failed"]), 0),
            }
            steps.append(values[kind])
        watch(Coarse(TurnPolicy(TurnConfig(), judged=seed % 2 == 0)), steps)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(256, 3000), st.integers(160, 4500), st.floats(-60, -31)), max_size=20))
def test_a_much_quieter_talker_never_pauses_a_reply_twice(bursts: list[tuple[int, int, float]]) -> None:
    caller = Caller(TurnPolicy(TurnConfig()), level_db=-20.0)
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.new()
    for voice_ms, silence_ms, level_db in bursts:
        caller.level_db = level_db
        caller.speak(voice_ms)
        caller.hush(silence_ms)
    assert caller.kinds.count("pause") <= 1
    assert caller.kinds.count("interrupt") == 0

"""What holds whatever happens: generated calls through the turn policy, on a virtual clock."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.turn_caller import MS, Caller
from voice_agent.turn import WINDOW, Action, TurnConfig, TurnPolicy

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

"""When the caller's turn begins and ends, and when it cuts in: pure functions of events and time.

Nothing here waits, reads a clock or touches audio. Time is the sample index of the caller's audio at 16 kHz. The
policy takes one event and gives the actions that follow; the session carries them out.

A voice over a reply pauses it at once, and is judged then: by its words, by its length while there are none, by its
level. Words cancel the reply, and what is being said becomes a turn. A backchannel, a noise, another talker let the
same reply go on. With no reply live the same words are a turn. How long a silence ends a turn depends on how complete
its words are.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from voice_agent.vad import VadEvent
from voice_agent.words import Kind, kind_of

SAMPLES_PER_MS = 16
WINDOW = 512


class TurnConfig(BaseModel):
    """Durations of turn taking, in milliseconds of the caller's audio. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint_ms: int = Field(500, ge=100, le=5000)
    """Silence that ends a turn of which nobody says how complete it is."""
    quick_ms: int = Field(256, ge=100, le=5000)
    """Silence that ends a turn that is certainly complete."""
    patience_ms: int = Field(1800, ge=100, le=10_000)
    """Silence that ends a turn that is certainly not complete, or that is still being judged."""
    speculate_ms: int = Field(32, ge=0, le=5000)
    """Silence after which the final transcript is begun."""
    min_voice_ms: int = Field(100, ge=0, le=2000)
    """Less voice than this is no turn."""
    max_utterance_ms: int = Field(25_000, ge=1000, le=28_000)
    """A turn is ended after this much, whatever is said."""
    barge_in_ms: int = Field(850, ge=40, le=5000)
    """Voice over a reply that cancels it while the recogniser has not said anything."""
    word_ms: int = Field(500, ge=0, le=2000)
    """Over a reply that is heard, other words than those to stop count only in so much voice: a shorter one is more
    likely a backchannel that was not understood, or the beginning of one."""
    resume_ms: int = Field(256, ge=100, le=2000)
    """A paused reply goes on this long after the sound ended, if no words were recognised by then."""
    late_ms: int = Field(900, ge=100, le=2000)
    """The same after `word_voice_ms` of voice of which nothing at all is known, while its words are recognised: on
    slow cores that takes 600 to 900 ms, and a reply that goes on just before stops again."""
    word_voice_ms: int = Field(224, ge=0, le=2000)
    """Voice that is long enough for a word to stop."""
    noise_ms: int = Field(1000, ge=100, le=5000)
    """A sound of this length without words is a noise."""
    pause_max_ms: int = Field(1500, ge=500, le=5000)
    """No reply is held longer than this without a decision, and no words are waited for longer."""
    quieter_db: float = Field(10.0, ge=3.0, le=60.0)
    """A voice over a reply that is so much below the caller's own is somebody else's."""
    other_ms: int = Field(5000, ge=0, le=60_000)
    """So long after somebody else was heard, a voice pauses a reply only if it is not as quiet as theirs."""
    most_pauses: int = Field(5, ge=1, le=100)
    """A reply that went on after so many pauses is paused by words alone."""

    @model_validator(mode="after")
    def _ordered(self) -> TurnConfig:
        if self.speculate_ms > self.endpoint_ms:
            raise ValueError(f"expected speculate_ms <= endpoint_ms, got {self.speculate_ms} > {self.endpoint_ms}")
        if not self.quick_ms <= self.endpoint_ms <= self.patience_ms:
            got = f"{self.quick_ms}, {self.endpoint_ms}, {self.patience_ms}"
            raise ValueError(f"expected quick_ms <= endpoint_ms <= patience_ms, got {got}")
        return self


def silence_needed_ms(config: TurnConfig, complete: float) -> float:
    """Silence that ends a turn which is complete with probability `complete`: the surer, the shorter.

    `patience_ms` up to 0.15, `endpoint_ms` at 0.6, `quick_ms` from 0.9, and linear in between.
    """
    shortest, longest = min(config.quick_ms, config.endpoint_ms), max(config.patience_ms, config.endpoint_ms)
    return float(np.interp(complete, (0.15, 0.6, 0.9), (longest, config.endpoint_ms, shortest)))


ActionKind = Literal[
    "speech_started",
    "pause",
    "resume",
    "interrupt",
    "speculate",
    "unspeculate",
    "speech_stopped",
    "commit",
    "discard",
]


@dataclass(frozen=True)
class Action:
    """What the session does now. `at`: the sample that the action is about.

    speech_started: open an utterance from its onset. speech_stopped: its last voiced sample is known, and one of
    these two follows. commit: the turn is over. discard: it was no turn, and is forgotten.
    speculate: begin the final transcript of the utterance. unspeculate: the voice went on, drop what that began.
    pause: fade the live reply, hold everything, free nothing. Of these two exactly one follows, or the reply's own
    end. resume: the same reply goes on from where it was held. interrupt: cancel the reply; the utterance goes on.
    """

    kind: ActionKind
    at: int


@dataclass
class _Utterance:
    """A stretch of voice and what is known of it; times in samples.

    `phase`: own: a turn in the making. judged: a reply is paused on its account. aside: it is taken to be none of the
    agent's business, and only words will change that; or, where it is `faint`, a voice as loud as the caller's.
    """

    onset: int
    last_voiced: int
    phase: Literal["own", "judged", "aside"]
    judged_since: int = 0
    cut_in: bool = False
    faint: bool = False
    voiced: int = 0
    gap: bool = False
    ended: bool = False
    speculated_at: int | None = None
    complete: float | None = None
    said: Kind | None = None
    covered: int = 0
    powers: deque[float] = field(default_factory=lambda: deque(maxlen=8))
    loudest: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the latest hypothesis covers all of the voice. That it has no words, only the final one can say."""
        if self.said == "none" and (self.speculated_at is None or self.covered < self.speculated_at):
            return False
        return self.said is not None and self.covered >= self.last_voiced

    @property
    def level_db(self) -> float:
        """dBFS of its loudest quarter of a second."""
        return 10 * math.log10(max(self.loudest, 1e-12))


class TurnPolicy:
    """The state machine of one call: quiet → voiced ⇄ trailing silence → quiet, over a reply or not.

    `judged`: somebody calls `turn_end` for each final transcript; the end of a turn waits for it.
    """

    def __init__(self, config: TurnConfig, *, judged: bool = False) -> None:
        self.config = config
        self._judged = judged
        self._now = 0
        self._reply: Literal["none", "thought", "audible", "closing"] = "none"
        self._asked = False
        self._open: _Utterance | None = None
        self._callers_db: float | None = None
        self._others_until = 0
        self._pauses = 0

    def reply_began(self) -> None:
        """A reply is live, from its first thought; nothing of it is heard yet."""
        self._reply, self._asked, self._pauses = "thought", False, 0

    def reply_audible(self) -> None:
        """The first sample of the live reply has left."""
        if self._reply == "thought":
            self._reply = "audible"

    def reply_closing(self) -> None:
        """All of the live reply but its last moments has left: what is said from now on can be the answer to it."""
        if self._reply != "none":
            self._reply = "closing"

    def reply_ended(self, *, heard_all: bool = False) -> None:
        """No reply is live. `heard_all`: it was said to its end, and may have asked something."""
        self._reply, self._asked = "none", heard_all
        utterance = self._open
        if utterance is None:
            return
        if utterance.phase == "judged" or (utterance.faint and not self._is_quiet(utterance)):
            utterance.phase, utterance.faint = "own", False

    def on(self, event: VadEvent) -> list[Action]:
        """The actions that follow from one event of the voice detector."""
        self._now = max(self._now, event.at)
        if event.kind == "onset":
            return self._on_onset(event.at)
        if event.kind == "speech":
            # Speech that goes on after its turn was ended by `max_utterance_ms` opens the next one.
            opened = [] if self._open else self._on_onset(event.at - WINDOW)
            return opened + self._on_speech(event.at, event.level_db)
        utterance = self._open
        if utterance is None:
            return []
        if event.kind == "offset":
            utterance.last_voiced, utterance.ended = max(utterance.last_voiced, event.at), True
            return []
        return self._on_silence(utterance)

    def words(self, text: str, at: int, *, doubted: str = "") -> list[Action]:
        """A hypothesis of the open utterance, partial or final, which covers the audio up to sample `at`.

        Empty: no words in it that can be believed. `doubted`: what was written then; a word to stop is obeyed anyway.
        """
        utterance = self._open
        if utterance is None or at < utterance.covered:
            return []
        if not text and kind_of(doubted) == "stop":
            text = doubted
        utterance.said, utterance.covered = kind_of(text), at
        return self._judge(utterance)

    def turn_end(self, probability: float, at: int) -> list[Action]:
        """How probable it is that the turn is complete, for the transcript that covers the audio up to `at`."""
        utterance = self._open
        if utterance is None or at < utterance.last_voiced:
            return []
        utterance.complete = probability
        return self._end(utterance) if utterance.ended else []

    def _on_onset(self, at: int) -> list[Action]:
        if self._open is not None:
            self._open.last_voiced, self._open.gap = max(self._open.last_voiced, at), False
            return []
        self._open = _Utterance(onset=at, last_voiced=at, phase="own")
        return [Action("speech_started", at), *self._hold(self._open, at)]

    def _hold(self, utterance: _Utterance, at: int) -> list[Action]:
        """Pause the live reply on account of an utterance that has not been judged.

        Not while somebody else talks, before it is louder than they are; nor if the reply was paused too often.
        """
        if utterance.faint and self._is_loud(utterance):
            utterance.phase, utterance.faint = "own", False
        if self._reply == "none" or utterance.phase != "own" or utterance.cut_in:
            return []
        if at < self._others_until and not self._is_loud(utterance):
            utterance.phase, utterance.faint = "aside", True
        elif self._pauses >= self.config.most_pauses:
            utterance.phase = "aside"
        else:
            utterance.phase, utterance.judged_since = "judged", at
            self._pauses += 1
            return [Action("pause", at)]
        return []

    def _on_speech(self, at: int, level_db: float | None) -> list[Action]:
        utterance = self._open
        assert utterance is not None
        actions = [Action("unspeculate", at)] if utterance.speculated_at is not None else []
        # After a gap only the window itself was voiced, not the gap before it.
        new = max(0, at - utterance.last_voiced)
        utterance.voiced += min(new, WINDOW) if utterance.gap else new
        utterance.last_voiced = max(utterance.last_voiced, at)
        utterance.gap = utterance.ended = False
        utterance.complete = utterance.speculated_at = None
        if level_db is not None:
            utterance.powers.append(10 ** (level_db / 10))
            utterance.loudest = max(utterance.loudest, float(np.mean(utterance.powers)))
        actions += self._hold(utterance, at)
        actions += self._judge(utterance)
        if at - utterance.onset >= self._samples(self.config.max_utterance_ms):
            actions += self._go_on_anew(utterance)
        return actions

    def _go_on_anew(self, utterance: _Utterance) -> list[Action]:
        """End an utterance in the middle of its sound; what was an aside stays one."""
        actions = self._close(utterance, "commit" if self._is_turn(utterance) else "discard")
        if utterance.phase == "aside":
            at = utterance.last_voiced
            self._open = _Utterance(onset=at, last_voiced=at, phase="aside", faint=utterance.faint)
            actions.append(Action("speech_started", at))
        return actions

    def _on_silence(self, utterance: _Utterance) -> list[Action]:
        utterance.gap = utterance.ended
        actions = self._judge(utterance)
        silence = self._now - utterance.last_voiced
        begin = utterance is self._open and utterance.speculated_at is None and self._voice(utterance)
        aside = utterance.phase == "aside" and self._is_quiet(utterance)
        if begin and not aside and silence >= self._samples(self.config.speculate_ms):
            utterance.speculated_at = self._now
            actions.append(Action("speculate", self._now))
        return actions + self._end(utterance)

    def _judge(self, utterance: _Utterance) -> list[Action]:
        """Decide about a paused reply, as soon as there is reason to; and about an aside, if words have come."""
        if utterance is not self._open or utterance.phase == "own":
            return []
        if self._is_quiet(utterance):
            return self._let_go(utterance)
        if self._is_addressed(utterance):
            return self._cut_in(utterance)
        if utterance.phase == "aside":
            return []
        config, ended = self.config, utterance.ended
        covered, silence = utterance.covered - utterance.onset, self._now - utterance.last_voiced
        if not utterance.said and utterance.voiced >= self._samples(config.barge_in_ms):
            return self._cut_in(utterance)
        heard = self._reply != "thought"
        let_go = (
            (ended and (utterance.known or not self._voice(utterance)))
            or (ended and heard and silence >= self._samples(self._wait_ms(utterance)))
            or (utterance.said == "none" and covered >= self._samples(config.noise_ms))
            or self._now - utterance.judged_since >= self._samples(config.pause_max_ms)
        )
        return self._let_go(utterance) if let_go else []

    def _wait_ms(self, utterance: _Utterance) -> int:
        """How long a reply is held for words after the sound; longer for what may be a word to stop, and is not known.

        Without that a recogniser that is late has the reply go on for a moment, and cancels it then.
        """
        unknown = utterance.said is None and utterance.speculated_at is not None
        long_enough = utterance.voiced >= self._samples(self.config.word_voice_ms)
        return max(self.config.late_ms if unknown and long_enough else 0, self.config.resume_ms)

    def _is_addressed(self, utterance: _Utterance) -> bool:
        """Whether its words are meant for the agent."""
        said = utterance.said
        if said in (None, "none") or not self._voice(utterance):
            return False
        answers = self._reply == "closing" or (self._reply == "none" and self._asked)
        whole = utterance.ended and utterance.known
        if said == "stop" or (answers and whole):
            return True
        if said != "words":
            return False
        if whole and self._reply == "thought":
            return True
        heard = min(utterance.covered, utterance.last_voiced) - utterance.onset
        return heard >= self._samples(self.config.word_ms)

    def _is_quiet(self, utterance: _Utterance) -> bool:
        if self._callers_db is None or utterance.voiced < self._samples(200) or not utterance.loudest:
            return False
        return utterance.level_db < self._callers_db - self.config.quieter_db

    def _is_loud(self, utterance: _Utterance) -> bool:
        """Whether it is known already not to be quiet."""
        if self._callers_db is None or not utterance.loudest:
            return False
        return utterance.level_db >= self._callers_db - self.config.quieter_db

    def _cut_in(self, utterance: _Utterance) -> list[Action]:
        paused = utterance.phase == "judged"
        utterance.phase, utterance.cut_in = "own", True
        if self._reply == "none":
            return []
        return [*([] if paused else [Action("pause", self._now)]), Action("interrupt", self._now)]

    def _let_go(self, utterance: _Utterance) -> list[Action]:
        """The reply goes on. An utterance that has ended is forgotten, unless its words are still to come."""
        actions = [Action("resume", self._now)] if utterance.phase == "judged" else []
        utterance.phase = "aside"
        if self._is_quiet(utterance):
            utterance.faint = True
            self._others_until = utterance.last_voiced + self._samples(self.config.other_ms)
        return actions + self._end(utterance)

    def _end(self, utterance: _Utterance) -> list[Action]:
        """Close an utterance that has been silent for long enough."""
        if utterance is not self._open or not utterance.ended or utterance.phase == "judged":
            return []
        silence, config = self._now - utterance.last_voiced, self.config
        if utterance.phase == "aside":
            late = silence >= self._samples(config.pause_max_ms)
            nothing = utterance.known or not self._voice(utterance) or self._is_quiet(utterance)
            return self._close(utterance, "discard") if late or nothing else []
        needed: float = config.endpoint_ms
        if utterance.complete is not None:
            needed = silence_needed_ms(config, utterance.complete)
        elif self._judged and utterance.speculated_at is not None:
            needed = max(config.patience_ms, config.endpoint_ms)
        if silence < self._samples(needed):
            return []
        return self._close(utterance, "commit" if self._is_turn(utterance) else "discard")

    def _close(self, utterance: _Utterance, kind: Literal["commit", "discard"]) -> list[Action]:
        self._open = None
        if kind == "commit" and utterance.loudest:
            known, level = self._callers_db, utterance.level_db
            self._callers_db = level if known is None else known + 0.3 * (level - known)
        return [Action("speech_stopped", utterance.last_voiced), Action(kind, utterance.last_voiced)]

    def _is_turn(self, utterance: _Utterance) -> bool:
        """Only what was said to the agent, and no click, is a turn."""
        return utterance.phase == "own" and self._voice(utterance)

    def _voice(self, utterance: _Utterance) -> bool:
        return utterance.voiced >= self._samples(self.config.min_voice_ms)

    @staticmethod
    def _samples(ms: float) -> int:
        return round(ms * SAMPLES_PER_MS)

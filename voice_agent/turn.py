"""When the caller's turn begins and ends, and when it cuts in: pure functions of VAD events and time.

Nothing here waits, reads a clock or touches audio. Time is the sample index of the caller's audio at 16 kHz. The
policy takes one event and gives the actions that follow; the session carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from voice_agent.vad import VadEvent

SAMPLES_PER_MS = 16
WINDOW = 512


class TurnConfig(BaseModel):
    """Durations of turn taking, in milliseconds of the caller's audio.

    endpoint_ms: silence that ends a turn. speculate_ms: silence after which the final transcript is begun.
    barge_in_ms: voice over a reply that cancels it. min_voice_ms: less voice than this is no turn.
    max_utterance_ms: a turn is ended after this much, whatever is said.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint_ms: int = Field(500, ge=100, le=5000)
    speculate_ms: int = Field(160, ge=0, le=5000)
    barge_in_ms: int = Field(200, ge=40, le=2000)
    min_voice_ms: int = Field(100, ge=0, le=2000)
    max_utterance_ms: int = Field(25_000, ge=1000, le=28_000)

    @model_validator(mode="after")
    def _ordered(self) -> TurnConfig:
        if self.speculate_ms > self.endpoint_ms:
            raise ValueError(f"expected speculate_ms <= endpoint_ms, got {self.speculate_ms} > {self.endpoint_ms}")
        return self


@dataclass(frozen=True)
class Action:
    """What the session does now. `at`: the sample that the action is about.

    speech_started: open an utterance from its onset. speculate: start the final transcript. interrupt: cancel the
    live reply. speech_stopped: the last voiced sample is known. commit: the turn is over. discard: it was no turn.
    """

    kind: Literal["speech_started", "speculate", "interrupt", "speech_stopped", "commit", "discard"]
    at: int


class TurnPolicy:
    """The state machine of one call: quiet → voiced ⇄ trailing silence → quiet."""

    def __init__(self, config: TurnConfig) -> None:
        self.config = config
        self._replying = False
        self._open = False
        self._onset = 0
        self._last_voiced = 0
        self._voiced = 0
        self._cut_in = False
        self._speculated = False
        self._gap = False

    def reply_began(self) -> None:
        """A reply is live, from the start of its thinking to its last sample at the speaker."""
        self._replying = True

    def reply_ended(self) -> None:
        self._replying = False

    def on(self, event: VadEvent) -> list[Action]:
        """The actions that follow from one VAD event."""
        if event.kind == "onset":
            return self._on_onset(event.at)
        if event.kind == "speech":
            # Speech that goes on after its turn was ended by `max_utterance_ms` opens the next one.
            opened = [] if self._open else self._on_onset(event.at - WINDOW)
            return opened + self._on_speech(event.at)
        if not self._open:
            return []
        if event.kind == "offset":
            self._last_voiced = max(self._last_voiced, event.at)
            return []
        return self._on_silence(event.at)

    def _on_onset(self, at: int) -> list[Action]:
        if self._open:
            self._last_voiced = max(self._last_voiced, at)
            self._speculated = False
            return []
        self._open, self._onset, self._last_voiced, self._voiced = True, at, at, 0
        self._cut_in = self._speculated = self._gap = False
        return [Action("speech_started", at)]

    def _on_speech(self, at: int) -> list[Action]:
        # After a gap only the window itself was voiced, not the gap before it.
        self._voiced += min(max(0, at - self._last_voiced), WINDOW if self._gap else at)
        self._last_voiced, self._gap = max(self._last_voiced, at), False
        self._speculated = False
        actions = []
        if self._replying and not self._cut_in and self._voiced >= self.config.barge_in_ms * SAMPLES_PER_MS:
            self._cut_in = True
            actions.append(Action("interrupt", at))
        if at - self._onset >= self.config.max_utterance_ms * SAMPLES_PER_MS:
            actions += self._close("commit")
        return actions

    def _on_silence(self, at: int) -> list[Action]:
        silence, self._gap = at - self._last_voiced, True
        actions = []
        if not self._speculated and silence >= self.config.speculate_ms * SAMPLES_PER_MS:
            self._speculated = True
            if self._is_turn():
                actions.append(Action("speculate", at))
        if silence >= self.config.endpoint_ms * SAMPLES_PER_MS:
            actions += self._close("commit" if self._is_turn() else "discard")
        return actions

    def _is_turn(self) -> bool:
        """Voice over a live reply that was too short to cut in is no turn; neither is a click."""
        if self._replying and not self._cut_in:
            return False
        return self._voiced >= self.config.min_voice_ms * SAMPLES_PER_MS

    def _close(self, kind: Literal["commit", "discard"]) -> list[Action]:
        self._open = False
        return [Action("speech_stopped", self._last_voiced), Action(kind, self._last_voiced)]

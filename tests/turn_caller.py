"""Somebody who talks with the turn policy on a virtual clock."""

from __future__ import annotations

from voice_agent.turn import WINDOW, Action, TurnPolicy
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

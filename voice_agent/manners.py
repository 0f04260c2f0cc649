"""When a caller who says nothing is spoken to: a pure function of events and time."""

from __future__ import annotations

from typing import Literal

PROMPTS = 2
"""How often a silent caller is asked before the call ends."""


class Patience:
    """Counts from the moment at which the agent was last heard. Time is in samples of the caller's audio."""

    def __init__(self, idle: int) -> None:
        """`idle`: samples of silence after which it is time to say something."""
        self._idle = idle
        self._since: int | None = None
        self._prompted = 0

    def agent_heard(self, at: int) -> None:
        """The last sample of a reply reached the caller's ear."""
        self._since = at

    def agent_speaks(self) -> None:
        """A reply is live."""
        self._since = None

    def caller_speaks(self) -> None:
        """The caller has said something: whoever is there is not asked whether they are."""
        self._since, self._prompted = None, 0

    def due(self, at: int) -> Literal["still_there", "goodbye"] | None:
        """What is to be said now, if anything; it is said once for each wait."""
        if self._since is None or at - self._since < self._idle:
            return None
        self._since, self._prompted = None, self._prompted + 1
        return "still_there" if self._prompted <= PROMPTS else "goodbye"

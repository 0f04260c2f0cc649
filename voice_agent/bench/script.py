"""Decides when a caller says the next turn of a scenario, from what was said and heard so far. Sans-IO."""

from __future__ import annotations

import random
from dataclasses import dataclass

from voice_agent.bench.scenario import Scenario, Start, Turn

SILENT_S = 0.7
"""The agent has ended when it has been silent for so long."""

SETTLE_S = 2.5
"""How long an agent that is to stay silent is listened to, and the tail of every call."""

TAIL_S = 0.4


@dataclass
class _Said:
    turn: Turn
    start: float
    end: float | None = None


class Script:
    """Ask `step` every 20 ms; tell `said` when a turn's last frame left, and `heard` of every received packet.

    Times are seconds on the clock of `start`.
    """

    def __init__(self, scenario: Scenario, seed: int, start: float) -> None:
        self._turns = scenario.turns
        self._random = random.Random(seed)
        self._start = start
        self._before: _Said | None = None
        self._next = 0
        self._delay_s = self._draw()
        self._run = 0  # voiced packets in a row
        self._onset: float | None = None  # of the agent's latest voice
        self._last_voice: float | None = None
        self.finished = False

    def heard(self, now: float, voiced: bool) -> None:
        """A packet arrived. Two voiced ones in a row are voice."""
        self._run = self._run + 1 if voiced else 0
        if self._run >= 2:
            if self._last_voice is None or now - self._last_voice > 0.3:
                self._onset = now - 0.02
            self._last_voice = now

    def cleared(self, now: float) -> None:
        """What the agent had sent ahead of its time is not heard after all."""
        if self._last_voice is not None:
            self._last_voice = min(self._last_voice, now)

    def said(self, now: float) -> None:
        """The turn that `step` gave last was said to its end."""
        assert self._before is not None
        self._before.end = now

    def step(self, now: float) -> int | None:
        """The number of the turn to begin now, if it is time for one."""
        if self.finished or (self._before is not None and self._before.end is None):
            return None
        if self._next == len(self._turns):
            self.finished = self._over(now)
            return None
        anchor = self._anchor(self._turns[self._next].start, now)
        if anchor is None or now < anchor + self._delay_s:
            return None
        self._before = _Said(self._turns[self._next], now)
        self._next += 1
        self._delay_s = self._draw()
        return self._next - 1

    def _draw(self) -> float:
        if self._next >= len(self._turns):
            return 0.0
        delay = self._turns[self._next].start.delay_ms
        return (delay if isinstance(delay, int) else self._random.uniform(*delay)) / 1000

    def _anchor(self, start: Start, now: float) -> float | None:
        since = self._start if self._before is None or self._before.end is None else self._before.end
        if start.after == "call_start":
            return self._start
        if start.after == "turn_end":
            return since
        found = self._spoke_from(since) if start.after == "agent_speech_start" else self._silent_from(since, now)
        if found is None and now > since + start.timeout_ms / 1000:
            return now - self._delay_s
        return found

    def _spoke_from(self, since: float) -> float | None:
        """When the agent began to speak after the turn before; an agent that broke into it counts from its end."""
        if self._onset is None:
            return None
        if self._onset > since:
            return self._onset
        broke_in = self._before is not None and self._before.turn.expect in ("respond", "join")
        if broke_in and self._before is not None and self._onset > self._before.start and self._speaks_at(since):
            return since
        return None

    def _silent_from(self, since: float, now: float) -> float | None:
        """The agent's last sound, once it has ended what it had to say to the turn before."""
        if self._last_voice is None or now - self._last_voice < SILENT_S or self._last_voice <= since:
            return None
        answers = self._before is None or self._before.turn.expect != "ignore"
        return None if answers and self._spoke_from(since) is None else self._last_voice

    def _speaks_at(self, at: float) -> bool:
        return self._last_voice is not None and self._last_voice >= at

    def _over(self, now: float) -> bool:
        """After the last turn: the reply is over, or none came in time."""
        assert self._before is not None
        assert self._before.end is not None
        since = self._before.end
        if self._before.turn.expect == "ignore":
            silent = self._last_voice is None or now - self._last_voice >= SILENT_S
            return (now - since >= SETTLE_S and silent) or now - since >= self._before.turn.start.timeout_ms / 1000
        ended = self._silent_from(since, now)
        return (ended is not None and now >= ended + SILENT_S + TAIL_S) or (
            ended is None and not self._speaking(now) and now - since >= self._before.turn.start.timeout_ms / 1000
        )

    def _speaking(self, now: float) -> bool:
        return self._last_voice is not None and now - self._last_voice < SILENT_S

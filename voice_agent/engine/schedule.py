"""Which rows of a stage step next: those whose listeners would be without audio first.

Sans-IO: every time is an argument, in seconds on any one clock, so that the stages and a simulation run this same code.

Each row that can step makes a claim, which says when its listener needs the next unit. The earliest goes first, which
misses no deadline if any order can avoid it (Liu and Layland, JACM 20(1), 1973). A reply that has made nothing yet is
due since it was asked for: a first chunk waits for the step that is running and for older first chunks, for no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

SPEECH_TOKENS_PER_S = 12.5
"""Text that a talker may ask for: Qwen3-Omni's reads a token a frame until the text is over; others read less."""

TEXT_GAP_S = 0.5
"""A reply that is only read is due so long after its last token: beside any load of voice it goes on."""


@dataclass(frozen=True)
class Claim:
    """A row that can step now. `due_s`: when its listener needs what the step makes. `light`: the step costs no more
    than a usual one (it reads no prompt), so that it may fill a batch of more urgent rows.
    """

    due_s: float
    light: bool = True


def speech_due(asked_s: float, now_s: float, ahead_units: int, made: int, rate: float) -> float:
    """When a row of frames is due: it is `ahead_units` frames ahead of playback, which uses `rate` a second."""
    return asked_s if made == 0 else now_s + ahead_units / rate


def thought_due(asked_s: float, speak: bool, first_s: float | None, tokens: int, served_s: float) -> float:
    """When a thinker's row is due. `first_s`: when it gave the first of its `tokens`; `served_s`: its last step."""
    if not speak:
        return served_s + TEXT_GAP_S
    return asked_s if first_s is None else first_s + tokens / SPEECH_TOKENS_PER_S


class StepCost:
    """Seconds of a step by its size: base + each * units, by least squares over past steps; each one weighs `keep` of
    the one after it.
    """

    def __init__(self, keep: float = 0.98) -> None:
        self._keep = keep
        self._sums = np.zeros(5)  # of 1, units, seconds, units ** 2, units * seconds
        self.base, self.each = 0.0, 0.0

    def took(self, units: int, seconds: float) -> None:
        """A step of this size took so long. Steps of one size alone say nothing of the base: it is taken to be 0."""
        self._sums = self._keep * self._sums + (1, units, seconds, units**2, units * seconds)
        weight, size, time, squares, products = self._sums.tolist()
        spread = weight * squares - size**2
        most = time / size
        slope = (weight * products - size * time) / spread if spread > 1e-6 * size**2 else most
        self.each = min(max(0.0, slope), most)
        self.base = max(0.0, time - self.each * size) / weight

    def of(self, units: int) -> float:
        return self.base + self.each * units


class Policy(Protocol):
    """Chooses the batch of a stage's next step. Rows that are due within `urgent_s` are not made to wait."""

    @property
    def urgent_s(self) -> float: ...

    def pick(self, claims: Sequence[Claim], now_s: float, size: int = 1) -> list[int]:
        """Indices into `claims`, the first to be served first. `size`: units that the step makes for each row."""

    def took(self, units: int, seconds: float) -> None:
        """A step that made so many units took so long."""


@dataclass
class Deadline:
    """Earliest due first.

    urgent_s: a row is urgent so long before it is due. While a row is urgent, rows that are not wait, unless they make
    its step at most `stretch` times as long: on hardware where a row more costs nothing, batches are full; where each
    costs its own time, nobody waits for audio that has time.
    longest_s: a step is not made longer than this by further rows (or than twice a step of one row, if that is more),
    since whoever comes meanwhile waits for its end.
    """

    urgent_s: float = 0.3
    longest_s: float = 0.05
    stretch: float = 1.1
    max_batch: int = 64
    cost: StepCost = field(default_factory=StepCost)

    def pick(self, claims: Sequence[Claim], now_s: float, size: int = 1) -> list[int]:
        order = sorted(range(len(claims)), key=lambda i: claims[i].due_s)
        most = most_rows(self.cost, self.longest_s, size, self.max_batch)
        urgent = [i for i in order if claims[i].due_s <= now_s + self.urgent_s][:most]
        if not urgent:
            return order[:most]
        allowed_s = self.stretch * self.cost.of(len(urgent) * size)
        for i in order[len(urgent) : most]:
            if claims[i].light and self.cost.of((len(urgent) + 1) * size) <= allowed_s:
                urgent.append(i)
        return urgent

    def took(self, units: int, seconds: float) -> None:
        self.cost.took(units, seconds)


def most_rows(cost: StepCost, longest_s: float, size: int, max_batch: int) -> int:
    """Rows of `size` units that a step of `longest_s` has room for, or one that is twice as long as a row's own."""
    allowed_s = max(longest_s, 2 * cost.of(size)) - cost.base
    if max_batch * size * cost.each <= allowed_s:
        return max_batch
    return max(1, int(allowed_s / (cost.each * size)))


@dataclass(frozen=True)
class Undecoded:
    """A row of a codec: `pending` frames wait to be decoded, `made` have been. `complete`: no more will come."""

    due_s: float
    pending: int
    made: int
    complete: bool


def pick_chunk(policy: Policy, rows: Sequence[Undecoded], now_s: float, max_chunk: int) -> tuple[list[int], int]:
    """The rows that a codec decodes next, as indices, and the frames that it takes of each.

    A reply's chunks begin with one frame and grow as it does. A row that has time waits until there is a whole chunk,
    which costs less than its frames one by one. All rows of a step take as many frames as the most urgent one wants;
    0: they have only to be finished.
    """
    able = [
        i
        for i, row in enumerate(rows)
        if row.complete or row.pending >= max_chunk or (row.pending and row.due_s <= now_s + policy.urgent_s)
    ]
    if not able:
        return [], 0
    first = rows[able[policy.pick([Claim(rows[i].due_s) for i in able], now_s)[0]]]
    size = min(max_chunk, first.pending, max(1, first.made))
    able = [i for i in able if (rows[i].pending >= size if size else not rows[i].pending)]
    picked = policy.pick([Claim(rows[i].due_s) for i in able], now_s, max(1, size))
    return [able[i] for i in picked], size

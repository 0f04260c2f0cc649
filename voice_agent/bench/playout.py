"""What a listener hears of a line that arrived: the plainest playout there is, with no delay of its own.

A packet plays when it is there and the one before it has ended, so that late packets push the rest back and packets
sent ahead of time wait. After 200 ms of silence what waits catches up by leaving silent packets out, as jitter
buffers do. A real player adds a constant to this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voice_agent.bench.detect import voiced_blocks
from voice_agent.bench.recording import RATE, Line

DRAIN_AFTER_S = 0.2


@dataclass(frozen=True)
class Playout:
    """`start`: when each packet begins to play, float64[N] in the order of positions, in seconds."""

    line: Line
    start: npt.NDArray[np.float64]

    def time(self, position: int) -> float:
        """When a sample is heard, in seconds."""
        rank = self.line.packet_of(position)
        return float(self.start[rank] + (position - self.line.position[self.line.order[rank]]) / RATE)

    def waiting_ms(self) -> npt.NDArray[np.float64]:
        """How long each packet lies waiting, in ms: audio ahead of its time, or behind late packets."""
        waits: npt.NDArray[np.float64] = (self.start - self.line.at[self.line.order]) * 1000
        return waits


def play_out(line: Line) -> Playout:
    """Play a received line."""
    order = line.order
    start = np.zeros(len(order))
    free = -np.inf  # when the player has played all before this packet
    silent = 0.0
    for rank, index in enumerate(order):
        at, position, length = float(line.at[index]), int(line.position[index]), int(line.length[index])
        start[rank] = begin = max(at, free)
        following = int(line.position[order[rank + 1]]) if rank + 1 < len(order) else position + length
        voiced = bool(voiced_blocks(line.pcm[position : position + length]).any())
        silent = 0.0 if voiced else silent + length / RATE
        free = begin + (0.0 if silent > DRAIN_AFTER_S else (following - position) / RATE)
    return Playout(line, start)

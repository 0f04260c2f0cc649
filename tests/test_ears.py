from __future__ import annotations

import numpy as np
import pytest

from tests.call_fakes import Bench, EnergyVad, in_call, run
from tests.fakes import FakeModel, FakeThinker
from voice_agent.ears import Ears
from voice_agent.vad import WINDOW


class Canceller:
    """Takes nothing away; says of each window whether it was the agent's."""

    def __init__(self, shares: list[float]) -> None:
        self.shares, self.calls = shares, []

    def push(self, mic: np.ndarray, now_s: float) -> np.ndarray:
        self.calls.append((len(mic), now_s))
        return mic

    def echo_share(self, start: int, end: int) -> float:
        windows = self.shares[start // WINDOW : -(-end // WINDOW)]
        return sum(windows) / max(1, len(windows))


def loud(windows: int) -> np.ndarray:
    return np.full(windows * WINDOW, 1000, np.int16)


def test_voiced_windows_that_were_the_agents_own_are_not_told() -> None:
    canceller = Canceller([0.95, 0.99, 0.2, 0.0, 0.95])
    ears = Ears(EnergyVad(), canceller, 0.9)
    pcm, events = ears.push(loud(5), 7.5)
    assert len(pcm) == 5 * WINDOW
    assert [(event.kind, event.at // WINDOW) for event in events] == [("speech", 3), ("speech", 4)]
    assert canceller.calls == [(5 * WINDOW, 7.5)]
    assert ears.echo_share(2 * WINDOW, 4 * WINDOW) == pytest.approx(0.1)


def test_silence_goes_by_as_it_comes() -> None:
    _, events = Ears(EnergyVad(), Canceller([1.0] * 4), 0.9).push(np.zeros(2 * WINDOW, np.int16), 0.0)
    assert [event.kind for event in events] == ["silence", "silence"]


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_words_of_the_agents_own_are_no_turn_if_their_sound_came_back_too(share: float) -> None:
    reply = "alpha bravo charlie delta echo foxtrot golf hotel " * 3

    async def work() -> None:
        bench = Bench(FakeModel(FakeThinker(reply=reply)), ["first", "bravo charlie delta echo foxtrot golf hotel"])
        bench.session.floor.hearing._ears = Ears(EnergyVad(), Canceller([share] * 500), 0.9)
        async with in_call(bench):
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms > 1000)
            await bench.play(40)
            await bench.say(700)
            await bench.hush(700)
            if share:
                await bench.until(lambda: "agent.turn.resumed" in bench.kinds())
                assert len(bench.model.thinker.requests) == 1
            else:
                await bench.until(lambda: len(bench.model.thinker.requests) == 2)
                assert "agent.turn.resumed" not in bench.kinds()

    run(work)

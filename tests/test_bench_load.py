"""The load ramp: how many callers are held, and which stage gives way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voice_agent.bench.link import Target
from voice_agent.bench.load import Machine, Step, held, ramp, saturated, summarise_step
from voice_agent.bench.results import CallResult
from voice_agent.bench.scenario import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def step(callers: int, ttfc: float | None, failed: int = 0, v2v: float | None = 800, **stages: float) -> Step:
    return Step(callers, 4, failed, ttfc, v2v, None, None, None, None, stages)


def test_callers_are_held_up_to_one_and_a_half_times_the_first() -> None:
    assert held([step(1, 100), step(2, 120), step(4, 150), step(8, 151)]) == 4
    assert held([step(1, 100), step(2, 200)]) == 1
    assert held([step(1, 100, failed=1)]) == 0
    assert held([step(1, 100), step(2, 90, failed=1), step(4, 90)]) == 1
    # A server that tells no steps of its own is judged by what the caller hears.
    assert held([step(1, None, v2v=800), step(2, None, v2v=1100), step(4, None, v2v=1300)]) == 2
    assert held([step(1, None, v2v=None)]) == 0


def test_the_stage_that_grew_the_most_is_named() -> None:
    steps = [step(1, 100, asr_ms=50, codec_first_chunk_ms=20), step(2, 300, asr_ms=90, codec_first_chunk_ms=200)]
    assert saturated(steps) == "codec_first_chunk"
    assert saturated(steps[:1]) == ""
    assert saturated([step(1, None), step(2, None)]) == ""


def test_a_step_is_summarised_from_its_calls() -> None:
    server = {
        "asr_ms": 10.0,
        "thinker_first_token_ms": 60.0,
        "talker_first_frame_ms": 30.0,
        "codec_first_chunk_ms": 20.0,
    }
    turn: dict[str, Any] = {
        "expect": "respond", "responded": True, "early": False, "stopped": None, "kept": None, "pauses": 0,
        "v2v_ms": 800.0, "server": server,
    }  # fmt: skip
    stream = {"burst_ms": 1.0, "gap_p99_ms": 25.0, "gap_max_ms": 30.0, "lost": 0, "packets": 9, "drift_ppm": None}
    good = CallResult("a", "a", {"turns": [turn], "stream": stream, "failed": ""})
    bad = CallResult("a", "b", {"turns": [], "stream": stream, "failed": "the server answered 503"})
    told = summarise_step(2, [good, bad], Machine(0.5, 900.0, {"thinker": 2}))
    assert (told.ttfc_ms, told.v2v_ms, told.packet_gap_ms, told.failed) == (120.0, 800.0, 25.0, 1)
    assert told.stages == server
    assert (told.busy, told.memory_mib, told.slots) == (0.5, 900.0, {"thinker": 2})


def test_the_most_slots_and_the_work_since_the_beginning_are_noted() -> None:
    def view(in_use: int, busy_s: float, lived_s: float) -> dict[str, Any]:
        return {"talker": {"slots_in_use": in_use, "busy_s": busy_s, "lived_s": lived_s}}

    machine = Machine()
    before = view(0, 5.0, 100.0)
    machine.note(before, view(3, 6.0, 104.0))
    machine.note(before, view(1, 9.0, 110.0))
    assert machine.slots == {"talker": 3}
    assert machine.utilisation == {"talker": 0.4}
    machine.note(before, {})
    assert machine.slots == {"talker": 3}


async def test_the_numbers_of_callers_have_to_rise_from_one(tmp_path: Path) -> None:
    scenario = Scenario.model_validate({"name": "a", "turns": [{"say": {"tone_hz": 300, "ms": 100}}]})
    for callers in ([], [2, 4], [1, 4, 2], [1, 1]):
        with pytest.raises(ValueError, match="expected numbers of callers that rise from 1"):
            await ramp(Target(url="http://127.0.0.1:1"), scenario, tmp_path, tmp_path, callers)

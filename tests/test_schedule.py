from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation import (
    DISCIPLINES,
    Asked,
    Simulation,
    Times,
    capacity_per_s,
    load_workload,
    make_workload,
    summary,
)
from voice_agent.engine.schedule import (
    TEXT_GAP_S,
    Claim,
    Deadline,
    StepCost,
    Undecoded,
    pick_chunk,
    speech_due,
    thought_due,
)


def taught(base_s: float, each_s: float) -> StepCost:
    cost = StepCost()
    for units in (1, 2, 4, 8) * 5:
        cost.took(units, base_s + each_s * units)
    return cost


@given(st.floats(0, 0.05), st.floats(1e-5, 0.01))
def test_the_cost_of_a_step_is_learnt(base_s: float, each_s: float) -> None:
    assert taught(base_s, each_s).of(16) == pytest.approx(base_s + 16 * each_s, rel=1e-3)


def test_steps_of_one_size_are_taken_to_cost_in_proportion() -> None:
    cost = StepCost()
    for _ in range(10):
        cost.took(2, 0.01)
    assert cost.of(8) == pytest.approx(0.04)


def test_a_step_cost_follows_a_machine_that_has_become_slower() -> None:
    cost = taught(0.001, 0.001)
    for units in (1, 2, 4, 8) * 50:
        cost.took(units, 0.003 + 0.002 * units)
    assert cost.of(10) == pytest.approx(0.023, rel=0.05)


def test_who_runs_out_first_goes_first_and_a_first_chunk_before_all() -> None:
    policy = Deadline(urgent_s=0.3)
    claims = [Claim(10.25), Claim(9.9), Claim(10.1), Claim(12.0)]
    assert policy.pick(claims, 10.0) == [1, 2, 0, 3], "nothing is known of the cost: all may go"
    policy.cost = taught(0.0, 0.002)
    assert policy.pick(claims, 10.0) == [1, 2, 0], "who has time does not make the others wait"
    policy.cost = taught(0.02, 0.0001)
    assert policy.pick(claims, 10.0) == [1, 2, 0, 3], "where a row more costs nothing, it comes along"
    assert policy.pick([*claims[:3], Claim(12.0, light=False)], 10.0) == [1, 2, 0], "but not with a prompt to read"
    assert policy.pick([Claim(12.0), Claim(11.0)], 10.0) == [1, 0], "nobody is urgent: work is done ahead"


def test_a_step_is_no_longer_than_a_newcomer_may_wait() -> None:
    policy = Deadline(longest_s=0.05, cost=taught(0.002, 0.005))
    assert len(policy.pick([Claim(0.0)] * 30, 10.0)) == 9
    assert len(policy.pick([Claim(0.0)] * 30, 10.0, size=4)) == 2
    policy.cost = taught(0.2, 0.001)
    assert len(policy.pick([Claim(0.0)] * 30, 10.0)) == 30, "a step that is long anyway takes everybody"
    policy.cost = taught(0.0, 0.2)
    assert len(policy.pick([Claim(0.0)] * 30, 10.0)) == 2


@given(st.lists(st.floats(0, 20), min_size=1, max_size=40), st.floats(0, 0.02), st.floats(0, 0.02))
def test_the_most_urgent_row_is_always_served(due: list[float], base_s: float, each_s: float) -> None:
    picked = Deadline(cost=taught(base_s, each_s)).pick([Claim(at) for at in due], 10.0)
    assert due[picked[0]] == min(due)
    assert len(set(picked)) == len(picked)


def test_when_a_row_is_due() -> None:
    assert speech_due(3.0, 10.0, 0, 0, 20.0) == 3.0, "a first chunk is due since it was asked for"
    assert speech_due(3.0, 10.0, 5, 40, 20.0) == 10.25
    assert thought_due(3.0, True, None, 0, 9.0) == 3.0
    assert thought_due(3.0, True, 9.0, 25, 9.9) == 11.0
    assert thought_due(3.0, False, 9.0, 25, 9.9) == 9.9 + TEXT_GAP_S


def test_text_beside_voice_is_slow_and_never_stands_still() -> None:
    """A thinker whose step takes 5 ms a row; voice always has a reply without its first word, text has one chat."""
    policy, now_s, served_s, tokens = Deadline(cost=taught(0.0, 0.005)), 0.0, 0.0, 0
    while now_s < 10:
        picked = policy.pick([Claim(now_s - 0.1), Claim(thought_due(0, False, None, 0, served_s))], now_s)
        now_s += 0.005 * len(picked)
        if 1 in picked:
            served_s, tokens = now_s, tokens + 1
    assert 40 <= tokens <= 55, "five a second: the share that is left to it"


def test_chunks_begin_with_one_frame_and_grow_and_wait_only_where_there_is_time() -> None:
    policy = Deadline(urgent_s=0.3, cost=taught(0.0, 0.001))

    def row(due_s: float, pending: int, made: int, complete: bool = False) -> Undecoded:
        return Undecoded(due_s, pending, made, complete)

    assert pick_chunk(policy, [row(9.0, 3, 0)], 10.0, 4) == ([0], 1)
    assert pick_chunk(policy, [row(10.1, 3, 2)], 10.0, 4) == ([0], 2)
    assert pick_chunk(policy, [row(10.1, 9, 9)], 10.0, 4) == ([0], 4)
    assert pick_chunk(policy, [row(11.0, 3, 9)], 10.0, 4) == ([], 0), "three frames wait for a fourth"
    assert pick_chunk(policy, [row(11.0, 3, 9, complete=True)], 10.0, 4) == ([0], 3), "none will come"
    assert pick_chunk(policy, [row(11.0, 4, 9), row(10.1, 1, 9)], 10.0, 4) == ([1], 1)
    assert pick_chunk(policy, [row(10.2, 4, 9), row(10.1, 2, 9)], 10.0, 4) == ([1, 0], 2)
    assert pick_chunk(policy, [row(10.2, 4, 9), row(10.1, 0, 9, complete=True)], 10.0, 4) == ([1], 0), "to be finished"


TIMES = Times(
    frame_rate=20.0,
    thinker_ms={1: 4.0, 8: 6.0, 32: 14.0},
    prompt_ms={10: 5.0, 50: 12.0},
    talker_ms={1: 2.0, 8: 4.0, 32: 8.0},
    codec_ms={1: 3.0, 4: 8.0, 64: 100.0},
)


def simulated(name: str, load: float) -> dict[str, Any]:
    workload = load_workload()
    simulation = Simulation(TIMES, next(one for one in DISCIPLINES if one.name == name))
    simulation.arrive(workload, load * capacity_per_s(TIMES, workload)[0])
    assert len(simulation.done) == len(workload), "every reply is heard to its end or cut off"
    return summary(simulation)


@pytest.mark.parametrize("load", [0.8, 0.95])
def test_first_chunks_come_sooner_than_first_come_first_served(load: float) -> None:
    first_come, deadline = simulated("first come", load), simulated("deadline", load)
    assert deadline["ttfc_ms"]["p95"] <= 0.6 * first_come["ttfc_ms"]["p95"]
    assert deadline["wasted_frames"] < first_come["wasted_frames"]
    if load == 0.8:
        assert deadline["underruns"] == 0


def test_a_lone_reply_takes_the_time_of_its_own_steps() -> None:
    workload = load_workload()[:1]
    for discipline in DISCIPLINES:
        simulation = Simulation(TIMES, discipline)
        simulation.converse(workload, callers=1)
        asked = workload[0]
        # Two tokens of text are known before the first frame, unless a token is worth less than a frame.
        steps_ms = (asked.call_tokens + 2) * 4.0 + 2.0 + 3.0
        prompt_ms = 1000 * TIMES.seconds("prompt", asked.prompt)
        assert 1000 * simulation.done[0].ttfc_s == pytest.approx(prompt_ms + steps_ms, abs=4.01)
        assert simulation.done[0].stalls == 0


def test_a_long_prompt_that_is_read_in_parts_does_not_stall_others() -> None:
    """A prompt of two seconds arrives 10 ms after a reply that would have spoken after 26 ms."""
    times = replace(TIMES, prompt_ms={1: 1.0, 2000: 2000.0})
    workload = [Asked(1.0, 10, 2, 20, 80, 1.0), Asked(0.01, 2000, 2, 20, 80, 1.0)]

    def ttfc_s(part: int) -> float:
        simulation = Simulation(replace(times, prompt_part=part), DISCIPLINES[2])
        simulation.arrive(workload, 1.0)
        return next(reply.ttfc_s for reply in simulation.done if reply.asked is workload[0])

    assert ttfc_s(2000) > 2.0
    assert ttfc_s(50) < 0.3


def test_playback_that_runs_dry_is_counted() -> None:
    slow = Times(20.0, {1: 4.0, 2: 4.0}, {10: 5.0, 50: 9.0}, {1: 60.0, 2: 60.0}, {1: 3.0, 2: 3.0})
    simulation = Simulation(slow, DISCIPLINES[2])
    simulation.converse(load_workload()[:1], callers=1)
    (reply,) = simulation.done
    # Each frame of 50 ms takes 60 ms to make: 10 ms of silence at every one that is heard but the first.
    assert reply.stall_s == pytest.approx(0.010 * (reply.heard_whole - 1), rel=0.05)


def test_the_workload_is_what_its_recipe_makes() -> None:
    made = make_workload(5, 1000)
    assert load_workload()[0].frames == made["replies"][0][4]
    lengths_s = np.array([reply.frames / 20 for reply in load_workload()])
    assert np.median(lengths_s) == pytest.approx(3.0, rel=0.05)
    assert np.log(lengths_s).std() == pytest.approx(0.6, rel=0.1)
    gaps = np.array([reply.gap for reply in load_workload()])
    assert gaps.mean() == pytest.approx(1.0, rel=0.1)
    assert gaps.std() == pytest.approx(1.0, rel=0.1)

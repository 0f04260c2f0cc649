"""Scenarios: what YAML may say, and when their caller speaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from voice_agent.bench.link import Target
from voice_agent.bench.mouth import FRAME, Mouth
from voice_agent.bench.runner import jobs, references
from voice_agent.bench.scenario import (
    LIBRARY,
    RATE,
    Echo,
    Scenario,
    ScenarioError,
    check_sounds,
    find_scenarios,
    load_scenario,
    render,
)
from voice_agent.bench.script import Script

TONE = {"tone_hz": 300, "ms": 500}


def scenario(*turns: dict, **more: object) -> Scenario:
    return Scenario.model_validate({"name": "test", "turns": list(turns), **more})


def test_the_library_is_read_and_every_sound_of_it_is_there() -> None:
    found = find_scenarios([])
    assert {"order-zh", "pauses", "barge-in", "backchannel", "noise", "echo-loop", "long-call", "bad-network"} <= {
        scenario.name for scenario, _ in found
    }
    for scenario, folder in found:
        assert scenario.name in {path.stem for path in LIBRARY.glob("*.yaml")}
        for turn in scenario.turns:
            assert len(render(turn.say, folder)) > RATE / 5
    assert find_scenarios(["order-zh"])[0][0].name == "order-zh"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nturns: [{say: {tone_hz: 300, ms: 10}, expects: stop}]", r"turns.0.expects: Extra inputs"),
        ("name: a\nturns: []", "turns: Tuple should have at least 1 item"),
        ("name: A b\nturns: [{say: {tone_hz: 300, ms: 10}}]", "name: String should match pattern"),
        ("name: a\nturns: [{say: {tone_hz: 300, ms: 10}, expect: join}]", "expected a turn after the last join"),
        (
            "name: a\nturns: [{say: {tone_hz: 300, ms: 10}, start: {after: turn_end}}]",
            "expected call_start or an agent's greeting, got turn_end",
        ),
        ("name: a\nturns: [{say: {tone_hz: 9, ms: 10}}]", "turns.0.say.0"),
        (
            "name: a\nturns: [{say: {tone_hz: 300, ms: 10}, start: {after: call_start, delay_ms: [9, 1]}}]",
            r"expected delay_ms as \[least, most\]",
        ),
        ("- 1", "Input should be a valid dictionary"),
        ("a: [", "expected a YAML file"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=told):
        load_scenario(path)


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ScenarioError, match=r"nothing: expected a YAML file.*order-zh"):
        find_scenarios(["nothing"])


def test_what_cannot_be_said_here_is_told_before_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    spoken = scenario({"say": [{"tone_hz": 300, "ms": 100}]}, {"say": {"speak": "make it two"}})
    with pytest.raises(ScenarioError, match="espeak-ng on this machine"):
        check_sounds([(spoken, tmp_path)])
    check_sounds([(scenario({"say": {"tone_hz": 300, "ms": 100}}), tmp_path)])


def test_sounds_are_put_together_in_order(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.full((1600, 1), 0.5, np.float32), 16_000)
    told = scenario(
        {
            "say": [
                {"file": "a.wav", "from_ms": 50, "gain_db": -6},
                {"pause_ms": 100},
                {"noise_ms": 100, "level_db": -20},
            ]
        }
    )
    pcm = render(told.turns[0].say, tmp_path)
    assert (pcm.dtype, len(pcm)) == (np.float32, RATE // 4)
    assert pcm[1000] == pytest.approx(0.25, abs=0.01)
    assert not pcm[2400:7200].any()
    assert np.sqrt(np.mean(pcm[7200:] ** 2)) == pytest.approx(0.1, rel=0.05)
    with pytest.raises(FileNotFoundError, match=r"none\.wav"):
        render(scenario({"say": "none.wav"}).turns[0].say, tmp_path)
    with pytest.raises(ScenarioError, match="expected sound from 500 ms on, got 100 ms of it"):
        render(scenario({"say": {"file": "a.wav", "from_ms": 500}}).turns[0].say, tmp_path)


def play(script: Script, agent: list[tuple[float, float]], length_s: float = 0.5, until: float = 60) -> list[float]:
    """Run a script on a virtual clock against an agent that speaks at these times: when each turn began."""
    began: list[float] = []
    ends: float | None = None
    for tick in range(int(until * 50)):
        now = tick * 0.02
        if script.finished:
            break
        script.heard(now, any(start <= now < end for start, end in agent))
        if ends is not None and now >= ends:
            script.said(now)
            ends = None
        if script.step(now) is not None:
            began.append(round(now, 2))
            ends = now + length_s
    assert script.finished
    return began


def test_a_turn_follows_the_reply_to_the_one_before() -> None:
    turns = scenario({"say": TONE}, {"say": TONE, "start": {"after": "agent_speech_end", "delay_ms": 1000}})
    # Said from 1.0 to 1.5; the reply ends at 4.0, with a pause that is no end.
    began = play(Script(turns, 1, 0.0), [(2.0, 3.0), (3.4, 4.0), (6, 7)])
    assert began == [1.0, pytest.approx(5.0, abs=0.05)]


def test_an_interruption_begins_into_the_reply() -> None:
    turns = scenario(
        {"say": TONE}, {"say": TONE, "expect": "stop", "start": {"after": "agent_speech_start", "delay_ms": 300}}
    )
    assert play(Script(turns, 1, 0.0), [(2.0, 5.0), (6.0, 7.0)])[1] == pytest.approx(2.3, abs=0.05)


def test_a_random_delay_is_drawn_within_its_bounds_and_by_the_seed() -> None:
    turns = scenario(
        {"say": TONE}, {"say": TONE, "expect": "stop", "start": {"after": "agent_speech_start", "delay_ms": [200, 900]}}
    )
    starts = [play(Script(turns, seed, 0.0), [(2.0, 5.0), (6.0, 7.0)])[1] for seed in (1, 1, 2, 3)]
    assert starts[0] == starts[1]
    assert len(set(starts)) == 3
    assert all(2.18 <= start <= 2.95 for start in starts)


def test_a_silent_agent_is_not_waited_for_for_ever() -> None:
    turns = scenario(
        {"say": TONE, "start": {"after": "call_start", "timeout_ms": 2000}},
        {"say": TONE, "start": {"after": "agent_speech_end", "timeout_ms": 2000}},
    )
    began = play(Script(turns, 1, 0.0), [])
    assert began[1] == pytest.approx(began[0] + 0.5 + 2, abs=0.06)


def test_after_a_backchannel_the_reply_is_heard_to_its_end() -> None:
    turns = scenario(
        {"say": TONE},
        {"say": TONE, "expect": "ignore", "start": {"after": "agent_speech_start", "delay_ms": 300}},
        {"say": TONE, "start": {"after": "agent_speech_end", "delay_ms": 900}},
    )
    assert play(Script(turns, 1, 0.0), [(2.0, 5.0), (7, 8)])[2] == pytest.approx(5.9, abs=0.05)


def test_background_and_echo_are_mixed_in() -> None:
    mouth = Mouth(np.full(1000, 0.1, np.float32), Echo(delay_ms=40, gain_db=-20))
    mouth.hear(np.full(FRAME, 0.5, np.float32))
    mouth.say(np.full(FRAME, 0.2, np.float32))
    frames = [mouth.frame() / 32767 for _ in range(4)]
    assert [round(float(frame.mean()), 3) for frame in frames] == [0.3, 0.1, 0.15, 0.1]
    assert not mouth.busy


def test_an_echo_that_ran_dry_is_late_again_and_whole() -> None:
    mouth = Mouth(np.zeros(0, np.float32), Echo(delay_ms=40, gain_db=-20))
    for _ in range(5):
        assert not mouth.frame().any()
    for _ in range(3):
        mouth.hear(np.full(FRAME, 0.5, np.float32))
    frames = [mouth.frame() / 32767 for _ in range(6)]
    assert [round(float(frame.mean()), 3) for frame in frames] == [0, 0, 0.05, 0.05, 0.05, 0]


def test_audio_that_a_client_dropped_is_not_waited_for() -> None:
    turns = scenario({"say": TONE}, {"say": TONE, "start": {"after": "agent_speech_end", "delay_ms": 900}})
    script = Script(turns, 1, 0.0)
    assert script.step(1.0) == 0
    script.said(1.5)
    for tick in range(100):  # a reply of two seconds that came at once
        script.heard(2.0 + 0.02 * tick, True)
    script.cleared(2.2)
    assert script.step(3.08) is None
    assert script.step(3.12) == 1


def test_calls_without_interruptions_stand_beside_all_trials(tmp_path: Path) -> None:
    work = jobs(Target(url="http://127.0.0.1:1"), find_scenarios(["backchannel", "order-zh"]), tmp_path, 2, 1)
    calm, again = references(work)
    assert {job.uncut for job in work} == {(calm.save, again.save), ()}
    assert [job.save.name for job in (calm, again)] == ["backchannel-uncut-0", "backchannel-uncut-1"]
    assert calm.seed != again.seed
    assert calm.uncut == ()
    assert len(references(jobs(Target(url="http://127.0.0.1:1"), find_scenarios(["backchannel"]), tmp_path, 1, 1))) == 1
    assert [turn.expect for turn in calm.scenario.turns] == ["respond", "ignore"] * 2


def test_the_library_has_pauses_in_identical_recordings() -> None:
    """Sentences that differ in nothing but the silence that was put in."""
    whole, *paused = find_scenarios(["pause-0000", "pause-0300", "pause-0600", "pause-1000", "pause-1500"])
    for (scenario, folder), length in zip(paused, (0.3, 0.6, 1.0, 1.5), strict=True):
        for turn, plain in zip(scenario.turns, whole[0].turns, strict=True):
            sound, unbroken = render(turn.say, folder), render(plain.say, folder)
            first = len(render(turn.say[:1], folder))
            assert len(sound) - len(unbroken) == length * RATE
            assert np.array_equal(np.delete(sound, slice(first, first + round(length * RATE))), unbroken)

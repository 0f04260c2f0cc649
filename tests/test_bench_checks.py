"""Assertions of scenarios on calls whose every moment is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench_signals import call, tones
from voice_agent.bench.checks import Check, character_error, check, tone_ms
from voice_agent.bench.figures import measure
from voice_agent.bench.recording import Recording
from voice_agent.bench.scenario import Scenario
from voice_agent.bench.spoken import plain

TONE = {"tone_hz": 300, "ms": 500}


def checks(recording: Recording, *turns: dict[str, Any], **more: Any) -> dict[tuple[str, str], Check]:
    scenario = Scenario.model_validate({"name": "test", "turns": [{"say": TONE, **turn} for turn in turns], **more})
    return {(c.where, c.what): c for c in check(scenario, recording, measure(recording))}


def failed(found: dict[tuple[str, str], Check]) -> list[str]:
    return [f"{where} {what}: {c.got}" for (where, what), c in found.items() if not c.passed]


def test_an_answer_in_time_holds_and_a_late_one_does_not() -> None:
    recording = call(6, [("respond", [(0.5, 1.5)])], [(2.3, 4)])
    assert not failed(checks(recording, {"assert": {"within_ms": 850, "answer_within_ms": 850}}))
    late = checks(recording, {"assert": {"within_ms": 700}})
    assert not late["0", "within_ms"].passed
    assert late["0", "within_ms"].expected == "≤ 700"
    assert float(late["0", "within_ms"].got) == pytest.approx(800, abs=4)


@pytest.mark.parametrize(
    ("said", "heard", "got"),
    [
        ([("respond", [(0.5, 1.5)])], [], ["0 expect: no reply"]),
        ([("respond", [(0.5, 1.5), (3, 4)])], [(2.0, 2.6), (4.7, 6)], ["0 expect: took over in a pause"]),
        ([("respond", [(0.5, 1.5)])], [(1.2, 3)], ["0 expect: early"]),
        ([("respond", [(0.2, 1)]), ("stop", [(3, 4)])], [(1.5, 8)], ["1 expect: went on"]),
        ([("respond", [(0.2, 1)]), ("stop", [(5, 6)])], [(1.5, 3), (6.5, 8)], ["1 expect: nothing to stop"]),
        ([("respond", [(0.2, 1)]), ("ignore", [(3, 3.3)])], [(1.5, 3.2)], ["1 expect: reply ended"]),
        ([("join", [(0.5, 1.5)]), ("respond", [(3, 4)])], [(2, 2.6), (4.7, 6)], ["0 expect: took over"]),
        ([("respond", [(0.2, 1)]), ("ignore", [(3, 3.3)])], [(1.5, 6)], []),
    ],
)  # fmt: skip
def test_what_is_expected_of_a_turn(said: list, heard: list, got: list[str]) -> None:
    assert failed(checks(call(9, said, heard), *[{"expect": expect} for expect, _ in said])) == got


def test_transcripts_and_the_cart_are_compared() -> None:
    line = {"drink": "oolong_tea", "quantity": 2, "size": "large", "ice": "hot", "sugar": "no_sugar", "toppings": []}
    events = [
        (1.9, {"type": "conversation.item.input_audio_transcription.completed", "transcript": "我要珍珠奶茶"}),
        (3.0, {"type": "response.output_audio_transcript.done", "transcript": "好的，珍珠奶茶一杯"}),
        (3.1, {"type": "agent.cart.updated", "cart": {"lines": [line]}}),
    ]
    recording = call(6, [("respond", [(0.5, 1.5)])], [(2.3, 4)], events)
    turn = {"text": "我要一杯珍珠奶茶", "assert": {"cer": 0.3, "reply_has": ["珍珠"]}}
    assert not failed(checks(recording, turn, **{"assert": {"cart": [line]}}))
    strict = {"text": "我要一杯珍珠奶茶", "assert": {"cer": 0.2, "reply_has": ["乌龙"]}}
    wrong = checks(recording, strict, **{"assert": {"cart": [{**line, "quantity": 1}]}})
    assert failed(wrong) == [
        "0 cer: 0.25",
        "0 reply_has: 好的，珍珠奶茶一杯",
        "call cart: 2 oolong_tea large hot no_sugar",
    ]


def test_a_call_that_broke_off_fails_with_its_reason_and_its_missing_turns() -> None:
    recording = Recording(**{**vars(call(3, [], [])), "failed": "the server ended the call"})
    assert failed(checks(recording, {})) == ["call call: the server ended the call", "0 said: the call was over"]


def test_a_tone_is_told_from_its_neighbour() -> None:
    recording = call(6, [], [(2.0, 3.0)])
    assert tone_ms(recording, 440, 0.0) == pytest.approx(1000, abs=40)
    assert tone_ms(recording, 440, 2.5) == pytest.approx(500, abs=40)
    assert tone_ms(recording, 600, 0.0) == 0
    assert tones(1, [(0, 1)]).any()


@pytest.mark.parametrize(
    ("said", "got", "error"),
    [("我要一杯", "我要一杯。", 0), ("三杯紅茶", "三杯红茶", 0), ("One tea!", "one  tea", 0), ("abcd", "abxd", 0.25),
     ("ab", "", 1.0), ("ab", "abab", 1.0)],
)  # fmt: skip
def test_character_error(said: str, got: str, error: float) -> None:
    assert character_error(said, got) == error
    with pytest.raises(ValueError, match="expected words"):
        character_error("。", "a")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("一共18块", "一共十八块"),
        ("110块", "一百一十块"),
        ("205元", "二百零五元"),
        ("1020", "one thousand twenty"),
        ("共1020", "共一千零二十"),
        ("两杯", "2杯"),
        ("取餐号0807", "取餐号零八零七"),
        ("10块", "十块"),
        ("0块", "零块"),
        ("74 yuan", "Seventy-four yuan."),
        ("0 and 315", "zero and three hundred fifteen"),
        ("一共 12345", "一共一二三四五"),
    ],
)
def test_numbers_are_compared_as_they_are_said(written: str, said: str) -> None:
    assert plain(written) == plain(said)
    assert character_error(said, written) == 0

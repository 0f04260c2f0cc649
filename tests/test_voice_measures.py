"""What measures the voice tells what was planted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from tests.evidence.long_conversation import _drift

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "models/tea-omni"))

import evaluate_given  # noqa: E402
import evaluate_voice  # noqa: E402


@pytest.fixture(scope="module")
def speech() -> npt.NDArray[np.float32]:
    pcm, _ = soundfile.read(ROOT / "demos/ordering/order.wav", dtype="float32")
    return np.asarray(pcm[:48_000], np.float32)


def test_answers_that_are_all_alike_do_not_drift(speech: npt.NDArray[np.float32]) -> None:
    noise = np.random.default_rng(0).normal(0, 1e-4, (12, len(speech))).astype(np.float32)
    told = _drift([speech + each for each in noise])
    assert told["longer"] == 0
    assert abs(told["louder_db"]) < 0.01
    assert told["unlike_db"]["last"] <= told["unlike_db"]["first"] + 0.1


def test_answers_that_get_slower_louder_and_duller_are_told_so(speech: npt.NDArray[np.float32]) -> None:
    positions = np.linspace(0, len(speech) - 1, round(len(speech) * 1.05))
    slower = np.interp(positions, np.arange(len(speech)), speech).astype(np.float32)
    dull = np.convolve(speech, np.ones(9, np.float32) / 9, "same").astype(np.float32)
    assert _drift([speech] * 7 + [slower] * 5)["longer"] == pytest.approx(0.05, abs=0.001)
    assert _drift([speech] * 7 + [speech * 1.26] * 5)["louder_db"] == pytest.approx(2.0, abs=0.05)
    told = _drift([speech] * 7 + [dull] * 5)["unlike_db"]
    assert told["last"] > told["first"] + 0.5


@pytest.mark.parametrize(
    ("text", "heard", "same"),
    [
        ("18块", "十八块。", True),
        ("¥1000", "1000元", True),
        ("2杯", "两杯", True),
        ("3.5元", "三块五", False),
        ("10:30", "10点30分", True),
        ("取餐号0027", "取餐号0027。", True),
        ("取餐号0027", "取餐号27", False),
        ("13800138000", "一三八,零零一三,八零零零", True),
        ("18块", "80块", False),
        ("2杯", "兩杯", True),
        ("10:30", "10.30分", True),
        ("12.5元", "12.5", True),
        ("2-3分钟", "2到3分钟", True),
    ],
)
def test_numerals_that_were_heard(text: str, heard: str, same: bool) -> None:
    assert (evaluate_given.numerals(text) == evaluate_given.numerals(heard)) == same


@pytest.mark.parametrize(
    ("parts", "heard", "edits"),
    [
        (["您的", "大杯好了"], "您的拿铁大杯好了", 0),
        (["您的", "大杯好了"], "您的大杯好了", 0),
        (["您的", "大杯好了"], "您拿铁大杯好", 2),
        (["您的", "大杯好了"], "啊您的大杯好了呀", 2),
        (["您的", ""], "您的什么都可以", 0),
    ],
)
def test_what_is_heard_between_the_parts_of_a_mixed_sentence_does_not_count(
    parts: list[str], heard: str, edits: int
) -> None:
    assert evaluate_given.around(parts, heard) == edits


def test_the_longest_gap_is_the_one_inside() -> None:
    tone = np.full(2400, 0.1, np.float32)
    pcm = np.concatenate([np.zeros(24_000), tone, np.zeros(7200), tone, np.zeros(2400), tone, np.zeros(24_000)])
    assert evaluate_given.longest_gap_ms(pcm.astype(np.float32), 24_000) == 300


def test_a_reply_that_babbles_skips_or_loops_is_told_so() -> None:
    fine = {"edits": 1, "units": 10, "seconds": 2.0, "meant_seconds": 2.1}
    assert not evaluate_voice.is_broken(fine)
    assert evaluate_voice.is_broken({**fine, "edits": 5})
    assert evaluate_voice.is_broken({**fine, "seconds": 2.7})
    assert evaluate_voice.is_broken({**fine, "seconds": 1.5})

"""How given texts are read aloud: case B24 and what else people write with digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.protocols import Language
from voice_agent.tea.numbers import LARGEST, english, mandarin
from voice_agent.tea.reading import read_aloud
from voice_agent.tea.tokenizer import Vocabulary

WEIGHTS = Path(__file__).parents[1] / "models/tea-omni/weights"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.load(WEIGHTS / "thinker.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("18块", "十八块"),
        ("3.5元", "三点五元"),
        ("¥1000", "一千元"),
        ("500元", "五百元"),
        ("105元", "一百零五元"),
        ("2杯", "两杯"),
        ("2元", "两元"),
        ("12杯", "十二杯"),
        ("22杯", "二十二杯"),
        ("200毫升", "两百毫升"),
        ("12.5元", "十二点五元"),
        ("1.5升", "一点五升"),
        ("50%糖", "百分之五十糖"),
        ("取餐号0027", "取餐号零零二七"),
        ("3号桌", "三号桌"),
        ("10:30", "十点三十分"),
        ("2-3分钟", "两到三分钟"),
        ("13800138000", "一三八，零零一三，八零零零"),
    ],
)
def test_b24_in_mandarin(text: str, words: str) -> None:
    """Case B24, its whole list, alone and in a sentence."""
    assert read_aloud(text, "zh") == words
    assert read_aloud(f"好的，{text}。", "zh") == f"好的，{words}。"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3.5块", "三块五"),
        ("3.50元", "三点五元"),
        ("¥18.00", "十八元"),
        ("￥５元", "五元"),
        ("10：05", "十点零五分"),
        ("2:00", "两点整"),
        ("第2杯", "第二杯"),
        ("2~3号", "二到三号"),
        ("2号", "二号"),
        ("2024年5月1日", "二零二四年五月一日"),
        ("2026-11-30", "二零二六年十一月三十日"),
        ("15,000元", "一万五千元"),
        ("-5度", "负五度"),
        ("1/2", "二分之一"),
        ("1.5L", "一点五升"),
        ("010-12345678", "零一零，一二三四五六七八"),
        ("WiFi 密码是 ABC123", "WiFi 密码是 ABC一二三"),
        ("尾号1234", "尾号一二三四"),
        ("123456789012", "一二三四五六七八九零一二"),
        ("$5.50", "五点五美元"),
        ("好的，少冰珍珠奶茶一杯，十八块。", "好的，少冰珍珠奶茶一杯，十八块。"),
    ],
)
def test_mandarin(text: str, words: str) -> None:
    assert read_aloud(text, "zh") == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("¥3.50", "three point five yuan"),
        ("18块", "eighteen yuan"),
        ("$5.50", "five dollars and fifty cents"),
        ("$1.01", "one dollar and one cent"),
        ("$1", "one dollar"),
        ("$123456789.50", "one two three four five six seven eight nine dollars and fifty cents"),
        ("1,500 yuan", "one thousand five hundred yuan"),
        ("10:30", "ten thirty"),
        ("10:05", "ten oh five"),
        ("at 10:00", "at ten o'clock"),
        ("at 10:00 am", "at ten am"),
        ("3pm", "three pm"),
        ("2-3 minutes", "two to three minutes"),
        ("50% sugar", "fifty percent sugar"),
        ("order 0027", "order zero zero two seven"),
        ("13800138000", "one three eight, zero zero one three, eight zero zero zero"),
        ("call 555-0123", "call five five five, zero one two three"),
        ("the 1st, 2nd, 12th, 20th and 21st", "the first, second, twelfth, twentieth and twenty first"),
        ("1/2", "one half"),
        ("#12", "number twelve"),
        ("No. 3", "number three"),
        ("ABC123", "ABC one two three"),
        ("1L and 200ml", "one liter and two hundred milliliters"),
        ("-5", "minus five"),
        ("Sure, don't you?", "Sure, don't you?"),
    ],
)
def test_english(text: str, words: str) -> None:
    assert read_aloud(text, "en") == words


@given(st.text("0123456789.,:/-%¥$ 元块杯月日年号第LgmlABx", max_size=20), st.sampled_from(["zh", "en"]))
def test_no_digit_is_left_and_words_are_left_alone(text: str, language: Language) -> None:
    words = read_aloud(text, language)
    assert not re.search(r"\d", words)
    assert words if re.search(r"\d", text) else words == text


@given(st.integers(0, LARGEST))
def test_numbers_are_what_was_meant(value: int) -> None:
    assert _of_mandarin(mandarin(value)) == value
    assert _of_english(english(value)) == value


def _of_english(words: str) -> int:
    small = {english(value): value for value in (*range(20), *range(20, 100, 10))}
    total, section = 0, 0
    for word in words.replace(" and ", " ").split():
        if word in ("thousand", "million"):
            total, section = total + section * {"thousand": 1000, "million": 1_000_000}[word], 0
        else:
            section = section * 100 if word == "hundred" else section + small[word]
    return total + section


def _of_mandarin(words: str) -> int:
    total, section, digit = 0, 0, 0
    for word in words.replace("两", "二"):
        if word == "万":
            total, section, digit = (section + digit) * 10_000, 0, 0
        elif word in (units := {"千": 1000, "百": 100, "十": 10}):
            section, digit = section + (digit or 1) * units[word], 0
        else:
            digit = "零一二三四五六七八九".index(word)
    return total + section + digit


@pytest.mark.parametrize("value", [-1, LARGEST + 1])
def test_numbers_out_of_range_are_refused(value: int) -> None:
    for words in (mandarin, english):
        with pytest.raises(ValueError, match="expected a number from 0 to 99999999"):
            words(value)


@pytest.mark.parametrize(
    ("text", "language", "tokens"),
    [
        ("好的，18块。", "zh", ["好", "的", ",", "十", "八", "块", "."]),
        ("您的 latte 大杯好了", "zh", ["您", "的", "latte", "大", "杯", "好", "了"]),
        ("VIP会员", "zh", ["_v", "_i", "_p", "会", "员"]),
        ("O'Neill 10", "en", ["_o", "_n", "_e", "_i", "_l", "_l", "ten"]),
        ("**好的**😀", "zh", ["好", "的"]),
        ("來杯熱紅茶", "zh", list("来杯热红茶")),
        ("", "zh", []),
    ],
)
def test_said_tokens_add_up_to_the_text(
    vocabulary: Vocabulary, text: str, language: Language, tokens: list[str]
) -> None:
    said = vocabulary.said_tokens(text, language)
    assert [token for token, _ in said] == tokens
    assert not said or "".join(part for _, part in said) == read_aloud(text, language)


def test_a_rare_character_is_said_like_one_that_sounds_alike(vocabulary: Vocabulary) -> None:
    rare = next(c for c in "囍鑫淼焱垚" if c not in vocabulary.ids)
    ((token, part),) = vocabulary.said_tokens(rare, "zh")
    assert part == rare
    assert token in vocabulary.ids
    assert token != "<unk>"

"""Text as it is said, so that what was written and what was recognised can be compared letter by letter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache

_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_DIGITS = "零一二三四五六七八九"
_PLACES = ("千", "百", "十", "")


def plain(text: str) -> str:
    """Letters and characters alone: case, punctuation, spaces, script and the way numbers are written do not count."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    number = _chinese if re.search(r"[\u4e00-\u9fff]", folded) else _english
    # Longer numbers are codes, which are read digit by digit in either language.
    folded = re.sub(r"\d+", lambda found: number(found[0]), folded)
    kept = "".join(c for c in folded if unicodedata.category(c)[0] in "LN")
    return _simplify()(kept).replace("两", "二")


def _chinese(digits: str) -> str:
    value = int(digits)
    if len(digits) > len(_PLACES) or digits[0] == "0":
        return "".join(_DIGITS[int(digit)] for digit in digits)
    text = ""
    for place, digit in zip(_PLACES, f"{value:04d}", strict=True):
        text += _DIGITS[int(digit)] + (place if digit != "0" else "")
    text = re.sub("零+", "零", text).strip("零")
    return text.removeprefix("一") if 10 <= value < 20 else text


def _english(digits: str) -> str:
    if len(digits) > len(_PLACES) or (digits[0] == "0" and len(digits) > 1):
        return "".join(_ONES[int(digit)] for digit in digits)
    return _english_words(int(digits))


def _english_words(value: int) -> str:
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10 - 2] + (_ONES[value % 10] if value % 10 else "")
    unit, name = (100, "hundred") if value < 1000 else (1000, "thousand")
    return f"{_english_words(value // unit)}{name}" + (_english_words(value % unit) if value % unit else "")


@cache
def _simplify() -> Callable[[str], str]:
    import opencc

    convert: Callable[[str], str] = opencc.OpenCC("t2s").convert
    return convert

"""Whole numbers in words, as tea-omni's replies write them."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 99_999_999
DIGITS: Final = {
    "zh": tuple("零一二三四五六七八九"),
    "en": ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
}
_TEENS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def _checked(value: int) -> int:
    if not 0 <= value <= LARGEST:
        raise ValueError(f"expected a number from 0 to {LARGEST}, got {value}")
    return value


def mandarin(value: int) -> str:
    """零 to 九千九百九十九万九千九百九十九, with 两 before 百, 千 and 万. Raises ValueError for others."""
    if _checked(value) < 10:
        return DIGITS["zh"][value]
    head, rest = divmod(value, 10_000)
    many = ("两" if head == 2 else mandarin(head)) + "万" if head else ""
    return many + ("零" if many and 0 < rest < 1000 else "") + _thousands(rest, not many)


def _thousands(value: int, first: bool) -> str:
    """1 to 9999, "" for 0. `first`: no larger number stands before it, and 一十 is 十."""
    text, zero = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, unit)
        if not digit:
            zero = True
            continue
        lead = "两" if digit == 2 and unit >= 100 else DIGITS["zh"][digit]
        if unit == 10 and digit == 1 and first and not text:
            lead = ""
        text += ("零" if zero and text else "") + lead + name
        zero = False
    return text


def english(value: int) -> str:
    """zero to ninety nine million …, without hyphens. Raises ValueError for others."""
    if _checked(value) < 10:
        return DIGITS["en"][value]
    if value < 20:
        return _TEENS[value - 10]
    if value < 100:
        tens, ones = divmod(value, 10)
        return _TENS[tens - 2] + (" " + english(ones) if ones else "")
    unit, name = next((u, n) for u, n in ((1_000_000, "million"), (1000, "thousand"), (100, "hundred")) if value >= u)
    head, rest = divmod(value, unit)
    joint = " and " if rest < 100 else " "
    return f"{english(head)} {name}" + (joint + english(rest) if rest else "")

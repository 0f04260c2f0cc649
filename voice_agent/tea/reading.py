"""How a given text is read aloud: amounts, codes, times, ranges and units in words, as a reply has them.

tea-omni writes words; whoever gives it a text to say may write 18块 or 10:30. Each rule below takes one form out of the
text, in order, and what is left of digits at the end is read as numbers. Codes are read digit by digit: those with a
leading zero, with seven digits or more, after letters, or after a word that announces one. A text without digits and
units comes back as it is, but for letters and digits of unusual forms (NFKC).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from re import Match

from voice_agent.engine.protocols import Language
from voice_agent.tea.numbers import DIGITS, LARGEST, english, mandarin

Rule = tuple[re.Pattern[str], Callable[[Match[str]], str]]

_WIDE_MARKS = "，。！？；：（）"
_NUMBER = r"\d+(?:\.\d+)?"
# 两 in place of 二 before these.
_MEASURES = "杯个份块元位人件次种盒瓶袋包碗张条只样斤克升毫公千百万小分秒天周家间口根串箱点倍美欧"
_UNITS: dict[str, tuple[str, str, str]] = {
    "ml": ("毫升", "milliliter", "milliliters"),
    "l": ("升", "liter", "liters"),
    "kg": ("千克", "kilogram", "kilograms"),
    "g": ("克", "gram", "grams"),
    "km": ("公里", "kilometer", "kilometers"),
    "m": ("米", "meter", "meters"),
    "cm": ("厘米", "centimeter", "centimeters"),
    "°c": ("度", "degree", "degrees"),
}
_UNIT = rf"({_NUMBER})\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})(?![a-z])"
_TIME = r"(?<!\d)([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?!\d)"
_PHONE = (
    r"(?<![\d.])(?:(1\d\d)[ -]?(\d{4})[ -]?(\d{4})|(0\d{2,3})-(\d{7,8})|(\d{3})-(\d{3})-(\d{4})|(\d{3})-(\d{4}))(?!\d)"
)
_CODE = (
    r"(?<![\d.])(?:0\d+|\d{7,})(?![.\d])|(?<=[a-z])\d{2,}(?!\d)"
    r"|(?:(?<=尾号)|(?<=密码)|(?<=密码是)|(?<=验证码)|(?<=验证码是)|(?<=\bcode )|(?<=\bpin )|(?<=\bpassword ))\d+"
)


def read_aloud(text: str, language: Language) -> str:
    """The text in words of its language: 「18块」 is 「十八块」, "¥3.50" is "three point five yuan"."""
    text = "".join(c if c in _WIDE_MARKS else unicodedata.normalize("NFKC", c) for c in text.replace("’", "'"))
    for pattern, words in _RULES[language]:
        text = pattern.sub(words, text)
    return text


def _rules(*rules: tuple[str, str | Callable[[Match[str]], str]]) -> Sequence[Rule]:
    def writer(words: str | Callable[[Match[str]], str]) -> Callable[[Match[str]], str]:
        return (lambda match: match.expand(words)) if isinstance(words, str) else words

    return [(re.compile(pattern, re.IGNORECASE), writer(words)) for pattern, words in rules]


def _one_by_one(language: Language) -> Callable[[Match[str]], str]:
    """The digits of a match: of its groups with a pause between them, if it has some."""
    words, between, pause = DIGITS[language], "" if language == "zh" else " ", "，" if language == "zh" else ", "

    def read(match: Match[str]) -> str:
        parts = [part for part in match.groups() if part] or [match.group()]
        spelled = pause.join(between.join(words[int(digit)] for digit in part) for part in parts)
        follows_letter = language == "en" and match.string[match.start() - 1 : match.start()].isalpha()
        return " " + spelled if follows_letter else spelled

    return read


def _decimal(digits: str, language: Language) -> str:
    """A number with or without a point; one that is too large to be said is spelled."""
    whole, _, part = digits.partition(".")
    words, between = DIGITS[language], "" if language == "zh" else " "
    if int(whole) > LARGEST:
        text = between.join(words[int(digit)] for digit in whole)
    else:
        text = mandarin(int(whole)) if language == "zh" else english(int(whole))
    if part:
        point = "点" if language == "zh" else " point "
        text += point + between.join(words[int(digit)] for digit in part)
    return text


def _money(match: Match[str]) -> str:
    """Without zeros at the end that say nothing."""
    return match.group(1) + (part if (part := match.group(2).rstrip("0")) != "." else "") + match.group(3)


def _zh(digits: str) -> str:
    return _decimal(digits, "zh")


def _en(digits: str) -> str:
    return _decimal(digits, "en")


def _zh_time(match: Match[str]) -> str:
    hours, minutes = int(match.group(1)), int(match.group(2))
    hour = ("两" if hours == 2 else mandarin(hours)) + "点"
    if not minutes:
        return hour + "整"
    return hour + ("零" if minutes < 10 else "") + mandarin(minutes) + "分"


def _en_time(match: Match[str]) -> str:
    hours, minutes = int(match.group(1)), int(match.group(2))
    if not minutes:
        half_day = re.match(r"\s*[ap]\.?m\b", match.string[match.end() :], re.IGNORECASE)
        return english(hours) + ("" if half_day else " o'clock")
    return f"{english(hours)} {'oh ' if minutes < 10 else ''}{english(minutes)}"


def _zh_number(match: Match[str]) -> str:
    after = match.string[match.end() :]
    counts = re.match(rf"\s*(?:[到至]\s*\d+\s*)?[{_MEASURES}]", after)
    before = match.string[match.start() - 1 : match.start()]
    if match.group() == "2" and counts and before not in ("第", "周"):
        return "两"
    return _zh(match.group())


def _en_ordinal(match: Match[str]) -> str:
    words = english(int(match.group(1)))
    head, space, last = words.rpartition(" ")
    irregular = {
        "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
        "twelve": "twelfth",
    }  # fmt: skip
    return head + space + irregular.get(last, last.removesuffix("y") + ("ieth" if last.endswith("y") else "th"))


def _en_dollars(match: Match[str]) -> str:
    whole, cents = int(match.group(1)), int((match.group(2) or "0").ljust(2, "0"))
    words = f"{_en(match.group(1))} dollar{'s' * (whole != 1)}"
    return words + (f" and {english(cents)} cent{'s' * (cents != 1)}" if cents else "")


def _en_unit(match: Match[str]) -> str:
    _, one, many = _UNITS[match.group(2).lower()]
    return f"{match.group(1)} {one if match.group(1) == '1' else many}"


_SEPARATOR = (r"(?<=\d),(?=\d{3}(?!\d))", "")
_WIDE_COLON = (r"(?<=\d)：(?=\d)", ":")
_RULES: dict[Language, Sequence[Rule]] = {
    "zh": _rules(
        _SEPARATOR,
        _WIDE_COLON,
        (r"(?<!\d)(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)", r"\1年\2月\3日"),
        (_TIME, _zh_time),
        (_PHONE, _one_by_one("zh")),
        (_CODE, _one_by_one("zh")),
        (r"[12]\d{3}(?=年)", _one_by_one("zh")),
        (r"0*(\d+)(?=[月日])", r"\1"),
        (rf"¥\s*({_NUMBER})(?:\s*[元块])?", r"\1元"),
        (rf"\$\s*({_NUMBER})", r"\1美元"),
        (rf"€\s*({_NUMBER})", r"\1欧元"),
        (r"(\d+)(\.\d+)(\s*(?:元|块|美元|欧元))", _money),
        (r"(\d+)\.(\d)块(?!钱)", lambda m: f"{m.group(1)}块{_zh(m.group(2))}"),
        (rf"({_NUMBER})\s*%", lambda m: "百分之" + _zh(m.group(1))),
        (r"(?<!\d)(\d+)/(\d+)(?!\d)", lambda m: f"{_zh(m.group(2))}分之{_zh(m.group(1))}"),
        (rf"({_NUMBER})\s*[-~–—]\s*(?=\d)", r"\1到"),
        (r"(?<![\w)])-(?=\d)", "负"),
        (_UNIT, lambda m: m.group(1) + _UNITS[m.group(2).lower()][0]),
        (_NUMBER, _zh_number),
    ),
    "en": _rules(
        _SEPARATOR,
        _WIDE_COLON,
        (_TIME, _en_time),
        (_PHONE, _one_by_one("en")),
        (_CODE, _one_by_one("en")),
        (rf"¥\s*({_NUMBER})", r"\1 yuan"),
        (rf"({_NUMBER})\s*[元块]", r"\1 yuan"),
        (r"\$\s*(\d+)(?:\.(\d{1,2}))?(?!\d)", _en_dollars),
        (rf"€\s*({_NUMBER})", r"\1 euros"),
        (r"(\d+)(\.\d+)(\s*(?:yuan|euros))", _money),
        (rf"({_NUMBER})\s*%", r"\1 percent"),
        (r"\b(\d+)(?:st|nd|rd|th)\b", _en_ordinal),
        (r"(?<![\d/])1/2(?![\d/])", "one half"),
        (r"(?<!\d)(\d+)/(\d+)(?!\d)", r"\1 over \2"),
        (rf"({_NUMBER})\s*[-~–—]\s*(?=\d)", r"\1 to "),
        (r"(?<![\w)])-(?=\d)", "minus "),
        (r"(?:\bno\.\s*|#\s*)(?=\d)", "number "),
        (_UNIT, _en_unit),
        (rf"(?<=[^\W\d])({_NUMBER})", lambda m: " " + _en(m.group(1))),
        (rf"({_NUMBER})(?=[^\W\d])", lambda m: _en(m.group(1)) + " "),
        (_NUMBER, lambda m: _en(m.group())),
    ),
}

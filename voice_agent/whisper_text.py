"""What Whisper writes, as text and as tokens: how long it takes to say, what it repeats, what it sounds like."""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from pypinyin import lazy_pinyin

__all__ = [
    "begins_foreign",
    "condensed",
    "foreign_tokens",
    "rhymes",
    "sounds_like",
    "suppressed_by_default",
    "tidy",
    "units",
    "unrolled",
]


def units(text: str) -> int:
    """Spoken length of a text: Chinese characters, digits, and groups of vowels in Latin words."""
    return len(re.findall(r"[\u4e00-\u9fff]|\d|[aeiouyAEIOUY]+|\b[^\W\d_aeiouyAEIOUY\u4e00-\u9fff]+\b", text))


def condensed(prompt: str) -> str:
    """A list without the entries that another entry contains."""
    entries = list(dict.fromkeys(re.split(r"\s*[、,，]\s*", prompt.strip())))
    kept = [entry for entry in entries if not any(entry != other and entry in other for other in entries)]
    return ("、" if "、" in prompt else ", ").join(kept)


def unrolled(text: str, fluent_units: float) -> str:
    """Cut a text after the first piece that it writes over and over, be it a syllable, a sentence, or, in a text of
    more than `fluent_units`, a sentence written twice.
    """
    loops = [r"(.{1,4}?)(?:\W*\1){4,}", r"(.{5,}?)(?:\W*\1){2,}", r"^(\w{2,4})(?:\W*\1){2,}\W*$"]
    if units(text) > fluent_units:
        loops.append(r"^(.{4,}?)\W*\1")
    for loop in loops:
        match = re.search(loop, text)
        if match is not None:
            return text[: match.start()] + match.group(1)
    return text


def sounds_like(one: str, other: str) -> bool:
    """Whether two texts share more than half of their syllables (by pinyin without tones) or words, in order."""
    return SequenceMatcher(None, _sounds(one), _sounds(other), autojunk=False).ratio() > 0.5


def rhymes(one: str, other: str) -> bool:
    """Whether two texts are of one syllable, and differ in the consonants that it begins with at most: 停 and 行."""
    rhymes = [[re.sub(r"^[^aeiou]+", "", sound) for sound in _sounds(text)] for text in (one, other)]
    return rhymes[0] == rhymes[1] and len(rhymes[0]) == 1 and rhymes[0] != [""]


def _sounds(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d", " ".join(lazy_pinyin(text)).lower())


def tidy(text: str) -> str:
    """Drop what is never spoken: replacement characters, quotation marks and outer white space."""
    return re.sub(r"\s+", " ", re.sub(r"[\ufffd《》「」『』“”\"♪]", "", text)).strip()


def suppressed_by_default(folder: Path) -> list[int]:
    listed: list[int] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["suppress_ids"]
    return listed


def foreign_tokens(tokenizer: Any) -> list[int]:
    """Ids of tokens that begin a character which neither Chinese nor English has: kana, hangul, Cyrillic, ..."""
    as_byte = {character: byte for byte, character in _byte_characters().items()}
    foreign = []
    for token, number in tokenizer.get_vocab().items():
        if token.startswith("<|"):
            continue
        data = bytes(as_byte[character] for character in token)
        if any(begins_foreign(data[at : at + 2]) for at in range(len(data))):
            foreign.append(number)
    return sorted(foreign)


def begins_foreign(pair: bytes) -> bool:
    lead = pair[0]
    if lead == 0xE3 and len(pair) == 2:
        return 0x81 <= pair[1] <= 0x8F
    return 0xC4 <= lead <= 0xE1 or 0xEA <= lead <= 0xED


def _byte_characters() -> dict[int, str]:
    """The printable character that byte-level BPE vocabularies write for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(256 + at) for at, byte in enumerate(others)})
    return table

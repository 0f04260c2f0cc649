"""Whether words that were recognised are the agent's own, come back through the caller's microphone.

By sound, as recognisers write what they hear of a loudspeaker in other characters: Mandarin by syllables without
tones, English by words. A person who answers repeats some of the agent's words too (大杯 after 大杯还是中杯), but few
of them, or with words of an answer among them; an echo is long, in the agent's order, and adds nothing.
"""

from __future__ import annotations

import difflib
import functools
import re
import unicodedata

from pypinyin import Style, lazy_pinyin
from pypinyin.contrib.tone_convert import to_finals, to_initials

from voice_agent.engine.protocols import Language

LEAST_UNITS: dict[Language, int] = {"zh": 6, "en": 5}
"""Fewer syllables or words may be an answer in the agent's own words."""

MOST_ERROR = 0.4
"""An echo's cost of alignment with what the agent says, per syllable or word, at most."""

LONG_UNITS, MOST_ERROR_SHORT = 9, 0.2
"""Below so many syllables or words, likeness is more easily chance: they must be nearer."""

_ENGLISH_ANSWERS = """
i i'd i'll i'm yes yeah yep no nope not don't want wait stop hold actually change make but sure please
"""
ANSWERS: dict[Language, frozenset[str]] = {
    "zh": frozenset("我要对不别没嗯停换改"),
    "en": frozenset(_ENGLISH_ANSWERS.split()),
}
"""Words that turn a repetition into an answer, where the agent does not say them itself."""

_NEAR = 0.5  # the cost of a syllable that shares its initial or its final, or of a word that is written alike
_SKIPPED = 0.25  # the cost of a syllable or word of the agent's that was not recognised
_ALIKE = 0.6
_SOFTENED = str.maketrans({"l": "n", "r": "n"})  # heard for one another

_Unit = tuple[str, ...]  # (character, initial, final) or (word,)


def is_echo(heard: str, speaking: str, language: Language) -> bool:
    """Whether `heard` is the agent's own voice: `speaking` is what it said in the last seconds and is saying now.

    Numbers in figures are left out, as the recogniser writes them and the agent speaks words.
    """
    words, spoken = _units(heard, language), _units(speaking, language)
    if len(words) < LEAST_UNITS[language]:
        return False
    error = MOST_ERROR if len(words) >= LONG_UNITS else MOST_ERROR_SHORT
    return _cost(words, spoken, ANSWERS[language]) <= error * len(words)


def _cost(words: list[_Unit], spoken: list[_Unit], answers: frozenset[str]) -> float:
    """The edit distance between `words` and whatever stretch of `spoken` is nearest.

    A word of an answer that has no counterpart of the same sound costs as much as all of them.
    """
    row = [0.0] * (len(spoken) + 1)
    for word in words:
        answer = word[0] in answers
        alone = float(len(words)) if answer else 1.0
        before, row = row, [row[0] + alone]
        for at, said in enumerate(spoken):
            distance = _distance(word, said)
            instead = alone if answer and distance else min(alone, distance)
            row.append(min(before[at] + instead, before[at + 1] + alone, row[at] + _SKIPPED))
    return min(row)


@functools.lru_cache(maxsize=4096)
def _distance(word: _Unit, said: _Unit) -> float:
    if word[1:] == said[1:] and (len(word) > 1 or word == said):
        return 0.0
    if len(word) != len(said):
        return float("inf")
    if len(word) == 1:
        return _NEAR if difflib.SequenceMatcher(None, word[0], said[0]).ratio() >= _ALIKE else float("inf")
    return _NEAR if word[1] == said[1] or word[2] == said[2] else float("inf")


def _units(text: str, language: Language) -> list[_Unit]:
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    if language == "en":
        return [(word,) for word in re.findall(r"[a-z]+(?:'[a-z]+)?", plain)]
    found: list[_Unit] = []
    for piece in re.findall(r"[\u3400-\u9fff]+|[a-z]+", plain):
        if piece.isascii():
            found.append((piece,))
            continue
        sounds = lazy_pinyin(piece, style=Style.NORMAL, v_to_u=False)
        found += [(char, *_sound(sound)) for char, sound in zip(piece, sounds, strict=True)]
    return found


@functools.lru_cache(maxsize=2048)
def _sound(syllable: str) -> tuple[str, str]:
    """Initial and final of a syllable, where those that are heard for one another are the same."""
    initial, final = to_initials(syllable, strict=False), to_finals(syllable, strict=False)
    return initial.removesuffix("h").translate(_SOFTENED), final.removesuffix("g")

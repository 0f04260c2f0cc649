"""Match what was heard to the names on a menu, by letters and by sound.

Recognisers write a product's name as a common word that sounds the same (野果 for 椰果, "less eyes" for
"less ice"). Mandarin is compared by toneless pinyin, syllable by syllable; English word by word, by a rough
phonetic key and by edit distance. A name is near only if each of its syllables or words is near, so that two
names that differ in one clear syllable (三分糖, 七分糖) are never taken for one another.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from opencc import OpenCC
from pypinyin import Style, lazy_pinyin
from pypinyin.contrib.tone_convert import to_finals, to_initials

Token = tuple[str, ...]
"""A Mandarin syllable as (character, initial, final), or a Latin word or number as (word,)."""
Tokens = tuple[Token, ...]
Rule = Callable[[Tokens, Tokens], bool]

_NEAR_INITIALS = ("z zh j", "c ch q", "s sh x", "n l r", "f h", "b p", "d t", "g k", "y w")
_NEAR_FINALS = ("an ang uan van", "en eng", "in ing", "ian iang", "uan uang", "ao iao ou iou", "ei uei", "uo o e")
_PARTICLES = frozenset("的吧啊呀哦呢嘛了")
_KEY_RULES = (
    (r"eye?s?$", "ise"),  # eyes is heard for ice
    (r"igh|ie(?=[sd])", "i"),
    (r"ph", "f"),
    (r"sch|tch", "ch"),
    (r"c(?=[eiy])", "s"),
    (r"ck|c(?!h)|q", "k"),
    (r"z|x$", "s"),
    (r"ea|ee|ey$|y$", "i"),
    (r"oo|ou|oa|ow$", "o"),
    (r"e$", ""),
    (r"(.)\1", r"\1"),
)


@dataclass(frozen=True)
class Match:
    """The ids that fit. `certain`: there is one, and it may be taken without asking."""

    ids: tuple[str, ...]
    certain: bool


def match(heard: str, names: Mapping[str, Iterable[str]]) -> Match:
    """Find what was heard among `names`, which gives everything that each id is called (the id itself included).

    The first of these rules that fits any id decides: the same letters; the same sound; near sounds; any part of
    a name. Several ids are to be asked about. So is a single id of which only a part was heard, unless that part
    is the beginning: 乌龙 is 乌龙茶, but 红茶 may be meant as something else than 柠檬红茶. What fits nothing is tried
    without the particles at its end: 红豆的 is 红豆.
    """
    said = tokens(heard)
    known = {item_id: [tokens(name) for name in (item_id, *called)] for item_id, called in names.items()}
    found = _match(said, known)
    bare = _without_particles(said)
    return _match(bare, known) if not found.ids and bare != said else found


def _without_particles(said: Tokens) -> Tokens:
    """At least two syllables or words stay."""
    while len(said) > 2 and said[-1][0] in _PARTICLES:
        said = said[:-1]
    return said


def _match(said: Tokens, known: Mapping[str, list[Tokens]]) -> Match:
    if not said:
        return Match((), certain=False)
    rules = (_same_letters, _same_sound, _near_sound)
    for rule in rules:
        found = _fitting(known, partial(rule, said))
        if found:
            return Match(found, certain=len(found) == 1)
    for rule in rules:
        found = _fitting(known, partial(_in_part, rule, said))
        if found:
            beginning = _fitting(known, partial(_at_start, rule, said)) == found
            clear = len(said) > 1 or rule is _same_letters
            return Match(found, certain=len(found) == 1 and beginning and clear)
    return Match((), certain=False)


@functools.lru_cache(maxsize=4096)
def tokens(text: str) -> Tokens:
    """Syllables and words of a text: simplified script, lower case, without punctuation and spaces."""
    plain = _simplifier().convert(unicodedata.normalize("NFKC", text)).casefold().replace("_", " ")
    found: list[Token] = []
    for piece in re.findall(r"[\u3400-\u9fff]+|[^\W\d_\u3400-\u9fff]+|\d+", plain.replace("'", "")):
        if "\u3400" <= piece[0] <= "\u9fff":
            spoken = lazy_pinyin(piece, style=Style.NORMAL, v_to_u=False)
            found += [(char, *_split(syllable)) for char, syllable in zip(piece, spoken, strict=True)]
        else:
            found.append((piece,))
    return tuple(found)


def _split(syllable: str) -> tuple[str, str]:
    return to_initials(syllable, strict=False), to_finals(syllable, strict=False)


def _fitting(known: Mapping[str, list[Tokens]], fits: Callable[[Tokens], bool]) -> tuple[str, ...]:
    return tuple(item_id for item_id, called in known.items() if any(fits(name) for name in called))


def _in_part(rule: Rule, said: Tokens, name: Tokens) -> bool:
    return any(rule(said, name[start : start + len(said)]) for start in range(len(name) - len(said) + 1))


def _at_start(rule: Rule, said: Tokens, name: Tokens) -> bool:
    return rule(said, name[: len(said)])


def _same_letters(said: Tokens, name: Tokens) -> bool:
    return "".join(token[0] for token in said) == "".join(token[0] for token in name)


def _same_sound(said: Tokens, name: Tokens) -> bool:
    return _keys(said) == _keys(name)


def _near_sound(said: Tokens, name: Tokens) -> bool:
    return len(said) == len(name) and all(_near(a, b) for a, b in zip(said, name, strict=True))


def _keys(spoken: Tokens) -> str:
    return " ".join("".join(token[1:]) if len(token) > 1 else _key(token[0]) for token in spoken)


@functools.lru_cache(maxsize=4096)
def _key(word: str) -> str:
    """How an English word sounds, roughly: "eyes" and "ice" have the same key."""
    for pattern, sound in _KEY_RULES:
        word = re.sub(pattern, sound, word)
    return word


def _near(a: Token, b: Token) -> bool:
    if len(a) != len(b):
        return False
    if len(a) == 1:
        return _key(a[0]) == _key(b[0]) or _edits(a[0], b[0]) <= max(len(a[0]), len(b[0])) // 4
    return _together(a[1], b[1], _NEAR_INITIALS) and _together(a[2], b[2], _NEAR_FINALS)


def _together(a: str, b: str, groups: Iterable[str]) -> bool:
    return a == b or any(a in group.split() and b in group.split() for group in groups)


def _edits(a: str, b: str) -> int:
    """Levenshtein distance."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        previous, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]


@functools.cache
def _simplifier() -> OpenCC:
    return OpenCC("t2s")

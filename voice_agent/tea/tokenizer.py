"""The text side of tea-omni's vocabulary: recognised text to tokens, reply tokens to exact pieces of text.

One token is one Chinese character, one lower-case English word, one punctuation mark, or one decimal digit with
its place (`T1 U8` is 18, so that a number is copied digit by digit and read by place). English words that are
not in the vocabulary are spelled in letters after `^`. The tokens that a thinker may write come first. Words that are
only said, never read, have tokens of their own with `SAID` before them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pypinyin import Style, lazy_pinyin

from voice_agent.engine.protocols import Language
from voice_agent.tea.reading import read_aloud

PLACES = "UTHM"
SAID = "say:"
PUNCTUATION = {",": "，", ".": "。", "?": "？", "!": "！"}
_MARKS = {
    "，": ",", "。": ".", "？": "?", "！": "!", "、": ",", "；": ",", "：": ",",
    ";": ",", ":": ",", "…": ".", "~": ",", "—": ",",
}  # fmt: skip
_PIECE = re.compile(r"[0-9]+(?:\.5(?![0-9]))?|[a-z]+(?:'[a-z]+)*|[,.?!%]|[㐀-鿿]")
_CAPITAL = {"i": "I", "i'm": "I'm", "i'll": "I'll", "i've": "I've", "i'd": "I'd"}


def number_tokens(value: float) -> list[str]:
    """Decimal digits with their places: 118 is `H1 T1 U8`, 12.5 is `T1 U2 .5`; from 0 to 9999.5."""
    whole = int(value)
    if not 0 <= whole <= 9999:
        raise ValueError(f"expected a number from 0 to 9999, got {value}")
    digits = str(whole)
    tokens = [PLACES[len(digits) - 1 - i] + digit for i, digit in enumerate(digits)]
    return [*tokens, ".5"] if value != whole else tokens


def number_of(tokens: Sequence[str]) -> int:
    """The whole number that digit tokens spell."""
    return int("".join(token[1] for token in tokens))


@dataclass(frozen=True)
class Vocabulary:
    """Token strings by id. The first `outputs` of them can be written by the thinker, the rest only read.

    `variants` maps a character to the one the vocabulary knows (traditional to simplified), `menu` holds the ids
    that calls are made of, as `{"drinks": {id: {"ice": […], "sugar": […]}}, "toppings": […], "size": […], …}`,
    the default of every choice first, and `reply` the ids of the words that a reply in each language may use.
    """

    tokens: tuple[str, ...]
    outputs: int
    variants: dict[str, str]
    menu: dict[str, Any]
    reply: dict[Language, tuple[int, ...]]
    ids: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", {token: index for index, token in enumerate(self.tokens)})

    def __len__(self) -> int:
        return len(self.tokens)

    @staticmethod
    def load(path: Path) -> Vocabulary:
        """Read the JSON that `save` wrote."""
        value = json.loads(path.read_text(encoding="utf-8"))
        reply = {language: tuple(ids) for language, ids in value["reply"].items()}
        return Vocabulary(tuple(value["tokens"]), value["outputs"], dict(value["variants"]), value["menu"], reply)

    def save(self, path: Path) -> None:
        value = {
            "tokens": self.tokens,
            "outputs": self.outputs,
            "variants": self.variants,
            "menu": self.menu,
            "reply": self.reply,
        }
        path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Ids of tokens; what the vocabulary lacks becomes `<unk>`."""
        unknown = self.ids["<unk>"]
        return [self.ids.get(token, unknown) for token in tokens]

    def text_tokens(self, text: str, limit: int = 96) -> list[str]:
        """Tokens of recognised or spoken text, in either language; the last `limit` of them."""
        text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
        tokens: list[str] = []
        for match in _PIECE.finditer(self._plain(text)):
            tokens += self._tokens(match.group())
        return tokens[-limit:]

    def said_tokens(self, text: str, language: Language) -> list[tuple[str, str]]:
        """Tokens of a text that is read aloud, each with the part of the text that it stands for.

        The parts add up to `read_aloud`'s text, spaces and marks without a sound included. A character that is not
        known has the token of one that sounds alike, a word that is not known those of its letters.
        """
        text = read_aloud(text, language)
        said: list[tuple[str, str]] = []
        over = 0
        for match in _PIECE.finditer(self._plain(text)):
            word = match.group()
            tokens = [SAID + word] if SAID + word in self.ids else self._tokens(word)
            if tokens == ["<unk>"]:
                tokens = [self._sounding_like(word)]
            if tokens[0] == "^":
                tokens = tokens[1:]
            ends = [match.end()] * len(tokens)
            if len(tokens) > 1:
                letters = [place for place, letter in enumerate(word, match.start() + 1) if letter != "'"]
                ends = [*letters[:-1], match.end()]
            for token, end in zip(tokens, ends, strict=True):
                said.append((token, text[over:end]))
                over = end
        if said:
            said[-1] = (said[-1][0], said[-1][1] + text[over:])
        return said

    def _plain(self, text: str) -> str:
        """As long as the text: lower case, simplified characters, few marks."""
        lower = (c.lower() if len(c.lower()) == 1 else c for c in text)
        return "".join(self.variants.get(_MARKS.get(c, c), _MARKS.get(c, c)) for c in lower)

    def _tokens(self, piece: str) -> list[str]:
        if piece[0].isdigit():
            whole = piece.removesuffix(".5")
            if len(whole) <= 4 and (whole[0] != "0" or len(whole) == 1):
                return number_tokens(float(piece))
            return ["U" + digit for digit in whole]
        if piece in self.ids:
            return [piece]
        if piece[0].isascii() and piece[0].isalpha():
            return ["^", *("_" + letter for letter in piece if letter != "'")]
        return ["<unk>"]

    def _sounding_like(self, character: str) -> str:
        sound = _sound(character)
        return next((t for t in self.tokens if "㐀" <= t <= "鿿" and len(t) == 1 and _sound(t) == sound), "<unk>")


@cache
def _sound(character: str) -> str:
    return lazy_pinyin(character, style=Style.TONE3)[0]


def piece(token: str, before: str | None, language: Language) -> str:
    """The exact text that reply token `token` adds after token `before` (None: it begins the reply)."""
    if token in PUNCTUATION:
        return PUNCTUATION[token] if language == "zh" else token
    if language == "zh":
        return token
    word = token[0].upper() + token[1:] if before is None or before in ".?!" else _CAPITAL.get(token, token)
    return word if before is None else " " + word

"""The thinker's vocabulary: the menu's ids, what replies are made of, and what callers may say."""

from __future__ import annotations

from collections.abc import Sequence

import opencc

from demos.ordering.menu import default_menu
from voice_agent.engine.protocols import Language
from voice_agent.tea.grammar import RUN, SAY, CallGrammar
from voice_agent.tea.tokenizer import PUNCTUATION, SAID, Vocabulary

from . import noise
from .make import END
from .words import load

READ_ONLY = [
    "<pad>",
    "<unk>",
    "<zh>",
    "<en>",
    "<order>",
    "<p>",
    "<a>",
    "<u>",
    "<do>",
    "<*>",
    "<r>",
    "<l>",
    "<price>",
    "<total>",
    "<sold_out>",
    "<quantity_unclear>",
    "<bad_option>",
    "<no_such_line>",
    "<no_such_item>",
    "<ambiguous>",
    "<empty_cart>",
    ".5",
    "^",
    "%",
]
SPARE_OUTPUTS, SPARE_WORDS = 120, 300


def menu_ids() -> dict[str, object]:
    """What calls are made of: ids and, for every drink, the choices it takes, the default first."""
    menu = default_menu()
    drinks = {d.id: {key: list(d.choices[key]) for key in ("size", "ice", "sugar")} for d in menu.drinks.values()}
    ids: dict[str, object] = {"drinks": drinks, "toppings": list(menu.toppings)}
    return ids | {key: list(menu.options[key]) for key in ("size", "ice", "sugar")}


def build() -> Vocabulary:
    """The words of calls and replies come first, then everything that is only read. The same for every generator."""
    ids, words = menu_ids(), load("vocabulary")
    characters = noise.common_characters()
    letters = ["_" + chr(c) for c in range(ord("a"), ord("z") + 1)]
    marks = {END, ",", ".", "?"}
    replies: dict[Language, set[str]] = {"zh": {*"".join(words["zh"])} | marks, "en": {*words["en"]} | marks}
    calls = [*dict.fromkeys([*CallGrammar(ids).tokens(), RUN, SAY])]
    spoken = sorted(replies["zh"] | replies["en"] | set(PUNCTUATION))
    outputs = [*calls, *spoken, *(f"<spare{i}>" for i in range(SPARE_OUTPUTS))]
    said = [SAID + word for word in words["said"]]
    later = [*words["later"], *(f"<free{i}>" for i in range(len(words["later"]), SPARE_WORDS - len(said))), *said[::-1]]
    tokens = tuple(dict.fromkeys([*outputs, *READ_ONLY, *letters, *words["read"], *characters, *later]))
    index_of = {t: i for i, t in enumerate(tokens)}
    reply = {language: tuple(sorted(index_of[t] for t in said)) for language, said in replies.items()}
    return Vocabulary(tokens, len(outputs), _variants(characters), ids, reply)


def _variants(characters: Sequence[str]) -> dict[str, str]:
    """Traditional characters to the simplified ones that are known."""
    convert = opencc.OpenCC("s2t").convert
    variants = {convert(c): c for c in characters if convert(c) != c and convert(c) not in characters}
    back = opencc.OpenCC("t2s").convert
    for code in range(0x4E00, 0x9FA6):
        c = chr(code)
        if back(c) != c and back(c) in characters:
            variants.setdefault(c, back(c))
    return variants

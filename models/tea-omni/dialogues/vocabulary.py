"""Builds the thinker's vocabulary: the menu's ids, what replies are made of, and what callers may say."""

from __future__ import annotations

import random
from collections import Counter

import opencc

from demos.ordering.menu import default_menu
from voice_agent.tea.grammar import FIELDS, MAX_LINES, RUN, SAY, CallGrammar
from voice_agent.tea.tokenizer import PUNCTUATION, Vocabulary

from . import make, noise

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


def build(seed: int = 1, dialogues: int = 12000) -> Vocabulary:
    """Count over generated dialogues; the words of replies come first, then everything that is only read."""
    ids = menu_ids()
    characters = noise.common_characters()
    convert = opencc.OpenCC("s2t").convert
    variants = {convert(c): c for c in characters if convert(c) != c and convert(c) not in characters}
    back = opencc.OpenCC("t2s").convert
    for code in range(0x4E00, 0x9FA6):
        c = chr(code)
        if back(c) != c and back(c) in characters:
            variants.setdefault(c, back(c))
    letters = ["_" + chr(c) for c in range(ord("a"), ord("z") + 1)]
    rough = Vocabulary(("<unk>", *letters, *characters), 0, variants, ids, {"zh": (), "en": ()})
    words = _AnyWord(rough)
    replies: dict[str, Counter[str]] = {"zh": Counter(), "en": Counter()}
    read: Counter[str] = Counter()
    rng = random.Random(seed)
    for index in range(dialogues):
        language = "zh" if index % 2 else "en"
        for sample in make.dialogue(rng, language, words):
            replies[language].update(sample.reply)
            read.update(t for t in sample.prompt if t[0].isalpha() and t[0].islower())
    read.update(dict.fromkeys(make.CHATTER_EN, 9))
    spoken = sorted(set(replies["zh"]) | set(replies["en"]) | {make.END} | set(PUNCTUATION))
    calls = [*dict.fromkeys([*CallGrammar(ids).tokens(), RUN, SAY])]
    outputs = [*calls, *(t for t in spoken if t not in calls), *(f"<spare{i}>" for i in range(SPARE_OUTPUTS))]
    known = {t for t, n in read.items() if n >= 4 and t.isascii()}
    rest = [*READ_ONLY, *letters, *sorted(known), *characters, *(f"<free{i}>" for i in range(SPARE_WORDS))]
    tokens = tuple(dict.fromkeys([*outputs, *rest]))
    assert len(set(FIELDS)) == 8
    assert MAX_LINES < 100
    index_of = {t: i for i, t in enumerate(tokens)}
    reply = {
        language: tuple(sorted({index_of[t] for t in [*replies[language], make.END, ",", ".", "?"]}))
        for language in ("zh", "en")
    }
    return Vocabulary(tokens, len(outputs), variants, ids, reply)


def extend(old: Vocabulary, seed: int = 2, dialogues: int = 6000) -> Vocabulary:
    """The same ids, with words that the generator has learned since in the free places."""
    words = _AnyWord(old)
    read: Counter[str] = Counter()
    replies: dict[str, Counter[str]] = {"zh": Counter(), "en": Counter()}
    rng = random.Random(seed)
    for index in range(dialogues):
        language = "zh" if index % 2 else "en"
        for sample in make.dialogue(rng, language, words):
            replies[language].update(sample.reply)
            read.update(t for t in sample.prompt if t[0].islower() and t.isascii() and t not in old.ids)
    tokens = list(old.tokens)
    spoken = sorted({t for counter in replies.values() for t in counter})
    spare = [i for i, t in enumerate(tokens) if t.startswith("<spare")]
    free = [i for i, t in enumerate(tokens) if t.startswith("<free")]
    for token in spoken:
        if tokens.index(token) >= old.outputs if token in tokens else True:
            place = spare.pop(0)
            if token in tokens:
                tokens[tokens.index(token)] = f"<free{len(tokens) + place}>"
            tokens[place] = token
    for token, count in read.most_common():
        if count >= 4 and free and token not in tokens:
            tokens[free.pop(0)] = token
    index_of = {t: i for i, t in enumerate(tokens)}
    reply = {k: tuple(sorted({*old.reply[k], *(index_of[t] for t in replies[k])})) for k in ("zh", "en")}
    return Vocabulary(tuple(tokens), old.outputs, old.variants, old.menu, reply)


class _AnyWord(Vocabulary):
    """A vocabulary that knows every word: for counting."""

    def __init__(self, rough: Vocabulary) -> None:
        super().__init__(rough.tokens, 0, rough.variants, rough.menu, rough.reply)
        object.__setattr__(self, "ids", _Everything())


class _Everything(dict[str, int]):
    def __contains__(self, key: object) -> bool:
        return True

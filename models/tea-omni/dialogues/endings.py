"""Utterances for the end of a turn: whole ones, ones that were left open, and every place where they may be cut.

Every token inside an utterance is an example of a turn that is not complete, of little weight (`CUT`): another caller
may have stopped just there, and then that counts in full. So a network that learns from them gives half or more to
words that often end a turn, and little to words that never do. Punctuation at the end is left out.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voice_agent.engine.protocols import Language
from voice_agent.tea.endpoint import unpunctuated
from voice_agent.tea.template import MAX_HEARD, MAX_UTTERANCE
from voice_agent.tea.tokenizer import PUNCTUATION, Vocabulary

from . import make, noise, ordering
from .general import sentences
from .scene import Scene
from .simulate import Shop
from .words import load

CUT = 0.06
PAUSE = 0.02  # instead of `CUT`, before a comma and behind the name of a drink or a topping
UNFINISHED = ("what", "unclear")  # replies to what was not finished
WHOLE = ["read_back", "total", "place", "menu", "greet", "thanks", "bye", "wait", "abuse", "who", "chat", "options"]
HESITATIONS = {"嗯", "呃", "额", "啊", "um", "uh", "mm", "erm", "hmm"}  # complete only where they answer a question
HUMMED = 0.08  # of whole utterances are followed by a hum that was taken for words
LISTS = ("whole", "open", "begun", "bare", "hums", "parts")
OTHERS = [1, 1, 2]  # examples of other words, for one of a generated turn
OF_THEM = re.compile("其中| of them| of those")
COUNTS = [1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 8, 10, 12, 20]


@dataclass(frozen=True)
class Cuts:
    """An utterance after what came `before` it, in tokens; whether the turn is `complete` after each, by `weights`."""

    before: list[str]
    said: list[str]
    complete: list[float]
    weights: list[float]


@dataclass(frozen=True)
class Phrases:
    """`endings.yaml` of a language; `answers` are (questions, answers), `frames` orders of `pieces`."""

    answers: list[tuple[list[str], list[str]]]
    whole: list[str]
    open: list[str]
    begun: list[str]
    bare: list[str]
    hums: list[str]
    parts: list[str]
    frames: list[list[str]]
    pieces: dict[str, list[str]]

    def sentence(self, rng: random.Random, language: Language) -> str:
        """One that has nothing to do with orders: composed, or from elsewhere."""
        if self.frames and rng.random() < 0.5:
            return " ".join(rng.choice(self.pieces[name]) for name in rng.choice(self.frames))
        return rng.choice(sentences(language))


@functools.cache
def phrases(language: Language) -> Phrases:
    known = load("endings")[language]
    lists = {key: [x for row in known[key] for x in _listed(row)] for key in LISTS}
    answers = [(_listed(entry["ask"]), _listed(entry["say"])) for entry in known["answers"]]
    pieces = {name: _listed(row) for name, row in known.get("pieces", {}).items()}
    return Phrases(answers, frames=known.get("frames", []), pieces=pieces, **lists)


def _listed(row: str) -> list[str]:
    return [phrase.strip() for phrase in row.split("|")]


def examples(rng: random.Random, language: Language, vocabulary: Vocabulary) -> Iterator[Cuts]:
    """Of every turn of a generated dialogue, and of other words that could have been said in its place."""
    words = make.WORDS[language].SAY
    for turn in make.dialogue(rng, language, vocabulary):
        at = turn.prompt.index("<u>") + 1
        before, said = [turn.prompt[0], "<u>"], turn.prompt[at:-1]
        if "<a>" in turn.prompt:
            before[1:1] = ["<p>", *turn.prompt[turn.prompt.index("<a>") : at - 1]]
        complete = turn.text not in [words.text[key] for key in UNFINISHED]
        if turn.calls[0] == "!add" and rng.random() < 0.4:
            said = said[: rng.choice([*(end for _, end in names_in(said, language)), len(said)])]
        yield from _example(rng, language, vocabulary, before, said, complete)
        for _ in range(rng.choice(OTHERS)):
            place, text, complete = _other(rng, language, vocabulary, before)
            heard = {"zh": noise.zh, "en": noise.en}[language](rng, text) if rng.random() < 0.7 else text
            said = vocabulary.text_tokens(heard, MAX_UTTERANCE)
            yield from _example(rng, language, vocabulary, place, said, complete)


def _example(
    rng: random.Random, language: Language, vocabulary: Vocabulary, before: list[str], said: list[str], complete: bool
) -> Iterator[Cuts]:
    """The utterance as it is, left open, or cut inside a word; nothing where no word was said."""
    said = unpunctuated(said)
    if not said:
        return
    names = names_in(said, language)
    if names and names[-1][1] == len(said) and rng.random() < 0.1:
        said = [*said[: names[-1][0]], *_unheard_of(rng, language)]
    if set(said) <= HESITATIONS and "?" not in before[-2:]:
        complete = False
    if complete and rng.random() < HUMMED:
        said = [*said, *_hum(rng, language, vocabulary)]
        complete = False
    elif complete and rng.random() < 0.25:
        comma = [","] if rng.random() < 0.5 else []
        said = [*said, *comma, *vocabulary.text_tokens(rng.choice(phrases(language).open))]
        complete = False
    elif rng.random() < 0.12:
        said, complete = _broken(rng, vocabulary, said, complete)
    elif rng.random() < 0.08:
        said = [*said[:-1], *_spelled(said[-1])]
    yield cuts(before, said, complete, [end - 1 for _, end in names_in(said, language, toppings=True)])


def cuts(before: list[str], said: list[str], complete: bool, pauses: Sequence[int] = ()) -> Cuts:
    """Labels and weights for every token of an utterance; callers often stop at `pauses`."""
    following = [*said[1:], None]
    weights = [_weight(token, after) for token, after in zip(said, following, strict=True)]
    weights = [min(weight, PAUSE) if i in pauses and i < len(said) - 1 else weight for i, weight in enumerate(weights)]
    return Cuts(before, said, [0.0] * (len(said) - 1) + [float(complete)], weights)


def _weight(token: str, after: str | None) -> float:
    """1 at the end; 0 where no partial transcript can end as it stands here: punctuation, digits, letters of a word."""
    if after is None:
        return 1.0
    inside_number = token[0] in "THM" and token[1:].isdigit()
    if token in PUNCTUATION or inside_number or after[0] == "_":
        return 0.0
    return PAUSE if after in PUNCTUATION else CUT


def names_in(said: Sequence[str], language: Language, toppings: bool = False) -> list[tuple[int, int]]:
    """Where the names of drinks (and of `toppings`) begin and end: always the longest name that fits."""
    found, at = [], 0
    while at < len(said):
        size = next(
            (n for n in range(min(6, len(said) - at), 0, -1) if tuple(said[at : at + n]) in _names(language, toppings)),
            0,
        )
        if size:
            found.append((at, at + size))
        at += size or 1
    return found


@functools.cache
def _names(language: Language, toppings: bool) -> frozenset[tuple[str, ...]]:
    words = make.WORDS[language]
    names = {name for names in words.SAY.names.values() for name in names}
    if language == "en":
        names |= {words.plural(name) for name in names}
    if toppings:
        names |= {*words.SAY.topping.values(), *(name for said in words.SAY.said_topping.values() for name in said)}
    return frozenset(tuple(re.findall(r"[a-z]+|[一-鿿]", name.lower())) for name in names)


def _other(
    rng: random.Random, language: Language, vocabulary: Vocabulary, before: list[str]
) -> tuple[list[str], str, bool]:
    """(what came before, an utterance, whether it is complete), of what the dialogue's scenarios do not have."""
    known = phrases(language)
    kind = rng.random()
    if kind < 0.36:
        ask, say = rng.choice(known.answers)
        asked = _asked(rng, language, vocabulary, before, ask)
        return asked, _filled(rng, language, rng.choice(say)), True
    if question := rng.random() < 0.25:
        before = _asked(rng, language, vocabulary, before, rng.choice(known.answers)[0])
    elif before[-2:] == ["?", "<u>"]:
        before = [before[0], "<u>"]
    if kind < 0.52:
        simple = make.WORDS[language].SAY.simple
        return before, rng.choice(known.whole if rng.random() < 0.5 else simple[rng.choice(WHOLE)]), True
    if kind < 0.58:
        return before, *_shared_out(rng, language)
    if kind < 0.75:
        return before, rng.choice(known.begun if question else [*known.begun, *known.bare]), False
    if kind < 0.80:
        return before, _filled(rng, language, rng.choice(known.parts)), False
    return before, known.sentence(rng, language), True


def _shared_out(rng: random.Random, language: Language) -> tuple[str, bool]:
    """Cups with a part for each, all of them or not yet: two cups, one without sugar, …"""
    words = make.WORDS[language]
    some = True
    while some:
        (cups, *parts), calls, some = ordering.shared_out(Scene(rng, words, Shop(rng)))
    if rng.random() < 0.5:
        total = sum(arguments.get("quantity", 1) for _, arguments in calls)
        cups = f"{words.quantity(rng, total)}，" if language == "zh" else f"{words.number(total)}, "
    known = rng.randint(1, len(parts))
    said = cups + "".join(parts[:known])
    if known == len(parts):
        return said, True
    said = OF_THEM.sub("", said)  # with these words the other cups may stay as they are
    return said.removesuffix(" and ") if rng.random() < 0.7 else said, False


def _asked(
    rng: random.Random, language: Language, vocabulary: Vocabulary, before: list[str], ask: Sequence[str]
) -> list[str]:
    """The dialogue with a question of the agent at its end: after what it said, or instead of it."""
    question = vocabulary.text_tokens(_filled(rng, language, rng.choice(ask)))
    question += [rng.choice(["?", "?", "?", "."])]
    heard = before[3:-1] if rng.random() < 0.5 and before[-2] == "." else []
    return [before[0], "<p>", "<a>", *[*heard, *question][-MAX_HEARD:], "<u>"]


def _filled(rng: random.Random, language: Language, phrase: str) -> str:
    words = make.WORDS[language]
    drinks = rng.sample(list(words.SAY.names.values()), 2)
    count = rng.choice(COUNTS)
    slots = {
        "n": words.quantity(rng, count) if language == "zh" else words.number(count),
        "drink": rng.choice(drinks[0]),
        "drink2": rng.choice(drinks[1]),
        "topping": words.topping(rng, rng.choice(list(words.SAY.topping))),
        "size": rng.choice(words.SAY.before[rng.choice(["medium", "large", "small"])]),
        "ice": rng.choice(words.SAY.after[rng.choice(["regular_ice", "less_ice", "light_ice", "no_ice", "hot"])]),
        "sugar": rng.choice(
            words.SAY.after[rng.choice(["full_sugar", "seventy_sugar", "half_sugar", "thirty_sugar", "no_sugar"])]
        ),
    }
    return phrase.format_map(slots)


def _broken(rng: random.Random, vocabulary: Vocabulary, said: list[str], complete: bool) -> tuple[list[str], bool]:
    """Cut in the middle of an English word, if there is one and what is left of it is not a word."""
    long = [i for i, token in enumerate(said) if token.isascii() and token.isalpha() and len(token) > 3]
    if not long:
        return said, complete
    at = rng.choice(long)
    left = said[at][: rng.randint(1, len(said[at]) - 1)]
    if left in vocabulary.ids:
        return said, complete
    return [*said[:at], *vocabulary.text_tokens(left)], False


def _spelled(word: str) -> list[str]:
    """An English word in letters, as one that the vocabulary lacks: such a word is not a broken one."""
    if word.isascii() and word.isalpha() and len(word) > 1:
        return ["^", *("_" + letter for letter in word)]
    return [word]


def _hum(rng: random.Random, language: Language, vocabulary: Vocabulary) -> list[str]:
    """What a recogniser writes for the hum with which a caller keeps the turn."""
    if language == "zh" and rng.random() < 0.3:
        return rng.choices(noise.common_characters(), k=rng.choice([1, 2, 2]))
    return vocabulary.text_tokens(rng.choice(phrases(language).hums))


def _unheard_of(rng: random.Random, language: Language) -> list[str]:
    """The name of something that is not on the menu, and need not be known to end a turn."""
    if language == "zh":
        return rng.choices(noise.common_characters(), k=rng.choice([1, 2, 2, 3]))
    word = rng.choice(make.CHATTER_EN)
    return _spelled(word) if rng.random() < 0.5 else [word]

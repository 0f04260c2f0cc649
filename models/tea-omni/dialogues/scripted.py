"""Scenarios that say what is written down in the patterns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate

from .binding import DRINK_OF, Filled, bind, calls_of
from .ordering import order
from .patterns import Pattern, patterns
from .scene import Call, Plan, Scene, is_zh

TRIES = 12


@functools.cache
def _weighted(language: str, kind: str) -> tuple[list[Pattern], list[float]]:
    """The patterns that begin with an `add`, or the others, and their weights: more for more wordings."""
    known = [p for p in patterns(language) if (p.steps[0].verb == "add") == (kind == "add")]
    return known, list(accumulate(len(pattern.said) ** 0.8 for pattern in known))


def scripted(kind: str) -> Callable[[Scene], Plan]:
    """A scenario: a pattern that fits the cart, filled in; one that adds, or one that changes what is there."""

    def plan(s: Scene) -> Plan:
        known, weights = _weighted("zh" if is_zh(s) else "en", kind)
        for pattern in s.rng.choices(known, cum_weights=weights, k=TRIES):
            found = None if pattern.first and s.lines else fill(s, pattern)
            if found is not None:
                return found
        return order(s)

    return plan


def fill(s: Scene, pattern: Pattern) -> Plan | None:
    """The plan of a pattern in this scene, or None where it does not fit."""
    said = s.rng.choice(pattern.said)
    filled = bind(s, pattern, said)
    text = wording(s, said, filled) if filled else None
    if filled is None or text is None:
        return None
    return _plan(s, _dressed(s, pattern, said, text), calls_of(s, pattern, filled))


def _plan(s: Scene, said: str, calls: list[Call]) -> Plan:
    names = {name for name, _ in calls}
    lines = [arguments.get("line", 0) for _, arguments in calls]
    if "place" in names:
        return Plan(said, calls, "placed")
    if names == {"read_back"}:
        return Plan(said, calls, "read_back", pending=("confirm", None))
    if names == {"clear"}:
        return Plan(said, calls, "cleared")
    if names == {"remove"} and len(calls) == 1:
        if "cups" in calls[0][1]:
            return Plan(said, calls, "confirm_changed")
        return Plan(said, calls, "removed", {"line": s.lines[lines[0] - 1]})
    if names == {"change"} and len(calls) > 1 and lines == list(range(1, len(s.lines) + 1)):
        return Plan(said, calls, "done")
    return Plan(said, calls)


def wording(s: Scene, said: Sequence[tuple[str, str, str]], filled: Filled) -> str | None:
    words, rng, text = s.words, s.rng, ""
    for literal, slot, form in said:
        text += literal
        if not slot:
            continue
        if slot in filled.numbers:
            text += _count(s, filled.numbers[slot], form)
        elif slot in filled.options:
            text += _option(s, filled.options[slot], form)
        elif slot in filled.toppings:
            text += words.topping(rng, filled.toppings[slot])
        elif slot == "v":
            text += rng.choice(words.SAY.names[DRINK_OF[filled.toppings["u"]]])
        elif slot in filled.drinks or slot in filled.lines:
            name = _drink(s, slot, form, filled)
            if not name:
                return None
            text += name
        else:
            return None
    return text.replace("的的", "的")


def _count(s: Scene, value: int, form: str) -> str:
    if is_zh(s):
        return str(s.words.count(value) if form == "d" else s.words.quantity(s.rng, value))
    return str(value) if s.rng.random() < 0.12 else str(s.words.number(value))


def _option(s: Scene, choice: str, form: str) -> str:
    words, rng = s.words, s.rng
    if form == "b":
        return str(rng.choice(words.SAY.before[choice]))
    if form == "a":
        return str(rng.choice(words.ALONE[choice]))
    if form == "w" and choice not in words.SAY.bare:
        return "with " + str(rng.choice(words.SAY.plain[choice]))
    return str(rng.choice(words.SAY.plain[choice]))


def _drink(s: Scene, slot: str, form: str, filled: Filled) -> str:
    drink = filled.drinks.get(slot) or s.lines[filled.lines[slot] - 1]["drink"]
    if form == "p":
        short = s.words.SAY.part.get(drink, "")
        others = [line["drink"] for line in s.lines if line["drink"] != drink]
        clear = short and not any(short in name for other in others for name in s.words.SAY.names[other])
        return str(short) if clear else ""
    name = s.rng.choice(s.words.SAY.names[drink])
    return str(s.words.plural(name) if form == "s" else name)


def _dressed(s: Scene, pattern: Pattern, said: Sequence[tuple[str, str, str]], text: str) -> str:
    """Now and then with what callers say before and after."""
    rng, chance = s.rng, s.rng.random()
    adds = pattern.steps[0].verb == "add"
    bare = said[0][0].startswith(tuple(s.words.SAY.starts)) if said[0][0] else True
    if adds and bare and chance < 0.4:
        text = s.words.wish(rng, bool(s.lines)) + text
    elif not adds and chance < 0.12:
        text = rng.choice(s.words.SAY.leads) + text
    if rng.random() < 0.15:
        text += rng.choice(s.words.SAY.tails)
    return text

"""Whole utterances written down with slots, and what each of them orders: a second style beside the grammars.

`patterns_zh.yaml` and `patterns_en.yaml`, and `seeds_*.yaml` in a looser style, map a plan to the ways of saying it:

    add a n o +t; remove x /1: ['{n}{a}要{o}加{t}，{x}少一杯']

Steps of a plan: `add` a drink slot (a to e; `m` is milk tea; `v` is a milk tea named after a topping `{u}` that is
left out), `copy`, `change`, `replace` or `remove` a line, `keep` only this line, `all` lines changed, `clear`,
`read` and `place` (of `.`). A line is x, y or z (by its drink, which no other line has), `l` (touched last), 1 to 4,
`mid`, `last`, `other` (of two, the one not touched last) or `old` (the only one with a choice `{old}`); `l=3` asks
for a line of three cups. Then follow a quantity (a number, or a slot n), cups of the line (`/1`, `/k`), options (size,
ice, sugar; `o` is any of them; `s1`, `s2` are choices of one), toppings (`+t`, `-u`) and another drink (`=d`). A plan
that begins with `first` is said to an empty cart alone. `{wo}`, `{wn}`, `{wa}`, `{wt}` are what the caller corrects,
and `{sum}` is how many cups are added. After a colon comes a form: `{a:s}` plural, `{x:p}` part of the name, `{n:d}`
the number alone, `{o:a}` a choice on its own, `{o:b}` before the drink, `{o:w}` after it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .words import load

SLOT = re.compile(r"\{(\w+)(?::(\w))?\}")


@dataclass(frozen=True)
class Step:
    """One operation of a plan, its slots not yet filled."""

    verb: str
    target: str
    held: int = 0
    quantity: str = ""
    cups: str = ""
    options: tuple[str, ...] = ()
    put: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    drink: str = ""


@dataclass(frozen=True)
class Pattern:
    """A plan and its wordings, each as (literal, slot, form) pieces."""

    steps: tuple[Step, ...]
    said: tuple[tuple[tuple[str, str, str], ...], ...]
    first: bool


def parse(plan: str, said: Sequence[str]) -> Pattern:
    first = plan.startswith("first ")
    steps = tuple(_step(part.split()) for part in plan.removeprefix("first ").split(";"))
    return Pattern(steps, tuple(_pieces(text) for text in said), first)


def _step(words: Sequence[str]) -> Step:
    target, _, held = words[1].partition("=")
    got: dict[str, Any] = {"options": (), "put": (), "out": ()}
    for word in words[2:]:
        if word.isdigit() or word[0] == "n":
            got["quantity"] = word
        elif word[0] in "/=":
            got["cups" if word[0] == "/" else "drink"] = word[1:]
        else:
            key = {"+": "put", "-": "out"}.get(word[0], "options")
            got[key] += (word.lstrip("+-"),)
    return Step(words[0], target, int(held or 0), **got)


def _pieces(text: str) -> tuple[tuple[str, str, str], ...]:
    pieces, at = [], 0
    for match in SLOT.finditer(text):
        pieces.append((text[at : match.start()], match[1], match[2] or ""))
        at = match.end()
    return (*pieces, (text[at:], "", ""))


@functools.cache
def patterns(language: str) -> tuple[Pattern, ...]:
    """Every pattern of a language, of both styles."""
    files = (load(f"{style}_{language}") for style in ("patterns", "seeds"))
    return tuple(parse(plan, said.splitlines()) for known in files for plan, said in known.items())


def wordings(language: str) -> int:
    """How many utterances are written down."""
    return sum(len(pattern.said) for pattern in patterns(language))

"""Whole utterances written down with slots, and what each of them orders: a second style beside the grammars.

`patterns_zh.yaml` and `patterns_en.yaml` map a plan to the ways of saying it:

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from .ordering import order
from .scene import OPTIONS, OWN, Call, Item, Plan, Scene, add_call, change_call, copy_of, is_zh, latest
from .words import load

DRINK_OF = {topping: drink for drink, topping in OWN.items()}
SLOT = re.compile(r"\{(\w+)(?::(\w))?\}")
COUNTS = [2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 10]
TRIES = 12


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


@dataclass
class Filled:
    """What the slots of a plan stand for in a scene."""

    lines: dict[str, int] = field(default_factory=dict)
    drinks: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    toppings: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


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
    """Every pattern of a language."""
    return tuple(parse(plan, said.splitlines()) for plan, said in load(f"patterns_{language}").items())


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
    filled = Filled()
    said = s.rng.choice(pattern.said)
    if not (_lines(s, pattern, filled) and _drinks(s, pattern, filled, said) and _numbers(s, pattern, filled)):
        return None
    if not (_toppings(s, pattern, filled) and _options(s, pattern, filled)):
        return None
    text = _text(s, said, filled)
    if text is None or not all(_possible(s, step, filled) for step in pattern.steps):
        return None
    steps = [(step, call) for step in pattern.steps for call in _calls(s, step, filled)]
    return _plan(s, _dressed(s, pattern, said, text), [call for _, call in _in_order(steps)])


def _in_order(steps: list[tuple[Step, Call]]) -> list[tuple[Step, Call]]:
    """Changes by line, then what takes lines away from the last to the first, so that numbers stay true."""

    def rank(entry: tuple[Step, Call]) -> tuple[int, int]:
        name, arguments = entry[1]
        line = arguments.get("line", 0)
        return {
            "clear": (0, 0),
            "change": (1, line),
            "remove": (2, -line),
            "replace": (2, -line),
            "add": (3, 0),
        }.get(name, (4, 0))

    return sorted(steps, key=rank)


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


# ---- filling the slots ----


def _lines(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    for step in pattern.steps:
        if len(s.lines) < {"all": 2, "keep": 2, "clear": 1}.get(step.verb, 0):
            return False
        if step.target in LINES:
            number = filled.lines.get(step.target) or LINES[step.target](s, filled)
            if not number or (step.held and s.lines[number - 1]["quantity"] != step.held):
                return False
            if step.cups and s.lines[number - 1]["quantity"] <= int(step.cups if step.cups.isdigit() else 1):
                return False
            if number in (n for target, n in filled.lines.items() if target != step.target):
                return False
            filled.lines[step.target] = number
        elif step.verb in ("read", "place") and not s.lines and not any(x.verb == "add" for x in pattern.steps):
            return False
    return True


def _single(s: Scene, filled: Filled) -> int:
    """A line that its drink alone tells."""
    drinks = [line["drink"] for line in s.lines]
    free = [i for i, d in enumerate(drinks, 1) if drinks.count(d) == 1 and i not in filled.lines.values()]
    return s.rng.choice(free) if free else 0


def _nth(number: int) -> Callable[[Scene, Filled], int]:
    def find(s: Scene, _: Filled) -> int:
        fits = len(s.lines) >= max(2, number) and all(line["quantity"] == 1 for line in s.lines[:number])
        return number if fits else 0

    return find


def _latest(s: Scene, _: Filled) -> int:
    return latest(s) if s.touched or len(s.lines) == 1 else 0


def _middle(s: Scene, _: Filled) -> int:
    return 2 if len(s.lines) == 3 and all(line["quantity"] == 1 for line in s.lines) else 0


def _last(s: Scene, _: Filled) -> int:
    return len(s.lines) if len(s.lines) > 1 and s.lines[-1]["quantity"] == 1 else 0


def _other(s: Scene, _: Filled) -> int:
    return 3 - min(s.touched) if len(s.lines) == 2 and len(s.touched) == 1 else 0


def _old(s: Scene, filled: Filled) -> int:
    found = [
        (number, line[key])
        for number, line in enumerate(s.lines, 1)
        for key in OPTIONS
        if line[key] != s.shop.default(line["drink"], key) and sum(x[key] == line[key] for x in s.lines) == 1
    ]
    if not found or len(s.lines) < 2:
        return 0
    number, filled.options["old"] = s.rng.choice(found)
    return number


LINES: dict[str, Callable[[Scene, Filled], int]] = {
    **dict.fromkeys("xyz", _single),
    **{str(number): _nth(number) for number in range(1, 5)},
    "l": _latest,
    "mid": _middle,
    "last": _last,
    "other": _other,
    "old": _old,
}


def _drinks(s: Scene, pattern: Pattern, filled: Filled, said: Sequence[tuple[str, str, str]]) -> bool:
    drinks = list(s.shop.menu.drinks)
    s.rng.shuffle(drinks)
    held = {s.lines[number - 1]["drink"] for number in filled.lines.values()}
    slots = {step.target for step in pattern.steps if step.verb == "add"} | {step.drink for step in pattern.steps}
    slots |= {"wa"} if any(slot == "wa" for _, slot, _ in said) else set()
    free = iter(drink for drink in drinks if drink not in held)
    for slot in sorted(slots - {""}):
        if slot in filled.lines:
            filled.drinks[slot] = s.lines[filled.lines[slot] - 1]["drink"]
        else:
            filled.drinks[slot] = "milk_tea" if slot in ("m", "v") else next(free)
    if "v" in slots:
        filled.toppings["u"] = s.rng.choice(list(DRINK_OF))
    return True


def _numbers(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    rng = s.rng
    for step in pattern.steps:
        held = s.lines[filled.lines[step.target] - 1]["quantity"] if step.target in filled.lines else 0
        if step.quantity.startswith("n") and step.quantity not in filled.numbers:
            counts = [c for c in COUNTS if c != held] if held or len(step.quantity) == 1 else [1, 1, 1, *COUNTS[:9]]
            filled.numbers[step.quantity] = rng.choice(counts)
        if step.cups == "k":
            filled.numbers["k"] = rng.randint(1, held - 1)
    added = [_number(step.quantity, filled) for step in pattern.steps if step.verb == "add"]
    filled.numbers["sum"] = sum(added)
    for slot in [slot for slot in filled.numbers if slot[0] == "n"]:
        filled.numbers["w" + slot] = rng.choice([c for c in COUNTS if c != filled.numbers[slot]])
    return True


def _number(word: str, filled: Filled) -> int:
    return filled.numbers[word] if word in filled.numbers else int(word or 1)


def _of(s: Scene, step: Step, filled: Filled) -> list[str]:
    """The drinks that a step's options are for."""
    if step.verb == "all":
        return [line["drink"] for line in s.lines]
    if step.verb == "add":
        return [filled.drinks[step.target]]
    if step.drink:
        return [filled.drinks[step.drink]]
    return [s.lines[filled.lines[step.target] - 1]["drink"]] if step.target in filled.lines else []


def _toppings(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    names = list(s.shop.menu.toppings)
    for step in pattern.steps:
        lines = s.lines if step.verb == "all" else []
        if step.target in filled.lines and not step.drink:
            lines = [s.lines[filled.lines[step.target] - 1]]
        for slot in step.out:
            there = {*lines[0]["toppings"]} ^ ({OWN[lines[0]["drink"]]} if lines[0]["drink"] in OWN else set())
            there -= set(filled.toppings.values())
            if not there:
                return False
            filled.toppings[slot] = s.rng.choice(sorted(there))
        taken = {t for line in lines for t in line["toppings"]} | {OWN.get(d, "") for d in _of(s, step, filled)}
        taken |= {topping for slot, topping in filled.toppings.items() if slot not in step.put}
        for slot in step.put:
            free = [t for t in names if t not in taken]
            if slot not in filled.toppings:
                if not free:
                    return False
                filled.toppings[slot] = s.rng.choice(free)
            elif filled.toppings[slot] in taken:
                return False
            taken.add(filled.toppings[slot])
    for slot in [slot for slot in filled.toppings if slot[0] == "t"]:
        filled.toppings["w" + slot] = s.rng.choice([t for t in names if t not in filled.toppings.values()])
    return True


def _options(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    rng = s.rng
    split = rng.choice(OPTIONS)
    keys: dict[str, str] = {}
    for slot in dict.fromkeys(slot for step in pattern.steps for slot in step.options):
        steps = [step for step in pattern.steps if slot in step.options]
        family = slot.rstrip("0123456789")
        used = {keys[other] for step in steps for other in step.options if other in keys}
        possible = rng.sample(OPTIONS, 3) if family == "o" else [split if family == "s" else family]
        for key in possible:
            free = _free(s, steps, filled, key) if key not in used else []
            same = {filled.options[other] for other in keys if family != "o" and other.startswith(family)}
            free = [value for value in free if value not in same]
            if free:
                keys[slot] = key
                break
        else:
            return False
        filled.options[slot] = rng.choice(free)
        drink = _of(s, steps[0], filled)[0]
        wrong = [c for c in s.shop.choices(drink, keys[slot]) if c != filled.options[slot]]
        if wrong:
            filled.options["w" + slot] = rng.choice(wrong)
    return True


def _free(s: Scene, steps: Sequence[Step], filled: Filled, key: str) -> list[str]:
    """The choices that every step may take: what its drink has and, mostly, what is not so anyway."""
    free = list(s.shop.menu.options[key])
    plain = s.rng.random() < 0.85
    for step in steps:
        now = set()
        if step.verb in ("change", "copy", "all") and not step.drink:
            lines = s.lines if step.verb == "all" else [s.lines[filled.lines[step.target] - 1]]
            now = {line[key] for line in lines} if len(lines) == 1 else set()
        elif plain:
            now = {s.shop.default(drink, key) for drink in _of(s, step, filled)}
        allowed = [s.shop.choices(drink, key) for drink in _of(s, step, filled)]
        free = [c for c in free if c not in now and all(c in choices for choices in allowed)]
    return free


def _possible(s: Scene, step: Step, filled: Filled) -> bool:
    """Whether a drink that was misheard takes the choices that were made for the other one."""
    if step.verb != "change" or not step.drink:
        return True
    line, new = s.lines[filled.lines[step.target] - 1], filled.drinks[step.drink]
    kept = [key for key in OPTIONS if line[key] != s.shop.default(line["drink"], key)]
    return all(line[key] in s.shop.choices(new, key) for key in kept)


# ---- calls ----


def _calls(s: Scene, step: Step, filled: Filled) -> list[Call]:
    chosen: Item = {_key(s, filled.options[slot]): filled.options[slot] for slot in step.options}
    names = list(s.shop.menu.toppings)
    put = sorted((filled.toppings[slot] for slot in step.put), key=names.index)
    out = sorted((filled.toppings[slot] for slot in step.out), key=names.index)
    number = filled.lines.get(step.target, 0)
    if step.verb in ("clear", "place", "read"):
        return [("read_back" if step.verb == "read" else step.verb, {})]
    if step.verb == "add":
        item = {"drink": filled.drinks[step.target], "quantity": _number(step.quantity, filled), "toppings": put}
        return [add_call(item | chosen)]
    if step.verb == "copy":
        return [add_call(copy_of(s.lines[number - 1], s, _number(step.quantity, filled)) | chosen)]
    if step.verb == "keep":
        return [("remove", {"line": n}) for n in range(len(s.lines), 0, -1) if n != number]
    cups = {"cups": _number(step.cups, filled)} if step.cups else {}
    if step.verb == "remove":
        return [("remove", {"line": number} | cups)]
    if step.verb == "replace":
        what: Item = {"drink": filled.drinks[step.drink]} | chosen | ({"toppings": put} if put else {})
        if step.quantity:
            what["quantity"] = _number(step.quantity, filled)
        return [("replace", {"line": number} | cups | what)]
    if step.verb == "all":
        return [change_call(n, chosen | {"add_toppings": put}) for n in range(1, len(s.lines) + 1)]
    line = s.lines[number - 1]
    change: Item = chosen | {"add_toppings": put, "remove_toppings": [t for t in out if t in line["toppings"]]}
    if step.quantity:
        change["quantity"] = _number(step.quantity, filled)
    if step.drink:
        change["drink"] = filled.drinks[step.drink]
    elif len(change["remove_toppings"]) < len(out):  # what the drink is named after
        change["drink"] = "milk_tea"
        if len(put) == 1 and put[0] in DRINK_OF:
            change |= {"drink": DRINK_OF[put[0]], "add_toppings": []}
    return [change_call(number, change, cups.get("cups"))]


def _key(s: Scene, choice: str) -> str:
    return next(key for key in OPTIONS if choice in s.shop.menu.options[key])


# ---- words ----


def _text(s: Scene, said: Sequence[tuple[str, str, str]], filled: Filled) -> str | None:
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
            text += rng.choice(words.NAMES[DRINK_OF[filled.toppings["u"]]])
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
        return str(rng.choice(words.BEFORE[choice]))
    if form == "a":
        return str(rng.choice(words.ALONE[choice]))
    if form == "w" and choice not in words.BARE:
        return "with " + str(rng.choice(words.PLAIN[choice]))
    return str(rng.choice(words.PLAIN[choice]))


def _drink(s: Scene, slot: str, form: str, filled: Filled) -> str:
    drink = filled.drinks.get(slot) or s.lines[filled.lines[slot] - 1]["drink"]
    if form == "p":
        short = s.words.PART.get(drink, "")
        others = [line["drink"] for line in s.lines if line["drink"] != drink]
        clear = short and not any(short in name for other in others for name in s.words.NAMES[other])
        return str(short) if clear else ""
    name = s.rng.choice(s.words.NAMES[drink])
    return str(s.words.plural(name) if form == "s" else name)


def _dressed(s: Scene, pattern: Pattern, said: Sequence[tuple[str, str, str]], text: str) -> str:
    """Now and then with what callers say before and after."""
    rng, chance = s.rng, s.rng.random()
    adds = pattern.steps[0].verb == "add"
    bare = said[0][0].startswith(s.words.STARTS) if said[0][0] else True
    if adds and bare and chance < 0.4:
        text = s.words.wish(rng, bool(s.lines)) + text
    elif not adds and chance < 0.12:
        text = rng.choice(s.words.LEADS) + text
    if rng.random() < 0.15:
        text += rng.choice(s.words.TAILS)
    return text


def wordings(language: str) -> int:
    """How many utterances are written down."""
    return sum(len(pattern.said) for pattern in patterns(language))

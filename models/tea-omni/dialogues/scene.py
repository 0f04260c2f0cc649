"""A dialogue as the scenarios see it, and what they share: things to order, references to lines, calls."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .simulate import Shop

Item = dict[str, Any]
Call = tuple[str, dict[str, Any]]
OPTIONS = ("size", "ice", "sugar")
# What a milk tea is named after; without that it is original milk tea.
OWN = {
    "pearl_milk_tea": "pearls",
    "coconut_milk_tea": "coconut_jelly",
    "pudding_milk_tea": "pudding",
    "red_bean_milk_tea": "red_bean",
    "taro_milk_tea": "taro_balls",
    "grass_jelly_milk_tea": "grass_jelly",
}


@dataclass
class Plan:
    """One turn: what is said, what is called, which reply fits, and what a next turn may refer to."""

    said: str
    calls: list[Call] = field(default_factory=list)
    reply: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    pending: tuple[str, Any] | None = None


@dataclass
class Scene:
    """The dialogue so far, as a scenario sees it."""

    rng: random.Random
    words: ModuleType
    shop: Shop
    touched: frozenset[int] = frozenset()
    pending: tuple[str, Any] | None = None
    order_number: int | None = None

    @property
    def lines(self) -> list[dict[str, Any]]:
        return self.shop.lines


def is_zh(s: Scene) -> bool:
    return bool(s.words.__name__.endswith("zh"))


def some_item(s: Scene, plain: float = 0.0) -> Item:
    """A random thing to order; `None` for a choice that the caller does not name."""
    rng = s.rng
    drink = rng.choice(list(s.shop.menu.drinks))
    it: Item = {"drink": drink, "quantity": 1, "size": None, "ice": None, "sugar": None, "toppings": []}
    it["quantity"] = rng.choices(range(1, 16), [50, 18, 8, 5, 4, 3, 2, 2, 1, 2, 1, 2, 1, 1, 1])[0]
    if rng.random() < 0.02:
        it["quantity"] = rng.randint(16, 30)
    if rng.random() < plain:
        return it
    for key, chance in zip(OPTIONS, (0.32, 0.42, 0.38), strict=True):
        choices = s.shop.choices(drink, key)
        if rng.random() < chance and len(choices) > 1:
            it[key] = rng.choice(choices) if rng.random() < 0.25 else rng.choice(choices[1:])
    if rng.random() < 0.22:
        names = list(s.shop.menu.toppings)
        it["toppings"] = sorted(rng.sample(names, rng.choice([1, 1, 1, 2, 3])), key=names.index)
    return it


def add_call(it: Item) -> Call:
    args: dict[str, Any] = {"drink": it["drink"]}
    if it.get("quantity", 1) != 1:
        args["quantity"] = it["quantity"]
    args |= {key: it[key] for key in OPTIONS if it.get(key)}
    if it.get("toppings"):
        args["toppings"] = it["toppings"]
    return "add", args


def clean(item: Item) -> Item:
    return {key: value for key, value in item.items() if value}


def copy_of(line: dict[str, Any], s: Scene, quantity: int = 1) -> Item:
    """The same drink again: what differs from the defaults is named."""
    it: Item = {"drink": line["drink"], "quantity": quantity, "toppings": list(line["toppings"])}
    for key in OPTIONS:
        it[key] = line[key] if line[key] != s.shop.default(line["drink"], key) else None
    return it


def latest(s: Scene) -> int:
    return max(s.touched) if s.touched else len(s.lines)


def pick_line(s: Scene, explicit: bool = False, avoid: int = 0) -> tuple[int, str, str] | None:
    """(line number, how it is called, its drink's name); the reference is unambiguous."""
    rng, lines = s.rng, s.lines
    n = len(lines)
    number = latest(s) if rng.random() < 0.45 else rng.randint(1, n)
    if number == avoid:
        number = rng.choice([i for i in range(1, n + 1) if i != avoid] or [0])
    if not 1 <= number <= n:
        return None
    line = lines[number - 1]
    drinks = Counter(x["drink"] for x in lines)
    hows = []
    if drinks[line["drink"]] == 1:
        hows += ["name"] * 3
    if all(x["quantity"] == 1 for x in lines[:number]) and n > 1 and number <= 10:
        hows += ["ordinal"] * 2
    if number == latest(s) and not explicit:
        hows += ["latest"] * (4 if n > 1 else 6)
    if n == 2 and len(s.touched) == 1 and number not in s.touched:
        hows += ["other"] * 2
    special = [
        key
        for key in OPTIONS
        if line[key] != s.shop.default(line["drink"], key) and sum(x[key] == line[key] for x in lines) == 1
    ]
    plain = [key for key in ("size", "ice", "sugar") if sum(x[key] == line[key] for x in lines) == 1]
    if not special and plain and rng.random() < 0.3:
        special = plain
    if special and n > 1:
        hows += ["attribute"] * (1 if drinks[line["drink"]] == 1 else 4)
    if not hows:
        return None
    how = rng.choice(hows)
    shown = {**line, "attribute": line[rng.choice(special)] if special else ""}
    name = rng.choice(s.words.SAY.names[line["drink"]])
    kinds = [word for word, held in s.words.SAY.generic.items() if {line["drink"]} == set(held) & set(drinks)]
    if how == "name" and kinds and rng.random() < 0.2:
        word = rng.choice(kinds)
        return (
            number,
            rng.choice([word, word + "那杯", "那杯" + word] if is_zh(s) else ["the " + word, "my " + word]),
            word,
        )
    return number, s.words.reference(rng, how, shown, number, n), name


def some_change(s: Scene, line: dict[str, Any], plain: bool = False) -> Item:
    """Other choices for this line, at least one."""
    rng, drink = s.rng, line["drink"]
    what: Item = {}
    keys = rng.sample(["size", "ice", "sugar"], rng.choices([1, 2], [80, 20])[0])
    kind = rng.random()
    if kind < 0.62 or plain:
        for key in keys:
            choices = [c for c in s.shop.choices(drink, key) if c != line[key]]
            if choices:
                what[key] = rng.choice(choices)
    elif kind < 0.78:
        free = [t for t in s.shop.menu.toppings if t not in line["toppings"]]
        if free:
            chosen = rng.sample(free, rng.choice([1, 1, 1, 2]))
            what["add_toppings"] = [t for t in s.shop.menu.toppings if t in chosen]
    elif kind < 0.9 and line["toppings"]:
        what["remove_toppings"] = [rng.choice(line["toppings"])]
    else:
        what["quantity"] = rng.choice([q for q in range(1, 13) if q != line["quantity"]])
    return what or {"size": rng.choice([c for c in s.shop.choices(drink, "size") if c != line["size"]])}


def change_call(number: int, what: Item, cups: int | None = None) -> Call:
    args: dict[str, Any] = {"line": number}
    if cups:
        args["cups"] = cups
    keys = ("drink", "quantity", *OPTIONS, "add_toppings", "remove_toppings")
    return "change", args | {key: what[key] for key in keys if what.get(key)}

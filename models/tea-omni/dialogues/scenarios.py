# ruff: noqa: E501
"""What callers mean: every scenario plans one turn, its words and the tool calls that answer it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .simulate import Shop

Item = dict[str, Any]
Call = tuple[str, dict[str, Any]]
OPTIONS = ("size", "ice", "sugar")


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


# ---- helpers ----


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
    if special and n > 1:
        hows.append("attribute")
    if not hows:
        return None
    how = rng.choice(hows)
    shown = {**line, "attribute": line[rng.choice(special)] if special else ""}
    name = rng.choice(s.words.NAMES[line["drink"]])
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
    elif kind < 0.86 and line["toppings"]:
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


def is_zh(s: Scene) -> bool:
    return bool(s.words.__name__.endswith("zh"))


# ---- ordering ----


def order(s: Scene) -> Plan:
    k = s.rng.choices([1, 2, 3, 4, 5], [66, 21, 9, 3, 1])[0]
    items = [some_item(s, plain=0.25 * (k - 1) + 0.1) for _ in range(k)]
    calls = [add_call(it) for it in items]
    said = s.words.order(s.rng, items, bool(s.lines))
    pick = s.rng.random()
    if pick < 0.05:
        said = s.rng.choice(s.words.BEFORE_ORDER) + said
    elif pick < 0.09:
        said += s.rng.choice(s.words.JOINT) + s.rng.choice(s.words.SIMPLE["finish"])
    elif pick < 0.12:
        return Plan(
            said + s.rng.choice(s.words.JOINT) + s.rng.choice(s.words.SIMPLE["place"]),
            [*calls, ("place", {})],
            "placed",
        )
    return Plan(said, calls)


def all_alike(s: Scene) -> Plan:
    """Several drinks, and then what holds for all of them: a latte and an americano, both with no ice."""
    rng = s.rng
    items = [some_item(s, plain=0.9) for _ in range(rng.choice([2, 2, 3]))]
    key = rng.choice(OPTIONS)
    possible = [c for c in s.shop.menu.options[key] if all(c in s.shop.choices(it["drink"], key) for it in items)]
    if not possible:
        return order(s)
    value = rng.choice(possible)
    said = s.words.order(rng, items, bool(s.lines))
    for it in items:
        it[key] = value
    said += s.words.for_all(rng, value, len(items))
    return Plan(said, [add_call(it) for it in items])


def also(s: Scene) -> Plan:
    """A second drink that is to be like the first."""
    rng = s.rng
    first, second = some_item(s, plain=0), some_item(s, plain=1)
    second["quantity"] = 1
    keys = [k for k in OPTIONS if first[k] and first[k] in s.shop.choices(second["drink"], k)]
    if not keys:
        return order(s)
    key = rng.choice(keys)
    second[key] = first[key]
    said = s.words.order(rng, [first], bool(s.lines)) + rng.choice(s.words.AND)
    name = rng.choice(s.words.NAMES[second["drink"]])
    word = rng.choice(s.words.BEFORE[first[key]])
    said += (
        rng.choice([f"{name}也要{word}", f"一杯{name}，也是{word}", f"一杯{name}也{word}"])
        if is_zh(s)
        else rng.choice([f"a {name} also {word}", f"one {name}, also with {word}", f"a {name}, {word} too"])
    )
    return Plan(said, [add_call(first), add_call(second)])


def varieties(s: Scene) -> Plan:
    """A large and a small latte: kinds of one drink, with no total said."""
    rng = s.rng
    drink = rng.choice(list(s.shop.menu.drinks))
    key = rng.choice([k for k in OPTIONS if len(s.shop.choices(drink, k)) > 1])
    values = rng.sample(
        list(s.shop.choices(drink, key)), rng.choice([2, 2, 2, 3]) if len(s.shop.choices(drink, key)) > 2 else 2
    )
    parts = [{"drink": drink, "quantity": rng.choice([1, 1, 1, 2, 3]), key: value} for value in values]
    said = s.words.wish(rng, bool(s.lines)) + s.words.varieties(rng, drink, parts, key) + rng.choice(s.words.END)
    return Plan(said, [add_call(part) for part in parts])


def order_with_split(s: Scene) -> Plan:
    """Several drinks in one breath, one of them divided."""
    one, two = order(s), split(s)
    if any(name != "add" for name, _ in one.calls) or len(one.calls) > 2:
        return two
    pair = [one, two] if s.rng.random() < 0.5 else [two, one]
    return Plan(pair[0].said + s.rng.choice(s.words.JOINT) + pair[1].said, pair[0].calls + pair[1].calls)


def each(s: Scene) -> Plan:
    n = s.rng.choice([1, 1, 2, 2, 3, 4, 5])
    drinks = s.rng.sample(list(s.shop.menu.drinks), s.rng.choice([2, 2, 3]))
    items = [{"drink": d, "quantity": n} for d in drinks]
    return Plan(s.words.each(s.rng, items, n, bool(s.lines)), [add_call(it) for it in items])


def split(s: Scene) -> Plan:
    """Two cups, one without ice, one with less; or three, one of them without sugar."""
    rng = s.rng
    shared = some_item(s, plain=0.7)
    shared["toppings"] = [] if rng.random() < 0.7 else shared["toppings"]
    keys = [k for k in OPTIONS if len(s.shop.choices(shared["drink"], k)) > 1]
    key = rng.choice(keys)
    shared[key] = None
    some = rng.random() < 0.4
    k = 2 if some or rng.random() < 0.8 else 3
    choices = list(s.shop.choices(shared["drink"], key))
    if len(choices) < k:
        k = 2
    values: list[str | None] = list(rng.sample(choices, k))
    if some:
        values = [rng.choice(choices[1:]), None]
    elif rng.random() < 0.12:
        values[-1] = None
    parts = []
    for value in values:
        parts.append({"quantity": rng.choice([1, 1, 1, 1, 2, 2, 3]), key: value})
    if rng.random() < 0.15 and not some:
        other = rng.choice([k2 for k2 in keys if k2 != key])
        if shared[other] is None:
            for part in parts:
                if part[key]:
                    part[other] = rng.choice(s.shop.choices(shared["drink"], other))
    if rng.random() < 0.12:
        parts[0] = {"quantity": parts[0]["quantity"], "toppings": [rng.choice(list(s.shop.menu.toppings))]}
        shared["toppings"] = []
        if some or rng.random() < 0.5:
            parts[1] = {"quantity": parts[1]["quantity"]} if some else parts[1]
    calls = [add_call({**shared, **clean(part), "quantity": part["quantity"]}) for part in parts]
    return Plan(s.words.split(rng, shared, parts, bool(s.lines), some), calls)


def corrected(s: Scene) -> Plan:
    """I want a large one, no, a medium one."""
    rng = s.rng
    wrong = some_item(s, plain=0.3)
    right = dict(wrong)
    what = rng.choice(["size", "ice", "sugar", "drink", "quantity"])
    if what == "drink":
        wrong |= dict.fromkeys(OPTIONS) | {"toppings": []}
        right = {**wrong, "drink": rng.choice([d for d in s.shop.menu.drinks if d != wrong["drink"]])}
    elif what == "quantity":
        right["quantity"] = rng.choice([q for q in range(1, 10) if q != wrong["quantity"]])
    else:
        choices = list(s.shop.choices(wrong["drink"], what))
        if len(choices) < 2:
            return order(s)
        wrong[what], right[what] = rng.sample(choices, 2)
    said = s.words.corrected_order(rng, wrong, right, what, bool(s.lines))
    return Plan(said, [add_call(right)])


def same_again(s: Scene) -> Plan:
    if len(s.touched) > 1:
        return order(s)
    it = copy_of(s.lines[latest(s) - 1], s)
    if s.rng.random() < 0.25:
        it["quantity"] = s.rng.choice([2, 2, 3, 4, 5])
        n = s.words.quantity(s.rng, it["quantity"]) if is_zh(s) else s.words.number(it["quantity"])
        return Plan(s.rng.choice(s.words.SAME_N).format(n=n), [add_call(it)])
    return Plan(s.rng.choice(s.words.SIMPLE["same"]), [add_call(it)])


def misheard(s: Scene) -> Plan:
    """I said matcha latte, not latte: the drink was wrong, the rest stays."""
    number = latest(s)
    line = s.lines[number - 1]
    new = s.rng.choice([d for d in s.shop.menu.drinks if d != line["drink"]])
    if any(line[k] not in s.shop.choices(new, k) for k in OPTIONS if line[k] != s.shop.default(line["drink"], k)):
        return change(s)
    x, y = s.rng.choice(s.words.NAMES[new]), s.rng.choice(s.words.NAMES[line["drink"]])
    return Plan(s.rng.choice(s.words.MISHEARD).format(x=x, y=y), [change_call(number, {"drink": new})])


def choice_to_choice(s: Scene) -> Plan:
    """The large one to medium; half sugar to no sugar."""
    rng = s.rng
    keys = [(i, k) for i, x in enumerate(s.lines, 1) for k in OPTIONS if x[k] != s.shop.default(x["drink"], k)]
    keys = [(i, k) for i, k in keys if sum(x[k] == s.lines[i - 1][k] for x in s.lines) == 1]
    if not keys:
        return change(s)
    number, key = rng.choice(keys)
    line = s.lines[number - 1]
    new = rng.choice([c for c in s.shop.choices(line["drink"], key) if c != line[key]] or [line[key]])
    old_word, new_word = rng.choice(s.words.BEFORE[line[key]]), rng.choice(s.words.BEFORE[new])
    said = rng.choice(s.words.OLD_TO_NEW).format(old=old_word, new=new_word)
    return Plan(said, [change_call(number, {key: new})])


def then_place(s: Scene) -> Plan:
    """A change and the order at once."""
    plan = s.rng.choice([change, remove, replace])(s)
    if len(plan.calls) != 1 or (plan.calls[0][0] == "remove" and len(s.lines) == 1):
        return plan
    said = plan.said + s.rng.choice(s.words.JOINT) + s.rng.choice(s.words.SIMPLE["place"])
    return Plan(said, [*plan.calls, ("place", {})], "placed")


def with_unsold(s: Scene) -> Plan:
    it = some_item(s, plain=0.5)
    other: Item = {"drink": "", "name": s.rng.choice(s.words.UNSOLD), "quantity": s.rng.choice([1, 1, 2])}
    items = [it, other] if s.rng.random() < 0.7 else [other, it]
    return Plan(s.words.order(s.rng, items, bool(s.lines)), [add_call(it)], "also_no_item")


def unsold(s: Scene) -> Plan:
    rng, x = s.rng, s.rng.choice(s.words.UNSOLD)
    if rng.random() < 0.4:
        return Plan(rng.choice(s.words.HAVE + s.words.PRICE).format(x=x), reply="no_item")
    it: Item = {"drink": "", "name": x, "quantity": rng.choice([1, 1, 2])}
    if rng.random() < 0.15:
        it[key] = rng.choice(list(s.shop.menu.options[key])) if (key := rng.choice(OPTIONS)) else None
    return Plan(s.words.order(rng, [it], bool(s.lines)), reply="no_item")


def absurd(s: Scene) -> Plan:
    it = some_item(s, plain=0.7)
    it["quantity"] = s.rng.choice(
        [40, 50, 60, 88, 99, 100, 100, 150, 200, 300, 500, 520, 800, 999, 1000, 1000, 2000, 5000]
    )
    return Plan(s.words.order(s.rng, [it], bool(s.lines)), [add_call(it)], pending=("quantity", it))


def partial(s: Scene) -> Plan:
    """Nothing to order yet: I want a … / large please, with no drink named."""
    rng = s.rng
    if rng.random() < 0.6 or s.lines:
        return Plan(rng.choice(s.words.PARTIAL) + rng.choice(["", "", "，", "…"]), reply="what", pending=("drink", {}))
    it = {key: rng.choice(list(s.shop.menu.options[key])) for key in rng.sample(OPTIONS, rng.choice([1, 1, 2]))}
    if rng.random() < 0.5:
        it["quantity"] = rng.choice([1, 2, 2, 3])
        return Plan(s.words.that_one(rng, it), reply="what", pending=("drink", it))
    lead = rng.choice(s.words.WANT) + (" " if s.words.__name__.endswith("en") else "")
    return Plan(lead + s.words.option_words(rng, it), reply="what", pending=("drink", it))


def category(s: Scene) -> Plan:
    """A name that fits several drinks: ask."""
    names, drinks = s.words.CATEGORY[s.rng.choice(list(s.words.CATEGORY))]
    it = {**some_item(s, plain=0.6), "toppings": [], "name": s.rng.choice(names), "drink": drinks[0]}
    it["ice"] = (
        it["ice"] if it["ice"] in ("less_ice", "no_ice", "hot", "light_ice") and drinks[0] != "mango_sago" else None
    )
    said = s.words.order(s.rng, [it], bool(s.lines))
    return Plan(said, reply="which", info={"drinks": drinks}, pending=("which", (drinks, it)))


def bad_option(s: Scene) -> Plan:
    """A choice that the drink does not have: it cannot be called; say what there is."""
    drink = s.rng.choice(["mango_sago", "mango_smoothie", "strawberry_milkshake", "cocoa"])
    it = {**some_item(s, plain=0.6), "drink": drink}
    allowed = s.shop.choices(drink, "ice")
    it["ice"] = s.rng.choice([c for c in s.shop.menu.options["ice"] if c not in allowed])
    info = {"drink": drink}
    if s.lines and s.rng.random() < 0.3:
        for number, line in enumerate(s.lines, 1):
            if line["drink"] == drink and number == latest(s):
                return Plan(s.words.change(s.rng, "", {"ice": it["ice"]}), reply="not_possible", info=info)
    return Plan(s.words.order(s.rng, [it], bool(s.lines)), reply="not_possible", info=info, pending=("bad", it))


# ---- changing ----


def change(s: Scene) -> Plan:
    picked = pick_line(s)
    if picked is None:
        return order(s)
    number, ref, _ = picked
    line = s.lines[number - 1]
    what = some_change(s, line)
    if list(what) == ["quantity"] and s.rng.random() < 0.6:
        n = s.words.quantity(s.rng, what["quantity"]) if is_zh(s) else s.words.number(what["quantity"])
        old = s.words.quantity(s.rng, line["quantity"])
        pattern = s.rng.choice([p for p in s.words.DOUBLE if ref or "{ref}" not in p])
        if number != latest(s) and "{ref}" not in pattern:
            pattern = "{ref}" + s.rng.choice(["要{n}", "改成{n}"]) if is_zh(s) else "make {ref} {n}"
        return Plan(pattern.format(n=n, old=old, ref=ref), [change_call(number, what)])
    said = s.words.change(s.rng, ref, what)
    while number != latest(s) and ref not in said:
        said = s.words.change(s.rng, ref, what)
    return Plan(said, [change_call(number, what)])


def some_cups(s: Scene) -> Plan:
    """One of them without ice."""
    many = [i for i, x in enumerate(s.lines, 1) if x["quantity"] > 1]
    if not many:
        return change(s)
    number = latest(s) if latest(s) in many else s.rng.choice(many)
    line = s.lines[number - 1]
    cups = s.rng.choice([1, 1, 1, max(1, line["quantity"] - 1), s.rng.randint(1, line["quantity"] - 1)])
    what = {k: v for k, v in some_change(s, line, plain=True).items() if k in OPTIONS}
    if not what:
        return change(s)
    if s.rng.random() < 0.15:
        free = [t for t in s.shop.menu.toppings if t not in line["toppings"]]
        what = {"add_toppings": [s.rng.choice(free)]}
    said_what = {**what, "toppings": what.get("add_toppings")}
    if number == latest(s):
        ref = ""
    else:
        ref = s.rng.choice(s.words.NAMES[line["drink"]])
        if sum(x["drink"] == line["drink"] for x in s.lines) > 1:
            return change(s)
    zh = is_zh(s)
    if len(s.lines) == 1 and line["quantity"] in (2, 3) and cups == 1 and s.rng.random() < 0.3:
        nth = s.rng.randint(1, line["quantity"])
        ref = (
            f"第{s.words.ORDINAL[nth]}杯"
            if zh
            else f"the {s.words.ORDINAL[nth]} {s.rng.choice(['one', 'cup', 'of the ' + s.words.number(line['quantity'])])}"
        )
        return Plan(s.words.change(s.rng, ref, what), [change_call(number, what, 1)])
    said = s.words.some_cups(s.rng, ref, cups, said_what)
    if ref and not said.startswith(ref):
        said = (
            ref + said
            if zh
            else said.replace("of them", f"of the {s.words.plural(ref)}").replace(
                "of those", f"of the {s.words.plural(ref)}"
            )
        )
        if not zh and ref not in said:
            said = f"for the {ref}, {said}"
    return Plan(said, [change_call(number, what, cups)])


def change_all(s: Scene) -> Plan:
    rng = s.rng
    key = rng.choice([*OPTIONS, "toppings"])
    if key == "toppings":
        t = rng.choice(list(s.shop.menu.toppings))
        if any(t in x["toppings"] for x in s.lines):
            return change(s)
        what: Item = {"add_toppings": [t]}
        said: Item = {"toppings": [t]}
    else:
        value = rng.choice(list(s.shop.menu.options[key]))
        if any(value not in s.shop.choices(x["drink"], key) for x in s.lines):
            return change(s)
        what = said = {key: value}
    if len(s.lines) < 2 and s.lines[0]["quantity"] < 2:
        return change(s)
    calls = [change_call(i, what) for i in range(1, len(s.lines) + 1)]
    return Plan(s.words.all_change(rng, {**said, "two": len(s.lines) == 2}), calls, "done")


def swap_topping(s: Scene) -> Plan:
    """No pearls, coconut jelly instead: a topping of the line, or what its name says."""
    rng = s.rng
    in_name = {
        "pearl_milk_tea": "pearls",
        "coconut_milk_tea": "coconut_jelly",
        "pudding_milk_tea": "pudding",
        "red_bean_milk_tea": "red_bean",
        "taro_milk_tea": "taro_balls",
        "grass_jelly_milk_tea": "grass_jelly",
    }
    drink_of = {topping: drink for drink, topping in in_name.items()}
    number = latest(s)
    line = s.lines[number - 1]
    ref = s.words.reference(rng, "latest", line, number, len(s.lines))
    if line["toppings"] and (line["drink"] not in in_name or rng.random() < 0.5):
        old = rng.choice(line["toppings"])
        new = rng.choice([t for t in s.shop.menu.toppings if t not in line["toppings"]])
        if in_name.get(line["drink"]) == old:
            return change(s)
        what = {"add_toppings": [new], "remove_toppings": [old]}
        back = {"add_toppings": [old], "remove_toppings": [new]}
        return Plan(
            s.words.swap(rng, old, new, ref), [change_call(number, what)], pending=("revert", (old, number, back))
        )
    if line["drink"] not in in_name or in_name[line["drink"]] in line["toppings"]:
        return change(s)
    old = in_name[line["drink"]]
    if rng.random() < 0.25:
        said = s.words.change(rng, ref, {"remove_toppings": [old]})
        return Plan(said, [change_call(number, {"drink": "milk_tea"})])
    new = rng.choice([t for t in drink_of if t != old])
    back = {"drink": line["drink"]}
    calls = [change_call(number, {"drink": drink_of[new]})]
    return Plan(s.words.swap(rng, old, new, ref), calls, pending=("revert", (old, number, back)))


def without_own(s: Scene) -> Plan:
    """Pearl milk tea without the pearls is original milk tea."""
    rng = s.rng
    drink, old = rng.choice(
        [
            ("pearl_milk_tea", "pearls"),
            ("coconut_milk_tea", "coconut_jelly"),
            ("pudding_milk_tea", "pudding"),
            ("red_bean_milk_tea", "red_bean"),
        ]
    )
    it = {**some_item(s, plain=0.6), "drink": drink, "toppings": []}
    t = s.words.topping(rng, old)
    zh = is_zh(s)
    tail = (
        rng.choice([f"不要{t}", f"，不要{t}", f"不加{t}", f"，别放{t}", f"去掉{t}"])
        if zh
        else rng.choice([f" without {t}", f", no {t}", f" without the {t}", f" with no {t}"])
    )
    said = s.words.wish(rng, bool(s.lines)) + s.words.item(rng, {**it, "size": None, "ice": None, "sugar": None}) + tail
    return Plan(said, [add_call({"drink": "milk_tea", "quantity": it["quantity"]})])


def replace(s: Scene) -> Plan:
    picked = pick_line(s)
    if picked is None:
        return order(s)
    number, ref, name = picked
    line = s.lines[number - 1]
    new = some_item(s, plain=0.6)
    while new["drink"] == line["drink"]:
        new = some_item(s, plain=0.6)
    told = s.rng.random() < 0.15
    args: dict[str, Any] = {"line": number, "drink": new["drink"]}
    if told:
        args["quantity"] = new["quantity"]
    args |= {k: new[k] for k in OPTIONS if new[k]}
    if new["toppings"]:
        args["toppings"] = new["toppings"]
    bare = not any(new[k] for k in OPTIONS) and not new["toppings"] and not told
    if bare:
        new_words = s.rng.choice(s.words.NAMES[new["drink"]])
    else:
        new_words = s.words.item(s.rng, new if told else {**new, "quantity": 1})
        if not told and line["quantity"] > 1:
            new_words = s.rng.choice(s.words.NAMES[new["drink"]])
            args = {"line": number, "drink": new["drink"]}
    if sum(x["drink"] == line["drink"] for x in s.lines) > 1 and (not ref or number != latest(s)):
        return order(s)
    said = s.words.replace(s.rng, ref, name, new_words)
    if sum(x["drink"] == line["drink"] for x in s.lines) > 1 and ref not in said:
        return order(s)
    return Plan(said, [("replace", args)], pending=("resold", (number, line)))


def remove(s: Scene) -> Plan:
    picked = pick_line(s)
    if picked is None:
        return order(s)
    number, ref, name = picked
    line = s.lines[number - 1]
    if sum(x["drink"] == line["drink"] for x in s.lines) > 1 and not ref:
        return order(s)
    if len(s.lines) > 1 and not ref:
        ref = name
    if line["quantity"] > 1 and s.rng.random() < 0.35 and sum(x["drink"] == line["drink"] for x in s.lines) == 1:
        cups = s.rng.choice([1, 1, s.rng.randint(1, line["quantity"] - 1)])
        said = s.words.remove(s.rng, "" if len(s.lines) == 1 and s.rng.random() < 0.5 else name, name, cups)
        return Plan(said, [("remove", {"line": number, "cups": cups})], "confirm_changed")
    if sum(x["drink"] == line["drink"] for x in s.lines) > 1:
        name = ref
    said = s.words.remove(s.rng, ref, name)
    return Plan(said, [("remove", {"line": number})], "removed", {"line": line})


def two_operations(s: Scene) -> Plan:
    """Two or three of change, remove, replace, add in one utterance, on different lines."""
    rng, n = s.rng, len(s.lines)
    said: list[str] = []
    changes: list[Call] = []
    cuts: list[tuple[int, Call]] = []
    adds: list[Call] = []
    used: set[int] = set()
    for _ in range(rng.choice([2, 2, 2, 3])):
        kind = rng.choice(["change", "change", "remove", "replace", "add"])
        if kind == "add" and len(adds) < 2:
            it = some_item(s, plain=0.5)
            said.append(s.words.order(rng, [it], True))
            adds.append(add_call(it))
            continue
        picked = pick_line(s, explicit=True)
        if picked is None or picked[0] in used or not picked[1] or len(used) >= n:
            continue
        number, ref, name = picked
        if sum(x["drink"] == s.lines[number - 1]["drink"] for x in s.lines) > 1:
            continue
        used.add(number)
        line = s.lines[number - 1]
        if kind == "remove":
            said.append(s.words.remove(rng, ref, name))
            cuts.append((number, ("remove", {"line": number})))
        elif kind == "replace":
            new = rng.choice([d for d in s.shop.menu.drinks if d != line["drink"]])
            said.append(s.words.replace(rng, ref, name, rng.choice(s.words.NAMES[new])))
            cuts.append((number, ("replace", {"line": number, "drink": new})))
        else:
            what = some_change(s, line)
            text = s.words.change(rng, ref, what)
            if ref not in text:
                used.discard(number)
                continue
            said.append(text)
            changes.append(change_call(number, what))
    changes.sort(key=lambda c: c[1]["line"])
    calls = changes + [c for _, c in sorted(cuts, key=lambda x: -x[0])] + adds
    if len(calls) < 2:
        return change(s)
    zh = is_zh(s)
    joint = ["，", "，然后", "，", "，还有", "，再", "。"] if zh else [", and ", " and ", ", then ", ". ", ", also "]
    text = said[0]
    for part in said[1:]:
        text += rng.choice(joint) + part
    return Plan(text, calls)


def clear(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SIMPLE["clear"])
    if s.rng.random() < 0.25:
        it = some_item(s, plain=0.5)
        joint = s.rng.choice(["，", "，重新来", "，换成"]) if is_zh(s) else s.rng.choice([", ", " and ", ". "])
        return Plan(said + joint + s.words.order(s.rng, [it], False), [("clear", {}), add_call(it)])
    return Plan(said, [("clear", {})], "cleared")


def missing_line(s: Scene) -> Plan:
    """A line that is not there."""
    rng, n = s.rng, len(s.lines)
    if rng.random() < 0.5 and n <= 8:
        number = rng.randint(n + 1, min(n + 3, 10))
        if any(x["quantity"] > 1 for x in s.lines):
            return change(s)
        zh = is_zh(s)
        ref = f"第{s.words.ORDINAL[number]}杯" if zh else f"the {s.words.ORDINAL[number]} one"
    else:
        others = [d for d in s.shop.menu.drinks if all(x["drink"] != d for x in s.lines)]
        ref = s.words.reference(rng, "name", {"drink": rng.choice(others)}, 1, 1)
        if is_zh(s) and "那" not in ref:
            ref += "那杯"
    if rng.random() < 0.5:
        return Plan(s.words.remove(rng, ref, ref), reply="no_line")
    what = {"size": "large"} if rng.random() < 0.5 else {"ice": "no_ice"}
    said = s.words.change(rng, ref, what)
    return Plan(said, reply="no_line") if ref in said else change(s)


def vague_remove(s: Scene) -> Plan:
    zh = is_zh(s)
    said = s.rng.choice(
        ["不要了", "算了不要了", "这个不要了", "取消吧"]
        if zh
        else ["never mind", "cancel that", "I don't want it", "remove it"]
    )
    if len(s.lines) == 1:
        return Plan(said, [("remove", {"line": 1})], "removed", {"line": s.lines[0]})
    if said in ("这个不要了", "cancel that", "I don't want it", "remove it") and s.touched:
        number = latest(s)
        return Plan(said, [("remove", {"line": number})], "removed", {"line": s.lines[number - 1]})
    return Plan(said, reply="which_line")


# ---- questions, and what is not about ordering ----


def look_up(s: Scene) -> Plan:
    rng = s.rng
    if rng.random() < 0.15:
        t = rng.choice(list(s.shop.menu.toppings))
        x = s.words.topping(rng, t)
        zh = is_zh(s)
        ask = rng.choice(
            ["加{x}多少钱", "加{x}要多少钱", "加一份{x}几块", "{x}多少钱一份"]
            if zh
            else ["how much to add {x}", "how much is extra {x}", "what does adding {x} cost"]
        )
        if rng.random() < 0.35:
            return Plan(rng.choice(s.words.HAVE).format(x=x), [("look_up", {"item": t})], "have_topping")
        return Plan(ask.format(x=x), [("look_up", {"item": t})], "topping", pending=("topping", t))
    d = rng.choice(list(s.shop.menu.drinks))
    x = rng.choice(s.words.NAMES[d])
    kind = rng.choice(["item", "item", "have", "have", "ice"])
    patterns = {"item": s.words.PRICE, "have": s.words.HAVE, "ice": s.words.HOT}[kind]
    return Plan(rng.choice(patterns).format(x=x), [("look_up", {"item": d})], kind, pending=("that", d))


def menu(s: Scene) -> Plan:
    return Plan(s.rng.choice(s.words.SIMPLE["menu"]), [("look_up", {})], "menu", pending=("menu", None))


def read_back(s: Scene) -> Plan:
    kind = s.rng.choice(["read_back", "finish", "finish", "total"])
    reply = "total" if kind == "total" else "read_back"
    return Plan(s.rng.choice(s.words.SIMPLE[kind]), [("read_back", {})], reply, pending=("confirm", None))


def place(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SIMPLE["place"])
    if not s.lines:
        return Plan(said, reply="empty")
    return Plan(said, [("place", {})], "placed")


def order_number(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SIMPLE["order_number"])
    return Plan(said, reply="number" if s.order_number is not None else "no_number")


def simple(kind: str, reply: str) -> Callable[[Scene], Plan]:
    def plan(s: Scene) -> Plan:
        said = s.rng.choice(s.words.SIMPLE[kind])
        if reply == "ack" and not s.lines:
            return Plan(said, reply="ack_empty")
        return Plan(said, reply=reply, pending=("more", None) if reply == "ack" else None)

    return plan


# ---- answers to what was asked ----


def follow_up(s: Scene) -> Plan | None:
    """The turn that answers the agent's question or takes up what was just talked about."""
    assert s.pending is not None
    rng, (kind, data) = s.rng, s.pending
    if kind == "confirm":
        if not s.lines:
            return None
        pick = rng.random()
        if pick < 0.7:
            return Plan(rng.choice(s.words.SIMPLE["yes"]), [("place", {})], "placed")
        return Plan(rng.choice(s.words.SIMPLE["no"]), reply="hold") if pick < 0.85 else None
    if kind == "that":
        it = {**some_item(s, plain=0.5), "drink": data}
        for key in OPTIONS:
            if it[key] not in s.shop.choices(data, key):
                it[key] = None
        if rng.random() < 0.5:
            it |= {"quantity": 1, "size": None, "ice": None, "sugar": None, "toppings": []}
        said = s.words.that_one(rng, it)
        if rng.random() < 0.1:
            return Plan(
                rng.choice(
                    ["不用了", "算了", "那不要了", "太贵了", "哦不用了"]
                    if is_zh(s)
                    else ["no thanks", "never mind", "too expensive", "no, not that"]
                ),
                reply="ack",
                pending=("more", None),
            )
        if rng.random() < 0.15:
            yes = [w for w in s.words.SIMPLE["yes"] if not w.startswith("下单")]
            return Plan(rng.choice(yes), [add_call({"drink": data})])
        return Plan(said, [add_call(it)])
    if kind == "revert":
        old, number, back = data
        if number > len(s.lines) or s.rng.random() < 0.6:
            return None
        said = rng.choice(s.words.BACK).format(old=s.words.topping(rng, old))
        return Plan(said, [change_call(number, back)])
    if kind == "more":
        return (
            Plan(rng.choice(s.words.NO_MORE), [("read_back", {})], "read_back", pending=("confirm", None))
            if s.lines
            else None
        )
    if kind == "topping":
        if not s.lines:
            return None
        number = latest(s)
        if data in s.lines[number - 1]["toppings"]:
            return None
        zh = is_zh(s)
        said = rng.choice(
            ["那加一份", "那加一个", "好，加一份", "加吧", "那帮我加上"]
            if zh
            else ["add it then", "okay add that", "yes add it", "then add some", "add one"]
        )
        return Plan(said, [change_call(number, {"add_toppings": [data]})])
    if kind == "drink":
        it = {**some_item(s, plain=0.7), **{"size": None, "ice": None, "sugar": None, "toppings": []}}
        given = dict(data)
        ice = given.get("ice")
        if ice and ice not in s.shop.choices(it["drink"], "ice"):
            return None
        it["quantity"] = 1
        said = rng.choice([rng.choice(s.words.NAMES[it["drink"]]), s.words.order(rng, [it], False)])
        if given.get("quantity", 1) > 1:
            said = rng.choice(s.words.NAMES[it["drink"]])
        return Plan(said, [add_call({**it, **given})])
    if kind == "which":
        drinks, it = data
        index = rng.randrange(len(drinks))
        d = drinks[index]
        if it.get("ice") and it["ice"] not in s.shop.choices(d, "ice"):
            return None
        zh = is_zh(s)
        ordinals = ["第一个", "第二个", "第三个"] if zh else ["the first one", "the second one", "the third one"]
        name = rng.choice(s.words.NAMES[d])
        said = rng.choice(
            [name, name, name + ("吧" if zh else " please"), ordinals[index], ("要" if zh else "the ") + name]
        )
        return Plan(said, [add_call({**it, "drink": d})])
    if kind == "bad" and rng.random() < 0.2:
        kind, data = "sold", {"quantity": data["quantity"]}
    if kind == "bad":
        choices = s.shop.choices(data["drink"], "ice")
        zh = is_zh(s)
        value = rng.choice(choices)
        if len(choices) == 1:
            said = rng.choice(
                ["那也行", "那就这样吧", "可以", "好的那来一杯吧"]
                if zh
                else ["that's fine", "okay then", "sure", "alright that's fine"]
            )
            return Plan(said, [add_call({**data, "ice": None})]) if rng.random() < 0.7 else None
        word = rng.choice(s.words.AFTER[value])
        said = (
            (rng.choice(["那就", "那", "", "就"]) + word + rng.choice(["", "吧"]))
            if zh
            else word.removeprefix("make it ") + rng.choice(["", " then", " please"])
        )
        return Plan(said, [add_call({**data, "ice": value})])
    if kind == "quantity":
        n = rng.choice([1, 2, 3, 4, 5, 10, 12, 15, 20, 30])
        zh = is_zh(s)
        q = s.words.quantity(rng, n) if zh else s.words.number(n)
        said = rng.choice(["", "", "我要", "就"]) + q if zh else rng.choice(["", "just ", "I want ", "make it "]) + q
        return Plan(said, [add_call({**data, "quantity": n})])
    if kind == "sold":
        it = some_item(s, plain=0.8)
        zh = is_zh(s)
        if rng.random() < 0.25:
            return Plan(
                rng.choice(
                    ["那算了", "算了", "不用了", "那不要了"] if zh else ["never mind", "no thanks", "forget it then"]
                ),
                reply="ack",
            )
        args = {**it, "quantity": data.get("quantity", 1)}
        words = (
            s.words.item(rng, {**it, "quantity": 1})
            if args["quantity"] == 1
            else rng.choice(s.words.NAMES[it["drink"]])
        )
        if args["quantity"] > 1:
            args |= {"size": None, "ice": None, "sugar": None, "toppings": []}
        lead = (
            rng.choice(["那换成", "那来", "那就", "换", "那要", "换成", "好，来"])
            if zh
            else rng.choice(["then ", "okay, ", "how about ", "I'll have ", "then give me "])
        )
        return Plan(lead + words + rng.choice(["", "吧" if zh else " please"]), [add_call(args)])
    if kind == "resold":
        number, line = data
        if number > len(s.lines) or s.lines[number - 1]["drink"] != line["drink"]:
            return None
        d = rng.choice([d for d in s.shop.menu.drinks if d != line["drink"]])
        zh = is_zh(s)
        name = rng.choice(s.words.NAMES[d])
        lead = (
            rng.choice(["那换成", "那就换", "换成"])
            if zh
            else rng.choice(["then change it to ", "then make it a ", "change it to "])
        )
        return Plan(lead + name, [("replace", {"line": number, "drink": d})])
    return None


EMPTY: list[tuple[float, Callable[[Scene], Plan]]] = [
    (46, order),
    (5, each),
    (8, split),
    (2.5, varieties),
    (2, order_with_split),
    (2.5, all_alike),
    (1.5, also),
    (5, corrected),
    (2.5, with_unsold),
    (3, unsold),
    (1.5, absurd),
    (3, partial),
    (2.5, category),
    (2, bad_option),
    (1.2, without_own),
    (4.5, look_up),
    (2, menu),
    (0.6, place),
    (0.7, order_number),
    (2.2, simple("greet", "greet")),
    (0.7, simple("thanks", "thanks")),
    (0.4, simple("bye", "bye")),
    (0.8, simple("wait", "wait")),
    (0.8, simple("ack", "ack")),
    (0.6, simple("abuse", "abuse")),
    (0.6, simple("who", "who")),
    (1.6, simple("chat", "chat")),
    (0.3, simple("options", "options")),
    (0.3, simple("sizes", "sizes")),
    (0.3, simple("extras", "extras")),
]
FILLED: list[tuple[float, Callable[[Scene], Plan]]] = [
    (15, order),
    (1.2, each),
    (2.5, split),
    (1, varieties),
    (0.5, order_with_split),
    (0.8, all_alike),
    (0.5, also),
    (1.5, corrected),
    (2, misheard),
    (2, choice_to_choice),
    (1, then_place),
    (3.5, same_again),
    (1, with_unsold),
    (1.2, unsold),
    (0.5, absurd),
    (1, partial),
    (1, category),
    (0.8, bad_option),
    (0.5, without_own),
    (20, change),
    (6, some_cups),
    (2.5, change_all),
    (3.5, swap_topping),
    (10, replace),
    (9, remove),
    (8, two_operations),
    (2.5, clear),
    (2, missing_line),
    (0.8, vague_remove),
    (3, look_up),
    (0.7, menu),
    (6, read_back),
    (3, place),
    (0.3, order_number),
    (0.4, simple("greet", "greet")),
    (0.7, simple("thanks", "thanks")),
    (0.3, simple("bye", "bye")),
    (0.8, simple("wait", "wait")),
    (1, simple("ack", "ack")),
    (0.4, simple("abuse", "abuse")),
    (0.3, simple("who", "who")),
    (1.2, simple("chat", "chat")),
    (0.3, simple("options", "options")),
    (0.2, simple("sizes", "sizes")),
    (0.2, simple("extras", "extras")),
]


def plan_turn(s: Scene) -> Plan:
    """The next turn of this dialogue."""
    if s.pending is not None and s.rng.random() < 0.75:
        plan = follow_up(s)
        if plan is not None:
            return plan
    table = FILLED if s.lines else EMPTY
    return s.rng.choices([f for _, f in table], [w for w, _ in table])[0](s)

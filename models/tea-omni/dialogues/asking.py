"""Scenarios that ask, end the order, or have nothing to do with ordering."""

from __future__ import annotations

from collections.abc import Callable

from .scene import Plan, Scene, is_zh, latest


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
            return Plan(rng.choice(s.words.SAY.have).format(x=x), [("look_up", {"item": t})], "have_topping")
        return Plan(ask.format(x=x), [("look_up", {"item": t})], "topping", pending=("topping", t))
    d = rng.choice(list(s.shop.menu.drinks))
    kind = rng.choice(["item", "item", "have", "have", "ice", "ice"])
    if kind == "ice" and rng.random() < 0.4:
        d = rng.choice(
            [d for d in s.shop.menu.drinks if len(s.shop.choices(d, "ice")) < len(s.shop.menu.options["ice"])]
        )
    x = rng.choice(s.words.SAY.names[d])
    patterns = {"item": s.words.SAY.price, "have": s.words.SAY.have, "ice": s.words.SAY.hot}[kind]
    return Plan(rng.choice(patterns).format(x=x), [("look_up", {"item": d})], kind, pending=("that", d))


def ask_of_it(s: Scene) -> Plan:
    """Whether the drink that was ordered last can be had hot, or with less ice: it is not named."""
    number = latest(s)
    choice = s.rng.choice(["hot", "hot", "no_ice", "less_ice"])
    said = s.rng.choice(s.words.SAY.possible[choice])
    calls = [("look_up", {"item": s.lines[number - 1]["drink"]})]
    return Plan(said, calls, "ice", pending=("asked", (number, choice)))


def options(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SAY.simple["options"])
    return Plan(said, reply="options", pending=("choose", None) if s.lines else None)


def about(s: Scene) -> Plan:
    """What sizes, sugar or toppings a drink can have: the same for every drink."""
    drink = s.rng.choice(list(s.shop.menu.drinks))
    kind = s.rng.choice(["sizes", "options", "extras"])
    said = s.rng.choice(s.words.SAY.about[kind]).format(x=s.rng.choice(s.words.SAY.names[drink]))
    return Plan(said, reply=kind, pending=("that", drink))


def menu(s: Scene) -> Plan:
    return Plan(s.rng.choice(s.words.SAY.simple["menu"]), [("look_up", {})], "menu")


def read_back(s: Scene) -> Plan:
    kind = s.rng.choice(["read_back", "finish", "finish", "total"])
    if kind == "finish" and s.pending and s.pending[0] == "confirm" and s.lines:
        return Plan(s.rng.choice(s.words.SAY.simple[kind]), [("place", {})], "placed")
    reply = "total" if kind == "total" else "read_back"
    return Plan(s.rng.choice(s.words.SAY.simple[kind]), [("read_back", {})], reply, pending=("confirm", None))


def place(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SAY.simple["place"])
    if not s.lines:
        return Plan(said, reply="empty")
    return Plan(said, [("place", {})], "placed")


def order_number(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SAY.simple["order_number"])
    return Plan(said, reply="number" if s.order_number is not None else "no_number")


def simple(kind: str, reply: str) -> Callable[[Scene], Plan]:
    def plan(s: Scene) -> Plan:
        said = s.rng.choice(s.words.SAY.simple[kind])
        if reply == "ack" and not s.lines:
            return Plan(said, reply="ack_empty")
        return Plan(said, reply=reply, pending=("more", None) if reply == "ack" else None)

    return plan

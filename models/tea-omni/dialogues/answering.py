"""Scenarios that answer the agent's question, or take up what was just talked about.

A turn leaves `pending = (kind, data)`; the function of that kind plans the next turn, or gives None when the caller
says something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .scene import OPTIONS, Item, Plan, Scene, add_call, change_call, is_zh, latest, some_change, some_item

PLAIN: Item = {"size": None, "ice": None, "sugar": None, "toppings": []}


def follow_up(s: Scene) -> Plan | None:
    assert s.pending is not None
    kind, data = s.pending
    return ANSWERS[kind](s, data)


def pick(s: Scene, zh: list[str], en: list[str]) -> str:
    return s.rng.choice(zh if is_zh(s) else en)


def confirm(s: Scene, _: Any) -> Plan | None:
    """Shall I place the order?"""
    if not s.lines:
        return None
    chance = s.rng.random()
    if chance < 0.7:
        return Plan(s.rng.choice(s.words.SAY.simple["yes"]), [("place", {})], "placed")
    return Plan(s.rng.choice(s.words.SAY.simple["no"]), reply="hold") if chance < 0.85 else None


def that(s: Scene, drink: str) -> Plan | None:
    """A drink was asked about: one of those, then."""
    rng = s.rng
    chance = rng.random()
    if chance < 0.1:
        zh = ["不用了", "算了", "那不要了", "太贵了", "哦不用了", "那算了吧"]
        en = ["no thanks", "never mind", "too expensive", "no, not that", "no, thank you"]
        return Plan(pick(s, zh, en), reply="ack", pending=("more", None))
    if chance < 0.25:
        yes = [w for w in s.words.SAY.simple["yes"] if not w.startswith("下单") and "confirm" not in w]
        return Plan(rng.choice(yes), [add_call({"drink": drink})])
    it = {**some_item(s, plain=0.5), "drink": drink}
    for key in OPTIONS:
        if it[key] not in s.shop.choices(drink, key):
            it[key] = None
    if rng.random() < 0.5:
        it |= {"quantity": 1, **PLAIN}
    return Plan(s.words.that_one(rng, it), [add_call(it)])


def revert(s: Scene, data: tuple[str, int, Item]) -> Plan | None:
    """The old one after all."""
    old, number, back = data
    if number > len(s.lines) or s.rng.random() < 0.6:
        return None
    held = set(s.lines[number - 1]["toppings"])
    if held & set(back.get("add_toppings", ())) or set(back.get("remove_toppings", ())) - held:
        return None
    said = s.rng.choice(s.words.SAY.back).format(old=s.words.topping(s.rng, old))
    return Plan(said, [change_call(number, back)])


def rest(s: Scene, number: int) -> Plan | None:
    """Some cups were made differently: and the others like this."""
    if number > len(s.lines) or s.rng.random() < 0.5:
        return None
    line = s.lines[number - 1]
    key = s.rng.choice(OPTIONS)
    choices = [c for c in s.shop.choices(line["drink"], key) if c != line[key]]
    if not choices:
        return None
    value = s.rng.choice(choices)
    words = [w for w in s.words.SAY.after[value] if not w.startswith(("make", "a ", "要"))]
    return Plan(s.rng.choice(s.words.SAY.rest).format(o=s.rng.choice(words)), [change_call(number, {key: value})])


def undo(s: Scene, data: tuple[int, Item]) -> Plan | None:
    """A topping was put in: no, leave it out."""
    number, what = data
    if number > len(s.lines) or s.rng.random() < 0.5:
        return None
    names = [t for t in what["add_toppings"] if t in s.lines[number - 1]["toppings"]]
    if not names:
        return None
    said = s.rng.choice(s.words.SAY.not_added)
    if s.rng.random() < 0.5:
        said = s.words.change(s.rng, "", {"remove_toppings": names})
    return Plan(said, [change_call(number, {"remove_toppings": names})])


def more(s: Scene, _: Any) -> Plan | None:
    """Anything else? No."""
    if not s.lines:
        return None
    return Plan(s.rng.choice(s.words.SAY.no_more), [("read_back", {})], "read_back", pending=("confirm", None))


def topping(s: Scene, name: str) -> Plan | None:
    """A topping was asked about: into the latest drink, then."""
    if not s.lines or name in s.lines[latest(s) - 1]["toppings"]:
        return None
    zh = ["那加一份", "那加一个", "好，加一份", "加吧", "那帮我加上", "那加"]
    en = ["add it then", "okay add that", "yes add it", "then add some", "add one", "put that in then"]
    return Plan(pick(s, zh, en), [change_call(latest(s), {"add_toppings": [name]})])


def drink(s: Scene, given: Item) -> Plan | None:
    """What would you like? Options said before hold."""
    rng = s.rng
    it = {**some_item(s, plain=0.5), "quantity": 1}
    if given:
        it |= PLAIN
    if given.get("ice") and given["ice"] not in s.shop.choices(it["drink"], "ice"):
        return None
    said = s.words.order(rng, [it], False)
    if given.get("quantity", 1) > 1 or (given and rng.random() < 0.5):
        said = rng.choice(s.words.SAY.names[it["drink"]])
    return Plan(said, [add_call({**it, **given})])


def which(s: Scene, data: tuple[list[str], Item]) -> Plan | None:
    """This one or that one? The name, or its place in the question."""
    drinks, it = data
    index = s.rng.randrange(len(drinks))
    chosen = drinks[index]
    if it.get("ice") and it["ice"] not in s.shop.choices(chosen, "ice"):
        return None
    ordinals = ["第一个", "第二个", "第三个"] if is_zh(s) else ["the first one", "the second one", "the third one"]
    name = s.rng.choice(s.words.SAY.names[chosen])
    zh = [name, name, name + "吧", ordinals[index], "要" + name, "来" + name]
    en = [name, name, name + " please", ordinals[index], "the " + name, "the " + name + " please"]
    said = pick(s, zh, en)
    it = {**it, "drink": chosen}
    if not it.get("ice") and name in said and s.rng.random() < 0.2:
        it["ice"] = s.rng.choice(s.shop.choices(chosen, "ice"))
        said += ("，" if is_zh(s) else ", ") + s.rng.choice(s.words.SAY.after[it["ice"]])
    return Plan(said, [add_call(it)])


def bad(s: Scene, it: Item) -> Plan | None:
    """It cannot be made like that: like this, then, or another drink."""
    if s.rng.random() < 0.2:
        return sold(s, {"quantity": it["quantity"]})
    choices = s.shop.choices(it["drink"], "ice")
    if len(choices) == 1:
        zh = ["那也行", "那就这样吧", "可以", "好的那来一杯吧", "那就正常冰吧", "也行"]
        en = ["that's fine", "okay then", "sure", "alright that's fine", "okay that's okay"]
        if it["quantity"] > 1:
            zh.remove("好的那来一杯吧")
        return Plan(pick(s, zh, en), [add_call({**it, "ice": None})]) if s.rng.random() < 0.7 else None
    value = s.rng.choice(choices)
    word = s.rng.choice(s.words.SAY.after[value])
    if is_zh(s):
        said = s.rng.choice(["那就", "那", "", "就"]) + word + s.rng.choice(["", "吧"])
    else:
        said = word.removeprefix("make it ") + s.rng.choice(["", " then", " please"])
    return Plan(said, [add_call({**it, "ice": value})])


def quantity(s: Scene, it: Item) -> Plan | None:
    """How many?"""
    n = s.rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30])
    if is_zh(s):
        said = s.rng.choice(["", "", "我要", "就", "说错了，", "不对，"]) + s.words.quantity(s.rng, n)
    else:
        said = s.rng.choice(["", "just ", "I want ", "make it ", "sorry, ", "I meant "]) + s.words.number(n)
    return Plan(said, [add_call({**it, "quantity": n})])


def sold(s: Scene, data: Item) -> Plan | None:
    """It is sold out: nothing then, or another drink, as many."""
    rng = s.rng
    if rng.random() < 0.25:
        zh = ["那算了", "算了", "不用了", "那不要了", "那没事了"]
        return Plan(pick(s, zh, ["never mind", "no thanks", "forget it then", "nothing then"]), reply="ack")
    it = {**some_item(s, plain=0.8), "quantity": data.get("quantity", 1)}
    if it["quantity"] > 1:
        it |= PLAIN
        words = rng.choice(s.words.SAY.names[it["drink"]])
    else:
        words = s.words.item(rng, it)
    zh = ["那换成", "那来", "那就", "换", "那要", "换成", "好，来"]
    en = ["then ", "okay, ", "how about ", "I'll have ", "then give me "]
    return Plan(pick(s, zh, en) + words + rng.choice(["", "吧" if is_zh(s) else " please"]), [add_call(it)])


def resold(s: Scene, data: tuple[int, dict[str, Any]]) -> Plan | None:
    """What a line was to be replaced by is sold out: by something else."""
    number, line = data
    if number > len(s.lines) or s.lines[number - 1]["drink"] != line["drink"]:
        return None
    new = s.rng.choice([d for d in s.shop.menu.drinks if d != line["drink"]])
    lead = pick(s, ["那换成", "那就换", "换成"], ["then change it to ", "then make it a ", "change it to "])
    return Plan(lead + s.rng.choice(s.words.SAY.names[new]), [("replace", {"line": number, "drink": new})])


def owners(s: Scene, owned: list[tuple[str, int, str]]) -> Plan | None:
    """Drinks were ordered for several people: my friend's is to be another way, or is not wanted."""
    who, number, drink = s.rng.choice(owned)
    if number > len(s.lines) or s.lines[number - 1]["drink"] != drink:
        return None
    ref = s.words.of_whom(s.rng, who)
    if s.rng.random() < 0.2:
        line = s.lines[number - 1]
        return Plan(s.words.remove(s.rng, ref, ref), [("remove", {"line": number})], "removed", {"line": line})
    what = some_change(s, s.lines[number - 1])
    said = s.words.change(s.rng, ref, what)
    return Plan(said, [change_call(number, what)]) if ref in said else None


def asked(s: Scene, data: tuple[int, str]) -> Plan | None:
    """Can it be had like that? Then like that, or as it was."""
    number, choice = data
    if number > len(s.lines):
        return None
    line = s.lines[number - 1]
    if choice in s.shop.choices(line["drink"], "ice") and choice != line["ice"] and s.rng.random() < 0.6:
        word = s.rng.choice(s.words.SAY.after[choice])
        lead = pick(s, ["那", "那就", "好，", "行，", "嗯，"], ["then ", "okay, ", "yes, ", "great, ", ""])
        return Plan(lead + word + pick(s, ["", "吧"], ["", " please"]), [change_call(number, {"ice": choice})])
    return Plan(s.rng.choice(s.words.SAY.as_it_was), reply="ack", pending=("more", None))


def choose(s: Scene, _: Any) -> Plan | None:
    """What can be chosen was told: this, for the drink that was ordered last."""
    if not s.lines:
        return None
    number, key = latest(s), s.rng.choice(["sugar", "sugar", "ice"])
    line = s.lines[number - 1]
    free = [choice for choice in s.shop.choices(line["drink"], key) if choice != line[key]]
    if not free:
        return None
    choice = s.rng.choice(free)
    lead = pick(
        s, ["那要", "那就", "就", "", "我要", "那给我", "好，"], ["then ", "okay, ", "", "I'll take ", "let's do "]
    )
    said = lead + s.rng.choice(s.words.SAY.plain[choice]) + pick(s, ["", "吧", "的吧"], ["", " then", " please"])
    return Plan(said.replace("的的", "的"), [change_call(number, {key: choice})])


ANSWERS: dict[str, Callable[[Scene, Any], Plan | None]] = {
    "confirm": confirm,
    "that": that,
    "revert": revert,
    "more": more,
    "rest": rest,
    "undo": undo,
    "topping": topping,
    "drink": drink,
    "which": which,
    "bad": bad,
    "quantity": quantity,
    "sold": sold,
    "resold": resold,
    "owners": owners,
    "asked": asked,
    "choose": choose,
}

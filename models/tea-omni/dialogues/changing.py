"""Scenarios that change what is in the cart."""

from __future__ import annotations

from typing import Any

from .ordering import order
from .scene import (
    OPTIONS,
    OWN,
    Call,
    Item,
    Plan,
    Scene,
    add_call,
    change_call,
    is_zh,
    latest,
    pick_line,
    some_change,
    some_item,
)


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
        pattern = s.rng.choice([p for p in s.words.SAY.double if ref or "{ref}" not in p])
        if number != latest(s) and "{ref}" not in pattern:
            pattern = "{ref}" + s.rng.choice(["要{n}", "改成{n}"]) if is_zh(s) else "make {ref} {n}"
        return Plan(pattern.format(n=n, old=old, ref=ref), [change_call(number, what)])
    said = s.words.change(s.rng, ref, what)
    while number != latest(s) and ref not in said:
        said = s.words.change(s.rng, ref, what)
    pending = ("undo", (number, what)) if list(what) == ["add_toppings"] else None
    return Plan(said, [change_call(number, what)], pending=pending)


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
        ref = s.rng.choice(s.words.SAY.names[line["drink"]])
        if sum(x["drink"] == line["drink"] for x in s.lines) > 1:
            return change(s)
    zh = is_zh(s)
    if len(s.lines) == 1 and line["quantity"] in (2, 3) and cups == 1 and s.rng.random() < 0.3:
        nth = s.rng.randint(1, line["quantity"])
        nth_name = s.words.ORDINAL[nth]
        tail = s.rng.choice(["one", "cup", "of the " + s.words.number(line["quantity"])])
        ref = f"第{nth_name}杯" if zh else f"the {nth_name} {tail}"
        said = s.words.change(s.rng, ref, what)
        while ref not in said:
            said = s.words.change(s.rng, ref, what)
        return Plan(said, [change_call(number, what, 1)])
    said = s.words.some_cups(s.rng, ref, cups, said_what, line["quantity"] - cups)
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
    return Plan(said, [change_call(number, what, cups)], pending=("rest", number))


def replace_cups(s: Scene) -> Plan:
    """One of them becomes another drink."""
    many = [i for i, x in enumerate(s.lines, 1) if x["quantity"] > 1]
    if not many:
        return replace(s)
    number = latest(s) if latest(s) in many else s.rng.choice(many)
    line = s.lines[number - 1]
    cups = s.rng.choice([1, 1, 1, s.rng.randint(1, line["quantity"] - 1)])
    new = s.rng.choice([d for d in s.shop.menu.drinks if d != line["drink"]])
    name = s.rng.choice(s.words.SAY.names[line["drink"]])
    single = sum(x["drink"] == line["drink"] for x in s.lines) == 1
    patterns = [
        p
        for p in s.words.SAY.one_to
        if ("name" in p or "ref" in p) == (number != latest(s)) or (single and "name" in p)
    ]
    if number != latest(s) and not single:
        return replace(s)
    n = s.words.count(cups) + s.rng.choice(["杯", "杯", "个"]) if is_zh(s) else s.words.number(cups)
    new_name = s.rng.choice(s.words.SAY.names[new])
    if not is_zh(s):
        new_name = "a " + new_name if cups == 1 else s.words.plural(new_name)
    names = name if is_zh(s) else s.words.plural(name)
    said = s.rng.choice(patterns).format(n=n, ref=name, name=name, names=names, new=new_name)
    return Plan(said, [("replace", {"line": number, "drink": new, "cups": cups})])


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


def misheard(s: Scene) -> Plan:
    """I said matcha latte, not latte: the drink was wrong, the rest stays."""
    number = latest(s)
    line = s.lines[number - 1]
    new = s.rng.choice([d for d in s.shop.menu.drinks if d != line["drink"]])
    if any(line[k] not in s.shop.choices(new, k) for k in OPTIONS if line[k] != s.shop.default(line["drink"], k)):
        return change(s)
    x, y = s.rng.choice(s.words.SAY.names[new]), s.rng.choice(s.words.SAY.names[line["drink"]])
    return Plan(s.rng.choice(s.words.SAY.misheard).format(x=x, y=y), [change_call(number, {"drink": new})])


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
    old_word, new_word = rng.choice(s.words.SAY.before[line[key]]), rng.choice(s.words.SAY.before[new])
    said = rng.choice(s.words.SAY.old_to_new).format(old=old_word, new=new_word)
    return Plan(said, [change_call(number, {key: new})])


def swap_topping(s: Scene) -> Plan:
    """No pearls, coconut jelly instead: a topping of the line, or what its name says."""
    rng = s.rng
    drink_of = {topping: drink for drink, topping in OWN.items()}
    number = latest(s)
    line = s.lines[number - 1]
    ref = s.words.reference(rng, "latest", line, number, len(s.lines))
    if line["toppings"] and (line["drink"] not in OWN or rng.random() < 0.5):
        old = rng.choice(line["toppings"])
        new = rng.choice([t for t in s.shop.menu.toppings if t not in line["toppings"]])
        if OWN.get(line["drink"]) == old:
            return change(s)
        what = {"add_toppings": [new], "remove_toppings": [old]}
        back = {"add_toppings": [old], "remove_toppings": [new]}
        return Plan(
            s.words.swap(rng, old, new, ref), [change_call(number, what)], pending=("revert", (old, number, back))
        )
    if line["drink"] not in OWN or OWN[line["drink"]] in line["toppings"]:
        return change(s)
    old = OWN[line["drink"]]
    if rng.random() < 0.25:
        said = s.words.change(rng, ref, {"remove_toppings": [old]})
        return Plan(said, [change_call(number, {"drink": "milk_tea"})])
    new = rng.choice([t for t in drink_of if t != old])
    back = {"drink": line["drink"]}
    calls = [change_call(number, {"drink": drink_of[new]})]
    return Plan(s.words.swap(rng, old, new, ref), calls, pending=("revert", (old, number, back)))


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
        new_words = s.rng.choice(s.words.SAY.names[new["drink"]])
    else:
        new_words = s.words.item(s.rng, new if told else {**new, "quantity": 1})
        if not told and line["quantity"] > 1:
            new_words = s.rng.choice(s.words.SAY.names[new["drink"]])
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
            said.append(s.words.replace(rng, ref, name, rng.choice(s.words.SAY.names[new])))
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


def two_lines(s: Scene) -> Plan:
    """The same for two of several lines: the first and the third large, or not at all; or only one is kept."""
    rng, n = s.rng, len(s.lines)
    if n < 2:
        return change(s)
    first = pick_line(s, explicit=True)
    if first is None or not first[1]:
        return change(s)
    if rng.random() < 0.3:
        calls: list[Call] = [("remove", {"line": i}) for i in range(n, 0, -1) if i != first[0]]
        return Plan(rng.choice(s.words.SAY.keep_only).format(ref=first[1]), calls)
    second = pick_line(s, explicit=True, avoid=first[0])
    if second is None or second[0] == first[0] or not second[1] or n < 3:
        return change(s)
    ref = s.words.refs(rng, [first[1], second[1]])
    numbers = sorted((first[0], second[0]))
    if rng.random() < 0.5:
        return Plan(s.words.remove(rng, ref, ref), [("remove", {"line": i}) for i in reversed(numbers)])
    key = rng.choice(OPTIONS)
    shared = [
        c for c in s.shop.menu.options[key] if all(c in s.shop.choices(s.lines[i - 1]["drink"], key) for i in numbers)
    ]
    if not shared:
        return change(s)
    what = {key: rng.choice(shared)}
    said = s.words.change(rng, ref, what)
    while ref not in said:
        said = s.words.change(rng, ref, what)
    return Plan(said, [change_call(i, what) for i in numbers])


def then_place(s: Scene) -> Plan:
    """A change and the order at once."""
    plan = s.rng.choice([change, remove, replace])(s)
    if len(plan.calls) != 1 or (plan.calls[0][0] == "remove" and len(s.lines) == 1):
        return plan
    said = plan.said + s.rng.choice(s.words.SAY.joint) + s.rng.choice(s.words.SAY.simple["place"])
    return Plan(said, [*plan.calls, ("place", {})], "placed")


def clear(s: Scene) -> Plan:
    said = s.rng.choice(s.words.SAY.simple["clear"])
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

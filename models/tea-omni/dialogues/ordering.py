"""Scenarios that put drinks into the cart, or try to."""

from __future__ import annotations

from .scene import OPTIONS, OWN, Call, Item, Plan, Scene, add_call, clean, copy_of, is_zh, latest, pick_line, some_item


def order(s: Scene) -> Plan:
    k = s.rng.choices([1, 2, 3, 4, 5], [45, 27, 17, 7, 4])[0]
    items = [some_item(s, plain=0.25 * (k - 1) + 0.1) for _ in range(k)]
    calls = [add_call(it) for it in items]
    said = s.words.order(s.rng, items, bool(s.lines))
    pick = s.rng.random()
    if pick < 0.05:
        said = s.rng.choice(s.words.SAY.before_order) + said
    elif pick < 0.09:
        said += s.rng.choice(s.words.SAY.joint) + s.rng.choice(s.words.SAY.simple["finish"])
    elif pick < 0.12:
        return Plan(
            said + s.rng.choice(s.words.SAY.joint) + s.rng.choice(s.words.SAY.simple["place"]),
            [*calls, ("place", {})],
            "placed",
        )
    return Plan(said, calls)


def for_others(s: Scene) -> Plan:
    """Drinks for several people, who are named; the next turn may mean a drink by its owner."""
    rng = s.rng
    me, *others = s.words.SAY.people
    people = rng.sample(others, rng.choice([2, 2, 2, 3]))
    if rng.random() < 0.6:
        people[rng.choice([0, -1])] = me
    held = {line["drink"] for line in s.lines}
    items = [{**some_item(s, plain=0.4), "quantity": 1} for _ in people]
    if rng.random() < 0.3:
        items[1]["drink"] = items[0]["drink"]
        for key in OPTIONS:
            if items[1][key] not in s.shop.choices(items[1]["drink"], key):
                items[1][key] = None
    calls = [add_call(it) for it in items]
    if held & {it["drink"] for it in items} or any(call in calls[:i] for i, call in enumerate(calls)):
        return order(s)
    owned = [(who, len(s.lines) + i, it["drink"]) for i, (who, it) in enumerate(zip(people, items, strict=True), 1)]
    return Plan(s.words.for_others(rng, people, items), calls, pending=("owners", owned))


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


def by_turns(s: Scene) -> Plan:
    """Two or three drinks, and then what holds for the first and for the second."""
    rng = s.rng
    items = [{**some_item(s, plain=1), "quantity": 1} for _ in range(rng.choice([2, 2, 2, 3]))]
    said = s.words.order(rng, items, bool(s.lines))
    words = []
    for it in items:
        key = rng.choice([k for k in OPTIONS if len(s.shop.choices(it["drink"], k)) > 1])
        it[key] = rng.choice(s.shop.choices(it["drink"], key))
        words.append(rng.choice([w for w in s.words.SAY.after[it[key]] if not w.startswith(("make", "a "))]))
    if rng.random() < 0.6 or len({it["drink"] for it in items}) < len(items):
        return Plan(said + s.words.by_turns(rng, words), [add_call(it) for it in items])
    one = rng.randrange(len(items))
    for other in items[:one] + items[one + 1 :]:
        other |= dict.fromkeys(OPTIONS)
    name = rng.choice(s.words.SAY.names[items[one]["drink"]])
    joint = rng.choice(["", "要", "那杯"]) if is_zh(s) else " "
    return Plan(said + rng.choice(s.words.SAY.joint[:3]) + name + joint + words[one], [add_call(it) for it in items])


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
    said = s.words.order(rng, [first], bool(s.lines)) + rng.choice(s.words.SAY.conjunctions)
    name = rng.choice(s.words.SAY.names[second["drink"]])
    word = rng.choice(s.words.SAY.before[first[key]])
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
    said = s.words.wish(rng, bool(s.lines)) + s.words.varieties(rng, drink, parts, key) + rng.choice(s.words.SAY.end)
    return Plan(said, [add_call(part) for part in parts])


def each(s: Scene) -> Plan:
    n = s.rng.choice([1, 1, 2, 2, 3, 4, 5])
    drinks = s.rng.sample(list(s.shop.menu.drinks), s.rng.choice([2, 2, 3]))
    items = [{"drink": d, "quantity": n} for d in drinks]
    return Plan(s.words.each(s.rng, items, n, bool(s.lines)), [add_call(it) for it in items])


def split(s: Scene) -> Plan:
    """Two cups, one without ice, one with less; or three, one of them without sugar."""
    said, calls, _ = shared_out(s)
    return Plan("".join(said), calls)


def shared_out(s: Scene) -> tuple[list[str], list[Call], bool]:
    """What is said: the cups, then each part of them; the calls; and whether only some of the cups are spoken of."""
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
    return s.words.split(rng, shared, parts, bool(s.lines), some), calls, some


def order_with_split(s: Scene) -> Plan:
    """Several drinks in one breath, one of them divided."""
    one, two = order(s), split(s)
    if any(name != "add" for name, _ in one.calls) or len(one.calls) > 2:
        return two
    pair = [one, two] if s.rng.random() < 0.5 else [two, one]
    return Plan(pair[0].said + s.rng.choice(s.words.SAY.joint) + pair[1].said, pair[0].calls + pair[1].calls)


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
        key = s.rng.choice([k for k in OPTIONS if len(s.shop.choices(it["drink"], k)) > 1])
        it[key] = s.rng.choice([c for c in s.shop.choices(it["drink"], key) if c != s.lines[latest(s) - 1][key]])
        words = [w for w in s.words.SAY.after[it[key]] if not w.startswith("make")]
        return Plan(s.rng.choice(s.words.SAY.same_but).format(o=s.rng.choice(words)), [add_call(it)])
    if len(s.lines) > 1 and s.rng.random() < 0.2:
        picked = pick_line(s, explicit=True)
        if picked and picked[1]:
            it = copy_of(s.lines[picked[0] - 1], s)
            return Plan(s.rng.choice(s.words.SAY.same_as).format(ref=picked[1]), [add_call(it)])
    if s.rng.random() < 0.25:
        it["quantity"] = s.rng.choice([2, 2, 3, 4, 5])
        n = s.words.quantity(s.rng, it["quantity"]) if is_zh(s) else s.words.number(it["quantity"])
        return Plan(s.rng.choice(s.words.SAY.same_n).format(n=n), [add_call(it)])
    return Plan(s.rng.choice(s.words.SAY.simple["same"]), [add_call(it)])


def with_unsold(s: Scene) -> Plan:
    it = some_item(s, plain=0.5)
    other: Item = {"drink": "", "name": s.rng.choice(s.words.SAY.unsold), "quantity": s.rng.choice([1, 1, 2])}
    items = [it, other] if s.rng.random() < 0.7 else [other, it]
    return Plan(s.words.order(s.rng, items, bool(s.lines)), [add_call(it)], "also_no_item")


def unsold(s: Scene) -> Plan:
    rng, x = s.rng, s.rng.choice(s.words.SAY.unsold)
    if rng.random() < 0.4:
        return Plan(rng.choice(s.words.SAY.have + s.words.SAY.price).format(x=x), reply="no_item")
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
        return Plan(
            rng.choice(s.words.SAY.partial) + rng.choice(["", "", "，", "…"]), reply="what", pending=("drink", {})
        )
    it = {key: rng.choice(list(s.shop.menu.options[key])) for key in rng.sample(OPTIONS, rng.choice([1, 1, 2]))}
    if rng.random() < 0.5:
        it["quantity"] = rng.choice([1, 2, 2, 3])
        return Plan(s.words.that_one(rng, it), reply="what", pending=("drink", it))
    lead = rng.choice(s.words.SAY.want) + (" " if s.words.__name__.endswith("en") else "")
    return Plan(lead + s.words.option_words(rng, it), reply="what", pending=("drink", it))


def category(s: Scene) -> Plan:
    """A name that fits several drinks: ask."""
    names, drinks = s.words.SAY.category[s.rng.choice(list(s.words.SAY.category))]
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


def milk_with_topping(s: Scene) -> Plan:
    """Original milk tea with what another milk tea is named after; it is often changed again."""
    it: Item = {"drink": "milk_tea", "toppings": [s.rng.choice(list(OWN.values()))]}
    it["quantity"] = s.rng.choice([1, 1, 1, 2, 3])
    if s.rng.random() < 0.3:
        key = s.rng.choice(OPTIONS)
        it[key] = s.rng.choice(s.shop.choices("milk_tea", key))
    return Plan(s.words.order(s.rng, [it], bool(s.lines)), [add_call(it)])

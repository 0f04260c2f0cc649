"""How English callers say things, and how the agent answers them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from voice_agent.tea.numbers import english as number

from . import zh
from .words import phrases

Item = dict[str, Any]
SAY = phrases("en")
DRINK = {name: words[0] for name, words in SAY.names.items()}


def count(value: int) -> str:
    return number(value)


def yuan(value: float) -> str:
    whole = int(value)
    return number(whole) + (" point five" if value != whole else "") + " yuan"


def plural(name: str) -> str:
    if " with " in name:
        head, tail = name.split(" with ", 1)
        return f"{head}s with {tail}"
    return name + "s" if not name.endswith("s") else name


def named(rng: random.Random, drink: str, n: int) -> str:
    if rng.random() < 0.03:
        return zh.DRINK[drink]
    name = rng.choice(SAY.names[drink])
    return name if n == 1 or rng.random() < 0.2 else plural(name)


def quantity(rng: random.Random, value: int) -> str:
    if value == 1:
        return rng.choice(["one", "one", "a", "a", "a", "1"])
    if value == 2 and rng.random() < 0.15:
        return rng.choice(["a couple of", "a couple", "a pair of"])
    if value == 6 and rng.random() < 0.3:
        return "half a dozen"
    if value == 12 and rng.random() < 0.3:
        return "a dozen"
    return str(value) if rng.random() < 0.15 else number(value)


def topping(rng: random.Random, name: str) -> str:
    return rng.choice(SAY.said_topping.get(name, [SAY.topping[name]]))


def toppings(rng: random.Random, names: Sequence[str]) -> str:
    names = list(names)
    rng.shuffle(names)
    words = [topping(rng, n) for n in names]
    if len(words) == 1 or rng.random() < 0.6:
        body = rng.choice([" and ", " and ", " plus "]).join(words)
        return rng.choice(["with ", "add ", "plus ", "and add ", "with extra ", "extra "]) + body
    return ", ".join(rng.choice(["add ", "with ", "plus "]) + w for w in words)


def said_options(item: Item) -> list[str]:
    return [item[key] for key in ("size", "ice", "sugar") if item.get(key)]


def with_options(words: Sequence[str]) -> str:
    """less ice and half sugar, each word once led by "with"."""
    plain = [w.removeprefix("with ") for w in words]
    return "and ".join([", ".join(plain[:-1]) + " ", plain[-1]]) if len(plain) > 1 else plain[0]


def item(rng: random.Random, it: Item, manner: tuple[float, int] | None = None) -> str:
    n = it.get("quantity", 1)
    name = it.get("name") or named(rng, it["drink"], n)
    options = said_options(it)
    rng.shuffle(options)
    cut = min(manner[1], len(options)) if manner else rng.choice([0, len(options), rng.randint(0, len(options))])
    if it.get("size") and rng.random() < 0.7 and it["size"] in options[cut:]:
        options.remove(it["size"])
        options.insert(0, it["size"])
        cut = max(1, cut)
    before = " ".join(rng.choice(SAY.before[o]) for o in options[:cut])
    after = [rng.choice(SAY.after[o]) for o in options[cut:]]
    tops = it.get("toppings") or []
    if tops:
        after.insert(rng.randint(0, len(after)), toppings(rng, tops))
    style = manner[0] if manner else rng.random()
    if style < 0.8:
        q = quantity(rng, n) if n > 1 or rng.random() < 0.85 else ""
        core = " ".join(x for x in (q, before, name) if x)
    elif style < 0.9 and n > 1:
        core = " ".join(x for x in (before, name, rng.choice(["times", "x", ","]), number(n)) if x)
    else:
        core = " ".join(x for x in (quantity(rng, n), name, before) if x)
    if not after:
        return core
    if rng.random() < 0.5 and len(after) > 1 and not tops:
        return core + rng.choice([" with ", " with ", ", "]) + with_options(after)
    joint = rng.choice([", ", " ", " with ", " with "])
    rest = rng.choice([", ", " and ", ", "]).join(after)
    if joint == " with " and rest.startswith(
        ("with", "add", "make", "without", "in ", "plus", "hold", "skip", "extra", "and", "not", "a ")
    ):
        joint = " "
    return core + joint + rest


def wish(rng: random.Random, more: bool) -> str:
    if more and rng.random() < 0.15:
        return ""
    choice = rng.choice(["", *SAY.want, *SAY.want]) if not more or rng.random() < 0.4 else rng.choice(SAY.more)
    return choice + " " if choice else ""


def order(rng: random.Random, items: Sequence[Item], more: bool) -> str:
    text = wish(rng, more)
    manner = (rng.random(), rng.choice([0, 3])) if len(items) > 1 and rng.random() < 0.8 else None
    joint = rng.choice([", ", ", ", ", and ", " and "]) if manner and rng.random() < 0.4 else ""
    for index, it in enumerate(items):
        text += ((joint or rng.choice(SAY.conjunctions)) if index else "") + item(rng, it, manner)
    return text + rng.choice(SAY.end)


def each(rng: random.Random, items: Sequence[Item], n: int, more: bool) -> str:
    names = [rng.choice(SAY.names[it["drink"]]) for it in items]
    body = ", ".join(names[:-1]) + " and " + names[-1]
    return (
        wish(rng, more)
        + rng.choice(
            [
                f"{body}, {number(n)} each",
                f"{number(n)} each of {body}",
                f"{number(n)} of each, {body}",
                f"{body}, {number(n)} of each",
            ]
        )
        + rng.choice(SAY.end)
    )


def for_all(rng: random.Random, value: str, n: int) -> str:
    word = rng.choice([w for w in SAY.after[value] if not w.startswith(("make", "a "))])
    lead = rng.choice(
        ["both", "both", "both of them"] if n == 2 else ["all", "all of them", "all three" if n == 3 else "all"]
    )
    joint = (
        " "
        if word.startswith(("with", "in ", "hold", "skip", "hot", "large", "small", "medium"))
        else rng.choice([" ", " with "])
    )
    return rng.choice([", ", " "]) + lead + joint + word


def varieties(rng: random.Random, drink: str, parts: Sequence[Item], key: str) -> str:
    name = rng.choice(SAY.names[drink])
    n = sum(p["quantity"] for p in parts)
    if rng.random() < 0.5:
        bits = [quantity(rng, p["quantity"]) + " " + rng.choice(SAY.before[p[key]]) for p in parts]
        return (
            rng.choice([" and ", ", "]).join([", ".join(bits[:-1]), bits[-1]])
            + " "
            + (plural(name) if rng.random() < 0.6 else name)
        )
    bits = [
        number(p["quantity"])
        + rng.choice([" ", " with "]) * (key != "size")
        + " " * (key == "size")
        + rng.choice([w for w in SAY.after[p[key]] if not w.startswith(("make", "with", "in ", "a "))])
        for p in parts
    ]
    return (
        plural(name) + rng.choice([", ", " "]) + rng.choice([" and ", ", "]).join([", ".join(bits[:-1]), bits[-1]])
        if n > 1
        else name
    )


def option_words(rng: random.Random, it: Item) -> str:
    words = [rng.choice(SAY.after[o]) for o in said_options(it)]
    rng.shuffle(words)
    if it.get("toppings"):
        words.append(toppings(rng, it["toppings"]))
    return rng.choice([" and ", ", "]).join(words)


def split(rng: random.Random, shared: Item, parts: Sequence[Item], more: bool, some: bool) -> list[str]:
    total = sum(p["quantity"] for p in parts)
    head = wish(rng, more) + item(rng, {**shared, "quantity": total})
    bits = []
    for index, part in enumerate(parts[:1] if some else parts):
        n = number(part["quantity"])
        lead = (
            rng.choice([f"{n} of them", f"{n} of those", f"make {n} of them"])
            if some or (index == 0 and rng.random() < 0.3)
            else n
        )
        if index and rng.random() < 0.35:
            lead = (
                rng.choice(["the other", "the other one"])
                if part["quantity"] == 1
                else rng.choice([f"the other {n}", "the rest", "the others"])
            )
        none = ["without", "plain", "with nothing"] if parts[0].get("toppings") else ["normal", "regular", "as is"]
        words = option_words(rng, part) or rng.choice(none)
        joint = (
            rng.choice([" ", " with "])
            if not words.startswith(
                ("with", "add", "make", "without", "in ", "plus", "hold", "skip", "extra", "and", "not", "a ", "hot")
            )
            else " "
        )
        bits.append(lead + joint + words)
    head += rng.choice([", ", ". ", " "])
    between = rng.choice([" and ", ", ", " and "])
    return [head, *(bit + between for bit in bits[:-1]), bits[-1] + rng.choice(SAY.end[:8])]


def corrected_order(rng: random.Random, wrong: Item, right: Item, what: str, more: bool) -> str:
    no = rng.choice([", ", ", ", " ", ". "]) + rng.choice(SAY.no)
    head = wish(rng, more) + item(rng, wrong)
    if what == "drink":
        tail = rng.choice(["", "a ", "the ", "I want "]) + rng.choice(SAY.names[right["drink"]])
    elif what == "quantity":
        tail = number(right["quantity"])
    else:
        tail = rng.choice(["", "make it "]) + rng.choice(SAY.before[right[what]])
    return head + no + tail + rng.choice(SAY.end[:9])


ORDINAL = ["", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


def reference(rng: random.Random, how: str, line: Mapping[str, Any], number_: int, total: int) -> str:
    name = rng.choice(SAY.names[line["drink"]])
    if how == "latest":
        last = ["the last one"] if number_ == total else []
        return rng.choice(["that one", "it", "that", "this one", "that drink", "the one I just ordered", "it", *last])
    if how == "ordinal":
        if number_ == total and rng.random() < 0.2:
            return rng.choice(["the last one", "the last drink"])
        if total == 3 and number_ == 2 and rng.random() < 0.5:
            return rng.choice(["the middle one", "the one in the middle"])
        tail = rng.choice([" one", " one", " drink", "", " of the two" if total == 2 else " item"])
        return f"the {ORDINAL[number_]}{tail}" if rng.random() < 0.85 else f"number {number(number_)}"
    if how == "other":
        return rng.choice(["the other one", "the other", "the other drink"])
    if how == "attribute":
        word = SAY.shown[line["attribute"]]
        if rng.random() < 0.3:
            return f"the {word} {name}"
        if line["quantity"] > 1 and rng.random() < 0.7:
            n = number(line["quantity"])
            if word in ("large", "small", "medium", "hot"):
                return rng.choice([f"the {word} ones", f"the {n} {word} ones"])
            return rng.choice(
                [f"the {word} ones", f"the ones with {word}", f"the {n} with {word}", f"those with {word}"]
            )
        return (
            rng.choice([f"the {word} one", f"the one with {word}"])
            if word not in ("large", "small", "medium", "hot")
            else f"the {word} one"
        )
    return rng.choice([f"the {name}", f"the {name}", f"my {name}", f"that {name}", name])


def option_change(rng: random.Random, what: Item) -> list[str]:
    return [
        rng.choice(
            SAY.before[what[k]]
            if rng.random() < 0.5
            else [w for w in SAY.after[what[k]] if not w.startswith(("make", "with", "in "))]
        )
        for k in ("size", "ice", "sugar")
        if what.get(k)
    ]


def change(rng: random.Random, ref: str, what: Item) -> str:
    ref = ref or "it"
    words = option_change(rng, what)
    rng.shuffle(words)
    bits = []
    if words:
        body = rng.choice([" and ", ", ", " with "]).join(words)
        bits.append(
            rng.choice(
                [
                    f"make {ref} {body}",
                    f"make {ref} {body}",
                    f"change {ref} to {body}",
                    f"can you make {ref} {body}",
                    f"{ref} should be {body}",
                    f"I want {ref} {body}",
                    f"{body} for {ref}",
                    f"actually {body}",
                    f"could I have {ref} {body}",
                    f"can I have {body} on {ref}",
                    f"switch {ref} to {body}",
                    f"{ref}, {body}",
                ]
                if ref != "it" or rng.random() < 0.6
                else [body, f"{body} instead", f"actually {body}", f"{body} please", f"I said {body}", f"with {body}"]
            )
        )
    if what.get("quantity"):
        n = number(what["quantity"])
        bits.append(str(rng.choice(SAY.change_quantity)).format(n=n, ref=ref))
    if what.get("add_toppings"):
        body = " and ".join(topping(rng, t) for t in what["add_toppings"])
        bits.append(str(rng.choice(SAY.change_put)).format(body=body, ref=ref))
    if what.get("remove_toppings"):
        body = " and ".join(topping(rng, t) for t in what["remove_toppings"])
        bits.append(str(rng.choice(SAY.change_out)).format(body=body, ref=ref))
    rng.shuffle(bits)
    lead = rng.choice(["", "", "", "", "actually ", "oh, ", "please ", "sorry, ", "wait, ", "and "])
    return lead + rng.choice([" and ", ", ", " and "]).join(bits) + rng.choice(["", "", "", " please", " instead"])


def for_others(rng: random.Random, people: Sequence[str], items: Sequence[Item]) -> str:
    bits = []
    for who, it in zip(people, items, strict=True):
        words = item(rng, it)
        if who == "I":
            bits.append(rng.choice([f"I'd like {words}", f"I want {words}", f"{words} for me", f"I'll have {words}"]))
        else:
            whom = {"he": "him", "she": "her"}.get(who, who)
            bits.append(rng.choice([f"{who} wants {words}", f"{words} for {whom}", f"{who} would like {words}"]))
    return rng.choice([", ", " and ", ", and "]).join(bits) + rng.choice(["", "", " please"])


def of_whom(rng: random.Random, who: str) -> str:
    if who == "I":
        return rng.choice(["mine", "my drink", "the one for me", "my own"])
    if who in ("he", "she"):
        return rng.choice(["his", "his drink", "the one for him"] if who == "he" else ["hers", "her drink"])
    return rng.choice([f"{who}'s", f"{who}'s drink", f"the one for {who}"])


def some_cups(rng: random.Random, ref: str, cups: int, what: Item, others: int) -> str:
    """So many cups of a line are to be different; `others`: how many are not."""
    words = [
        w.removeprefix("make it ").removeprefix("with ") for w in [rng.choice(SAY.after[o]) for o in said_options(what)]
    ]
    n = number(cups)
    if what.get("toppings"):
        words.append(toppings(rng, what["toppings"]))
    body = " and ".join(words)
    joint = (
        " "
        if body.startswith(("with", "add", "without", "plus", "and", "extra", "hot", "large", "small"))
        else rng.choice([" ", " with "])
    )
    tail = rng.choice(["", "", " please"])
    if rng.random() < 0.25:
        tail = rng.choice(
            [", the rest as they are", f", leave the other {number(others)}", ", the others stay the same"]
        )
    return str(rng.choice(SAY.some_cups)).format(n=n, joint=joint, body=body) + tail


def swap(rng: random.Random, old: str, new: str, ref: str) -> str:
    a, b = topping(rng, old), topping(rng, new)
    ref = ref or "it"
    return str(rng.choice(SAY.swap)).format(b=b, a=a, ref=ref)


def replace(rng: random.Random, ref: str, name: str, new: str) -> str:
    ref = ref or "that"
    new_a = new if new.split()[0] in ("one", "a", "two", "three", "four", "five", "six") else "a " + new
    return str(rng.choice(SAY.replace)).format(ref=ref, new_a=new_a, name=name, new=new)


def remove(rng: random.Random, ref: str, name: str, cups: int | None = None) -> str:
    if cups:
        n = number(cups)
        if not ref and rng.random() < 0.5:
            return str(rng.choice(SAY.fewer)).format(n=n)
        return str(rng.choice(SAY.fewer_of)).format(n=n, name=name, names=plural(name))
    target = ref or "that"
    return rng.choice(
        [
            f"remove {target}",
            f"cancel {target}",
            f"take {target} off",
            f"take off {target}",
            f"I don't want {target}",
            f"no {name}" if not ref or name in ref else f"remove {target}",
            f"forget {target}",
            f"delete {target}",
            f"drop {target}",
            f"I don't want {target} anymore",
            f"take out {target}",
            f"scratch {target}",
            f"get rid of {target}",
            f"actually, remove {target}",
            f"never mind {target}",
        ]
    ) + rng.choice(["", "", " please"])


def by_turns(rng: random.Random, words: Sequence[str]) -> str:
    """The first …, the second …, of what was just ordered."""
    names = rng.choice([["the first one", "the second one", "the third one"], ["the first", "the second", "the third"]])
    bits = [
        n + (" " if w.startswith(("with", "in ", "hold", "skip")) else rng.choice([" ", " with "])) + w
        for n, w in zip(names, words, strict=False)
    ]
    return rng.choice([", ", ". "]) + rng.choice([" and ", ", "]).join(bits)


def refs(rng: random.Random, references: Sequence[str]) -> str:
    return " and ".join(references)


def all_change(rng: random.Random, what: Item) -> str:
    words = option_change(rng, what)
    if what.get("toppings"):
        body = " and ".join(topping(rng, t) for t in what["toppings"])
        return str(rng.choice(SAY.all_toppings)).format(body=body)
    body = " and ".join(words)
    return str(rng.choice(SAY.all_change)).format(body=body) + rng.choice(["", "", " please"])


def that_one(rng: random.Random, it: Item) -> str:
    n, options = it.get("quantity", 1), option_words(rng, it)
    if n == 1 and not options:
        return rng.choice(SAY.that)
    size = it.get("size")
    if size and not it.get("ice") and not it.get("sugar") and not it.get("toppings"):
        return rng.choice(
            [
                f"{number(n)} {size} please",
                f"I'll have {number(n)} {size}",
                f"{number(n)} {size} one" + "s" * (n > 1),
                f"{number(n)} {size} then",
            ]
        )
    joint = (
        " "
        if options.startswith(("with", "add", "make", "without", "plus", "hold", "skip", "in "))
        else rng.choice([" with ", ", "])
    )
    return (
        rng.choice(["I'll have ", "", "give me ", "then ", "okay, "])
        + number(n)
        + rng.choice([" of those", " of them", ""])
        + (joint + options if options else "")
        + rng.choice(["", " please"])
    )


# ---- replies ----


def describe(line: Mapping[str, Any], defaults: Mapping[str, str]) -> str:
    """two large pearl milk teas with less ice, half sugar and coconut jelly."""
    n = line["quantity"]
    size = SAY.shown[line["size"]] + " " if line["size"] != defaults["size"] else ""
    heat = "hot " if line["ice"] == "hot" and defaults["ice"] != "hot" else ""
    name = DRINK[line["drink"]]
    extra = [SAY.shown[line[k]] for k in ("ice", "sugar") if line[k] != defaults[k] and line[k] != "hot"]
    extra += [SAY.topping[t] for t in line["toppings"]]
    tail = ""
    if extra:
        tail = " with " + (", ".join(extra[:-1]) + " and " + extra[-1] if len(extra) > 1 else extra[0])
    return f"{number(n)} {size}{heat}{plural(name) if n > 1 else name}{tail}"


def listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + ", and " + parts[-1] if len(parts) > 1 else parts[0]


def price(value: float, alone: bool) -> str:
    return yuan(value) if alone else yuan(value) + " in total"


ALONE = {choice: [w for w in ways if not w.startswith(("make", "a "))] for choice, ways in SAY.after.items()}

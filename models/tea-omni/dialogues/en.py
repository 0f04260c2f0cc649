# ruff: noqa: E501
"""How English callers say things, and how the agent answers them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

Item = dict[str, Any]
ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NAMES: dict[str, list[str]] = {
    "pearl_milk_tea": ["pearl milk tea"] * 4
    + ["bubble tea", "bubble tea", "boba milk tea", "boba tea", "boba", "bubble milk tea"],
    "coconut_milk_tea": ["coconut jelly milk tea"] * 3 + ["coconut milk tea", "milk tea with coconut jelly"],
    "pudding_milk_tea": ["pudding milk tea"],
    "red_bean_milk_tea": ["red bean milk tea"],
    "taro_milk_tea": ["taro ball milk tea"] * 3 + ["taro milk tea", "taro ball tea"],
    "grass_jelly_milk_tea": ["grass jelly milk tea"],
    "milk_tea": ["original milk tea"] * 3 + ["milk tea", "milk tea", "plain milk tea", "regular milk tea"],
    "brown_sugar_milk": ["brown sugar milk"] * 4 + ["dirty tea"],
    "jasmine_green_tea": ["jasmine green tea"] * 4 + ["jasmine tea"],
    "four_seasons_tea": ["four seasons tea"] * 3 + ["four seasons"],
    "oolong_tea": ["oolong tea"] * 3 + ["oolong"],
    "lemon_black_tea": ["lemon black tea"] * 3 + ["lemon tea", "lemon tea"],
    "passion_fruit_green_tea": ["passion fruit green tea"] * 3 + ["passion fruit tea", "passion fruit green"],
    "grapefruit_green_tea": ["grapefruit green tea"] * 3 + ["grapefruit tea"],
    "kumquat_lemon": ["kumquat lemon"] * 3 + ["kumquat lemon tea", "kumquat"],
    "mango_sago": ["mango pomelo sago"] * 3 + ["mango sago", "mango pomelo"],
    "mango_smoothie": ["mango smoothie"],
    "strawberry_milkshake": ["strawberry milkshake"] * 3 + ["strawberry shake"],
    "matcha_latte": ["matcha latte"] * 3 + ["matcha"],
    "americano": ["americano"] * 4 + ["black coffee"],
    "latte": ["latte"] * 5 + ["coffee latte", "cafe latte"],
    "cocoa": ["hot cocoa"] * 3 + ["cocoa", "hot chocolate"],
}
DRINK = {name: words[0] for name, words in NAMES.items()}
TOPPING = {
    "pearls": "pearls",
    "coconut_jelly": "coconut jelly",
    "pudding": "pudding",
    "red_bean": "red bean",
    "taro_balls": "taro balls",
    "grass_jelly": "grass jelly",
    "milk_foam": "milk foam",
}
SAID_TOPPING = {
    "pearls": ["pearls"] * 3 + ["boba", "tapioca", "tapioca pearls", "bubbles"],
    "red_bean": ["red bean", "red beans"],
    "milk_foam": ["milk foam", "milk foam", "foam", "cheese foam", "milk cap"],
    "taro_balls": ["taro balls", "taro balls", "taro"],
}
SHOWN = {
    "medium": "medium",
    "large": "large",
    "small": "small",
    "regular_ice": "regular ice",
    "less_ice": "less ice",
    "light_ice": "light ice",
    "no_ice": "no ice",
    "hot": "hot",
    "full_sugar": "full sugar",
    "seventy_sugar": "seventy percent sugar",
    "half_sugar": "half sugar",
    "thirty_sugar": "thirty percent sugar",
    "no_sugar": "no sugar",
}
BEFORE = {
    "medium": ["medium", "medium", "medium size", "medium sized", "regular size"],
    "large": ["large", "large", "big", "large size"],
    "small": ["small", "small", "little"],
    "regular_ice": ["regular ice", "iced", "normal ice"],
    "less_ice": ["less ice"],
    "light_ice": ["light ice"],
    "no_ice": ["no ice"],
    "hot": ["hot"],
    "full_sugar": ["full sugar", "regular sugar"],
    "seventy_sugar": ["seventy percent sugar", "70% sugar"],
    "half_sugar": ["half sugar", "half sweet", "50% sugar"],
    "thirty_sugar": ["thirty percent sugar", "30% sugar"],
    "no_sugar": ["no sugar", "sugar free", "unsweetened"],
}
AFTER = {
    "medium": ["medium", "in medium", "medium size", "make it medium", "medium please"],
    "large": ["large", "in large", "large size", "make it large", "make it a large", "a large one"],
    "small": ["small", "in small", "small size", "make it small", "make it a small", "a small one"],
    "regular_ice": ["regular ice", "normal ice", "regular amount of ice", "with ice"],
    "less_ice": [
        "less ice",
        "less ice",
        "with less ice",
        "not so much ice",
        "not too much ice",
        "a bit less ice",
        "easy ice",
    ],
    "light_ice": ["light ice", "light ice", "with light ice", "just a little ice", "a little ice"],
    "no_ice": [
        "no ice",
        "no ice",
        "with no ice",
        "without ice",
        "hold the ice",
        "without any ice",
        "skip the ice",
        "ice free",
    ],
    "hot": ["hot", "make it hot", "hot please", "served hot"],
    "full_sugar": [
        "full sugar",
        "regular sugar",
        "normal sugar",
        "with full sugar",
        "full sweetness",
        "hundred percent sugar",
    ],
    "seventy_sugar": [
        "seventy percent sugar",
        "70% sugar",
        "seventy percent sweet",
        "with seventy percent sugar",
        "less sugar",
    ],
    "half_sugar": [
        "half sugar",
        "half sugar",
        "with half sugar",
        "half the sugar",
        "fifty percent sugar",
        "50% sugar",
        "half sweet",
        "half sweetness",
    ],
    "thirty_sugar": [
        "thirty percent sugar",
        "30% sugar",
        "thirty percent sweet",
        "with thirty percent sugar",
        "light sugar",
    ],
    "no_sugar": [
        "no sugar",
        "no sugar",
        "with no sugar",
        "without sugar",
        "sugar free",
        "unsweetened",
        "zero sugar",
        "hold the sugar",
        "no sweetener",
    ],
}
CATEGORY = {
    "coffee": (["coffee"], ["americano", "latte"]),
    "green_tea": (["green tea"], ["jasmine_green_tea", "passion_fruit_green_tea", "grapefruit_green_tea"]),
    "mango": (["mango drink", "mango one"], ["mango_sago", "mango_smoothie"]),
    "lemon": (["lemon drink", "something with lemon"], ["lemon_black_tea", "kumquat_lemon"]),
    "tea": (["tea", "plain tea"], ["jasmine_green_tea", "four_seasons_tea", "oolong_tea"]),
}
UNSOLD = [
    "coke",
    "fries",
    "burger",
    "beer",
    "orange juice",
    "apple juice",
    "cake",
    "sandwich",
    "pizza",
    "sprite",
    "water",
    "cappuccino",
    "mocha",
    "ice cream",
    "hot dog",
    "salad",
    "wine",
    "whiskey",
    "cookie",
    "donut",
    "espresso",
    "lemonade",
    "red bull",
    "chicken wings",
    "noodles",
    "rice",
    "soup",
    "pepsi",
    "watermelon juice",
    "croissant",
    "bagel",
    "muffin",
    "popcorn",
    "chips",
    "soda",
    "yogurt",
    "dumplings",
    "steak",
    "sushi",
    "taco",
    "earl grey",
    "chamomile tea",
    "milk",
    "flat white",
    "french fries",
]


def number(value: int) -> str:
    """one to nine thousand nine hundred and ninety nine."""
    if value < 20:
        return ONES[value]
    if value < 100:
        return TENS[value // 10] + (" " + ONES[value % 10] if value % 10 else "")
    unit, name = (1000, "thousand") if value >= 1000 else (100, "hundred")
    head, rest = divmod(value, unit)
    joint = " and " if rest < 100 else " "
    return f"{number(head)} {name}" + (joint + number(rest) if rest else "")


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
    name = rng.choice(NAMES[drink])
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
    return rng.choice(SAID_TOPPING.get(name, [TOPPING[name]]))


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


def item(rng: random.Random, it: Item) -> str:
    n = it.get("quantity", 1)
    name = it.get("name") or named(rng, it["drink"], n)
    options = said_options(it)
    rng.shuffle(options)
    cut = rng.choice([0, len(options), rng.randint(0, len(options))])
    if it.get("size") and rng.random() < 0.7 and it["size"] in options[cut:]:
        options.remove(it["size"])
        options.insert(0, it["size"])
        cut = max(1, cut)
    before = " ".join(rng.choice(BEFORE[o]) for o in options[:cut])
    after = [rng.choice(AFTER[o]) for o in options[cut:]]
    tops = it.get("toppings") or []
    if tops:
        after.insert(rng.randint(0, len(after)), toppings(rng, tops))
    style = rng.random()
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


WANT = [
    "I want",
    "I'd like",
    "can I get",
    "can I have",
    "could I have",
    "I'll have",
    "I'll take",
    "give me",
    "get me",
    "let me get",
    "may I have",
    "hi, can I get",
    "hello, I'd like",
    "please give me",
    "I would like",
    "I need",
    "hi I want",
    "we'd like",
    "let me have",
    "could I get",
    "I wanna get",
    "um, I'd like",
    "just",
    "I'd like to order",
    "I want to order",
    "can you get me",
    "order",
    "okay, I'll have",
]
MORE = [
    "and",
    "also",
    "add",
    "also add",
    "and also",
    "can you add",
    "I also want",
    "another",
    "plus",
    "and then",
    "one more thing,",
    "oh and",
    "please add",
    "I'll also have",
    "and give me",
]
END = [
    "",
    "",
    "",
    "",
    "",
    " please",
    ", please",
    " thanks",
    ", thank you",
    " to go",
    ", that would be great",
    " if possible",
]
AND = [
    " and ",
    " and ",
    ", ",
    ", and ",
    " plus ",
    ", also ",
    " and also ",
    ", then ",
    " as well as ",
    ". And ",
    ", and my friend wants ",
    ", and for my wife ",
    ", my son wants ",
    " and my husband will have ",
    ", he wants ",
]
JOINT = [", ", ". ", " and ", ", and ", ". And ", " "]
BEFORE_ORDER = [
    "it's so hot today, ",
    "I'm thirsty, ",
    "let me see, ",
    "okay so ",
    "long time no see, ",
    "it's freezing, ",
    "my friend said it's good here, ",
    "hmm let me think, ",
    "all right, ",
    "good morning, ",
]
SAME_N = [
    "{n} more of those",
    "{n} more",
    "same again, {n} of them",
    "another {n}",
    "{n} more of the same",
    "give me {n} more like that",
    "I'll have {n} more of those",
    "add {n} more",
]
MISHEARD = [
    "not {y}, {x}",
    "I said {x}",
    "no, I said {x}",
    "I said {x}, not {y}",
    "I meant {x}",
    "that's wrong, it's {x}",
    "no, {x}",
    "I wanted {x}, not {y}",
    "sorry, I meant {x}",
    "it should be {x}",
]
OLD_TO_NEW = [
    "change the {old} one to {new}",
    "{new} instead of {old}",
    "not {old}, {new}",
    "make the {old} one {new}",
    "change {old} to {new}",
    "switch the {old} to {new}",
    "{new}, not {old}",
    "the {old} one should be {new}",
]
BACK = [
    "actually {old} again",
    "no, go back to {old}",
    "change it back to {old}",
    "change it back",
    "I'd rather have {old} after all",
    "{old} after all",
    "put the {old} back",
    "keep the {old} after all",
]
NO_MORE = [
    "no",
    "no thanks",
    "nope",
    "nothing else",
    "that's all",
    "no thank you",
    "that's it",
    "no, that's all",
    "nothing",
]
NO = [
    "no, ",
    "no wait, ",
    "sorry, ",
    "actually, ",
    "I mean ",
    "no sorry, ",
    "oh wait, ",
    "wait, no, ",
    "make that ",
    "actually make it ",
    "scratch that, ",
    "no no, ",
    "or rather ",
]


def wish(rng: random.Random, more: bool) -> str:
    choice = rng.choice(["", *WANT, *WANT]) if not more or rng.random() < 0.4 else rng.choice(MORE)
    return choice + " " if choice else ""


def order(rng: random.Random, items: Sequence[Item], more: bool) -> str:
    text = wish(rng, more)
    for index, it in enumerate(items):
        text += (rng.choice(AND) if index else "") + item(rng, it)
    return text + rng.choice(END)


def each(rng: random.Random, items: Sequence[Item], n: int, more: bool) -> str:
    names = [rng.choice(NAMES[it["drink"]]) for it in items]
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
        + rng.choice(END)
    )


def for_all(rng: random.Random, value: str, n: int) -> str:
    word = rng.choice([w for w in AFTER[value] if not w.startswith(("make", "a "))])
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
    name = rng.choice(NAMES[drink])
    n = sum(p["quantity"] for p in parts)
    if rng.random() < 0.5:
        bits = [quantity(rng, p["quantity"]) + " " + rng.choice(BEFORE[p[key]]) for p in parts]
        return (
            rng.choice([" and ", ", "]).join([", ".join(bits[:-1]), bits[-1]])
            + " "
            + (plural(name) if rng.random() < 0.6 else name)
        )
    bits = [
        number(p["quantity"])
        + rng.choice([" ", " with "]) * (key != "size")
        + " " * (key == "size")
        + rng.choice([w for w in AFTER[p[key]] if not w.startswith(("make", "with", "in ", "a "))])
        for p in parts
    ]
    return (
        plural(name) + rng.choice([", ", " "]) + rng.choice([" and ", ", "]).join([", ".join(bits[:-1]), bits[-1]])
        if n > 1
        else name
    )


def option_words(rng: random.Random, it: Item) -> str:
    words = [rng.choice(AFTER[o]) for o in said_options(it)]
    rng.shuffle(words)
    if it.get("toppings"):
        words.append(toppings(rng, it["toppings"]))
    return rng.choice([" and ", ", "]).join(words)


def split(rng: random.Random, shared: Item, parts: Sequence[Item], more: bool, some: bool) -> str:
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
        words = option_words(rng, part) or rng.choice(["normal", "regular", "as is"])
        joint = (
            rng.choice([" ", " with "])
            if not words.startswith(
                ("with", "add", "make", "without", "in ", "plus", "hold", "skip", "extra", "and", "not", "a ", "hot")
            )
            else " "
        )
        bits.append(lead + joint + words)
    return head + rng.choice([", ", ". ", " "]) + rng.choice([" and ", ", ", " and "]).join(bits) + rng.choice(END[:8])


def corrected_order(rng: random.Random, wrong: Item, right: Item, what: str, more: bool) -> str:
    no = rng.choice([", ", ", ", " ", ". "]) + rng.choice(NO)
    head = wish(rng, more) + item(rng, wrong)
    if what == "drink":
        tail = rng.choice(["", "a ", "the ", "I want "]) + rng.choice(NAMES[right["drink"]])
    elif what == "quantity":
        tail = number(right["quantity"])
    else:
        tail = rng.choice(["", "make it "]) + rng.choice(BEFORE[right[what]])
    return head + no + tail + rng.choice(END[:9])


ORDINAL = ["", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


def reference(rng: random.Random, how: str, line: Mapping[str, Any], number_: int, total: int) -> str:
    name = rng.choice(NAMES[line["drink"]])
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
        word = SHOWN[line["attribute"]]
        if rng.random() < 0.3:
            return f"the {word} {name}"
        return (
            rng.choice([f"the {word} one", f"the one with {word}"])
            if word not in ("large", "small", "medium", "hot")
            else f"the {word} one"
        )
    return rng.choice([f"the {name}", f"the {name}", f"my {name}", f"that {name}", name])


def option_change(rng: random.Random, what: Item) -> list[str]:
    return [
        rng.choice(
            BEFORE[what[k]]
            if rng.random() < 0.5
            else [w for w in AFTER[what[k]] if not w.startswith(("make", "with", "in "))]
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
        bits.append(
            rng.choice(
                [
                    f"make that {n}",
                    f"make {ref} {n}",
                    f"I want {n} of {ref}",
                    f"make it {n}",
                    f"{n} of {ref}",
                    f"actually {n}",
                    f"change {ref} to {n}",
                ]
            )
        )
    if what.get("add_toppings"):
        body = " and ".join(topping(rng, t) for t in what["add_toppings"])
        bits.append(
            rng.choice(
                [
                    f"add {body} to {ref}",
                    f"put {body} in {ref}",
                    f"{ref} with {body}",
                    f"add {body}",
                    f"can you add {body}",
                    f"with {body} too",
                    f"I'd like {body} in {ref}",
                    f"and add {body}",
                    f"add some {body}",
                ]
            )
        )
    if what.get("remove_toppings"):
        body = " and ".join(topping(rng, t) for t in what["remove_toppings"])
        bits.append(
            rng.choice(
                [
                    f"no {body}",
                    f"no {body} in {ref}",
                    f"take the {body} out",
                    f"without the {body}",
                    f"remove the {body}",
                    f"hold the {body}",
                    f"skip the {body}",
                    f"leave out the {body}",
                    f"I don't want the {body}",
                    f"take out the {body} from {ref}",
                ]
            )
        )
    rng.shuffle(bits)
    lead = rng.choice(["", "", "", "", "actually ", "oh, ", "please ", "sorry, ", "wait, ", "and "])
    return lead + rng.choice([" and ", ", ", " and "]).join(bits) + rng.choice(["", "", "", " please", " instead"])


def some_cups(rng: random.Random, ref: str, cups: int, what: Item) -> str:
    words = [
        w.removeprefix("make it ").removeprefix("with ") for w in [rng.choice(AFTER[o]) for o in said_options(what)]
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
    return (
        rng.choice(
            [
                f"make {n} of them{joint}{body}",
                f"{n} of them{joint}{body}",
                f"I want {n} of them{joint}{body}",
                f"{n} of those{joint}{body}",
                f"can {n} of them be {body}",
            ]
        )
        + tail
    )


def swap(rng: random.Random, old: str, new: str, ref: str) -> str:
    a, b = topping(rng, old), topping(rng, new)
    ref = ref or "it"
    return rng.choice(
        [
            f"{b} instead of {a}",
            f"no {a}, {b} instead",
            f"change the {a} to {b}",
            f"swap the {a} for {b}",
            f"replace the {a} with {b}",
            f"can I have {b} instead of the {a}",
            f"not {a}, {b}",
            f"take out the {a} and add {b}",
            f"I don't want {a}, make {ref} {b}",
        ]
    )


def replace(rng: random.Random, ref: str, name: str, new: str) -> str:
    ref = ref or "that"
    new_a = new if new.split()[0] in ("one", "a", "two", "three", "four", "five", "six") else "a " + new
    return rng.choice(
        [
            f"change {ref} to {new_a}",
            f"make {ref} {new_a} instead",
            f"replace {ref} with {new_a}",
            f"no {name}, {new} instead",
            f"I don't want the {name}, give me {new_a} instead",
            f"swap {ref} for {new_a}",
            f"can I get {new_a} instead of the {name}",
            f"actually, {new} instead of {ref}",
            f"switch {ref} to {new_a}",
            f"{new_a} instead of the {name} please",
            f"can you change the {name} to {new_a}",
            f"actually make {ref} {new_a}",
            f"forget the {name}, I'll have {new_a}",
        ]
    )


def remove(rng: random.Random, ref: str, name: str, cups: int | None = None) -> str:
    if cups:
        n = number(cups)
        return rng.choice(
            [
                f"take off {n} {name}",
                f"remove {n} of the {plural(name)}",
                f"{n} less {name}",
                f"{n} fewer {name}",
                f"cancel {n} of the {plural(name)}",
                f"take {n} {name} away",
                f"remove {n} {name}",
            ]
        )
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


def all_change(rng: random.Random, what: Item) -> str:
    words = option_change(rng, what)
    if what.get("toppings"):
        body = " and ".join(topping(rng, t) for t in what["toppings"])
        return rng.choice(
            [
                f"add {body} to all of them",
                f"{body} in all of them",
                f"put {body} in every one",
                f"add {body} to everything",
                f"{body} in both",
            ]
        )
    body = " and ".join(words)
    return rng.choice(
        [
            f"make them all {body}",
            f"all of them {body}",
            f"all {body}",
            f"make all of them {body}",
            f"{body} for all of them",
            f"everything {body}",
            f"make everything {body}",
            f"both of them {body}",
            f"make them both {body}",
        ]
    ) + rng.choice(["", "", " please"])


SIMPLE: dict[str, list[str]] = {
    "clear": [
        "cancel everything",
        "clear everything",
        "cancel the order",
        "cancel my order",
        "start over",
        "let's start over",
        "remove everything",
        "delete everything",
        "forget everything",
        "I don't want any of it",
        "cancel all of that",
        "scratch all that",
        "clear my cart",
        "empty the cart",
        "take everything off",
        "never mind, cancel it all",
        "forget it all",
        "can we start again",
        "cancel it all",
        "clear the order please",
    ],
    "read_back": [
        "what did I order",
        "read that back",
        "read back my order",
        "what's in my order",
        "can you repeat my order",
        "what do I have so far",
        "repeat the order please",
        "what have I got",
        "tell me my order",
        "can you read it back to me",
        "what's in my cart",
        "what do we have",
        "go over my order",
        "confirm my order for me",
        "what have I ordered so far",
        "can you go through my order",
        "run that by me again",
        "let me hear the order",
    ],
    "finish": [
        "that's all",
        "that's it",
        "that's everything",
        "nothing else",
        "no that's it",
        "that will be all",
        "that'll be all",
        "no thanks that's all",
        "I'm done",
        "that is all",
        "I think that's it",
        "no more",
        "nothing more",
        "just that",
        "that's all for now",
        "we're good",
        "that's it thanks",
        "no that's everything",
        "that would be all",
        "okay that's all",
    ],
    "total": [
        "how much is that",
        "what's the total",
        "how much is it all",
        "how much altogether",
        "how much do I owe you",
        "total please",
        "what does it come to",
        "how much is everything",
        "what's my total",
        "how much in total",
        "what do I have to pay",
        "how much so far",
    ],
    "place": [
        "place the order",
        "place my order",
        "that's it, place the order",
        "checkout",
        "check out",
        "order it",
        "I'd like to pay",
        "I'm ready to pay",
        "submit the order",
        "go ahead and place it",
        "confirm the order",
        "please place the order",
        "that's all, place the order",
        "okay place it",
        "let's order",
        "pay now",
        "go ahead and order",
        "you can place the order now",
        "put the order in",
        "send the order",
        "confirm order",
        "check please",
        "the bill please",
        "place it please",
    ],
    "yes": [
        "yes",
        "yeah",
        "yep",
        "sure",
        "yes please",
        "okay",
        "correct",
        "that's right",
        "right",
        "go ahead",
        "yes go ahead",
        "sounds good",
        "ok",
        "of course",
        "please do",
        "yup",
        "yes that's right",
        "perfect",
        "confirm",
        "that's correct",
        "yes thanks",
        "good",
        "alright",
        "exactly",
    ],
    "no": [
        "no",
        "not yet",
        "no thanks",
        "wait",
        "no wait",
        "hold on",
        "nope",
        "not now",
        "don't place it yet",
        "no not yet",
        "no thank you",
        "wait a second",
        "never mind",
        "nah",
    ],
    "menu": [
        "what do you have",
        "what's on the menu",
        "what do you recommend",
        "any recommendations",
        "what's good here",
        "what drinks do you have",
        "what can I get",
        "what do you sell",
        "can you recommend something",
        "what's popular",
        "tell me the menu",
        "what are your best drinks",
        "what kind of tea do you have",
        "I don't know what to get",
        "surprise me",
        "what would you recommend",
    ],
    "greet": [
        "hello",
        "hi",
        "hey",
        "good morning",
        "good afternoon",
        "hi there",
        "hello there",
        "hey there",
        "anyone there",
        "good evening",
        "can you hear me",
        "hello hello",
        "I'd like to order",
        "I want to order something",
        "I'd like to place an order",
        "hi I'd like to order a drink",
        "are you there",
        "can I order",
    ],
    "thanks": [
        "thanks",
        "thank you",
        "thank you so much",
        "thanks a lot",
        "cheers",
        "great thanks",
        "awesome thank you",
        "that's great",
        "you're very kind",
        "much appreciated",
        "nice",
        "you're great",
    ],
    "bye": ["bye", "goodbye", "see you", "bye bye", "have a nice day", "see you later", "that's all bye"],
    "wait": [
        "let me think",
        "one moment",
        "hold on",
        "give me a second",
        "hmm",
        "just a second",
        "let me see",
        "wait a moment",
        "I'm still thinking",
        "give me a minute",
        "um let me think",
        "hang on",
        "I need a minute",
        "let me ask my friend",
        "hold on a second",
        "let me look at the menu",
    ],
    "ack": [
        "okay",
        "ok",
        "alright",
        "uh huh",
        "mm hmm",
        "I see",
        "got it",
        "right",
        "cool",
        "good",
        "fine",
        "oh okay",
        "yeah",
    ],
    "abuse": [
        "you're stupid",
        "shut up",
        "you idiot",
        "this is terrible",
        "you suck",
        "stupid machine",
        "what's wrong with you",
        "you're useless",
        "damn it",
        "I hate this",
        "dumb robot",
        "are you deaf",
        "this is garbage",
        "you're so dumb",
        "I want to complain",
        "go to hell",
    ],
    "who": [
        "who are you",
        "are you a robot",
        "are you human",
        "what's your name",
        "are you real",
        "what can you do",
        "are you a real person",
        "how old are you",
        "am I talking to a machine",
        "can I talk to a human",
        "where do you live",
    ],
    "chat": [
        "nice weather today",
        "how are you",
        "tell me a joke",
        "what time is it",
        "it's so hot today",
        "I'm so tired",
        "what's your favorite drink",
        "where are you located",
        "when do you close",
        "do you have wifi",
        "what's the weather like",
        "sing me a song",
        "I had a bad day",
        "can you call me a taxi",
        "who won the game last night",
        "do you deliver",
        "how long will it take",
        "can I pay by card",
        "what day is it today",
        "is there parking",
        "my dog is sick",
        "I love you",
        "write me a poem",
        "what's two plus two",
        "do you have a bathroom",
        "are you open on sunday",
        "I'm driving right now",
        "my friend is late",
        "what's the news",
        "any discounts",
        "play some music",
        "how's it going",
        "where is the station",
        "the weather is awful",
    ],
    "options": [
        "what sugar levels do you have",
        "what ice levels are there",
        "can I choose the sugar",
        "what are the options",
        "how sweet is it",
        "what ice options do you have",
        "can I change the ice",
        "what sweetness levels are there",
    ],
    "sizes": [
        "what sizes do you have",
        "what sizes are there",
        "how big is it",
        "do you have large",
        "what cup sizes do you have",
    ],
    "extras": [
        "what toppings do you have",
        "what can I add",
        "what toppings are there",
        "any toppings",
        "which toppings do you have",
        "what extras do you have",
    ],
    "same": [
        "same again",
        "another one",
        "one more of the same",
        "the same again please",
        "one more",
        "another one of those",
        "one more like that",
        "I'll have another one",
        "the same one again",
        "another of the same",
        "one more of those",
        "and another one",
        "make it another one of those",
        "same thing again",
    ],
    "order_number": [
        "what's my order number",
        "what was the number",
        "what number am I",
        "can you repeat my number",
        "which number is mine",
        "what's my number again",
    ],
}
DOUBLE = [
    "make that {n}",
    "make it {n}",
    "{n} of those",
    "actually {n}",
    "I want {n}",
    "make {ref} {n}",
    "{n} of {ref}",
    "I'd like {n} of {ref}",
    "change that to {n}",
    "not {old}, {n}",
    "let's make that {n}",
    "can you make it {n}",
    "I said {n}",
    "no, {n}",
    "sorry, {n} of them",
]
PRICE = [
    "how much is the {x}",
    "how much is a {x}",
    "what's the price of the {x}",
    "how much for a {x}",
    "how much does the {x} cost",
    "price of {x}",
    "is the {x} expensive",
    "what does a {x} cost",
    "how much is {x}",
]
HAVE = [
    "do you have {x}",
    "do you have any {x}",
    "is there {x}",
    "have you got {x}",
    "do you sell {x}",
    "can I get {x} here",
    "is {x} available",
    "do you still have {x}",
    "you got {x}",
    "is the {x} sold out",
    "any {x} left",
]
HOT = [
    "can I get the {x} hot",
    "is the {x} available hot",
    "can the {x} be hot",
    "can I choose the ice for the {x}",
    "what options are there for the {x}",
    "can I get the {x} with less ice",
]
THAT = [
    "I'll have one",
    "one of those then",
    "I'll take one",
    "one please",
    "okay, one of those",
    "give me one",
    "I'll have that",
    "yes, one please",
    "then one of those",
    "I'll take that one",
    "let me get one",
    "one of those please",
    "sure, I'll have one",
    "okay give me one",
    "that one please",
    "I'll get one of those",
]
PARTIAL = [
    "I want a",
    "can I get a",
    "I'd like",
    "can I have",
    "I'll have the",
    "I want",
    "um, I'd like a",
    "give me a",
    "can I get",
    "I'd like two",
    "let me get a",
    "I would like a",
]


def price_question(rng: random.Random, x: str) -> str:
    return rng.choice(PRICE).format(x=x)


def that_one(rng: random.Random, it: Item) -> str:
    n, options = it.get("quantity", 1), option_words(rng, it)
    if n == 1 and not options:
        return rng.choice(THAT)
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
    size = SHOWN[line["size"]] + " " if line["size"] != defaults["size"] else ""
    heat = "hot " if line["ice"] == "hot" and defaults["ice"] != "hot" else ""
    name = DRINK[line["drink"]]
    extra = [SHOWN[line[k]] for k in ("ice", "sugar") if line[k] != defaults[k] and line[k] != "hot"]
    extra += [TOPPING[t] for t in line["toppings"]]
    tail = ""
    if extra:
        tail = " with " + (", ".join(extra[:-1]) + " and " + extra[-1] if len(extra) > 1 else extra[0])
    return f"{number(n)} {size}{heat}{plural(name) if n > 1 else name}{tail}"


def listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + ", and " + parts[-1] if len(parts) > 1 else parts[0]


def price(value: float, alone: bool) -> str:
    return yuan(value) if alone else yuan(value) + " in total"


TEXT = {
    "confirm": "Sure, {items}, {price}.",
    "confirm_changed": "Sure, now {items}, {price}.",
    "confirm_replaced": "Sure, {items} instead, {price}.",
    "removed": "Okay, no {items}, {price}.",
    "removed_all": "Okay, no {items}. Anything else you would like?",
    "done": "Okay, changed, {price}.",
    "cleared": "Okay, all cancelled. What would you like?",
    "read_back": "You have {items}, {price}. Shall I place the order?",
    "total": "{price}.",
    "empty": "You have not ordered anything yet. What would you like?",
    "placed": "Your order is placed, number {number}, {price}.",
    "item": "The {x} is {yuan}.",
    "topping": "Adding {x} is {yuan}.",
    "have": "Yes, the {x} is {yuan}. Would you like one?",
    "have_topping": "Yes, adding {x} is {yuan}.",
    "ice": "The {x} comes with {ice}, {yuan}.",
    "ice_all": "Yes, the {x} is {yuan}, with any ice you like.",
    "sold_out": "Sorry, the {x} is sold out. Would you like something else?",
    "quantity": "Sorry, how many would you like?",
    "no_item": "Sorry, we do not have that. Would you like something else?",
    "also_no_item": "Sure, {items}, {price}. We do not have the other one.",
    "which": "Would you like the {items}?",
    "not_possible": "The {x} cannot be made like that. It comes with {items}.",
    "what": "Sure, what would you like to drink?",
    "menu": "We have {items}, fruit tea and coffee. What would you like?",
    "greet": "Hello, what would you like to drink?",
    "thanks": "You're welcome.",
    "bye": "Goodbye, see you next time.",
    "wait": "Sure, take your time.",
    "ack": "Okay, anything else?",
    "ack_empty": "Okay, what would you like?",
    "hold": "Okay, I will not place it yet. What would you like to change?",
    "abuse": "I'm sorry about that. What would you like to drink?",
    "who": "I'm the ordering assistant. I can help you order drinks.",
    "chat": "Sorry, I can only help with drinks. What would you like?",
    "unclear": "Sorry, I did not catch that. Could you say it again?",
    "options": "Ice can be regular, less, light, none or hot. Sugar can be full, seventy percent, half, thirty percent or none.",
    "sizes": "We have medium, large and small.",
    "extras": "You can add pearls, coconut jelly, pudding, red bean, taro balls, grass jelly or milk foam.",
    "no_line": "Sorry, that one is not in your order.",
    "which_line": "Which one do you mean?",
    "no_number": "You have not placed an order yet.",
    "number": "Your order number is {number}.",
    "no_topping": "That one has no {x}.",
}

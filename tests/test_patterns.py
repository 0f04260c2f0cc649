"""The utterances that are written down, with slots, for the thinker's training: each means what it is meant to."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from demos.ordering.cart import SIX_KEYS, Cart, final_cart, same
from demos.ordering.menu import default_menu

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "models/tea-omni"))
from dialogues import binding, en, make, noise, patterns, scenarios, scripted, vocabulary, zh  # noqa: E402
from dialogues.scene import OWN, Plan, Scene, add_call, some_item  # noqa: E402
from dialogues.simulate import Shop  # noqa: E402

sys.path.remove(str(ROOT / "models/tea-omni"))
from voice_agent.tea.tokenizer import Vocabulary  # noqa: E402

WORDS = {"zh": zh, "en": en}
LANGUAGES = ("zh", "en")
Cup = dict[str, Any]


def scene(rng: random.Random, language: str, empty: bool) -> Scene:
    """A call with up to four lines in the cart, on a menu where nothing is sold out."""
    s = Scene(rng, WORDS[language], Shop(rng, default_menu()))
    for _ in range(0 if empty else rng.choice([1, 2, 2, 3, 3, 4])):
        item = {**some_item(s, plain=0.3), "quantity": rng.choice([1, 1, 1, 1, 2, 3, 4])}
        name, arguments = add_call(item)
        s.touched = frozenset(s.shop.run(name, arguments)["changed"])
    return s


def cup_of(drink: str, toppings: list[str]) -> Cup:
    defaults = {key: default_menu().drinks[drink].choices[key][0] for key in ("size", "ice", "sugar")}
    return {"drink": drink, "quantity": 1, **defaults, "toppings": toppings}


def meant(s: Scene, pattern: patterns.Pattern, filled: binding.Filled) -> list[Cup]:
    """The cups that the caller wants in the end: the steps as they are said, on cups instead of lines."""
    lines = [[{key: line[key] for key in SIX_KEYS} | {"quantity": 1}] * line["quantity"] for line in s.lines]
    made: list[Cup] = []
    for step in pattern.steps:
        number = lambda word: filled.numbers.get(word) or int(word or 1)  # noqa: E731
        chosen = {
            next(k for k, choices in default_menu().options.items() if v in choices): v
            for v in (filled.options[slot] for slot in step.options)
        }
        put = [filled.toppings[slot] for slot in step.put]
        out = [filled.toppings[slot] for slot in step.out]
        at = filled.lines.get(step.target, 0) - 1
        if step.verb == "add":
            made += [cup_of(filled.drinks[step.target], put) | chosen] * number(step.quantity)
        elif step.verb == "copy":
            made += [lines[at][0] | chosen] * number(step.quantity)
        elif step.verb == "keep":
            lines = [cups if index == at else [] for index, cups in enumerate(lines)]
        elif step.verb == "clear":
            lines = [[] for _ in lines]
        elif step.verb == "all":
            lines = [[c | chosen | {"toppings": [*c["toppings"], *put]} for c in cups] for cups in lines]
        elif step.verb in ("change", "replace", "remove"):
            taken = number(step.cups) if step.cups else len(lines[at])
            old, lines[at] = lines[at][0], lines[at][taken:]
            if step.quantity:
                taken = number(step.quantity)
            if step.verb == "replace":
                made += [cup_of(filled.drinks[step.drink], put) | chosen] * taken
            elif step.verb == "change":
                made += [changed(old, chosen, put, out, filled.drinks.get(step.drink, old["drink"]))] * taken
    return [*made, *(cup for cups in lines for cup in cups)]


def changed(old: Cup, chosen: Cup, put: list[str], out: list[str], drink: str) -> Cup:
    """One cup with other choices; without what its drink is named after it is milk tea, or named after the new one."""
    kept = {
        k: old[k] for k in ("size", "ice", "sugar") if old[k] != cup_of(old["drink"], [])[k] or drink == old["drink"]
    }
    toppings = [t for t in old["toppings"] if t not in out]
    if set(out) - set(old["toppings"]):
        named = [d for d, topping in OWN.items() if put == [topping]]
        drink, put = (named[0], []) if named else ("milk_tea", put)
    return cup_of(drink, [*toppings, *put]) | kept | chosen


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_wording_can_be_said_and_its_calls_give_the_cart_that_is_meant(language: str) -> None:
    rng = random.Random(3)
    for pattern in patterns.patterns(language):
        for said in pattern.said:
            one = patterns.Pattern(pattern.steps, (said,), pattern.first)
            assert any(checked(scene(rng, language, pattern.first or n % 3 == 0), one) for n in range(300)), said


def checked(s: Scene, pattern: patterns.Pattern) -> bool:
    filled = binding.bind(s, pattern, pattern.said[0])
    if filled is None or scripted.wording(s, pattern.said[0], filled) is None:
        return False
    want = meant(s, pattern, filled)
    calls = binding.calls_of(s, pattern, filled)
    for name, arguments in calls:
        result = s.shop.run(name, dict(arguments))
        assert result["error"] is None, (pattern, calls, result)
    cart = s.lines or ([] if not s.shop.cart.orders else list(s.shop.cart.orders[-1].cart["lines"]))
    assert same(cart, want), (pattern, filled, calls)
    return True


def test_enough_is_written_down() -> None:
    assert patterns.wordings("zh") >= 800
    assert patterns.wordings("en") >= 400


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_option_goes_to_the_drink_that_it_is_said_of(language: str) -> None:
    plan = {"zh": "一杯{a}一杯{b}{ice}一杯{c}", "en": "a {a}, a {b} {ice:w} and a {c}"}[language]
    pattern = patterns.parse("add a; add b ice; add c", [plan])
    s = scene(random.Random(1), language, empty=True)
    filled = binding.bind(s, pattern, pattern.said[0])
    assert filled is not None
    calls = binding.calls_of(s, pattern, filled)
    assert calls == [
        ("add", {"drink": filled.drinks["a"]}),
        ("add", {"drink": filled.drinks["b"], "ice": filled.options["ice"]}),
        ("add", {"drink": filled.drinks["c"]}),
    ]


def test_removing_what_a_milk_tea_is_named_after_leaves_milk_tea() -> None:
    s = scene(random.Random(1), "zh", empty=True)
    s.shop.run("add", {"drink": "pearl_milk_tea", "toppings": ["pudding"]})
    swaps = set()
    for _ in range(100):
        plan = scripted.fill(s, patterns.parse("change l +t -u", ["{u}换成{t}"]))
        assert plan is not None
        ((name, arguments),) = plan.calls
        assert name == "change"
        swaps.add((arguments.get("drink"), *arguments.get("add_toppings", []), *arguments.get("remove_toppings", [])))
    assert ("coconut_milk_tea",) in swaps
    assert ("milk_tea", "milk_foam") in swaps
    assert (None, "coconut_jelly", "pudding") in swaps


def test_lines_are_changed_before_they_move() -> None:
    s = scene(random.Random(1), "zh", empty=True)
    for drink in ("latte", "cocoa", "oolong_tea"):
        s.shop.run("add", {"drink": drink})
    plan = scripted.fill(s, patterns.parse("remove 1; remove 3; change 2 size; add a", ["{size}{a}"]))
    assert plan is not None
    assert [(name, arguments.get("line")) for name, arguments in plan.calls] == [
        ("change", 2),
        ("remove", 3),
        ("remove", 1),
        ("add", None),
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_scenarios_plan_calls_that_run(language: str) -> None:
    """Of every kind; only an absurd quantity is refused, and place with nothing to place."""
    rng = random.Random(7)
    for table, empty in ((scenarios.EMPTY, True), (scenarios.FILLED, False)):
        for _, plan_of in table:
            for _ in range(25):
                s = scene(rng, language, empty)
                plan: Plan = plan_of(s)
                assert plan.said
                assert plan.calls or plan.reply
                errors = [s.shop.run(name, dict(arguments))["error"] for name, arguments in plan.calls]
                assert set(errors) <= {None, "quantity_unclear", "empty_cart"}, plan


def test_the_words_are_those_of_the_shipped_weights() -> None:
    assert vocabulary.build() == Vocabulary.load(ROOT / "models/tea-omni/weights/thinker.json")


def test_no_mandarin_character_is_unknown() -> None:
    words = Vocabulary.load(ROOT / "models/tea-omni/weights/thinker.json")
    texts = [literal for pattern in patterns.patterns("zh") for said in pattern.said for literal, _, _ in said]
    assert {t for text in texts for t in words.text_tokens(text) if t not in words.ids} == set()


def test_most_calls_are_short() -> None:
    words = Vocabulary.load(ROOT / "models/tea-omni/weights/thinker.json")
    rng = random.Random(2)
    turns = Counter(len(list(make.dialogue(rng, "zh", words))) for _ in range(200))
    assert sum(n for length, n in turns.items() if length <= 4) > 150


def test_development_dialogues_have_carts_that_can_be_ordered() -> None:
    text = (ROOT / "models/tea-omni/dialogues/dev.jsonl").read_text(encoding="utf-8")
    dialogues = [json.loads(line) for line in text.splitlines()]
    assert len({dialogue["id"] for dialogue in dialogues}) == len(dialogues)
    for dialogue in dialogues:
        cart = Cart()
        for line in dialogue["cart"]:
            cart.add(**line)
        assert same(final_cart(cart), dialogue["cart"])


def test_stretches_are_misheard_about_as_often_as_they_were_and_as_what_they_were() -> None:
    said, known = max(noise.COUNTED.items(), key=lambda entry: sum(entry[1]["as"].values()))
    rng = random.Random(0)
    heard = Counter(noise.misheard(rng, said) for _ in range(2000))
    wrong = sum(known["as"].values())
    assert set(heard) == {said, *known["as"]}
    expected = 2000 * wrong / (wrong + known["unchanged"] + noise.SELDOM)
    assert 0.8 * expected < 2000 - heard[said] < 1.2 * expected


def test_no_more_is_misheard_than_is_asked_for() -> None:
    rng = random.Random(0)
    text = "，".join(noise.COUNTED)
    assert all(noise.misheard(rng, text, most=0) == text for _ in range(20))
    assert any(noise.misheard(rng, text, most=1) != text for _ in range(20))

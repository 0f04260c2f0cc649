"""The dialogues written by hand are what their README says."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from demos.ordering.cart import SIX_KEYS, Cart, final_cart, same
from demos.ordering.menu import default_menu

HERE = Path(__file__).with_name("dialogues")


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def test_there_are_as_many_as_said() -> None:
    dialogues, later = read("hand_150.jsonl"), read("later_60.jsonl")
    assert Counter(dialogue["lang"] for dialogue in later) == {"zh": 36, "en": 24}
    assert len({tuple(dialogue["turns"]) for dialogue in [*dialogues, *later]}) == 210
    assert Counter(dialogue["lang"] for dialogue in dialogues) == {"zh": 90, "en": 60}
    assert len({dialogue["id"] for dialogue in dialogues}) == 150
    assert len({tuple(dialogue["turns"]) for dialogue in dialogues}) == 150
    assert all(1 <= len(dialogue["turns"]) <= 5 and all(dialogue["turns"]) for dialogue in dialogues)


def test_spoken_ones_are_among_them() -> None:
    spoken = [line["id"] for line in read("spoken_60.jsonl")]
    assert Counter(name[:2] for name in spoken) == {"zh": 40, "en": 20}
    assert len(set(spoken)) == 60
    assert set(spoken) <= {dialogue["id"] for dialogue in read("hand_150.jsonl")}


def test_every_cart_can_be_ordered() -> None:
    menu = default_menu()
    assert [dialogue["id"] for dialogue in read("later_60.jsonl") if not dialogue["cart"]] == ["later-zh-024"]
    assert all(dialogue["cart"] for dialogue in read("hand_150.jsonl"))
    for dialogue in [*read("hand_150.jsonl"), *read("later_60.jsonl")]:
        cart = Cart()
        for line in dialogue["cart"]:
            assert tuple(line) == SIX_KEYS
            assert line["drink"] in menu.drinks
            assert all(topping in menu.toppings for topping in line["toppings"])
            cart.add(**line)
        assert same(final_cart(cart), dialogue["cart"])

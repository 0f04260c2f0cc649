"""The ordering tools as the generator runs them: the demo's own cart, with other prices and things sold out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from demos.ordering.cart import Cart, ItemT, Refused
from demos.ordering.menu import Drink, Menu, default_menu

TOUCHING = ("add", "change", "replace", "remove", "clear")


def vary(menu: Menu, rng: random.Random) -> Menu:
    """Often other prices (a reply must read them from the results), sometimes something sold out."""
    if rng.random() < 0.55:
        half = rng.random() < 0.15

        def price(low: int, high: int) -> Any:
            value = rng.randint(low, high)
            return value + 0.5 if half and rng.random() < 0.5 else value

        top = rng.choice([30, 30, 60, 120])
        drinks = {k: replace(d, price=price(5, top)) for k, d in menu.drinks.items()}
        toppings = {k: replace(t, price=price(1, 9)) for k, t in menu.toppings.items()}
        menu = replace(menu, drinks=drinks, toppings=toppings)
    if rng.random() < 0.25:
        ids = [*menu.drinks, *menu.drinks, *menu.toppings]
        menu = menu.with_sold_out(*rng.sample(ids, rng.randint(1, 5)))
    return menu


class _ByIds(Cart):
    """The demo's cart for calls that name everything by its id: nothing is to be matched by sound."""

    def _find(self, heard: str, items: Mapping[str, ItemT]) -> ItemT:
        return items[heard] if heard in items else super()._find(heard, items)

    def _choice(self, drink: Drink, field: str, heard: str | None) -> str:
        return heard if heard in drink.choices[field] else super()._choice(drink, field, heard)


class Shop:
    """Runs tool calls on a cart and gives the JSON results of the contract."""

    def __init__(self, rng: random.Random, menu: Menu | None = None) -> None:
        self.menu = menu or vary(default_menu(), rng)
        self.cart: Cart = _ByIds(self.menu)
        self.call_id = str(rng.random())

    def run(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        base: dict[str, Any] = {"ok": True, "error": None}
        try:
            if name == "place":
                order = self.cart.place(self.call_id)
                return base | {"cart": dict(order.cart), "changed": [], "order_number": order.number}
            if name == "look_up":
                item = arguments.get("item")
                found = {"item": self.cart.look_up(item)} if item else {"favourites": self.cart.favourites()}
                return base | {"cart": self.cart.view(), "changed": []} | found
            if name == "read_back":
                if not self.cart.lines:
                    raise Refused("empty_cart")
                changed: list[int] = []
            else:
                changed = getattr(self.cart, name)(**arguments)
        except Refused as refused:
            return {
                "ok": False,
                "error": refused.code,
                "cart": self.cart.view(),
                "changed": [],
                **refused.details,
            }
        return base | {"cart": self.cart.view(), "changed": changed}

    @property
    def lines(self) -> list[dict[str, Any]]:
        return list(self.cart.view()["lines"])

    def choices(self, drink: str, key: str) -> tuple[str, ...]:
        return self.menu.drinks[drink].choices[key]

    def default(self, drink: str, key: str) -> str:
        return self.choices(drink, key)[0]

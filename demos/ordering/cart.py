"""The cart of one call. Prices come from the menu alone, and an operation happens whole or not at all."""

from __future__ import annotations

import copy
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .menu import OPTION_FIELDS, Choice, Drink, Menu, Topping, default_menu
from .sound import Match, match

MAX_QUANTITY = 30
FAVOURITES = 3

SIX_KEYS = ("drink", "quantity", "size", "ice", "sugar", "toppings")

ItemT = TypeVar("ItemT", bound=Drink | Topping)


class Refused(Exception):
    """An operation that was not carried out: nothing has changed. `code` says why, `details` what fits instead."""

    def __init__(self, code: str, **details: Any) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


@dataclass(frozen=True)
class Line:
    """So many cups of one drink, all alike. `toppings` are ids in the menu's order, each at most once."""

    drink: str
    quantity: int
    size: str
    ice: str
    sugar: str
    toppings: tuple[str, ...]


@dataclass(frozen=True)
class Order:
    """A cart that was placed, and the number to collect it by."""

    number: int
    cart: Mapping[str, Any]


class Cart:
    """Lines at positions 1..n. Every operation returns the positions, after it, of the lines that are new or differ.

    Drinks, toppings and choices may be given by id or as they were heard (see `sound`). None for a choice means
    the drink's default. Every operation raises `Refused`, and then the cart is as it was:
    `no_such_line`; `no_such_item`; `ambiguous` (`candidates`); `sold_out` (`item`);
    `bad_option` (`field`, `allowed`); `quantity_unclear` (below 1, over 30, or more cups than there are);
    `empty_cart`.
    """

    def __init__(self, menu: Menu | None = None) -> None:
        self.menu = menu or default_menu()
        self.lines: tuple[Line, ...] = ()
        self.orders: tuple[Order, ...] = ()

    def fork(self) -> Cart:
        """An independent copy: what is done to it does not show here."""
        return copy.copy(self)

    def add(
        self,
        drink: str,
        quantity: int = 1,
        size: str | None = None,
        ice: str | None = None,
        sugar: str | None = None,
        toppings: Sequence[str] = (),
    ) -> list[int]:
        """Append a line, also when an equal one is there."""
        line = self._line(drink, quantity, {"size": size, "ice": ice, "sugar": sugar}, toppings)
        self.lines = (*self.lines, line)
        return [len(self.lines)]

    def change(
        self,
        line: int,
        drink: str | None = None,
        quantity: int | None = None,
        size: str | None = None,
        ice: str | None = None,
        sugar: str | None = None,
        add_toppings: Sequence[str] = (),
        remove_toppings: Sequence[str] = (),
        cups: int | None = None,
    ) -> list[int]:
        """Change what is given and keep the rest. With fewer `cups` than the line has, those become a last line.

        Another drink keeps the choices that it takes; a default choice becomes the new drink's default.
        Putting in a topping that is in already changes nothing; taking out one that is not in is a `bad_option`.
        """
        old = self._at(line)
        taken = self._cups(old, cups)
        new_drink = self._drink(drink) if drink is not None else self.menu.drinks[old.drink]
        asked = {"size": size, "ice": ice, "sugar": sugar}
        choices = {field: self._kept(old, field, new_drink, asked[field]) for field in OPTION_FIELDS}
        toppings = [topping for topping in old.toppings if topping not in self._removed(old, remove_toppings)]
        new = Line(
            drink=new_drink.id,
            quantity=self._quantity(taken if quantity is None else quantity),
            toppings=self._ordered([*toppings, *(self._topping(heard) for heard in add_toppings)]),
            **choices,
        )
        return self._put(line, old, taken, new)

    def replace(
        self,
        line: int,
        drink: str,
        quantity: int | None = None,
        size: str | None = None,
        ice: str | None = None,
        sugar: str | None = None,
        toppings: Sequence[str] = (),
        cups: int | None = None,
    ) -> list[int]:
        """Another drink in the line's place, made from scratch; as many as there were unless `quantity` says.

        With fewer `cups` than the line has, those leave it and the new drink becomes a last line.
        """
        old = self._at(line)
        taken = self._cups(old, cups)
        wanted = taken if quantity is None else quantity
        new = self._line(drink, wanted, {"size": size, "ice": ice, "sugar": sugar}, toppings)
        return self._put(line, old, taken, new)

    def remove(self, line: int, cups: int | None = None) -> list[int]:
        """Take out a line, or so many cups of it; the lines behind a whole line move up."""
        old = self._at(line)
        taken = self._cups(old, cups)
        if taken == old.quantity:
            self.lines = (*self.lines[: line - 1], *self.lines[line:])
            return []
        self._set(line, replace(old, quantity=old.quantity - taken))
        return [line]

    def clear(self) -> list[int]:
        """Take out everything. What was placed stays placed."""
        self.lines = ()
        return []

    def place(self, call_id: str) -> Order:
        """Place the order and empty the cart. Asked again with nothing new in the cart, the same order comes back.

        The number depends on the call and on how many orders it placed before, so that a repeated request gives
        the same number and never a second order.
        """
        if not self.lines:
            if not self.orders:
                raise Refused("empty_cart")
            return self.orders[-1]
        number = zlib.crc32(f"{call_id}/{len(self.orders)}".encode()) % 999 + 1
        order = Order(number, self.view() | {"placed": True})
        self.orders = (*self.orders, order)
        self.lines = ()
        return order

    def look_up(self, item: str) -> dict[str, Any]:
        """Price and choices of a drink or topping (a topping has none)."""
        items: dict[str, Drink | Topping] = {**self.menu.drinks, **self.menu.toppings}
        found = self._find(item, items)
        choices = found.choices if isinstance(found, Drink) else {"ice": (), "sugar": ()}
        return {
            "id": found.id,
            "price": found.price,
            "sold_out": found.sold_out,
            "ice": list(choices["ice"]),
            "sugar": list(choices["sugar"]),
        }

    def favourites(self) -> list[str]:
        """Ids of a few drinks to offer: the menu's first ones that are not sold out."""
        return [drink.id for drink in self.menu.drinks.values() if not drink.sold_out][:FAVOURITES]

    def unit_price(self, line: Line) -> int:
        """Of one cup: drink, size and toppings."""
        toppings = sum(self.menu.toppings[topping].price for topping in line.toppings)
        return self.menu.drinks[line.drink].price + self.menu.options["size"][line.size].price + toppings

    def view(self) -> dict[str, Any]:
        """The cart as JSON: lines with positions and prices, and the total."""
        lines = []
        for position, line in enumerate(self.lines, start=1):
            unit_price = self.unit_price(line)
            prices = {"unit_price": unit_price, "price": unit_price * line.quantity}
            lines.append({"line": position, **six_keys(line), **prices})
        return {"lines": lines, "total": sum(entry["price"] for entry in lines), "currency": self.menu.currency}

    def _line(self, drink: str, quantity: int, asked: Mapping[str, str | None], toppings: Sequence[str]) -> Line:
        found = self._drink(drink)
        choices = {field: self._choice(found, field, asked[field]) for field in OPTION_FIELDS}
        put_in = self._ordered([self._topping(heard) for heard in toppings])
        return Line(found.id, self._quantity(quantity), toppings=put_in, **choices)

    def _put(self, line: int, old: Line, taken: int, new: Line) -> list[int]:
        if taken == old.quantity:
            self._set(line, new)
            return [line]
        self._set(line, replace(old, quantity=old.quantity - taken))
        self.lines = (*self.lines, new)
        return [line, len(self.lines)]

    def _set(self, line: int, new: Line) -> None:
        self.lines = (*self.lines[: line - 1], new, *self.lines[line:])

    def _at(self, line: int) -> Line:
        if not 1 <= line <= len(self.lines):
            raise Refused("no_such_line")
        return self.lines[line - 1]

    def _cups(self, line: Line, cups: int | None) -> int:
        if cups is None:
            return line.quantity
        if not 1 <= cups <= line.quantity:
            raise Refused("quantity_unclear")
        return cups

    def _quantity(self, quantity: int) -> int:
        if not 1 <= quantity <= MAX_QUANTITY:
            raise Refused("quantity_unclear")
        return quantity

    def _drink(self, heard: str) -> Drink:
        return self._available(self._find(heard, self.menu.drinks))

    def _topping(self, heard: str) -> str:
        return self._available(self._find(heard, self.menu.toppings)).id

    def _removed(self, line: Line, heard: Sequence[str]) -> set[str]:
        removed = {self._find(topping, self.menu.toppings).id for topping in heard}
        if not removed <= set(line.toppings):
            raise Refused("bad_option", field="toppings", allowed=list(line.toppings))
        return removed

    def _ordered(self, toppings: Iterable[str]) -> tuple[str, ...]:
        wanted = set(toppings)
        return tuple(topping for topping in self.menu.toppings if topping in wanted)

    def _kept(self, old: Line, field: str, drink: Drink, asked: str | None) -> str:
        current: str = getattr(old, field)
        if asked is None and (drink.id == old.drink or current != self.menu.drinks[old.drink].choices[field][0]):
            asked = current
        return self._choice(drink, field, asked)

    def _choice(self, drink: Drink, field: str, heard: str | None) -> str:
        allowed = drink.choices[field]
        if heard is None:
            return allowed[0]
        found = _match(heard, self.menu.options[field])
        possible = [choice for choice in found.ids if choice in allowed]
        if not possible:
            raise Refused("bad_option", field=field, allowed=list(allowed))
        if not found.certain:
            raise Refused("ambiguous", candidates=possible)
        return possible[0]

    def _find(self, heard: str, items: Mapping[str, ItemT]) -> ItemT:
        found = _match(heard, items)
        if not found.ids:
            raise Refused("no_such_item")
        if not found.certain:
            raise Refused("ambiguous", candidates=list(found.ids))
        return items[found.ids[0]]

    def _available(self, item: ItemT) -> ItemT:
        if item.sold_out:
            raise Refused("sold_out", item=item.id)
        return item


def six_keys(line: Line) -> dict[str, Any]:
    """A line as JSON, without position and prices."""
    return {
        "drink": line.drink,
        "quantity": line.quantity,
        "size": line.size,
        "ice": line.ice,
        "sugar": line.sugar,
        "toppings": list(line.toppings),
    }


def final_cart(cart: Cart) -> list[dict[str, Any]]:
    """What the caller has ordered in the end: the open cart, or if it is empty the order placed last."""
    if cart.lines or not cart.orders:
        return [six_keys(line) for line in cart.lines]
    return [{key: line[key] for key in SIX_KEYS} for line in cart.orders[-1].cart["lines"]]


def same(cart: Iterable[Mapping[str, Any]], other: Iterable[Mapping[str, Any]]) -> bool:
    """Whether two carts hold the same cups: order does not matter, nor how equal cups are spread over lines.

    Raises KeyError for a line without all six keys.
    """
    return _cups_of(cart) == _cups_of(other)


def _cups_of(lines: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    cups: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        kind = (line["drink"], line["size"], line["ice"], line["sugar"], frozenset(line["toppings"]))
        cups[kind] += line["quantity"]
    return cups


def _match(heard: str, items: Mapping[str, Choice | Topping | Drink]) -> Match:
    return match(heard, {item.id: (item.zh, item.en, *item.aliases) for item in items.values()})

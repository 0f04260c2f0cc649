"""The shop's menu, read from YAML into typed, immutable records. Prices are whole units of its currency."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

OPTION_FIELDS = ("size", "ice", "sugar")


class MenuError(ValueError):
    """The menu file does not say what a menu must say: the message gives the place, expected and got."""


@dataclass(frozen=True)
class Choice:
    """One choice of an option, such as less ice. `price` is added to the drink's."""

    id: str
    zh: str
    en: str
    price: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topping:
    """Something put into a drink, at its own price."""

    id: str
    zh: str
    en: str
    price: int
    aliases: tuple[str, ...] = ()
    sold_out: bool = False


@dataclass(frozen=True)
class Drink:
    """A drink at the price of its default size. `choices` are the allowed ids of each option, default first."""

    id: str
    zh: str
    en: str
    price: int
    choices: Mapping[str, tuple[str, ...]]
    aliases: tuple[str, ...] = ()
    sold_out: bool = False


@dataclass(frozen=True)
class Menu:
    """Everything that can be ordered, by id and in the file's order."""

    currency: str
    options: Mapping[str, Mapping[str, Choice]]
    toppings: Mapping[str, Topping]
    drinks: Mapping[str, Drink]

    def __deepcopy__(self, memo: dict[int, Any]) -> Menu:
        return self  # immutable: copies of a cart share it

    def with_sold_out(self, *ids: str) -> Menu:
        """The same menu with these ids, and no others, sold out. Raises KeyError for an id that it has not."""
        for item_id in ids:
            if item_id not in self.drinks and item_id not in self.toppings:
                raise KeyError(f"expected the id of a drink or topping, got {item_id!r}")
        return replace(
            self,
            toppings={key: replace(item, sold_out=key in ids) for key, item in self.toppings.items()},
            drinks={key: replace(item, sold_out=key in ids) for key, item in self.drinks.items()},
        )

    def vocabulary(self) -> dict[Literal["zh", "en"], str]:
        """The names of everything, by language, for a recogniser that can be told what to expect.

        The Mandarin choices of ice come last and in a phrase: alone, 少冰 is still heard as 小冰.
        """
        size, ice, sugar = (list(self.options[field].values()) for field in OPTION_FIELDS)
        named: list[Drink | Topping | Choice] = [*self.drinks.values(), *self.toppings.values(), *size, *sugar]
        phrases = [f"一杯{choice.zh.removesuffix('的')}的" for choice in ice[1:]]
        return {
            "zh": "，".join(["、".join(item.zh for item in named), *phrases]),
            "en": ", ".join(item.en for item in [*named, *ice]),
        }

    def to_json(self) -> dict[str, Any]:
        """The menu in the shape of its file."""
        return {
            "currency": self.currency,
            "options": {
                field: [_entry(choice, price=choice.price if field == "size" else None) for choice in choices.values()]
                for field, choices in self.options.items()
            },
            "toppings": [_entry(item, price=item.price) for item in self.toppings.values()],
            "drinks": [_entry(item, price=item.price) | self._own_choices(item) for item in self.drinks.values()],
        }

    def _own_choices(self, drink: Drink) -> dict[str, list[str]]:
        return {field: list(own) for field, own in drink.choices.items() if own != tuple(self.options[field])}


def _entry(item: Choice | Topping | Drink, price: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": item.id, "zh": item.zh, "en": item.en}
    if price is not None:
        entry["price"] = price
    if item.aliases:
        entry["aliases"] = list(item.aliases)
    if not isinstance(item, Choice) and item.sold_out:
        entry["sold_out"] = True
    return entry


ItemT = TypeVar("ItemT", Choice, Topping, Drink)


@functools.cache
def default_menu() -> Menu:
    """The menu that lies beside this file."""
    return load_menu(Path(__file__).with_name("menu.yaml"))


def load_menu(path: Path) -> Menu:
    """Read a menu file. Raises MenuError, with expected and got, for anything that is not a menu."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise MenuError(f"{path.name}: expected YAML, got {error}") from error
    return parse_menu(data)


def parse_menu(data: Any) -> Menu:
    """A menu from its parsed YAML. Raises MenuError."""
    top = _record(data, "menu", required=("currency", "options", "toppings", "drinks"))
    option_lists = _record(top["options"], "options", required=OPTION_FIELDS)
    options = {
        field: _by_id([_choice(entry, where) for entry, where in _entries(option_lists[field], f"options.{field}")])
        for field in OPTION_FIELDS
    }
    toppings = _by_id([_topping(entry, where) for entry, where in _entries(top["toppings"], "toppings")])
    drinks = _by_id([_drink(entry, where, options) for entry, where in _entries(top["drinks"], "drinks")])
    both = sorted(toppings.keys() & drinks.keys())
    if both:
        raise MenuError(f"menu: expected drinks and toppings with different ids, got {both[0]!r} as both")
    return Menu(_text(top["currency"], "currency"), options, toppings, drinks)


def _choice(entry: Any, where: str) -> Choice:
    got = _record(entry, where, required=("id", "zh", "en"), allowed=("price", "aliases"))
    return Choice(**_named(got, where), price=_whole(got.get("price", 0), f"{where}.price"))


def _topping(entry: Any, where: str) -> Topping:
    got = _record(entry, where, required=("id", "zh", "en", "price"), allowed=("aliases", "sold_out"))
    return Topping(**_named(got, where), price=_price(got, where), sold_out=_flag(got, where))


def _drink(entry: Any, where: str, options: Mapping[str, Mapping[str, Choice]]) -> Drink:
    allowed = ("aliases", "sold_out", *OPTION_FIELDS)
    got = _record(entry, where, required=("id", "zh", "en", "price"), allowed=allowed)
    choices = {}
    for field in OPTION_FIELDS:
        choices[field] = _texts(got[field], f"{where}.{field}") if field in got else tuple(options[field])
        unknown = [choice for choice in choices[field] if choice not in options[field]]
        if unknown or not choices[field]:
            wanted = ", ".join(options[field])
            raise MenuError(f"{where}.{field}: expected some of {wanted}, got {unknown[0] if unknown else 'none'}")
    return Drink(**_named(got, where), price=_price(got, where), choices=choices, sold_out=_flag(got, where))


def _named(got: Mapping[str, Any], where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {key: _text(got[key], f"{where}.{key}") for key in ("id", "zh", "en")}
    return fields | {"aliases": _texts(got.get("aliases", []), f"{where}.aliases")}


def _price(got: Mapping[str, Any], where: str) -> int:
    price = _whole(got["price"], f"{where}.price")
    if price < 0:
        raise MenuError(f"{where}.price: expected 0 or more, got {price}")
    return price


def _flag(got: Mapping[str, Any], where: str) -> bool:
    value = got.get("sold_out", False)
    if not isinstance(value, bool):
        raise MenuError(f"{where}.sold_out: expected true or false, got {value!r}")
    return value


def _record(data: Any, where: str, required: Sequence[str], allowed: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise MenuError(f"{where}: expected keys {', '.join(required)}, got {data!r}")
    missing = [key for key in required if key not in data]
    unknown = [key for key in data if key not in required and key not in allowed]
    if missing or unknown:
        keys = ", ".join(dict.fromkeys((*required, *allowed)))
        told = f"none for {missing[0]}" if missing else f"unknown key {unknown[0]!r}"
        raise MenuError(f"{where}: expected keys {keys}, got {told}")
    return data


def _entries(data: Any, where: str) -> list[tuple[Any, str]]:
    if not isinstance(data, list) or not data:
        raise MenuError(f"{where}: expected a list of at least one entry, got {data!r}")
    return [(entry, f"{where}[{index}]") for index, entry in enumerate(data)]


def _by_id(items: Sequence[ItemT]) -> dict[str, ItemT]:
    by_id = {item.id: item for item in items}
    if len(by_id) < len(items):
        ids = [item.id for item in items]
        twice = next(item_id for item_id in ids if ids.count(item_id) > 1)
        raise MenuError(f"menu: expected each id once, got {twice!r} more than once")
    return by_id


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise MenuError(f"{where}: expected text, got {value!r}")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise MenuError(f"{where}: expected a list of texts, got {value!r}")
    return tuple(_text(entry, where) for entry in value)


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise MenuError(f"{where}: expected a whole number, got {value!r}")
    return value

"""The ordering tools: plain typed functions on the cart of the call.

Each returns a JSON object: `ok`, `error` (null or a code of `Cart`, with its details beside it), `cart`, and
`changed`, the positions of the lines that are new or differ. After an error the cart is as it was before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from voice_agent import irreversible

from .cart import Cart, Refused

if TYPE_CHECKING:
    from voice_agent import Call


def add(
    call: Call[Cart],
    drink: str,
    quantity: int = 1,
    size: str | None = None,
    ice: str | None = None,
    sugar: str | None = None,
    toppings: list[str] = [],  # noqa: B006  (a default in the tool's schema; never changed)
) -> dict[str, Any]:
    """Add cups of one drink to the cart, as a new last line.

    drink and toppings: ids of the menu. size, ice, sugar: ids of the menu's choices; null for the drink's default.
    """
    return _outcome(call.state, lambda cart: cart.add(drink, quantity, size, ice, sugar, toppings))


def change(
    call: Call[Cart],
    line: int,
    drink: str | None = None,
    quantity: int | None = None,
    size: str | None = None,
    ice: str | None = None,
    sugar: str | None = None,
    add_toppings: list[str] = [],  # noqa: B006
    remove_toppings: list[str] = [],  # noqa: B006
    cups: int | None = None,
) -> dict[str, Any]:
    """Change a line of the cart: what is given changes, null stays as it is.

    line: its position, from 1. cups: change only so many cups of the line; they become a new last line.
    """
    return _outcome(
        call.state,
        lambda cart: cart.change(line, drink, quantity, size, ice, sugar, add_toppings, remove_toppings, cups),
    )


def replace(
    call: Call[Cart],
    line: int,
    drink: str,
    quantity: int | None = None,
    size: str | None = None,
    ice: str | None = None,
    sugar: str | None = None,
    toppings: list[str] = [],  # noqa: B006
    cups: int | None = None,
) -> dict[str, Any]:
    """Put another drink in the place of a line, with choices of its own. If that fails, the old line stays.

    quantity: null for as many as there were. cups: replace only so many cups of the line; the new drink becomes
    a new last line.
    """
    return _outcome(call.state, lambda cart: cart.replace(line, drink, quantity, size, ice, sugar, toppings, cups))


def remove(call: Call[Cart], line: int, cups: int | None = None) -> dict[str, Any]:
    """Take a line out of the cart, or only so many cups of it. The lines behind it move up."""
    return _outcome(call.state, lambda cart: cart.remove(line, cups))


def clear(call: Call[Cart]) -> dict[str, Any]:
    """Empty the cart, to start again or to give up."""
    return _outcome(call.state, lambda cart: cart.clear())


def read_back(call: Call[Cart]) -> dict[str, Any]:
    """The whole cart with its prices, to read it to the caller."""
    return _outcome(call.state, lambda cart: [])


@irreversible
def place(call: Call[Cart]) -> dict[str, Any]:
    """Place the order. Gives its number and empties the cart; asked again, it gives the same order."""
    try:
        order = call.state.place(call.id)
    except Refused as refused:
        return _refusal(call.state, refused)
    return {"ok": True, "error": None, "cart": order.cart, "changed": [], "order_number": order.number}


def look_up(call: Call[Cart], item: str | None = None) -> dict[str, Any]:
    """Price and choices of a drink or topping, and whether it is sold out; without an item, a few favourites."""
    cart = call.state
    try:
        found = {"favourites": cart.favourites()} if item is None else {"item": cart.look_up(item)}
    except Refused as refused:
        return _refusal(cart, refused)
    return {"ok": True, "error": None, "cart": cart.view(), "changed": [], **found}


def _outcome(cart: Cart, operation: Callable[[Cart], list[int]]) -> dict[str, Any]:
    try:
        changed = operation(cart)
    except Refused as refused:
        return _refusal(cart, refused)
    return {"ok": True, "error": None, "cart": cart.view(), "changed": changed}


def _refusal(cart: Cart, refused: Refused) -> dict[str, Any]:
    return {"ok": False, "error": refused.code, "cart": cart.view(), "changed": [], **refused.details}

"""The reply that fits a turn: composed from the results of its calls and the language's wordings."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .scene import Call, Plan, Scene

Result = dict[str, Any]
ACTIONS = ("add", "change", "replace", "remove", "clear")


def price(value: float) -> float:
    return round(value * 2) / 2


def compose(s: Scene, plan: Plan, results: Sequence[tuple[Call, Result]]) -> str:
    """The reply after `results`; `s.shop` is the shop after the calls."""
    words, text = s.words, s.words.SAY.text
    lost = [call for call, result in results if _is_lost(call, result)]
    results = [(call, result) for call, result in results if not _is_lost(call, result)]
    errors = [result for _, result in results if result["error"]]
    good = [(call, result) for call, result in results if not result["error"]]
    parts = [_action(s, plan, good)] if any(call[0] in ACTIONS for call, _ in good) else []
    missed = [text["lost"].format(x=_name(s, call[1]["drink"])) for call in lost]
    placed = [result for call, result in good if call[0] == "place"]
    if placed and len(results) + len(lost) > 1:
        return _join(words, [*missed, *(_error(s, result) for result in errors[:2]), _answer(s, plan, placed[-1])])
    for result in errors[:1] if errors and errors[0]["error"] == "failed" else errors[:2]:
        parts.append(_error(s, result))
    parts += missed
    if parts:
        return _join(words, parts)
    if results:
        return _answer(s, plan, results[0][1])
    return _words_only(s, plan, text)


def _is_lost(call: Call, result: Result) -> bool:
    """A drink that was to be added and is not in the cart, whatever the shop says of it."""
    return call[0] == "add" and (result["error"] == "tool_timeout" or not (result["error"] or result["changed"]))


def _join(words: ModuleType, parts: Sequence[str]) -> str:
    return ("" if words.__name__.endswith("zh") else " ").join(parts)


def _defaults(s: Scene, drink: str) -> dict[str, str]:
    return {key: s.shop.default(drink, key) for key in ("size", "ice", "sugar")}


def _describe(s: Scene, line: dict[str, Any]) -> str:
    return s.words.describe(line, _defaults(s, line["drink"]))


def _listed(s: Scene, lines: Sequence[dict[str, Any]]) -> str:
    return s.words.listed([_describe(s, line) for line in lines])


def _total(s: Scene, cart: dict[str, Any], alone: bool) -> str:
    return s.words.price(price(cart["total"]), alone and len(cart["lines"]) <= 1)


def _name(s: Scene, item: str) -> str:
    return s.words.DRINK.get(item) or s.words.SAY.topping[item]


def _action(s: Scene, plan: Plan, good: Sequence[tuple[Call, Result]]) -> str:
    words, text = s.words, s.words.SAY.text
    cart = good[-1][1]["cart"]
    total = _total(s, cart, True)
    names = [call[0] for call, _ in good]
    if plan.reply == "cleared":
        return str(text["cleared"])
    if plan.reply == "done":
        return text["done"].format(price=words.price(price(cart["total"]), False))
    if plan.reply == "removed":
        line = {**plan.info["line"], "quantity": 1}
        name = words.DRINK[line["drink"]]
        return text["removed" if cart["lines"] else "removed_all"].format(items=name, price=total)
    shown: list[dict[str, Any]] = []
    for call, result in good:
        for number in result["changed"][-1:] if call[0] != "remove" else result["changed"]:
            line = result["cart"]["lines"][number - 1]
            shown = [x for x in shown if x != line] + [line]
    if not shown:
        return text["done"].format(price=words.price(price(cart["total"]), False))
    key = "confirm"
    if set(names) <= {"change", "remove"}:
        key = "confirm_changed"
    elif set(names) == {"replace"}:
        key = "confirm_replaced"
    if plan.reply == "also_no_item":
        key = "also_no_item"
    return text[key].format(items=_listed(s, shown), price=total)


def _error(s: Scene, result: Result) -> str:
    text = s.words.SAY.text
    if result["error"] == "sold_out":
        return text["sold_out"].format(x=_name(s, result["item"]))
    if result["error"] == "quantity_unclear":
        return str(text["quantity"])
    if result["error"] == "failed":
        return str(text["unclear"])
    if result["error"] == "empty_cart":
        return str(text["empty"])
    if result["error"] == "no_such_line":
        return str(text["no_line"])
    if result["error"] == "ambiguous":
        return text["which"].format(items=_choice(s, result["candidates"]))
    return str(text["no_item"])


def _answer(s: Scene, plan: Plan, result: Result) -> str:
    """Read back, place, look up."""
    words, text = s.words, s.words.SAY.text
    cart = result["cart"]
    if plan.reply == "read_back":
        return text["read_back"].format(items=_listed(s, cart["lines"]), price=words.price(price(cart["total"]), False))
    if plan.reply == "total":
        return _capital(text["total"].format(price=words.price(price(cart["total"]), False)))
    if plan.reply == "placed":
        return text["placed"].format(
            number=words.number(result["order_number"]), price=words.price(price(cart["total"]), False)
        )
    if plan.reply == "menu":
        return text["menu"].format(items=_choice(s, result["favourites"][:3], and_=True))
    item = result["item"]
    x, cost = _name(s, item["id"]), words.yuan(price(item["price"]))
    if item["sold_out"]:
        return text["sold_out"].format(x=x)
    if plan.reply == "ice":
        if len(item["ice"]) == 5:
            return text["ice_all"].format(x=x, yuan=cost)
        return text["ice"].format(x=x, yuan=cost, ice=_ices(s, item["ice"], and_=True))
    return _capital(text[plan.reply].format(x=x, yuan=cost))


def _words_only(s: Scene, plan: Plan, text: dict[str, str]) -> str:
    if plan.reply == "which":
        return text["which"].format(items=_choice(s, plan.info["drinks"]))
    if plan.reply == "not_possible":
        drink = plan.info["drink"]
        return text["not_possible"].format(x=s.words.DRINK[drink], items=_ices(s, s.shop.choices(drink, "ice")))
    if plan.reply == "number":
        return text["number"].format(number=s.words.number(s.order_number))
    return text[plan.reply]


def _choice(s: Scene, ids: Sequence[str], and_: bool = False) -> str:
    names = [_name(s, i) for i in ids]
    if s.words.__name__.endswith("zh"):
        return "、".join(names) if and_ else "、".join(names[:-1]) + "还是" + names[-1]
    return ", ".join(names[:-1]) + (" and " if and_ else " or the ") + names[-1]


def _ices(s: Scene, ids: Sequence[str], and_: bool = False) -> str:
    names = [s.words.SAY.shown[i] + ("的" if i == "hot" and s.words.__name__.endswith("zh") else "") for i in ids]
    if len(names) == 1:
        return names[0]
    if s.words.__name__.endswith("zh"):
        return "、".join(names[:-1]) + ("和" if and_ else "或") + names[-1]
    return ", ".join(names[:-1]) + (" and " if and_ else " or ") + names[-1]


def _capital(reply: str) -> str:
    return reply[0].upper() + reply[1:]

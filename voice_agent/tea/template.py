"""How a dialogue becomes the thinker's prompt: bounded, whatever the length of the call.

    <zh> cart … <p> last utterance <a> what was heard of the last reply <u> utterance <do> calls <run>
    <r> result … <total> … <say> reply <end>

The cart is the one of the latest tool result; `<*>` marks the lines that the latest change touched. Prices and
totals are in the results of this turn alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from voice_agent.engine.protocols import Language, Message, ThinkRequest, ToolCall
from voice_agent.tea.grammar import MAX_LINES, Line
from voice_agent.tea.tokenizer import Vocabulary, number_tokens

MAX_UTTERANCE, MAX_PREVIOUS, MAX_HEARD = 96, 32, 32
_TOUCHING = ("add", "change", "replace")
_PASSIVE = ("read_back", "look_up")


@dataclass(frozen=True)
class Context:
    """What the thinker is told of a dialogue at the user's last message."""

    language: Language
    utterance: str
    lines: tuple[Mapping[str, Any], ...] = ()
    touched: frozenset[int] = frozenset()
    order_number: int | None = None
    previous: str = ""
    heard: str = ""
    errors: tuple[Mapping[str, Any], ...] = field(default=())

    def grammar_lines(self) -> list[Line]:
        return [Line(x["drink"], int(x["quantity"]), frozenset(x["toppings"])) for x in self.lines]


def read(request: ThinkRequest) -> Context:
    """Take from the messages what the prompt holds. Raises ValueError if the last one is not the user's."""
    messages = request.messages
    if not messages or messages[-1].role != "user":
        got = messages[-1].role if messages else "no message"
        raise ValueError(f"expected a dialogue that ends with the user's message, got {got}")
    results = _results(messages)
    lines: Sequence[Mapping[str, Any]] = ()
    order_number: int | None = None
    for _, result in reversed(results):
        cart = result.get("cart")
        if cart is not None:
            placed = bool(cart.get("placed"))
            lines = () if placed else cart["lines"]
            order_number = result.get("order_number") if placed else None
            break
    start = next((i for i in range(len(messages) - 2, -1, -1) if messages[i].role == "user"), None)
    before = messages[start:-1] if start is not None else ()
    return Context(
        language=request.language,
        utterance=messages[-1].text,
        lines=tuple(lines),
        touched=_touched(results, len(lines)),
        order_number=order_number,
        previous=before[0].text if before else "",
        heard=" ".join(m.text for m in before if m.role == "assistant" and m.text),
        errors=tuple(r for _, r in _results(before) if r.get("error")),
    )


def _results(messages: Sequence[Message]) -> list[tuple[str, Mapping[str, Any]]]:
    names: dict[str, str] = {}
    pairs: list[tuple[str, Mapping[str, Any]]] = []
    for message in messages:
        names |= {call.call_id: call.name for call in message.tool_calls}
        if message.role == "tool" and isinstance(message.result, Mapping):
            pairs.append((names.get(message.call_id, ""), message.result))
    return pairs


def _touched(results: Sequence[tuple[str, Mapping[str, Any]]], lines: int) -> frozenset[int]:
    for name, result in reversed(results):
        if result.get("error") or name in _PASSIVE:
            continue
        changed = result.get("changed", ()) if name in _TOUCHING else ()
        return frozenset(n for n in changed if 1 <= n <= lines)
    return frozenset()


def prompt_tokens(context: Context, vocabulary: Vocabulary) -> list[str]:
    """The prompt, up to and with `<do>`."""
    tokens = [f"<{context.language}>"]
    for number, line in enumerate(context.lines[:MAX_LINES], 1):
        tokens += [f"L{number}", *line_tokens(line, vocabulary.menu)]
        tokens += ["<*>"] if number in context.touched else []
    if context.order_number is not None:
        tokens += ["<order>", *_number(context.order_number)]
    if context.previous or context.heard:
        tokens += ["<p>", *vocabulary.text_tokens(context.previous, MAX_PREVIOUS)]
        for error in context.errors[:2]:
            tokens += _error_tokens(error)
        tokens += ["<a>", *vocabulary.text_tokens(context.heard, MAX_HEARD)]
    return [*tokens, "<u>", *vocabulary.text_tokens(context.utterance, MAX_UTTERANCE), "<do>"]


def line_tokens(line: Mapping[str, Any], menu: Mapping[str, Any]) -> list[str]:
    """A cart line: its drink, its quantity if it is not one, and what is not the drink's default."""
    drink = menu["drinks"].get(line["drink"], {})
    tokens = ["=" + line["drink"]]
    if line["quantity"] != 1:
        tokens += _number(line["quantity"])
    for key in ("size", "ice", "sugar"):
        default = drink.get(key, menu[key])[0]
        if line[key] != default:
            tokens.append("=" + line[key])
    order = {topping: index for index, topping in enumerate(menu["toppings"])}
    return tokens + ["+" + t for t in sorted(line["toppings"], key=lambda t: order.get(t, 99))]


def result_tokens(results: Sequence[tuple[ToolCall, Any]], menu: Mapping[str, Any]) -> list[str]:
    """The results of a turn's calls, then the total and the number of lines, and `<say>`."""
    tokens: list[str] = []
    cart: Mapping[str, Any] | None = None
    for call, result in results:
        if not isinstance(result, Mapping):
            raise ValueError(f"expected a JSON object as the result of {call.name}, got {type(result).__name__}")
        tokens.append("<r>")
        cart = result.get("cart") or cart
        if result.get("error"):
            tokens += _error_tokens(result)
        elif call.name in (*_TOUCHING, "remove") and cart is not None:
            for number in result.get("changed", ())[:2]:
                if 1 <= number <= len(cart["lines"]):
                    tokens += _priced(cart["lines"][number - 1], menu)
        elif call.name in ("read_back", "place") and cart is not None:
            for line in cart["lines"][:MAX_LINES]:
                tokens += ["<l>", *line_tokens(line, menu)]
            if result.get("order_number") is not None:
                tokens += ["<order>", *_number(result["order_number"])]
        elif call.name == "look_up":
            tokens += _item_tokens(result, menu)
    if cart is not None:
        tokens += ["<total>", *_number(cart["total"]), f"L{min(len(cart['lines']), MAX_LINES)}"]
    return [*tokens, "<say>"]


def _priced(line: Mapping[str, Any], menu: Mapping[str, Any]) -> list[str]:
    return ["<l>", *line_tokens(line, menu), "<price>", *_number(line["price"])]


def _item_tokens(result: Mapping[str, Any], menu: Mapping[str, Any]) -> list[str]:
    item = result.get("item")
    if item is None:
        return ["?" + favourite for favourite in result.get("favourites", ())[:4]]
    tokens = ["?" + item["id"], "<price>", *_number(item["price"])]
    if item.get("sold_out"):
        tokens.append("<sold_out>")
    ice = item.get("ice") or ()
    if 0 < len(ice) < len(menu["ice"]):
        tokens += ["=" + choice for choice in ice]
    return tokens


def _error_tokens(result: Mapping[str, Any]) -> list[str]:
    tokens = [f"<{result['error']}>"]
    if isinstance(result.get("item"), str):
        tokens.append("?" + result["item"])
    return tokens + ["?" + candidate for candidate in result.get("candidates", ())[:4]]


def _number(value: float) -> list[str]:
    return number_tokens(min(9999.0, max(0.0, round(value * 2) / 2)))

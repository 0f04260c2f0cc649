"""The grammar of tool calls, as an automaton that allows only the tokens of valid calls.

A call is its operation and then its fields in one order; an id stands for its own field, so `!add =latte U2
=large +pearls` is `add(drink="latte", quantity=2, size="large", toppings=["pearls"])`. A line is written by its
number, `L2`, or by its drink where only one line has it. `<run>` ends the calls of a turn and `<say>` begins the
reply. What is allowed follows the cart through the calls of the turn: lines that exist by then, choices that the
line's drink has, toppings that it carries. The automaton decides nothing else: which of the allowed tokens comes
next is the model's choice alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from voice_agent.tea.tokenizer import PLACES, number_of, number_tokens

MAX_LINES = 16
MAX_CALLS = 8
RUN, SAY = "<run>", "<say>"

# The fields of every operation in the order they are written; "!" marks the ones that must be there.
FIELDS: dict[str, tuple[str, ...]] = {
    "add": ("drink!", "quantity", "size", "ice", "sugar", "toppings"),
    "change": ("line!", "cups", "drink", "quantity", "size", "ice", "sugar", "add_toppings", "remove_toppings"),
    "replace": ("line!", "cups", "drink!", "quantity", "size", "ice", "sugar", "toppings"),
    "remove": ("line!", "cups"),
    "clear": (),
    "read_back": (),
    "place": (),
    "look_up": ("item",),
}
_OF_LINES = ("change", "replace", "remove")


@dataclass
class Line:
    """What the grammar must know of a cart line."""

    drink: str
    quantity: int
    toppings: frozenset[str] = frozenset()


@dataclass
class CallState:
    """Where a row is in its calls. `names` may be called; `done` holds the finished calls as (name, arguments)."""

    lines: list[Line]
    names: frozenset[str] = frozenset(FIELDS)
    done: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    name: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    stage: int = 0
    digits: list[str] = field(default_factory=list)
    closed: bool = False


def call_tokens(name: str, arguments: Mapping[str, Any], line_drink: str | None = None) -> list[str]:
    """The tokens of a call: the inverse of the automaton. `line_drink`: write the line by this drink of its own."""
    tokens = ["!" + name]
    for entry in FIELDS[name]:
        key = entry.rstrip("!")
        value = arguments.get(key)
        if value is None:
            continue
        if key == "line":
            tokens.append(f"={line_drink}" if line_drink else f"L{value}")
        elif key == "cups":
            tokens += ["<cups>", *number_tokens(value)]
        elif key == "quantity":
            tokens += number_tokens(value)
        elif key == "item":
            tokens.append("?" + value)
        elif key in ("toppings", "add_toppings", "remove_toppings"):
            sign = "-" if key == "remove_toppings" else "+"
            tokens += [sign + topping for topping in value]
        else:
            tokens.append("=" + value)
    return tokens


class CallGrammar:
    """The automaton over one menu (`Vocabulary.menu`)."""

    def __init__(self, menu: Mapping[str, Any]) -> None:
        self.drinks: Mapping[str, Mapping[str, Sequence[str]]] = menu["drinks"]
        self.toppings: Sequence[str] = menu["toppings"]
        self.sizes: Sequence[str] = menu["size"]
        self._field_of = {"=" + drink: "drink" for drink in self.drinks}
        for key in ("size", "ice", "sugar"):
            self._field_of |= {"=" + choice: key for choice in menu[key]}

    def tokens(self) -> list[str]:
        """Every token that a call can hold."""
        items = ["?" + item for item in (*self.drinks, *self.toppings)]
        signed = [sign + topping for sign in "+-" for topping in self.toppings]
        digits = [place + str(digit) for place in PLACES for digit in range(10)]
        lines = [f"L{i}" for i in range(1, MAX_LINES + 1)]
        return [*("!" + name for name in FIELDS), *self._field_of, *signed, *items, *lines, *digits, "<cups>"]

    def start(self, lines: Iterable[Line], names: Iterable[str] = FIELDS) -> CallState:
        """The state before the first token, with the cart's lines as they are and the calls that may be made."""
        return CallState([Line(x.drink, x.quantity, x.toppings) for x in lines], frozenset(names))

    def allowed(self, state: CallState) -> list[str]:
        """The tokens that may come next; never empty until the state is closed."""
        if state.closed:
            return []
        if state.name is None:
            return self._operations(state)
        if state.digits and not state.digits[-1].startswith("U"):
            return self._digits(state)
        fields = FIELDS[state.name]
        out: list[str] = []
        for index in range(state.stage, len(fields)):
            out += self._choices(state, fields[index].rstrip("!"))
            if fields[index].endswith("!"):
                return out
        if state.name != "change" or len(state.arguments) > (2 if "cups" in state.arguments else 1):
            out += self._operations(state)
        return out

    def advance(self, state: CallState, token: str) -> None:
        """Take `token`. Raises ValueError if the grammar does not allow it here."""
        if token not in self.allowed(state):
            raise ValueError(f"expected one of {self.allowed(state)}, got {token}")
        if token in (RUN, SAY) or token.startswith("!"):
            self._finish(state)
            state.closed = token in (RUN, SAY)
            state.name = token[1:] if token.startswith("!") else None
            state.arguments, state.stage, state.digits = {}, 0, []
            return
        assert state.name is not None
        fields = [entry.rstrip("!") for entry in FIELDS[state.name]]
        key = self._key(state, token, fields)
        state.stage = fields.index(key)
        if token == "<cups>":
            state.digits = ["<cups>"]
            state.arguments["cups"] = 0
        elif key in ("cups", "quantity"):
            state.digits = [d for d in state.digits if d != "<cups>"] + [token]
            if token[0] == "U":
                state.arguments[key] = number_of(state.digits)
                state.stage, state.digits = state.stage + 1, []
        elif key.endswith("toppings"):
            state.arguments.setdefault(key, []).append(token[1:])
        else:
            state.arguments[key] = self._number(state, token) if key == "line" else token[1:]
            state.stage += 1

    def _number(self, state: CallState, token: str) -> int:
        """The number of the line that `L2` or the drink of just one line stands for."""
        if token[0] == "L":
            return int(token[1:])
        return [line.drink for line in state.lines].index(token[1:]) + 1

    def _key(self, state: CallState, token: str, fields: Sequence[str]) -> str:
        if fields[state.stage] == "line":
            return "line"
        if token in self._field_of:
            return self._field_of[token]
        if token[0] == "?":
            return "item"
        if token == "<cups>" or (token[0] in PLACES and fields[state.stage] == "cups" and state.digits):
            return "cups"
        if token[0] in PLACES:
            return "quantity"
        if token[0] == "-":
            return "remove_toppings"
        return "add_toppings" if "add_toppings" in fields else "toppings"

    def _operations(self, state: CallState) -> list[str]:
        made = len(state.done) + (state.name is not None)
        lines = self.after(state) if made else state.lines
        names = [x for x in FIELDS if x in state.names and (lines or x not in _OF_LINES)]
        if made >= MAX_CALLS:
            names = []
        return [RUN if made else SAY, *("!" + name for name in names)]

    def _line(self, state: CallState) -> Line | None:
        index = state.arguments.get("line")
        return state.lines[index - 1] if index else None

    def _choices(self, state: CallState, key: str) -> list[str]:
        line = self._line(state)
        if key == "line":
            drinks = [x.drink for x in state.lines[:MAX_LINES]]
            single = ["=" + d for d in drinks if d in self.drinks and sum(x.drink == d for x in state.lines) == 1]
            return [f"L{i + 1}" for i in range(len(drinks))] + single
        if key == "drink":
            return ["=" + drink for drink in self.drinks]
        if key == "item":
            return ["?" + item for item in (*self.drinks, *self.toppings)]
        if key == "cups":
            return ["<cups>"] if line and line.quantity > 1 and not state.digits else []
        if key == "quantity":
            return [] if "cups" in state.arguments else self._digits(state)
        if key == "size":
            return ["=" + size for size in self.sizes]
        if key in ("ice", "sugar"):
            drink = state.arguments.get("drink") or (line.drink if line else "")
            return ["=" + choice for choice in self.drinks[drink][key]] if drink in self.drinks else []
        held = line.toppings if line and state.name == "change" else frozenset()
        chosen = state.arguments.get(key, [])
        rest = self.toppings[self.toppings.index(chosen[-1]) + 1 :] if chosen else self.toppings
        if key == "remove_toppings":
            return ["-" + topping for topping in rest if topping in held]
        return ["+" + topping for topping in rest if topping not in held]

    def _digits(self, state: CallState) -> list[str]:
        given = [d for d in state.digits if d != "<cups>"]
        if state.digits[:1] == ["<cups>"] or ("cups" in state.arguments and not state.arguments["cups"]):
            line = self._line(state)
            assert line is not None
            numbers = (number_tokens(n) for n in range(1, min(line.quantity, 10_000)))
            size = len(given)
            return list(dict.fromkeys(n[size] for n in numbers if len(n) > size and n[:size] == given))
        if given:
            place = PLACES[PLACES.index(given[-1][0]) - 1]
            return [place + str(digit) for digit in range(10)]
        return [place + str(digit) for place in PLACES for digit in range(1, 10)]

    def after(self, state: CallState) -> list[Line]:
        """The lines once the call that is being written has run."""
        lines = [Line(x.drink, x.quantity, x.toppings) for x in state.lines]
        name, args = state.name, state.arguments
        if name == "add" and "drink" in args:
            lines.append(Line(args["drink"], args.get("quantity", 1), frozenset(args.get("toppings", ()))))
        elif name in ("clear", "place"):
            lines = []
        elif name in _OF_LINES and "line" in args and args["line"] <= len(lines):
            old, cups = lines[args["line"] - 1], args.get("cups")
            new = Line(args.get("drink", old.drink), args.get("quantity", cups or old.quantity))
            if name == "change":
                new.toppings = (old.toppings | set(args.get("add_toppings", ()))) - set(args.get("remove_toppings", ()))
            else:
                new.toppings = frozenset(args.get("toppings", ()))
            if cups:
                old.quantity -= cups
                lines += [new] if name != "remove" else []
            elif name == "remove":
                del lines[args["line"] - 1]
            else:
                lines[args["line"] - 1] = new
        return lines

    def _finish(self, state: CallState) -> None:
        if state.name is None:
            return
        state.lines = self.after(state)
        state.done.append((state.name, state.arguments))

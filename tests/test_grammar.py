"""The automaton over tool calls."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from demos.ordering.cart import Cart, Refused
from voice_agent.tea.grammar import FIELDS, RUN, SAY, CallGrammar, CallState, Line, call_tokens
from voice_agent.tea.tokenizer import Vocabulary

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.load(ROOT / "models/tea-omni/weights/thinker.json")


@pytest.fixture(scope="module")
def grammar(vocabulary: Vocabulary) -> CallGrammar:
    return CallGrammar(vocabulary.menu)


def write(grammar: CallGrammar, state: CallState, tokens: list[str]) -> None:
    for token in tokens:
        grammar.advance(state, token)


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"drink": "latte"}),
    ("add", {"drink": "latte", "quantity": 12, "size": "large", "ice": "hot", "toppings": ["pearls", "milk_foam"]}),
    ("change", {"line": 1, "quantity": 3}),
    ("change", {"line": 1, "cups": 1, "ice": "no_ice"}),
    ("change", {"line": 1, "drink": "oolong_tea", "add_toppings": ["pudding"], "remove_toppings": ["pearls"]}),
    ("replace", {"line": 2, "drink": "mango_sago", "ice": "less_ice"}),
    ("remove", {"line": 2}),
    ("remove", {"line": 1, "cups": 1}),
    ("look_up", {}),
    ("look_up", {"item": "pearls"}),
    ("clear", {}),
    ("read_back", {}),
    ("place", {}),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_a_call_written_is_the_call_read(grammar: CallGrammar, name: str, arguments: dict[str, Any]) -> None:
    state = grammar.start([Line("latte", 2, frozenset({"pearls"})), Line("cocoa", 1)])
    write(grammar, state, [*call_tokens(name, arguments), RUN])
    assert state.closed
    assert state.done == [(name, arguments)]


def test_a_line_may_be_written_by_its_drink(grammar: CallGrammar) -> None:
    state = grammar.start([Line("latte", 2), Line("cocoa", 1), Line("latte", 1)])
    write(grammar, state, [*call_tokens("change", {"line": 2, "drink": "latte"}, "cocoa"), RUN])
    assert state.done == [("change", {"line": 2, "drink": "latte"})]
    state = grammar.start([Line("latte", 2), Line("cocoa", 1), Line("latte", 1)])
    write(grammar, state, ["!remove"])
    assert grammar.allowed(state) == ["L1", "L2", "L3", "=cocoa"]


@pytest.mark.parametrize(
    ("tokens", "wrong"),
    [
        (["!add", "=mango_smoothie"], "=less_ice"),
        (["!add", "=latte", "=large"], "=small"),
        (["!add", "=latte", "=hot"], "U2"),
        (["!add", "=latte", "+pearls"], "+pearls"),
        (["!remove"], "L3"),
        (["!remove", "L2"], "<cups>"),
        (["!change", "L1"], RUN),
        (["!change", "L1", "<cups>"], "U2"),
        (["!change", "L1"], "+pearls"),
        (["!change", "L1"], "-pudding"),
        (["!remove", "L2", "!remove"], "L2"),
        (["!clear"], "!remove"),
        (["!add", "=latte"], SAY),
        ([], RUN),
    ],
)
def test_what_would_not_be_valid_is_refused(grammar: CallGrammar, tokens: list[str], wrong: str) -> None:
    state = grammar.start([Line("latte", 2, frozenset({"pearls"})), Line("cocoa", 1)])
    write(grammar, state, tokens)
    with pytest.raises(ValueError, match="expected one of"):
        grammar.advance(state, wrong)


def test_only_offered_tools_are_called(grammar: CallGrammar) -> None:
    state = grammar.start([Line("latte", 2)], ["add", "clear"])
    assert grammar.allowed(state) == [SAY, "!add", "!clear"]


def test_any_walk_runs_on_the_cart(grammar: CallGrammar) -> None:
    """Whatever is chosen, the cart refuses nothing but what the grammar cannot know."""
    rng = random.Random(0)
    for _ in range(150):
        cart = Cart()
        for _ in range(rng.randint(0, 3)):
            cart.add(rng.choice(list(cart.menu.drinks)), rng.randint(1, 4))
        state = grammar.start([Line(x.drink, x.quantity, frozenset(x.toppings)) for x in cart.lines])
        while not state.closed:
            grammar.advance(state, rng.choice(grammar.allowed(state)))
        for name, arguments in state.done:
            if name not in ("add", "change", "replace", "remove", "clear"):
                continue
            code = _refusal(cart, name, arguments)
            if code:
                assert code == "quantity_unclear" or (code == "bad_option" and "drink" in arguments)
                break


def _refusal(cart: Cart, name: str, arguments: dict[str, Any]) -> str | None:
    try:
        getattr(cart, name)(**arguments)
    except Refused as error:
        return error.code
    return None


def test_every_field_of_every_tool_is_known() -> None:
    from demos.ordering.agent import agent

    schemas = agent.schemas()
    assert set(schemas) == set(FIELDS)
    for name, schema in schemas.items():
        assert set(schema["parameters"]["properties"]) == {f.rstrip("!") for f in FIELDS[name]}


def test_the_generators_calls_are_accepted(
    grammar: CallGrammar, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "models/tea-omni"), *sys.path])
    from dialogues import make

    rng = random.Random(1)
    for index in range(60):
        for sample in make.dialogue(rng, "zh" if index % 2 else "en", vocabulary):
            state = grammar.start(_lines(sample.prompt))
            write(grammar, state, sample.calls)
            assert state.closed
            assert set(vocabulary.encode(sample.reply)) <= set(vocabulary.reply[sample.language])


def _lines(prompt: list[str]) -> list[Line]:
    lines: list[Line] = []
    digits = ""
    for token in prompt:
        if token in ("<p>", "<u>", "<order>"):
            break
        if token[0] == "L":
            lines.append(Line("", 1))
            digits = ""
        elif token[0] in "UTHM":
            digits += token[1]
            lines[-1].quantity = int(digits)
        elif token[0] == "+":
            lines[-1].toppings |= {token[1:]}
        elif token[0] == "=" and not lines[-1].drink:
            lines[-1].drink = token[1:]
    return lines

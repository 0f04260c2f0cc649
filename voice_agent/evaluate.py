"""Dialogues with a known final cart: read them, play them by text, compare.

A line is `{"lang", "turns": [...], "cart": [{drink, quantity, size, ice, sugar, toppings}]}`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from voice_agent.agent import Agent
from voice_agent.chat import Chat
from voice_agent.engine.protocols import Language
from voice_agent.engine.stages import ThinkerStage


class CartLine(BaseModel):
    """All six keys, ids of the menu."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    drink: str
    quantity: int = Field(ge=1)
    size: str
    ice: str
    sugar: str
    toppings: tuple[str, ...]


class Dialogue(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    lang: Language
    turns: tuple[str, ...] = Field(min_length=1)
    cart: tuple[CartLine, ...]


@dataclass(frozen=True)
class Outcome:
    """How a dialogue went. `cart`: the six keys of each line that it reached."""

    dialogue: Dialogue
    ok: bool
    cart: tuple[CartLine, ...]
    replies: tuple[str, ...]


def read_dialogues(path: Path) -> list[Dialogue]:
    """Raises ValueError with the line's number, what was expected and got."""
    dialogues = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            dialogues.append(Dialogue.model_validate(json.loads(line)))
        except (ValidationError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}:{number}: expected a dialogue, got {error}") from None
    return dialogues


def lines_of(view: Any) -> tuple[CartLine, ...]:
    """The lines of a state's JSON view, as a dialogue names them."""
    return tuple(CartLine.model_validate(line) for line in (view or {}).get("lines", ()))


def same(left: Iterable[CartLine], right: Iterable[CartLine]) -> bool:
    """Whether two carts hold the same cups: two equal lines are one line of quantity two."""

    def cups(lines: Iterable[CartLine]) -> Counter[tuple[Any, ...]]:
        counted: Counter[tuple[Any, ...]] = Counter()
        for line in lines:
            counted[(line.drink, line.size, line.ice, line.sugar, tuple(sorted(line.toppings)))] += line.quantity
        return counted

    return cups(left) == cups(right)


async def play(agent: Agent, thinker: ThinkerStage, dialogues: Sequence[Dialogue]) -> AsyncIterator[Outcome]:
    """Play each dialogue by text. The final cart is the open one, or the placed one if the order was placed."""
    for dialogue in dialogues:
        chat = Chat(agent, thinker, dialogue.lang)
        replies = [await chat.say(turn) for turn in dialogue.turns]
        cart = final_cart(chat)
        yield Outcome(dialogue, same(cart, dialogue.cart), cart, tuple(replies))


def final_cart(chat: Chat) -> tuple[CartLine, ...]:
    """The open cart, or what was placed last if nothing was added since."""
    lines = lines_of(chat.state)
    if lines:
        return lines
    for call, result in reversed(chat.tools):
        if call.name == "place" and isinstance(result, dict) and result.get("ok"):
            return lines_of(result["cart"])
        if call.name == "clear":
            return ()
    return ()

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeThinker
from voice_agent import Agent, Call
from voice_agent.chat import Chat
from voice_agent.engine.protocols import ThinkRequest, ToolCall
from voice_agent.engine.stages import ThinkerStage
from voice_agent.evaluate import CartLine, Dialogue, play, read_dialogues, same

LINE = {"drink": "tea", "quantity": 1, "size": "medium", "ice": "no_ice", "sugar": "no_sugar", "toppings": []}


def line(**changes: Any) -> CartLine:
    return CartLine.model_validate(LINE | changes)


def test_two_equal_lines_and_one_of_quantity_two_are_the_same_cart() -> None:
    assert same([line(), line(size="large"), line()], [line(size="large"), line(quantity=2)])
    assert same([line(toppings=["a", "b"])], [line(toppings=["b", "a"])])
    assert not same([line()], [line(quantity=2)])
    assert not same([line()], [line(ice="hot")])
    assert not same([line()], [])


def test_a_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps({"lang": "zh", "turns": ["x"], "cart": [LINE]}) + '\n{"lang": "ja"}\n')
    with pytest.raises(ValueError, match=r"d\.jsonl:2: expected a dialogue"):
        read_dialogues(path)


class Cart:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def view(self) -> dict[str, Any]:
        return {"lines": self.lines}


def add(call: Call[Cart], drink: str) -> dict[str, Any]:
    """Add."""
    call.state.lines.append(LINE | {"drink": drink})
    return {"ok": True, "cart": call.state.view()}


def place(call: Call[Cart]) -> dict[str, Any]:
    """Place."""
    placed = {"lines": call.state.lines}
    call.state.lines = []
    return {"ok": True, "cart": placed}


class Scripted(FakeThinker):
    """Calls the tool that the caller's words name: "tea" adds, "done" places."""

    def start(self, slot: int, request: ThinkRequest) -> None:
        text = request.messages[-1].text
        self.calls = (ToolCall("c", "place", {}) if text == "done" else ToolCall("c", "add", {"drink": text}),)
        super().start(slot, request)


def outcomes(dialogues: list[Dialogue]) -> list[bool]:
    async def work() -> list[bool]:
        stage = ThinkerStage(Scripted())
        try:
            return [outcome.ok async for outcome in play(Agent("x", [add, place], state=Cart), stage, dialogues)]
        finally:
            stage.close()

    return asyncio.run(work())


def test_dialogues_are_played_each_with_a_cart_of_its_own() -> None:
    wanted = (CartLine.model_validate(LINE),)
    right = Dialogue(lang="zh", turns=("tea",), cart=wanted)
    wrong = Dialogue(lang="zh", turns=("tea", "tea"), cart=wanted)
    assert outcomes([right, wrong, right]) == [True, False, True]


def test_the_final_cart_of_a_placed_order_is_the_placed_one() -> None:
    wanted = (CartLine.model_validate(LINE),)
    assert outcomes([Dialogue(lang="zh", turns=("tea", "done"), cart=wanted)]) == [True]
    assert outcomes([Dialogue(lang="zh", turns=("coffee", "done", "tea"), cart=wanted)]) == [True]


def test_a_failing_thinker_is_an_error_of_the_chat() -> None:
    async def work() -> None:
        thinker = FakeThinker()
        thinker.fail_at = 2
        stage = ThinkerStage(thinker)
        try:
            with pytest.raises(RuntimeError, match="told to fail"):
                await Chat(Agent("x"), stage, "en").say("hello")
        finally:
            stage.close()

    asyncio.run(work())

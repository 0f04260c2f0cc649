import json
from pathlib import Path
from typing import Any

import pytest

from demos.ordering import agent as agent_module
from demos.ordering.agent import agent
from demos.ordering.cart import Cart
from demos.ordering.menu import default_menu
from voice_agent import Call

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def call() -> Call[Cart]:
    return Call("call-1", "zh", Cart(default_menu().with_sold_out("cocoa")))


async def run(call: Call[Cart], name: str, **arguments: Any) -> dict[str, Any]:
    result = await agent.toolbox[name].run(call, arguments)
    assert result == json.loads(json.dumps(result))
    return result


def test_the_agent_offers_the_eight_tools() -> None:
    assert list(agent.schemas()) == ["add", "change", "replace", "remove", "clear", "read_back", "place", "look_up"]
    schema = agent.schemas()["add"]
    assert schema["description"].startswith("Add cups of one drink")
    assert schema["parameters"]["required"] == ["drink"]
    assert schema["parameters"]["properties"]["toppings"]["default"] == []
    assert agent.info["menu"]["currency"] == "CNY"


def test_each_call_has_a_cart_of_its_own() -> None:
    one, other = agent.open_call("call-1", "zh"), agent.open_call("call-2", "en")
    one.state.add("latte")
    assert other.state.lines == ()


async def test_an_order_from_first_word_to_number(call: Call[Cart]) -> None:
    added = await run(call, "add", drink="pearl_milk_tea", ice="less_ice")
    assert (added["ok"], added["error"], added["changed"]) == (True, None, [1])
    assert added["cart"]["total"] == 18
    changed = await run(call, "change", line=1, size="large")
    assert changed["cart"]["lines"][0]["price"] == 21
    replaced = await run(call, "replace", line=1, drink="milk_tea", toppings=["pearls"])
    assert replaced["cart"]["lines"][0]["toppings"] == ["pearls"]
    read = await run(call, "read_back")
    assert (read["cart"], read["changed"]) == (replaced["cart"], [])
    placed = await run(call, "place")
    assert placed["cart"] == replaced["cart"] | {"placed": True}
    again = await run(call, "place")
    assert again == placed
    assert (await run(call, "read_back"))["cart"]["lines"] == []


async def test_errors_carry_code_details_and_the_unchanged_cart(call: Call[Cart]) -> None:
    assert (await run(call, "place"))["error"] == "empty_cart"
    before = (await run(call, "add", drink="latte", quantity=2))["cart"]
    for name, arguments, expected in [
        ("add", {"drink": "绿茶果"}, {"error": "no_such_item"}),
        ("add", {"drink": "咖啡"}, {"error": "ambiguous", "candidates": ["americano", "latte"]}),
        ("replace", {"line": 1, "drink": "cocoa"}, {"error": "sold_out", "item": "cocoa"}),
        ("change", {"line": 2, "size": "large"}, {"error": "no_such_line"}),
        ("change", {"line": 1, "quantity": 99}, {"error": "quantity_unclear"}),
        ("remove", {"line": 1, "cups": 3}, {"error": "quantity_unclear"}),
        ("look_up", {"item": "fries"}, {"error": "no_such_item"}),
    ]:
        result = await run(call, name, **arguments)
        assert result == {"ok": False, "cart": before, "changed": [], **expected}


async def test_remove_and_clear(call: Call[Cart]) -> None:
    await run(call, "add", drink="latte", quantity=2)
    removed = await run(call, "remove", line=1, cups=1)
    assert (removed["changed"], removed["cart"]["total"]) == ([1], 20)
    cleared = await run(call, "clear")
    assert (cleared["ok"], cleared["cart"]["lines"]) == (True, [])


async def test_look_up(call: Call[Cart]) -> None:
    found = await run(call, "look_up", item="cocoa")
    assert found["item"] == {
        "id": "cocoa",
        "price": 18,
        "sold_out": True,
        "ice": ["hot"],
        "sugar": ["full_sugar", "seventy_sugar", "half_sugar", "thirty_sugar", "no_sugar"],
    }
    offered = await run(call, "look_up")
    assert offered["favourites"] == ["pearl_milk_tea", "coconut_milk_tea", "pudding_milk_tea"]


def test_the_agent_is_one_short_file() -> None:
    lines = Path(agent_module.__file__).read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line]) <= 15

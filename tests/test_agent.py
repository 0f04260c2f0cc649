from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest

from voice_agent import Agent, Call
from voice_agent.agent import Tool, view_of


class Till:
    def __init__(self) -> None:
        self.sold: list[str] = []

    def view(self) -> dict[str, Any]:
        return {"sold": list(self.sold)}


def sell(call: Call[Till], what: str, how: Literal["hot", "cold"] = "hot", extras: list[str] = []) -> dict[str, Any]:  # noqa: B006
    """Sell something."""
    call.state.sold.append(what)
    return {"ok": True, "what": what, "how": how, "extras": extras}


async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(0)
    return f"waited {seconds}"


def explode() -> None:
    """Fail."""
    raise RuntimeError("a secret detail")


def run(tool: Tool, call: Call[Any], arguments: dict[str, Any]) -> Any:
    return asyncio.run(tool.run(call, arguments))


@pytest.fixture
def agent() -> Agent:
    return Agent("sell", [sell, wait, explode], state=Till)


def test_a_typed_function_becomes_a_schema_without_its_call(agent: Agent) -> None:
    schema = agent.schemas()["sell"]
    assert schema["description"] == "Sell something."
    assert schema["parameters"]["required"] == ["what"]
    assert list(schema["parameters"]["properties"]) == ["what", "how", "extras"]
    assert schema["parameters"]["properties"]["how"]["enum"] == ["hot", "cold"]
    assert schema["parameters"]["additionalProperties"] is False


def test_a_tool_changes_its_own_calls_state_alone(agent: Agent) -> None:
    first, second = agent.open_call("a", "zh"), agent.open_call("b", "en")
    assert run(agent.toolbox["sell"], first, {"what": "tea"}) == {
        "ok": True, "what": "tea", "how": "hot", "extras": []
    }  # fmt: skip
    assert view_of(first) == ("till", {"sold": ["tea"]})
    assert view_of(second) == ("till", {"sold": []})


def test_async_tools_are_awaited(agent: Agent) -> None:
    assert run(agent.toolbox["wait"], agent.open_call("a", "zh"), {"seconds": 2}) == "waited 2.0"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({}, "what"), ({"what": "tea", "how": "warm"}, "'warm'"), ({"what": "tea", "size": 1}, "size")],
)
def test_bad_arguments_are_told_to_the_model_and_nothing_runs(
    agent: Agent, arguments: dict[str, Any], told: str
) -> None:
    call = agent.open_call("a", "zh")
    result = run(agent.toolbox["sell"], call, arguments)
    assert result["error"] == "bad_arguments"
    assert told in result["message"]
    assert call.state.sold == []


def test_a_failing_tool_tells_no_details(agent: Agent) -> None:
    result = run(agent.toolbox["explode"], agent.open_call("a", "zh"), {})
    assert result == {"ok": False, "error": "tool_failed", "message": "explode failed"}


async def never() -> str:
    """Waits for what does not come."""
    await asyncio.Event().wait()
    return ""


def late() -> str:
    """Blocks."""
    time.sleep(0.3)
    return ""


@pytest.mark.parametrize("tool", [never, late])
def test_a_tool_that_does_not_come_back_has_failed(tool: Callable[[], Any]) -> None:
    agent = Agent("x", [tool], tool_timeout_s=0.05)
    result = asyncio.run(agent.run_tool(agent.open_call("a", "zh"), tool.__name__, {}))
    told = f"{tool.__name__} took longer than 0.05 s"
    assert result == {"ok": False, "error": "tool_timeout", "message": told}
    with pytest.raises(ValueError, match="tool_timeout_s above 0, got 0"):
        Agent("x", [tool], tool_timeout_s=0)


def test_tools_without_types_or_with_one_name_are_refused() -> None:
    def untyped(what) -> None:  # type: ignore[no-untyped-def]
        """No types."""

    with pytest.raises(TypeError, match="expected a type for parameter 'what'"):
        Agent("x", [untyped])
    with pytest.raises(ValueError, match="sell more than once"):
        Agent("x", [sell, sell])


def test_a_tool_that_the_agent_does_not_have_is_told_to_the_model(agent: Agent) -> None:
    result = asyncio.run(agent.run_tool(agent.open_call("a", "zh"), "buy", {}))
    assert result["error"] == "no_such_tool"
    assert "sell, wait, explode" in result["message"]

"""An agent: instructions, tools and the model that speaks for it. Tools are plain typed functions."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from voice_agent.engine.protocols import Language

S = TypeVar("S")
log = logging.getLogger(__name__)

TOOL_TIMEOUT_S = 10.0

F = TypeVar("F", bound=Callable[..., Any])


def irreversible(function: F) -> F:
    """Mark a tool that cannot be undone, such as placing an order, in an agent whose state has a `fork` method.

    What it did to the state is kept only once the reply that tells of it was heard to its end; a caller who cuts in
    before has not placed the order.
    """
    function.irreversible = True  # type: ignore[attr-defined]
    return function


@dataclass
class Call(Generic[S]):
    """What a tool may know of the call that it serves. `state` belongs to this call alone."""

    id: str
    language: Language
    state: S


@dataclass(frozen=True)
class Tool:
    """A typed function as the model sees it: a name, a description and a JSON schema of its parameters."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    takes_call: bool
    arguments_type: type[BaseModel]
    irreversible: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """Read name, docstring and type hints. Raises TypeError for a parameter without a type."""
        name = function.__name__
        hints = typing.get_type_hints(function, localns={"Call": Call})
        fields: dict[str, Any] = {}
        takes_call = False
        for index, parameter in enumerate(inspect.signature(function).parameters.values()):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"tool {name!r}: expected named parameters, got *{parameter.name}")
            if parameter.name not in hints:
                raise TypeError(f"tool {name!r}: expected a type for parameter {parameter.name!r}, got none")
            hint = hints[parameter.name]
            if index == 0 and (hint is Call or typing.get_origin(hint) is Call):
                takes_call = True
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hint, default)
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema()
        schema.pop("title", None)
        for entry in schema.get("properties", {}).values():
            entry.pop("title", None)
        final = getattr(function, "irreversible", False)
        return cls(name, inspect.getdoc(function) or "", schema, function, takes_call, model, final)

    async def run(self, call: Call[Any], arguments: Mapping[str, Any], timeout_s: float = TOOL_TIMEOUT_S) -> Any:
        """Check the arguments, run the function (a plain one in a worker thread), give its JSON value.

        Bad arguments, a failing function and one that takes longer than `timeout_s` become a result that the model
        can read; they never raise. A plain function that is late goes on in its thread, and nobody waits for it.
        """
        try:
            checked = self.arguments_type.model_validate(dict(arguments))
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}, got {e['input']!r}" for e in error.errors())
            return {"ok": False, "error": "bad_arguments", "message": told}
        values = {name: getattr(checked, name) for name in type(checked).model_fields}
        positional: tuple[Any, ...] = (call,) if self.takes_call else ()
        result = None
        try:
            with anyio.move_on_after(timeout_s) as limit:
                if inspect.iscoroutinefunction(self.function):
                    result = await self.function(*positional, **values)
                else:
                    work = functools.partial(self.function, *positional, **values)
                    result = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
            if limit.cancelled_caught:
                log.error("tool %s took longer than %g s in call %s", self.name, timeout_s, call.id)
                told = f"{self.name} took longer than {timeout_s:g} s"
                return {"ok": False, "error": "tool_timeout", "message": told}
            return json.loads(json.dumps(result, ensure_ascii=False))
        except Exception:
            log.exception("tool %s failed in call %s", self.name, call.id)
            return {"ok": False, "error": "tool_failed", "message": f"{self.name} failed"}


@dataclass(frozen=True)
class Lines:
    """What the agent says without being asked, by language; what is missing is not said.

    greeting: to a client that asks for a response before anybody has spoken. unclear: to a caller whose words could
    not be made out, twice in a row at most. still_there: to a caller who has said
    nothing for `idle_s` seconds after the agent was last heard, twice; goodbye: after that, and the call ends.
    """

    greeting: Mapping[Language, str] = field(default_factory=dict)
    unclear: Mapping[Language, str] = field(default_factory=dict)
    still_there: Mapping[Language, str] = field(default_factory=dict)
    goodbye: Mapping[Language, str] = field(default_factory=dict)
    idle_s: float = 20.0

    def __post_init__(self) -> None:
        if self.idle_s <= 0:
            raise ValueError(f"expected idle_s above 0, got {self.idle_s}")


@dataclass(frozen=True)
class Agent:
    """What answers a call.

    tools: typed functions; a first parameter annotated `Call` receives the call's context.
    model: a name from `voice-agent models`. state: makes the per-call `Call.state`; with a `view()` method its
    JSON value is sent to the client after each tool call, as `agent.state.updated`, or `agent.cart.updated` where the
    class is called Cart and the value is an object. With a `fork()` method
    that gives an independent copy, tools may run before it is certain that the caller has finished, on a copy that is
    kept only if the reply is heard; tools of such an agent change nothing but the state.
    tool_timeout_s: a tool that takes longer has failed. lines: what it says without being asked.
    info: JSON for the page, served at `/v1/agent`. vocabulary: words that the recogniser should expect.

    Raises ValueError for two tools of one name, TypeError for a tool without types.
    """

    instructions: str
    tools: Sequence[Callable[..., Any]] = ()
    model: str = "tea-omni"
    name: str = "agent"
    state: Callable[[], Any] = types.SimpleNamespace
    info: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Mapping[Language, str] = field(default_factory=dict)
    tool_timeout_s: float = TOOL_TIMEOUT_S
    lines: Lines = Lines()

    def __post_init__(self) -> None:
        if self.tool_timeout_s <= 0:
            raise ValueError(f"expected tool_timeout_s above 0, got {self.tool_timeout_s}")
        names = [tool.__name__ for tool in self.tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"expected tools with different names, got {', '.join(twice)} more than once")
        object.__setattr__(self, "_toolbox", {function.__name__: Tool.of(function) for function in self.tools})

    @property
    def toolbox(self) -> Mapping[str, Tool]:
        """The tools by name."""
        box: Mapping[str, Tool] = self._toolbox  # type: ignore[attr-defined]
        return box

    def schemas(self) -> dict[str, dict[str, Any]]:
        """JSON schemas by name, as a `ThinkRequest` carries them."""
        return {
            name: {"description": tool.description, "parameters": dict(tool.parameters)}
            for name, tool in self.toolbox.items()
        }

    async def run_tool(self, call: Call[Any], name: str, arguments: Mapping[str, Any]) -> Any:
        """The JSON result of one tool call; a name that the agent does not have is told to the model."""
        tool = self.toolbox.get(name)
        if tool is None:
            return {"ok": False, "error": "no_such_tool", "message": f"expected one of {', '.join(self.toolbox)}"}
        return await tool.run(call, arguments, self.tool_timeout_s)

    def open_call(self, call_id: str, language: Language) -> Call[Any]:
        """The context of a new call, with a state of its own.

        Raises TypeError for an irreversible tool where the state has no `fork`.
        """
        call = Call(call_id, language, self.state())
        final = [tool.name for tool in self.toolbox.values() if tool.irreversible]
        if final and not forkable(call):
            raise TypeError(f"expected a state with a fork() method for {', '.join(final)}, got {type(call.state)}")
        return call


def forkable(call: Call[Any]) -> bool:
    """Whether tools may run on a copy of the call's state."""
    return callable(getattr(call.state, "fork", None))


def fork_of(call: Call[S]) -> Call[S]:
    """The call with a copy of its state."""
    return replace(call, state=call.state.fork())  # type: ignore[attr-defined]


def view_of(call: Call[Any]) -> tuple[str, Any] | None:
    """Name and JSON value of the call's state, if it can be shown: `("cart", {...})`."""
    view = getattr(call.state, "view", None)
    return (type(call.state).__name__.lower(), view()) if callable(view) else None

"""The dialogue of one call: the messages a thinker reads, and the items a client sees. Both hold what was heard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

from voice_agent.engine.protocols import Message, ToolCall

MESSAGES = 200
ITEMS = 400


class Conversation:
    """Bounded: beyond `MESSAGES` and `ITEMS` the oldest go."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    def add(self, *messages: Message) -> None:
        self._messages += messages
        del self._messages[:-MESSAGES]

    def add_tools(self, results: Sequence[tuple[ToolCall, Any]]) -> None:
        """What the turn called and got, kept even if its reply is never spoken."""
        self.add(Message("assistant", tool_calls=tuple(call for call, _ in results)))
        self.add(*(Message("tool", call_id=call.call_id, result=result) for call, result in results))

    def put_item(
        self,
        item_id: str,
        role: Literal["user", "assistant"],
        text: str | None,
        *,
        kind: Literal["input_audio", "input_text", "output_audio"],
        status: Literal["in_progress", "completed", "incomplete"] = "completed",
    ) -> dict[str, Any]:
        """Make or renew an item; gives its JSON value."""
        content: dict[str, Any] = {"type": kind}
        content["text" if kind == "input_text" else "transcript"] = text
        item = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "status": status,
            "role": role,
            "content": [content],
        }
        self._items[item_id] = item
        while len(self._items) > ITEMS:
            self._items.popitem(last=False)
        return item

    def item(self, item_id: str) -> dict[str, Any] | None:
        return self._items.get(item_id)

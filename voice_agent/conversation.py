"""The dialogue of one call: the messages a thinker reads, and the items a client sees. Both hold what was heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from voice_agent.engine.protocols import Message, Recording, ToolCall
from voice_agent.wire.items import Item

MESSAGES = 200
ITEMS = 400

ROOT = "root"
"""The place before the first item."""


@dataclass
class _Entry:
    """A message and the items it was made of: their texts by id, joined by `joint`."""

    message: Message
    parts: dict[str, str] = field(default_factory=dict)
    joint: str = ""


class Conversation:
    """Bounded: beyond `MESSAGES` and `ITEMS` the oldest go."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._items: dict[str, Item] = {}
        self._order: list[str] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(entry.message for entry in self._entries)

    @property
    def last_item_id(self) -> str | None:
        return self._order[-1] if self._order else None

    # What the thinker reads.

    def add(self, *messages: Message) -> None:
        """Messages that no item stands for."""
        self._insert([_Entry(message) for message in messages])

    def add_tools(self, results: Sequence[tuple[ToolCall, Any]], item_ids: Sequence[str] = ()) -> None:
        """What was called and what it gave, kept even if its reply is never spoken."""
        parts = dict.fromkeys(item_ids, "")
        called = Message("assistant", tool_calls=tuple(call for call, _ in results))
        given = [Message("tool", call_id=call.call_id, result=result) for call, result in results]
        self._insert([_Entry(message, dict(parts)) for message in (called, *given)])

    def add_user(
        self, parts: Mapping[str, str], joint: str = " ", after: str | None = None, audio: Recording | None = None
    ) -> None:
        """What the caller said: the texts of its items, by id, in order; `after`: as for `put`."""
        self._insert([_Entry(Message("user", joint.join(parts.values()), audio=audio), dict(parts), joint)], after)

    def add_heard(self, item_id: str, text: str, after: str | None = None) -> None:
        """What was heard of a reply."""
        self._insert([_Entry(Message("assistant", text), {item_id: text})], after)

    def cut(self, item_id: str, text: str) -> None:
        """Less was heard of a reply than it seemed: `text`, or nothing."""
        for entry in self._entries:
            if item_id in entry.parts:
                entry.message, entry.parts = replace(entry.message, text=text), {item_id: text}
        self._entries = [entry for entry in self._entries if text or item_id not in entry.parts]

    # What the client sees.

    def item(self, item_id: str) -> Item | None:
        return self._items.get(item_id)

    def put(self, item: Item, after: str | None = None) -> str | None:
        """Add or renew an item; gives the id of the one before it, None for the first.

        `after`: the item that a new one follows, or `ROOT`; None: the last. Raises ValueError if there is no such.
        """
        if item.id not in self._items:
            at = len(self._order) if after is None else self._place(after)
            self._order.insert(at, item.id)
        self._items[item.id] = item
        while len(self._order) > ITEMS:
            del self._items[self._order.pop(0)]
        at = self._order.index(item.id)
        return self._order[at - 1] if at else None

    def delete(self, item_id: str) -> bool:
        """Take an item out of what both sides see. False if there is no such item."""
        if self._items.pop(item_id, None) is None:
            return False
        self._order.remove(item_id)
        kept = []
        for entry in self._entries:
            if item_id in entry.parts:
                del entry.parts[item_id]
                if not entry.parts:
                    continue
                entry.message = replace(entry.message, text=entry.joint.join(entry.parts.values()), audio=None)
            kept.append(entry)
        self._entries = kept
        return True

    def _place(self, after: str) -> int:
        if after == ROOT:
            return 0
        if after not in self._items:
            raise ValueError(f"previous_item_id: expected '{ROOT}' or an item of this call, got {after!r:.60}")
        return self._order.index(after) + 1

    def _insert(self, entries: Sequence[_Entry], after: str | None = None) -> None:
        at = len(self._entries)
        if after is not None:
            before = set(self._order[: self._place(after)])
            at = max((i + 1 for i, entry in enumerate(self._entries) if before & entry.parts.keys()), default=0)
        self._entries[at:at] = entries
        del self._entries[:-MESSAGES]

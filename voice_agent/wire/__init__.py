"""The wire: events of the OpenAI Realtime protocol (GA) both ways, each typed once, and their JSON schemas."""

from __future__ import annotations

from functools import cache
from typing import Any

from voice_agent.wire import client, items, server
from voice_agent.wire.client import ClientEvent, InvalidEvent, parse
from voice_agent.wire.server import ServerEvent

__all__ = ["ClientEvent", "InvalidEvent", "ServerEvent", "client", "items", "parse", "schemas", "server"]


@cache
def schemas() -> dict[str, Any]:
    """JSON schemas (2020-12) of all events: `{"client": …, "server": …}`, each a union told apart by `type`."""
    return {"client": client.ADAPTER.json_schema(), "server": server.ADAPTER.json_schema(mode="serialization")}

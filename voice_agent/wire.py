"""Client events that a call understands (OpenAI Realtime, GA names); an error says what was expected and got."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError


class _Event(BaseModel):
    # Clients send fields of the protocol that have no effect here; they are accepted, as the protocol asks.
    model_config = ConfigDict(extra="allow")
    event_id: str | None = None


class SessionUpdate(_Event):
    type: Literal["session.update"]
    session: dict[str, Any]


class Content(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: str
    text: str | None = None


class Item(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str | None = None
    type: Literal["message"]
    role: Literal["user"]
    content: list[Content] = Field(min_length=1, max_length=16)


class ItemCreate(_Event):
    type: Literal["conversation.item.create"]
    item: Item


class ItemRetrieve(_Event):
    type: Literal["conversation.item.retrieve"]
    item_id: str


class ResponseCreate(_Event):
    type: Literal["response.create"]


class ResponseCancel(_Event):
    type: Literal["response.cancel"]


class OutputClear(_Event):
    type: Literal["output_audio_buffer.clear"]


class InputClear(_Event):
    type: Literal["input_audio_buffer.clear"]


ClientEvent = SessionUpdate | ItemCreate | ItemRetrieve | ResponseCreate | ResponseCancel | OutputClear | InputClear

_ADAPTER: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


def parse(event: dict[str, Any]) -> ClientEvent:
    """Raises ValueError with what was expected and got."""
    try:
        return _ADAPTER.validate_python(event)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "type"
        raise ValueError(f"{where}: {first['msg']}") from None


def error_event(message: str, *, code: str, event_id: str | None = None) -> dict[str, Any]:
    """An `error` server event. `event_id` is that of the client event that it answers."""
    body = {"type": "invalid_request_error", "code": code, "message": message, "param": None, "event_id": event_id}
    return {"type": "error", "error": body}

"""The events of a client: what a call understands. An error says what was expected and got."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from voice_agent.wire.items import InputText, Modality, OutputText, SessionConfig, Wire

MAX_TEXT = 16_384
"""Characters of one text content."""

MAX_PLAYOUT_MS = 5000
"""The longest way from this server to an ear that is believed."""


class _Event(Wire):
    event_id: str | None = Field(None, max_length=512)


class SessionUpdate(_Event):
    """Merged into the session: what is absent stays as it is. Answered by `session.updated` at once."""

    type: Literal["session.update"]
    session: SessionConfig


class AudioContent(Wire):
    """Spoken words: their `transcript`, or `audio` (base64 of PCM16, 24 kHz) to be recognised."""

    type: Literal["input_audio"]
    audio: str | None = None
    transcript: str | None = Field(None, max_length=MAX_TEXT)


class SpokenContent(Wire):
    """What the agent said."""

    type: Literal["output_audio"]
    transcript: str | None = Field(None, max_length=MAX_TEXT)


class UserMessage(Wire):
    type: Literal["message"]
    id: str | None = Field(None, min_length=1, max_length=512)
    role: Literal["user"]
    content: list[Annotated[InputText | AudioContent, Field(discriminator="type")]] = Field(min_length=1, max_length=16)


class AssistantMessage(Wire):
    type: Literal["message"]
    id: str | None = Field(None, min_length=1, max_length=512)
    role: Literal["assistant"]
    content: list[Annotated[OutputText | SpokenContent, Field(discriminator="type")]] = Field(
        min_length=1, max_length=16
    )


class SystemMessage(Wire):
    """Added to the instructions."""

    type: Literal["message"]
    id: str | None = Field(None, min_length=1, max_length=512)
    role: Literal["system"]
    content: list[InputText] = Field(min_length=1, max_length=16)


class FunctionCallOutput(Wire):
    """The result of a tool that the client ran; `output`: text, best a JSON object."""

    type: Literal["function_call_output"]
    id: str | None = Field(None, min_length=1, max_length=512)
    call_id: str
    output: str


_Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


class ItemCreate(_Event):
    """`previous_item_id`: the item to follow, `root` for the beginning; absent: the end of the conversation."""

    type: Literal["conversation.item.create"]
    item: Annotated[_Message | FunctionCallOutput, Field(discriminator="type")]
    previous_item_id: str | None = None


class ItemRetrieve(_Event):
    type: Literal["conversation.item.retrieve"]
    item_id: str


class ItemDelete(_Event):
    type: Literal["conversation.item.delete"]
    item_id: str


class ItemTruncate(_Event):
    """The client heard `audio_end_ms` of this reply; more than was sent counts as all that was sent."""

    type: Literal["conversation.item.truncate"]
    item_id: str
    content_index: Literal[0]
    audio_end_ms: int = Field(ge=0)


class ResponseOptions(Wire):
    """For one response. `conversation` and `input`: only the call's own conversation can be answered. Tools are those
    of the session.
    """

    output_modalities: list[Modality] | None = Field(None, min_length=1, max_length=2)
    instructions: str | None = None
    metadata: dict[str, Any] | None = None
    conversation: Literal["auto"] | None = None
    input: None = None
    tools: None = None
    tool_choice: Literal["auto"] | None = None
    max_output_tokens: Literal["inf"] | None = None
    prompt: None = None


class ResponseCreate(_Event):
    type: Literal["response.create"]
    response: ResponseOptions | None = None


class ResponseCancel(_Event):
    type: Literal["response.cancel"]
    response_id: str | None = None


class OutputClear(_Event):
    """Cuts what is being said; accepted also in silence."""

    type: Literal["output_audio_buffer.clear"]


class InputAppend(_Event):
    """`audio`: base64 of mono PCM16, little-endian, 24 kHz."""

    type: Literal["input_audio_buffer.append"]
    audio: str


class InputCommit(_Event):
    """Ends the caller's turn."""

    type: Literal["input_audio_buffer.commit"]


class InputClear(_Event):
    """Drops what was said since the last commit."""

    type: Literal["input_audio_buffer.clear"]


class PlayoutReport(_Event):
    """How long after it was sent the agent's voice reaches the ear: what is cut off by then was not heard.

    This server's own. It is answered by nothing; the latest report counts.
    """

    type: Literal["agent.playout.report"]
    delay_ms: float = Field(ge=0, le=MAX_PLAYOUT_MS, allow_inf_nan=False)


ClientEvent = Annotated[
    SessionUpdate
    | ItemCreate
    | ItemRetrieve
    | ItemDelete
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
    | OutputClear
    | InputAppend
    | InputCommit
    | InputClear
    | PlayoutReport,
    Field(discriminator="type"),
]

ADAPTER: TypeAdapter[ClientEvent] = TypeAdapter(ClientEvent)


class InvalidEvent(ValueError):
    """Not an event of the protocol. `param`: the field that is wrong."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.param = param


def parse(event: dict[str, Any]) -> ClientEvent:
    """Raises InvalidEvent with what was expected and got."""
    try:
        return ADAPTER.validate_python(event)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = _path(event, first["loc"]) or "type"
        got = "" if first["type"] in ("missing", "union_tag_invalid") else f", got {first['input']!r:.60}"
        raise InvalidEvent(f"{where}: {first['msg']}{got}", where) from None


def _path(value: Any, places: tuple[int | str, ...]) -> str:
    """The place of an error as a client knows it: without the names of the union's members on the way."""
    path = []
    for index, place in enumerate(places):
        inside = isinstance(place, int) if isinstance(value, list) else isinstance(value, dict) and place in value
        if inside:
            value = value[place]
        elif index == 0 or index < len(places) - 1 or (isinstance(value, dict) and value.get("type") == place):
            continue
        path.append(str(place))
    return ".".join(path)

"""What both directions speak of: conversation items, responses and the session (OpenAI Realtime, GA names)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["in_progress", "completed", "incomplete"]
Modality = Literal["audio", "text"]


class Wire(BaseModel):
    """Fields that are not listed are those of the protocol that have no effect here: accepted, as it asks."""

    # Whatever is sent has all of its fields, so the schemas of what is sent require them.
    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)


class InputText(Wire):
    type: Literal["input_text"] = "input_text"
    text: str


class InputAudio(Wire):
    """`transcript`: null until the words are recognised."""

    type: Literal["input_audio"] = "input_audio"
    transcript: str | None


class OutputText(Wire):
    type: Literal["output_text"] = "output_text"
    text: str


class OutputAudio(Wire):
    """`transcript`: of a reply that was cut off, the words that were heard."""

    type: Literal["output_audio"] = "output_audio"
    transcript: str | None


Content = Annotated[InputText | InputAudio | OutputText | OutputAudio, Field(discriminator="type")]


class MessageItem(Wire):
    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["message"] = "message"
    status: Status
    role: Literal["user", "assistant", "system"]
    content: list[Content]


class FunctionCallItem(Wire):
    """`arguments`: a JSON object, as text."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["function_call"] = "function_call"
    status: Status
    call_id: str
    name: str
    arguments: str


class FunctionCallOutputItem(Wire):
    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["function_call_output"] = "function_call_output"
    status: Status = "completed"
    call_id: str
    output: str


Item = Annotated[MessageItem | FunctionCallItem | FunctionCallOutputItem, Field(discriminator="type")]


class PcmFormat(Wire):
    """Mono PCM16, little-endian. Without effect on WebRTC, where audio is Opus."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24000


class Transcription(Wire):
    """`language`: zh or en; null: each utterance's own is recognised. The server has one recogniser."""

    model: str | None = None
    language: str | None = None


class TurnDetection(Wire):
    """Both kinds end a turn after `silence_duration_ms` of silence; null: the server's own. A caller who says nothing
    is left in peace.

    `create_response`: answer a turn when it ends, else at `response.create`. `interrupt_response`: voice over a
    reply cancels it.
    """

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    silence_duration_ms: int | None = Field(None, ge=100, le=5000)
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: None = None


class AudioInput(Wire):
    """`turn_detection` null: the client ends each turn by `input_audio_buffer.commit`."""

    format: PcmFormat | None = None
    transcription: Transcription | None = None
    turn_detection: TurnDetection | None = None


class AudioOutput(Wire):
    """The model has its own voice; the name of another is accepted and has no effect. `speed`: of the replies that
    begin from now on.
    """

    format: PcmFormat | None = None
    voice: Any = None
    speed: float | None = Field(None, ge=0.25, le=1.5)


class Audio(Wire):
    input: AudioInput | None = None
    output: AudioOutput | None = None


class FunctionTool(Wire):
    """A tool that the client runs. `parameters`: a JSON schema."""

    type: Literal["function"] = "function"
    name: str = Field(min_length=1, max_length=64)
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class AgentSettings(Wire):
    """This server's own. `language`: what the agent speaks, in its greeting as well, until it hears another."""

    language: Literal["zh", "en"] | None = None


class SessionConfig(Wire):
    """A partial session: what is absent stays as it is. A reply ends by itself, there are no stored prompts, and no
    tool can be forced.
    """

    type: Literal["realtime"] = "realtime"
    output_modalities: list[Modality] | None = Field(None, min_length=1, max_length=2)
    instructions: str | None = None
    audio: Audio | None = None
    tools: list[FunctionTool] | None = Field(None, max_length=128)
    tool_choice: Literal["auto", "none"] | None = None
    max_output_tokens: Literal["inf"] | None = None
    prompt: None = None
    agent: AgentSettings | None = None


class Session(Wire):
    """The session as it is in force. `tools`: those of the client; the server's own are not shown."""

    id: str
    object: Literal["realtime.session"] = "realtime.session"
    type: Literal["realtime"] = "realtime"
    model: str
    output_modalities: list[Modality]
    instructions: str
    audio: Audio
    tools: list[FunctionTool]
    tool_choice: Literal["auto", "none"] = "auto"


class Cancelled(Wire):
    type: Literal["cancelled"] = "cancelled"
    reason: Literal["turn_detected", "client_cancelled"]


class FailureCause(Wire):
    type: Literal["server_error"] = "server_error"
    code: str


class Failed(Wire):
    type: Literal["failed"] = "failed"
    error: FailureCause


class Response(Wire):
    id: str
    object: Literal["realtime.response"] = "realtime.response"
    conversation_id: str
    status: Literal["in_progress", "completed", "cancelled", "failed"]
    status_details: Annotated[Cancelled | Failed, Field(discriminator="type")] | None = None
    output: list[Item]
    output_modalities: list[Modality]
    metadata: dict[str, Any] | None = None

"""The events of the server. `agent.*` are this server's own; clients of the protocol pass over them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from voice_agent.wire.items import FunctionCallItem, Item, MessageItem, Response, Session, Wire


class ServerEventBase(Wire):
    """`event_id` is set when the event is sent."""

    model_config = ConfigDict(extra="forbid")
    event_id: str = ""


class ErrorDetail(Wire):
    """`event_id`: of the client's event that it answers. `param`: the field that is wrong."""

    type: Literal["invalid_request_error", "server_error"]
    code: str
    message: str
    param: str | None = None
    event_id: str | None = None


class Error(ServerEventBase):
    type: Literal["error"] = "error"
    error: ErrorDetail


class SessionCreated(ServerEventBase):
    type: Literal["session.created"] = "session.created"
    session: Session


class SessionUpdated(ServerEventBase):
    type: Literal["session.updated"] = "session.updated"
    session: Session


class SpeechStarted(ServerEventBase):
    """Over a reply it comes when the reply is cut, as clients stop playback at it."""

    type: Literal["input_audio_buffer.speech_started"] = "input_audio_buffer.speech_started"
    audio_start_ms: int
    item_id: str


class SpeechStopped(ServerEventBase):
    type: Literal["input_audio_buffer.speech_stopped"] = "input_audio_buffer.speech_stopped"
    audio_end_ms: int
    item_id: str


class InputCommitted(ServerEventBase):
    type: Literal["input_audio_buffer.committed"] = "input_audio_buffer.committed"
    previous_item_id: str | None
    item_id: str


class InputCleared(ServerEventBase):
    type: Literal["input_audio_buffer.cleared"] = "input_audio_buffer.cleared"


class ItemAdded(ServerEventBase):
    type: Literal["conversation.item.added"] = "conversation.item.added"
    previous_item_id: str | None
    item: Item


class ItemDone(ServerEventBase):
    type: Literal["conversation.item.done"] = "conversation.item.done"
    previous_item_id: str | None
    item: Item


class ItemRetrieved(ServerEventBase):
    type: Literal["conversation.item.retrieved"] = "conversation.item.retrieved"
    item: Item


class ItemDeleted(ServerEventBase):
    type: Literal["conversation.item.deleted"] = "conversation.item.deleted"
    item_id: str


class HeardText(Wire):
    text: str


class ItemTruncated(ServerEventBase):
    """A reply was cut at what was heard. `agent.text`: the words that are left."""

    type: Literal["conversation.item.truncated"] = "conversation.item.truncated"
    item_id: str
    content_index: int = 0
    audio_end_ms: int
    agent: HeardText


class TranscriptionDelta(ServerEventBase):
    """`delta`: new words that two hypotheses agree on. `transcript` (not OpenAI's): the whole latest hypothesis."""

    type: Literal["conversation.item.input_audio_transcription.delta"] = (
        "conversation.item.input_audio_transcription.delta"
    )
    item_id: str
    content_index: int = 0
    delta: str
    transcript: str


class Duration(Wire):
    """Seconds of audio that were recognised."""

    type: Literal["duration"] = "duration"
    seconds: float


class TranscriptionCompleted(ServerEventBase):
    type: Literal["conversation.item.input_audio_transcription.completed"] = (
        "conversation.item.input_audio_transcription.completed"
    )
    item_id: str
    content_index: int = 0
    transcript: str
    usage: Duration


class TranscriptionError(Wire):
    type: Literal["server_error"] = "server_error"
    code: str
    message: str


class TranscriptionFailed(ServerEventBase):
    type: Literal["conversation.item.input_audio_transcription.failed"] = (
        "conversation.item.input_audio_transcription.failed"
    )
    item_id: str
    content_index: int = 0
    error: TranscriptionError


class ResponseCreated(ServerEventBase):
    type: Literal["response.created"] = "response.created"
    response: Response


class ResponseDone(ServerEventBase):
    type: Literal["response.done"] = "response.done"
    response: Response


class _OfResponse(ServerEventBase):
    response_id: str
    output_index: int = 0


class OutputItemAdded(_OfResponse):
    type: Literal["response.output_item.added"] = "response.output_item.added"
    item: Annotated[MessageItem | FunctionCallItem, Field(discriminator="type")]


class OutputItemDone(_OfResponse):
    type: Literal["response.output_item.done"] = "response.output_item.done"
    item: Annotated[MessageItem | FunctionCallItem, Field(discriminator="type")]


class _OfItem(_OfResponse):
    item_id: str


class _OfContent(_OfItem):
    content_index: int = 0


class AudioPart(Wire):
    type: Literal["audio"] = "audio"
    transcript: str


class TextPart(Wire):
    type: Literal["text"] = "text"
    text: str


class ContentPartAdded(_OfContent):
    type: Literal["response.content_part.added"] = "response.content_part.added"
    part: Annotated[AudioPart | TextPart, Field(discriminator="type")]


class ContentPartDone(_OfContent):
    type: Literal["response.content_part.done"] = "response.content_part.done"
    part: Annotated[AudioPart | TextPart, Field(discriminator="type")]


class OutputTranscriptDelta(_OfContent):
    type: Literal["response.output_audio_transcript.delta"] = "response.output_audio_transcript.delta"
    delta: str


class OutputTranscriptDone(_OfContent):
    type: Literal["response.output_audio_transcript.done"] = "response.output_audio_transcript.done"
    transcript: str


class OutputTextDelta(_OfContent):
    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    delta: str


class OutputTextDone(_OfContent):
    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str


class OutputAudioDelta(_OfContent):
    """On WebSocket alone. `delta`: base64 of mono PCM16, little-endian, 24 kHz."""

    type: Literal["response.output_audio.delta"] = "response.output_audio.delta"
    delta: str


class OutputAudioDone(_OfContent):
    type: Literal["response.output_audio.done"] = "response.output_audio.done"


class ArgumentsDelta(_OfItem):
    type: Literal["response.function_call_arguments.delta"] = "response.function_call_arguments.delta"
    call_id: str
    delta: str


class ArgumentsDone(_OfItem):
    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    call_id: str
    name: str
    arguments: str


class OutputStarted(ServerEventBase):
    type: Literal["output_audio_buffer.started"] = "output_audio_buffer.started"
    response_id: str


class OutputStopped(ServerEventBase):
    type: Literal["output_audio_buffer.stopped"] = "output_audio_buffer.stopped"
    response_id: str


class OutputCleared(ServerEventBase):
    type: Literal["output_audio_buffer.cleared"] = "output_audio_buffer.cleared"
    response_id: str


class AgentLatency(ServerEventBase):
    """Where the time of a reply went, in milliseconds: the steps follow one another, `v2v_ms` is their sum."""

    type: Literal["agent.turn.latency"] = "agent.turn.latency"
    turn_id: str
    eot_delay_ms: float
    asr_ms: float
    thinker_first_token_ms: float
    talker_first_frame_ms: float
    codec_first_chunk_ms: float
    first_rtp_ms: float
    v2v_ms: float


class StageReceipt(Wire):
    """`ms`: from cancel to free. `wasted`: tokens or frames that nobody heard."""

    stage: str
    ms: float
    wasted: int


class AgentReceipts(ServerEventBase):
    """How each stage cleaned up after a reply that was cut off."""

    type: Literal["agent.turn.receipts"] = "agent.turn.receipts"
    turn_id: str
    ms: float
    receipts: list[StageReceipt]


class AgentHeard(ServerEventBase):
    """How much of a reply was played so far: samples at 24 kHz, and their words."""

    type: Literal["agent.playout.heard"] = "agent.playout.heard"
    turn_id: str
    item_id: str
    samples: int
    text: str


class AgentTurnPaused(ServerEventBase):
    """Voice over a reply: it holds its breath until it is clear whether that is an interruption."""

    type: Literal["agent.turn.paused"] = "agent.turn.paused"
    turn_id: str


class AgentTurnResumed(ServerEventBase):
    """It was none: the reply goes on where it was paused."""

    type: Literal["agent.turn.resumed"] = "agent.turn.resumed"
    turn_id: str


class AgentToolCalled(ServerEventBase):
    """A tool of the server ran."""

    type: Literal["agent.tool.called"] = "agent.tool.called"
    turn_id: str
    name: str
    arguments: dict[str, Any]
    result: Any


class AgentStageFailed(ServerEventBase):
    type: Literal["agent.stage.failed"] = "agent.stage.failed"
    stage: str
    message: str


class AgentCartUpdated(ServerEventBase):
    """The call's state, of a class called Cart, after each tool."""

    type: Literal["agent.cart.updated"] = "agent.cart.updated"
    cart: dict[str, Any]


class AgentStateUpdated(ServerEventBase):
    """The call's state, of another class, after each tool. `name`: the class's, in lower case."""

    type: Literal["agent.state.updated"] = "agent.state.updated"
    name: str
    state: Any


ServerEvent = Annotated[
    Error
    | SessionCreated
    | SessionUpdated
    | SpeechStarted
    | SpeechStopped
    | InputCommitted
    | InputCleared
    | ItemAdded
    | ItemDone
    | ItemRetrieved
    | ItemDeleted
    | ItemTruncated
    | TranscriptionDelta
    | TranscriptionCompleted
    | TranscriptionFailed
    | ResponseCreated
    | ResponseDone
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTranscriptDelta
    | OutputTranscriptDone
    | OutputTextDelta
    | OutputTextDone
    | OutputAudioDelta
    | OutputAudioDone
    | ArgumentsDelta
    | ArgumentsDone
    | OutputStarted
    | OutputStopped
    | OutputCleared
    | AgentLatency
    | AgentReceipts
    | AgentHeard
    | AgentTurnPaused
    | AgentTurnResumed
    | AgentToolCalled
    | AgentStageFailed
    | AgentCartUpdated
    | AgentStateUpdated,
    Field(discriminator="type"),
]

ADAPTER: TypeAdapter[ServerEvent] = TypeAdapter(ServerEvent)

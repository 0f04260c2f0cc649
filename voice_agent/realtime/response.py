"""How one response is told to a client: its events, with their ids and indices, in the order clients rely on."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from voice_agent.engine.protocols import ToolCall
from voice_agent.wire import server as events
from voice_agent.wire.items import (
    Cancelled,
    Failed,
    FunctionCallItem,
    Item,
    MessageItem,
    Modality,
    OutputAudio,
    OutputText,
    Response,
    Status,
)

if TYPE_CHECKING:
    from voice_agent.session import Session


class ResponseEvents:
    """One response: a message that is spoken or written, function calls, or first the one and then the other.

    `item_id`: of its message, which a client is told of when it has words.
    """

    def __init__(self, session: Session, item_id: str, *, spoken: bool, metadata: dict[str, Any] | None) -> None:
        self.id = session.new_id("resp")
        self.item_id = item_id
        self.spoken = spoken
        self.begun = False
        self.finished = False
        self.has_message = False
        self._session = session
        self._metadata = metadata
        self._output: list[Item] = []
        self._words_told = False

    def created(self) -> None:
        """The response is on its way. Only the first call counts."""
        if self.begun:
            return
        self.begun = True
        self._session.tell(events.ResponseCreated(response=self._response("in_progress")))

    def delta(self, text: str) -> None:
        """More of the message's words."""
        if not self.has_message:
            self._open_message()
        kind = events.OutputTranscriptDelta if self.spoken else events.OutputTextDelta
        self._session.tell(kind(response_id=self.id, item_id=self.item_id, delta=text))

    def words_done(self, text: str) -> None:
        """The message has all of its words; its audio may not."""
        if self._words_told or not self.has_message:
            return
        self._words_told = True
        if self.spoken:
            done = events.OutputTranscriptDone(response_id=self.id, item_id=self.item_id, transcript=text)
            self._session.tell(done)
        else:
            self._session.tell(events.OutputTextDone(response_id=self.id, item_id=self.item_id, text=text))

    def audio_delta(self, pcm: bytes) -> events.OutputAudioDelta:
        """The event for a piece of its audio: PCM16 at 24 kHz."""
        encoded = base64.b64encode(pcm).decode()
        return events.OutputAudioDelta(response_id=self.id, item_id=self.item_id, delta=encoded)

    def function_calls(self, calls: Sequence[ToolCall], text: str) -> None:
        """Calls for the client to run. They follow the message, if there is one: `text` is all of it."""
        self._close_message(text, "completed")
        for call in calls:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            item_id, index = self._session.new_id("item"), len(self._output)
            where = {"response_id": self.id, "item_id": item_id, "output_index": index, "call_id": call.call_id}
            item = FunctionCallItem(
                id=item_id, status="in_progress", call_id=call.call_id, name=call.name, arguments=""
            )
            self._session.tell(events.OutputItemAdded(response_id=self.id, output_index=index, item=item))
            before = self._session.conversation.put(item)
            self._session.tell(events.ItemAdded(previous_item_id=before, item=item))
            self._session.tell(events.ArgumentsDelta(**where, delta=arguments))
            self._session.tell(events.ArgumentsDone(**where, name=call.name, arguments=arguments))
            item = item.model_copy(update={"status": "completed", "arguments": arguments})
            self._session.conversation.put(item)
            self._session.tell(events.ItemDone(previous_item_id=before, item=item))
            self._session.tell(events.OutputItemDone(response_id=self.id, output_index=index, item=item))
            self._output.append(item)

    def done(
        self,
        status: Literal["completed", "cancelled", "failed"],
        text: str,
        details: Cancelled | Failed | None = None,
    ) -> None:
        """The response is over; `text`: the words of its message. Only the first call counts, and if it had begun."""
        if self.finished or not self.begun:
            return
        self.finished = True
        self._close_message(text, "completed" if status == "completed" else "incomplete")
        self._session.tell(events.ResponseDone(response=self._response(status, details)))

    def message(self, text: str | None, status: Status) -> MessageItem:
        """Its message as an item."""
        content = OutputAudio(transcript=text) if self.spoken else OutputText(text=text or "")
        return MessageItem(id=self.item_id, status=status, role="assistant", content=[content])

    def _open_message(self) -> None:
        self.has_message = True
        item = self.message(None, "in_progress")
        before = self._session.conversation.put(item)
        shown = item.model_copy(update={"content": []})
        self._session.tell(events.OutputItemAdded(response_id=self.id, item=shown))
        self._session.tell(events.ItemAdded(previous_item_id=before, item=shown))
        self._session.tell(events.ContentPartAdded(response_id=self.id, item_id=self.item_id, part=self._part("")))

    def _close_message(self, text: str, status: Status) -> None:
        if not self.has_message or self._output:
            return
        if self.spoken:
            self._session.tell(events.OutputAudioDone(response_id=self.id, item_id=self.item_id))
        self.words_done(text)
        self._session.tell(events.ContentPartDone(response_id=self.id, item_id=self.item_id, part=self._part(text)))
        item = self.message(text, status)
        before = self._session.conversation.put(item)
        self._session.tell(events.ItemDone(previous_item_id=before, item=item))
        self._session.tell(events.OutputItemDone(response_id=self.id, item=item))
        self._output.append(item)

    def _part(self, text: str) -> events.AudioPart | events.TextPart:
        return events.AudioPart(transcript=text) if self.spoken else events.TextPart(text=text)

    def _response(
        self,
        status: Literal["in_progress", "completed", "cancelled", "failed"],
        details: Cancelled | Failed | None = None,
    ) -> Response:
        modality: Modality = "audio" if self.spoken else "text"
        return Response(
            id=self.id,
            conversation_id=self._session.conversation_id,
            status=status,
            status_details=details,
            output=list(self._output),
            output_modalities=[modality],
            metadata=self._metadata,
        )

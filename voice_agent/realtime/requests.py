"""What a client asks of its session: each of its events, and the errors that answer those that cannot be served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from voice_agent.media import pcm
from voice_agent.media.speaker import RATE
from voice_agent.vad import SAMPLE_RATE
from voice_agent.wire import client
from voice_agent.wire import server as events
from voice_agent.wire.items import FunctionCallOutputItem, InputAudio, InputText, MessageItem, OutputText

if TYPE_CHECKING:
    from voice_agent.session import Session


class Refused(ValueError):
    """A request that cannot be served; `code`: as the protocol names the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Requests:
    """Serves the client's events of one session, on the event loop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._input = pcm.PcmResampler(RATE, SAMPLE_RATE)

    def handle(self, event: client.ClientEvent) -> None:
        """Raises Refused, or ValueError, with what was expected and got."""
        session = self._session
        match event:
            case client.SessionUpdate():
                session.update(event.session)
            case client.InputAppend():
                session.feed(self._input.push(pcm.from_base64(event.audio)))
            case client.InputCommit():
                session.commit()
            case client.InputClear():
                session.clear_input()
            case client.ItemCreate():
                self._create(event)
            case client.ItemRetrieve():
                item = session.conversation.item(event.item_id)
                if item is None:
                    raise _no_item(event.item_id)
                session.tell(events.ItemRetrieved(item=item))
            case client.ItemDelete():
                self._delete(event.item_id)
            case client.ItemTruncate():
                if not session.truncate(event.item_id, event.audio_end_ms * RATE // 1000):
                    raise Refused(
                        "item_not_found", f"item_id: expected a reply that was spoken lately, got {event.item_id!r:.60}"
                    )
            case client.ResponseCreate():
                self._respond(event.response or client.ResponseOptions())
            case client.ResponseCancel():
                turn = session.turn
                if turn is None or event.response_id not in (None, turn.told.id):
                    raise Refused("response_cancel_not_active", "response.cancel: expected a live response, got none")
                session.interrupt("client_cancelled")
            case client.OutputClear():
                session.interrupt("client_cancelled")
            case client.PlayoutReport():
                session.playout_reported(event.delay_ms)

    def _respond(self, options: client.ResponseOptions) -> None:
        session, turn = self._session, self._session.turn
        if turn is not None and turn.awaits_outputs:
            turn.ask(options)
        elif session.unanswered:
            session.answer(options)
        elif turn is not None and not turn.told.finished:
            text = f"response.create: expected no response in progress, got {turn.told.id}"
            raise Refused("conversation_already_has_active_response", text)
        elif not session.greet():
            text = "response.create: expected a user message that has no reply yet, got none"
            raise Refused("nothing_to_answer", text)

    def _delete(self, item_id: str) -> None:
        if not self._session.conversation.delete(item_id):
            raise _no_item(item_id)
        self._session.forget(item_id)
        self._session.tell(events.ItemDeleted(item_id=item_id))

    # Items.

    def _create(self, event: client.ItemCreate) -> None:
        session, item = self._session, event.item
        item_id = item.id or session.new_id("item")
        if session.conversation.item(item_id) is not None:
            raise Refused("item_exists", f"item.id: expected an id that is not in use, got {item_id!r:.60}")
        match item:
            case client.FunctionCallOutput():
                self._add_output(item_id, item, event.previous_item_id)
            case client.UserMessage():
                self._add_user(item_id, item, event.previous_item_id)
            case client.AssistantMessage():
                text = _text(item.content)
                message = MessageItem(id=item_id, status="completed", role="assistant", content=[OutputText(text=text)])
                self._show(message, event.previous_item_id)
                if event.previous_item_id is None:
                    session.write(item_id, text)
                else:
                    session.conversation.add_heard(item_id, text, event.previous_item_id)
            case client.SystemMessage():
                text = _text(item.content)
                message = MessageItem(id=item_id, status="completed", role="system", content=[InputText(text=text)])
                self._show(message, event.previous_item_id)
                session.note(item_id, text)

    def _add_user(self, item_id: str, item: client.UserMessage, after: str | None) -> None:
        session = self._session
        recorded = [part.audio for part in item.content if isinstance(part, client.AudioContent) and part.audio]
        if recorded:
            if len(item.content) > 1 or after is not None:
                raise ValueError("item.content: expected recorded audio alone, at the end of the conversation")
            resampler = pcm.PcmResampler(RATE, SAMPLE_RATE)
            audio = resampler.push(pcm.from_base64(recorded[0]))
            self._show(
                MessageItem(id=item_id, status="completed", role="user", content=[InputAudio(transcript=None)]), None
            )
            session.hear(item_id, audio)
            return
        text = _text(item.content)
        content = [InputText(text=text)]
        self._show(MessageItem(id=item_id, status="completed", role="user", content=content), after)
        if after is None:
            session.read(item_id, text)
        else:
            session.conversation.add_user({item_id: text}, after=after)

    def _add_output(self, item_id: str, item: client.FunctionCallOutput, after: str | None) -> None:
        session = self._session
        call = session.open_calls.get(item.call_id)
        if call is None:
            text = f"item.call_id: expected a function call that has no output yet, got {item.call_id!r:.60}"
            raise Refused("invalid_call_id", text)
        self._show(FunctionCallOutputItem(id=item_id, call_id=item.call_id, output=item.output), after)
        del session.open_calls[item.call_id]
        result = _result(item.output)
        session.conversation.add_tools([(call, result)], (item_id,))
        if session.turn is not None:
            session.turn.take_output(call.call_id, result)

    def _show(self, item: MessageItem | FunctionCallOutputItem, after: str | None) -> None:
        session = self._session
        before = session.conversation.put(item, after)
        session.tell(events.ItemAdded(previous_item_id=before, item=item))
        session.tell(events.ItemDone(previous_item_id=before, item=item))


def _text(content: Any) -> str:
    """The words of a message's content. Raises ValueError if there are none."""
    text = " ".join((getattr(part, "text", None) or getattr(part, "transcript", None) or "") for part in content)
    if not text.strip():
        raise ValueError("item.content: expected a part with text, got none")
    return text.strip()


def _result(output: str) -> Any:
    """The JSON object that a tool gave; anything else becomes one."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        value = output
    return value if isinstance(value, dict) else {"output": value}


def _no_item(item_id: str) -> Refused:
    return Refused("item_not_found", f"item_id: expected an item of this call, got {item_id!r:.60}")

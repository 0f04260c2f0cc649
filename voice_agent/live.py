"""A turn of the agent: from the caller's committed words to the last sample heard, and how it ends early."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio

from voice_agent.engine.protocols import Language, Message, ThinkRequest, ToolCall
from voice_agent.engine.reply import Reply
from voice_agent.engine.stage import Receipt
from voice_agent.engine.stages import Pcm

if TYPE_CHECKING:
    from voice_agent.session import Session, Utterance

log = logging.getLogger(__name__)


ENGLISH_WORDS = 3


def _written_in(text: str, recognised: Language | None) -> Language | None:
    """The language of an utterance: that of its script where this tells, else the one that the recogniser heard.

    Three words or more without a Chinese character are English; fewer may be a name inside a Mandarin call.
    """
    if any("\u4e00" <= letter <= "\u9fff" for letter in text):
        return "zh"
    return "en" if len(text.split()) >= ENGLISH_WORDS else recognised


class Turn:
    """One reply and its cancel scope. It lives in the session's task group; it is also the reply's listener.

    The order of an early end is fixed by the session: the speaker is flushed first, in the same tick; then `stop`
    aborts every stage in parallel; then the client is told, and the receipts follow.
    """

    def __init__(
        self, session: Session, turn_id: str, epoch: int, sources: list[Utterance], last_voiced_at: float
    ) -> None:
        self.session, self.id, self.epoch, self.sources = session, turn_id, epoch, sources
        self.item_id, self.response_id = session.new_id("item"), session.new_id("resp")
        self.language: Language = session.call.language
        self.text = ""
        self.reply: Reply | None = None
        self._scope = anyio.CancelScope()
        self._last_voiced_at = last_voiced_at
        self._committed_at = self._progress_at = time.perf_counter()
        self._heard_words_at = 0.0
        self._in_history = False
        self._used_tools = False
        self._told_created = self._told_done = False
        self._generated = self._started = False
        self._tools_running = 0
        self._told_heard = -1

    @property
    def leaves_no_trace(self) -> bool:
        """Nothing of it was heard and no tool was called: its words are joined to what the caller says next."""
        return not self._in_history and not self._used_tools

    async def run(self) -> None:
        """Wait for the words and start the reply. What goes wrong ends this turn, never the call."""
        with self._scope:
            try:
                for source in self.sources:
                    await source.ready.wait()
                self._heard_words_at = time.perf_counter()
                async with self.session.tools_done:
                    self._answer()
            except Exception as error:
                log.exception("call %s: turn %s failed", self.session.call_id, self.id)
                self.on_failed("turn", error)

    def _answer(self) -> None:
        session = self.session
        spoken = [source for source in self.sources if source.text]
        last = self.sources[-1]
        if last.stream is not None:
            shown = session.conversation.put_item(last.item_id, "user", last.text, kind="input_audio")
            session.send({"type": "conversation.item.added", "item": shown})
            kind = "conversation.item.input_audio_transcription.completed"
            session.send({"type": kind, "item_id": last.item_id, "content_index": 0, "transcript": last.text})
            session.send({"type": "conversation.item.done", "item": shown})
        if not spoken:
            session.ended(self)
            return
        self.language = session.language or _written_in(spoken[-1].text, spoken[-1].language) or session.call.language
        session.call.language = self.language
        self.text = ("" if self.language == "zh" else " ").join(source.text for source in spoken)
        request = ThinkRequest(
            messages=(*session.conversation.messages, Message("user", self.text)),
            language=self.language,
            instructions=session.runtime.agent.instructions,
            tools=session.runtime.schemas,
        )
        self._progress_at = time.perf_counter()
        self.reply = session.runtime.engine.reply(request, self)
        self._tell_created()

    # The reply's listener, on the event loop.

    def on_text(self, text: str) -> None:
        self._progress_at = time.perf_counter()
        where = {"response_id": self.response_id, "item_id": self.item_id, "output_index": 0, "content_index": 0}
        self.session.send({"type": "response.output_audio_transcript.delta", **where, "delta": text})

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        self._progress_at = time.perf_counter()
        self._used_tools = True
        self._enter_history()
        self._tools_running += 1
        # A task of the call's, not in the turn's scope: a tool that has begun is finished and remembered.
        self.session.spawn(self._run_tools(tuple(calls)))

    async def _run_tools(self, calls: Sequence[ToolCall]) -> None:
        session, results = self.session, []
        async with session.tools_done:
            for call in calls:
                result = await session.runtime.agent.run_tool(session.call, call.name, call.arguments)
                results.append((call, result))
                told = {"turn_id": self.id, "name": call.name, "arguments": dict(call.arguments), "result": result}
                session.send({"type": "agent.tool.called", **told})
            session.conversation.add_tools(results)
        session.show_state()
        self._tools_running -= 1
        self._progress_at = time.perf_counter()
        if self.reply is not None and session.turn is self:
            self.reply.resume(results)

    def on_pcm(self, pcm: Pcm, last: bool) -> None:
        self._progress_at = time.perf_counter()
        speaker = self.session.speaker
        if len(pcm):
            speaker.write(self.epoch, pcm)
        if last:
            speaker.end(self.epoch)

    def on_text_done(self) -> None:
        assert self.reply is not None
        self._generated = True
        where = {"response_id": self.response_id, "item_id": self.item_id, "output_index": 0, "content_index": 0}
        self.session.send({"type": "response.output_audio_transcript.done", **where, "transcript": self.reply.text})
        self._tell_done("completed")

    def on_failed(self, stage: str, error: BaseException) -> None:
        """A stage failed: say so to the client, and to the caller by a notice."""
        session = self.session
        if session.turn is not self:
            return
        log.error("call %s: stage %s failed: %s", session.call_id, stage, error)
        heard = session.renew_epoch()
        session.send({"type": "agent.stage.failed", "stage": stage, "message": "this reply could not be made"})
        session.spawn(self.report(self.stop(heard), time.perf_counter()))
        self._tell_done("failed", {"type": "failed", "error": {"type": "server_error", "code": f"{stage}_failed"}})
        self.reply, self.epoch = None, session.epoch
        notice = session.runtime.notice(self.language)
        session.speaker.write(self.epoch, notice)
        session.speaker.end(self.epoch)

    # Playback.

    def on_first_packet(self) -> None:
        """The first audible packet went out: publish the latency break-down."""
        self._started = True
        session, now = self.session, time.perf_counter()
        session.send({"type": "output_audio_buffer.started", "response_id": self.response_id})
        if self.reply is None or not self._last_voiced_at:
            return
        marks = self.reply.marks
        steps = (
            ("eot_delay_ms", self._last_voiced_at, self._committed_at),
            ("asr_ms", self._committed_at, self._heard_words_at),
            ("thinker_first_token_ms", self._heard_words_at, marks.first_token),
            ("talker_first_frame_ms", marks.first_token, marks.first_frame),
            ("codec_first_chunk_ms", marks.first_frame, marks.first_chunk),
            ("first_rtp_ms", marks.first_chunk, now),
        )
        told = {name: round(1000 * (end - start), 1) for name, start, end in steps}
        told["v2v_ms"] = round(1000 * (now - self._last_voiced_at), 1)
        session.send({"type": "agent.turn.latency", "turn_id": self.id, **told})

    def on_drained(self, samples: int) -> None:
        """Everything was said."""
        session = self.session
        session.send({"type": "output_audio_buffer.stopped", "response_id": self.response_id})
        if self.reply is not None:
            self._tell_heard(samples, self.reply.text)
            self._enter_history()
            session.conversation.add(Message("assistant", self.reply.text))
            session.conversation.put_item(self.item_id, "assistant", self.reply.text, kind="output_audio")
        session.ended(self)

    def tick(self, samples: int, *, tell: bool) -> None:
        """Every 50 ms: `samples` of this reply were sent. Paces the talker, and notices a stage that stands still."""
        if self.reply is None:
            return
        self.reply.played(samples)
        if tell and self._started:
            self._tell_heard(samples, self.reply.heard_text(samples))
        stall_s = self.session.runtime.config.stall_ms / 1000
        idle = self.session.speaker.queued_ms == 0 and not self._tools_running
        if idle and time.perf_counter() - self._progress_at > stall_s:
            self.on_failed("engine", TimeoutError(f"expected progress within {stall_s:.1f} s, got none"))

    def _tell_heard(self, samples: int, text: str) -> None:
        if samples != self._told_heard:
            self._told_heard = samples
            told = {"turn_id": self.id, "item_id": self.item_id, "samples": samples, "text": text}
            self.session.send({"type": "agent.playout.heard", **told})

    # The early end.

    def stop(self, heard_samples: int) -> asyncio.Future[list[Receipt]]:
        """Cancel the scope and abort all stages at once. What was heard, and no more, enters the history."""
        self._scope.cancel()
        if self.reply is None:
            done: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
            done.set_result([])
            return done
        heard = self.reply.heard_text(heard_samples)
        if heard:
            self._enter_history()
            self.session.conversation.add(Message("assistant", heard))
        return self.reply.abort(heard_samples)

    def tell_cancelled(self, reason: str, heard_samples: int) -> None:
        """The client's events, in the order that its clients rely on."""
        session = self.session
        if self.reply is None:
            return
        if self._started:
            session.send({"type": "output_audio_buffer.cleared", "response_id": self.response_id})
        self._tell_done("cancelled", {"type": "cancelled", "reason": reason})
        heard = self.reply.heard_text(heard_samples)
        session.conversation.put_item(self.item_id, "assistant", heard, kind="output_audio", status="incomplete")
        cut_ms = 1000 * heard_samples // session.runtime.engine.sample_rate
        where = {"item_id": self.item_id, "content_index": 0, "audio_end_ms": cut_ms}
        session.send({"type": "conversation.item.truncated", **where, "agent": {"text": heard}})

    async def report(self, receipts: asyncio.Future[list[Receipt]], since: float) -> None:
        """Publish the receipts of an abort once every stage has given its own."""
        with anyio.fail_after(10):
            told = await receipts
        self.session.send(
            {
                "type": "agent.turn.receipts",
                "turn_id": self.id,
                "ms": round(1000 * (time.perf_counter() - since), 2),
                "receipts": [{"stage": r.stage, "ms": round(r.ms, 2), "wasted": r.wasted} for r in told],
            }
        )

    # Small things.

    def _enter_history(self) -> None:
        if not self._in_history and self.text:
            self._in_history = True
            self.session.conversation.add(Message("user", self.text))

    def _tell_created(self) -> None:
        session = self.session
        item = session.conversation.put_item(self.item_id, "assistant", None, kind="output_audio", status="in_progress")
        self._told_created = True
        where = {"response_id": self.response_id, "output_index": 0}
        session.send({"type": "response.created", "response": self._response("in_progress")})
        session.send({"type": "response.output_item.added", **where, "item": {**item, "content": []}})
        session.send({"type": "conversation.item.added", "item": item})
        part = {"type": "audio", "transcript": ""}
        session.send(
            {
                "type": "response.content_part.added",
                **where,
                "item_id": self.item_id,
                "content_index": 0,
                "part": part,
            }
        )

    def _tell_done(self, status: str, details: dict[str, Any] | None = None) -> None:
        if self._told_done or not self._told_created:
            return
        self._told_done = True
        session = self.session
        text = self.reply.text if self.reply is not None else ""
        item = session.conversation.put_item(
            self.item_id,
            "assistant",
            text,
            kind="output_audio",
            status="completed" if status == "completed" else "incomplete",
        )
        where = {"response_id": self.response_id, "output_index": 0}
        part = {"type": "audio", "transcript": text}
        session.send(
            {
                "type": "response.content_part.done",
                **where,
                "item_id": self.item_id,
                "content_index": 0,
                "part": part,
            }
        )
        session.send({"type": "response.output_item.done", **where, "item": item})
        session.send({"type": "response.done", "response": self._response(status, details, [item])})

    def _response(
        self, status: str, details: dict[str, Any] | None = None, output: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": output or [],
        }

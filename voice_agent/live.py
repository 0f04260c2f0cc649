"""A turn of the agent: from the caller's committed words to the last sample heard, and how it ends early."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import anyio
import numpy as np

from voice_agent.agent import Call, fork_of, forkable
from voice_agent.engine.protocols import Language, Message, Recording, ThinkRequest, ToolCall
from voice_agent.engine.reply import Reply
from voice_agent.engine.stage import Receipt
from voice_agent.engine.stages import Pcm
from voice_agent.realtime.response import ResponseEvents
from voice_agent.wire import server as events
from voice_agent.wire.client import ResponseOptions
from voice_agent.wire.items import Cancelled, Failed, FailureCause

if TYPE_CHECKING:
    from voice_agent.hearing import Utterance
    from voice_agent.session import Session

log = logging.getLogger(__name__)

ENGLISH_WORDS = 3
CLIENT_TOOL_S = 60.0
"""How long a client may take to run its tools; the reply holds its slot until then."""
GUESSED_MS = 200
"""So much of a reply is made before it is certain: enough for its packets to follow one another while more is made."""
PACKET_MS = 20
"""Less of a reply than this waits for the rest of its packet: the caller hears nothing."""
KEEP_MS = 300
"""A reply of which less was heard answered too soon: it leaves no trace, and its words are joined to what follows."""


def written_in(text: str, recognised: Language | None) -> Language | None:
    """The language of an utterance: that of its script where this tells, else the one that the recogniser heard.

    Three words or more without a Chinese character are English; fewer may be a name inside a Mandarin call.
    """
    if any("\u4e00" <= letter <= "\u9fff" for letter in text):
        return "zh"
    return "en" if len(text.split()) >= ENGLISH_WORDS else recognised


class Turn:
    """One reply and its cancel scope. It lives in the session's task group; it is also the reply's listener.

    The order of an early end is fixed by the session: the speaker is flushed first, in the same tick; then `stop`
    aborts every stage in parallel; then the client is told, and the receipts follow. `told` is the response that its
    client sees. Tools that the client runs end that response, and the reply rests until the client asks for the next.

    `say`: what it says, word for word, where nobody has asked for anything.

    A turn may be begun as a guess, while the caller might still go on. Until `confirm` nothing of it reaches the
    speaker or the client; tools run on a fork of the call's state if it has one, or else wait. What a turn changes is
    kept in three steps: at once for a state without `fork`; after `KEEP_MS` of its reply were heard for one with it;
    and for what an irreversible tool did, when the reply was heard to its end.
    """

    def __init__(
        self,
        session: Session,
        turn_id: str,
        sources: list[Utterance],
        options: ResponseOptions,
        *,
        certain: bool = True,
        say: str = "",
    ) -> None:
        self.session, self.id, self.epoch, self.sources = session, turn_id, session.epoch, sources
        self.call = session.call
        self.language: Language = session.call.language
        self.text = ""
        self._audio: Recording | None = None
        self.reply: Reply | None = None
        self._options = options
        self._say = say
        self._spoken = "audio" in (options.output_modalities or session.settings.modalities)
        self.told = self._new_response(options)
        self._scope = anyio.CancelScope()
        self._read = [(source, source.generation) for source in sources]
        self._certain, self._kept, self._over = certain, False, False
        self._at_confirm: list[Callable[[], None]] = []
        self._at_keep: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []
        self._tools: asyncio.Task[None] | None = None
        self._last_voiced_at = 0.0
        self._committed_at = self._progress_at = time.perf_counter()
        self._heard_words_at = 0.0
        self._started = False
        self._made = 0
        self._told_heard = -1
        self.all_written = False
        self._text_before = 0
        self._calls: tuple[ToolCall, ...] = ()
        self._results: dict[str, Any] = {}
        self._client_calls: frozenset[str] = frozenset()
        self._called_at = 0.0
        self._asked: ResponseOptions | None = None

    # A guess, and what of a turn is kept.

    def answers(self, unanswered: Sequence[Utterance]) -> bool:
        """Whether it was begun on just these words."""
        return self._read == [(source, source.generation) for source in unanswered]

    def confirm(self, last_voiced_at: float) -> None:
        """It is a turn; `last_voiced_at`: when the caller's last voiced sample came (`perf_counter()`; 0: unknown)."""
        self._certain, self.epoch = True, self.session.epoch
        self._last_voiced_at = last_voiced_at
        self._committed_at = self._progress_at = time.perf_counter()
        if self.reply is not None:
            self.reply.hold(False)
        waiting, self._at_confirm = self._at_confirm, []
        for act in waiting:
            act()

    def discard(self) -> asyncio.Future[list[Receipt]]:
        """It was no turn: every stage is freed, and nothing was told or changed."""
        self._at_confirm = []
        return self.stop(0)

    def _when_certain(self, act: Callable[[], None]) -> None:
        if self._certain:
            act()
        else:
            self._at_confirm.append(act)

    def keep(self) -> None:
        """The dialogue and the call's state take what the turn has changed so far, and will change from now on."""
        if self._kept:
            return
        self._kept = True
        if self.text:
            spoken = {source.item_id: source.text for source in self.sources if source.text}
            self.session.conversation.add_user(spoken, self._joint, audio=self._audio)
        waiting, self._at_keep = self._at_keep, []
        for act in waiting:
            act()

    def _kept_by(self, heard_samples: int) -> bool:
        return 1000 * heard_samples >= KEEP_MS * self.session.runtime.engine.sample_rate

    def _when_kept(self, act: Callable[[], None]) -> None:
        if self._kept:
            act()
        else:
            self._at_keep.append(act)

    def _new_response(self, options: ResponseOptions) -> ResponseEvents:
        item_id = self.session.new_id("item")
        return ResponseEvents(self.session, item_id, spoken=self._spoken, metadata=options.metadata)

    @property
    def saying(self) -> str:
        """The words of its reply so far, heard or not."""
        return self.reply.text if self.reply is not None else ""

    @property
    def leaves_no_trace(self) -> bool:
        """Too little of it was heard, and nothing was done: its words are joined to what the caller says next."""
        return not self._kept

    @property
    def awaits_outputs(self) -> bool:
        """Tools that the client runs have been called, and it has not asked for the response to their outputs."""
        return bool(self._client_calls) and self._asked is None

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
        if self._say:
            empty = Message("user")
            self._ask(ThinkRequest((*session.conversation.messages, empty), self.language, say=self._say))
            return
        if spoken:
            session.asked_back = 0
        elif line := session.ask_back(self.sources):
            self._when_certain(self.told.created)
            self._ask(ThinkRequest((*session.conversation.messages, Message("user")), self.language, say=line))
            return
        if not spoken:
            if any(source.failed for source in self.sources):
                self.told.done("failed", "", Failed(error=FailureCause(code="asr_failed")))
            self.told.done("completed", "")
            session.ended(self)
            return
        settings = session.settings
        self._audio = self._recording()
        self.language = settings.language or written_in(spoken[-1].text, spoken[-1].language) or session.call.language
        self._when_certain(self._take_language)
        self.text = self._joint.join(source.text for source in spoken)
        asked = self._options.instructions
        instructions = settings.instructions if asked is None else asked
        self._ask(
            ThinkRequest(
                messages=(*session.conversation.messages, Message("user", self.text, audio=self._audio)),
                language=self.language,
                instructions="\n".join([instructions, *session.notes.values()]),
                tools=settings.tools,
            )
        )

    def _ask(self, request: ThinkRequest) -> None:
        session = self.session
        self._progress_at = time.perf_counter()
        request = replace(request, conversation=session.conversation_id, seed=zlib.crc32(self.id.encode()))
        self.reply = session.runtime.engine.reply(request, self, speak=self._spoken, speed=session.settings.speed)
        self._when_certain(self.told.created)

    def _take_language(self) -> None:
        self.session.call.language = self.call.language = self.language

    # The reply's listener, on the event loop.

    def on_text(self, text: str) -> None:
        self._progress_at = time.perf_counter()
        self._when_certain(lambda: self.told.delta(text))

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        self._progress_at = self._called_at = time.perf_counter()
        self._calls, self._results, self._asked = tuple(calls), {}, None
        theirs = self.session.settings.client_tools
        if forkable(self.call) and not any(call.name in theirs for call in calls):
            self._begin_tools(calls)
        else:
            self._when_certain(lambda: self._call_at_once(calls, theirs))

    def _call_at_once(self, calls: Sequence[ToolCall], theirs: frozenset[str]) -> None:
        """Tools whose effects cannot be taken back."""
        self.keep()
        for_client = [call for call in calls if call.name in theirs]
        for_server = [call for call in calls if call.name not in theirs]
        self._client_calls = frozenset(call.call_id for call in for_client)
        if for_client:
            self.session.await_outputs(for_client)
            self.told.function_calls(for_client, self._words())
            self.told.done("completed", self._words())
        if for_server:
            self._begin_tools(for_server)

    def _begin_tools(self, calls: Sequence[ToolCall]) -> None:
        # A task of the call's, not in the turn's scope: a tool that has begun is finished and remembered.
        self._tools = self.session.spawn(self._run_tools(calls), tool=True)

    async def _run_tools(self, calls: Sequence[ToolCall]) -> None:
        agent, results = self.session.runtime.agent, []
        final = any(call.name in agent.toolbox and agent.toolbox[call.name].irreversible for call in calls)
        async with self.session.tools_done:
            if forkable(self.call) and (final or self.call is self.session.call):
                self.call = fork_of(self.call)
            for call in calls:
                results.append((call, await agent.run_tool(self.call, call.name, call.arguments)))
            changed = self.call
            if final or self._at_end:
                self._at_end.append(lambda: self._remember(results, changed))
            else:
                self._when_kept(lambda: self._remember(results, changed))
        for call, result in results:
            self._results[call.call_id] = result
        self._go_on()

    def _remember(self, results: Sequence[tuple[ToolCall, Any]], changed: Call[Any]) -> None:
        """What the tools gave, and the call as they have changed it."""
        session = self.session
        session.call = replace(changed, language=session.call.language)
        for call, result in results:
            arguments = dict(call.arguments)
            told = events.AgentToolCalled(turn_id=self.id, name=call.name, arguments=arguments, result=result)
            session.tell(told)
        session.conversation.add_tools(results)
        session.show_state()

    def take_output(self, call_id: str, result: Any) -> None:
        """What the client's tool gave."""
        if call_id in self._client_calls:
            self._results[call_id] = result
            self._go_on()

    def ask(self, options: ResponseOptions) -> None:
        """The client wants the response to its outputs; it begins when they are all there."""
        self._asked = options
        self._go_on()

    def _go_on(self) -> None:
        """Let the thinker read the results, once there are all of them and the client has asked for it."""
        self._progress_at = time.perf_counter()
        waiting = len(self._results) < len(self._calls) or self.awaits_outputs
        if waiting or self.reply is None or self._over:
            return
        if self._asked is not None:
            self._text_before = len(self.reply.text)
            self.told = self._new_response(self._asked)
            self.told.created()
        results = [(call, self._results[call.call_id]) for call in self._calls]
        self._calls, self._client_calls = (), frozenset()
        self.reply.resume(results)

    def on_pcm(self, pcm: Pcm, last: bool) -> None:
        self._progress_at = time.perf_counter()
        self._made += len(pcm)
        enough = 1000 * self._made >= GUESSED_MS * self.session.runtime.engine.sample_rate
        if enough and not self._certain and self.reply is not None:
            self.reply.hold(True)
        self._when_certain(lambda: self._play(pcm, last))

    def _play(self, pcm: Pcm, last: bool) -> None:
        speaker = self.session.speaker
        if len(pcm):
            speaker.write(self.epoch, pcm)
        if last:
            self.all_written = True
            speaker.end(self.epoch)

    def on_text_done(self) -> None:
        self._when_certain(self._end_text)

    def _end_text(self) -> None:
        """All words are there. Where audio travels in events the response is over only after the last of them."""
        if self._spoken and self.session.speaker.as_events:
            self.told.words_done(self._words())
            return
        if not self._spoken:
            self._end_history(0)
        self.told.done("completed", self._words())
        if not self._spoken:
            self.session.ended(self)

    def on_failed(self, stage: str, error: BaseException) -> None:
        """A stage failed: say so to the client, and to the caller by a notice."""
        session = self.session
        if not self._certain:
            log.warning("call %s: a reply that was begun ahead failed in stage %s: %s", session.call_id, stage, error)
            if session.guess is self:
                session.drop_guess()
            return
        if session.turn is not self:
            return
        log.error("call %s: stage %s failed: %s", session.call_id, stage, error)
        heard = session.silence()
        session.tell(events.AgentStageFailed(stage=stage, message="this reply could not be made"))
        words = self._words()
        session.spawn(self.report(self.stop(heard), time.perf_counter()))
        self.told.done("failed", words, Failed(error=FailureCause(code=f"{stage}_failed")))
        self.reply, self.epoch = None, session.epoch
        self._calls, self._client_calls = (), frozenset()
        notice = session.runtime.notice(self.language)
        session.speaker.write(self.epoch, notice)
        session.speaker.end(self.epoch)

    # Playback.

    def on_first_packet(self) -> None:
        """The first audible packet went out: publish the latency break-down."""
        self._started = True
        session, now = self.session, time.perf_counter()
        session.tell(events.OutputStarted(response_id=self.told.id))
        if self.reply is None or not self._last_voiced_at:
            return
        marks = self.reply.marks
        reached = (
            ("eot_delay_ms", self._committed_at),
            ("asr_ms", self._heard_words_at),
            ("thinker_first_token_ms", marks.first_token),
            ("talker_first_frame_ms", marks.first_frame),
            ("codec_first_chunk_ms", marks.first_chunk),
            ("first_rtp_ms", now),
        )
        told, before = {"v2v_ms": round(1000 * (now - self._last_voiced_at), 1)}, self._last_voiced_at
        for name, at in reached:
            # What was done ahead of the turn's end took none of the caller's time after it.
            told[name] = round(1000 * max(0.0, at - before), 1)
            before = max(before, at)
        session.tell(events.AgentLatency(turn_id=self.id, **told))

    def on_drained(self, samples: int) -> None:
        """Everything was said."""
        session = self.session
        if self.reply is not None:
            self._tell_heard(samples, self.reply.text)
            self._end_history(samples)
            self.told.done("completed", self._words())
        session.tell(events.OutputStopped(response_id=self.told.id))
        session.ended(self)

    def tick(self, samples: int, *, tell: bool) -> None:
        """Every 50 ms: `samples` of this reply were heard. Paces the talker, and notices a stage that stands still."""
        if self.reply is None:
            return
        self.reply.played(samples)
        if self._kept_by(samples):
            self.keep()
        if tell and self._started:
            self._tell_heard(samples, self.reply.spoken.heard_text(samples))
        now = time.perf_counter()
        if self.session.speaker.paused:
            self._progress_at = now
            return
        if self._calls:
            if self._client_calls and now - self._called_at > CLIENT_TOOL_S:
                text = f"expected the outputs of {sorted(self._client_calls)} within {CLIENT_TOOL_S:.0f} s, got none"
                self.on_failed("tool", TimeoutError(text))
            return
        stall_s = self.session.runtime.config.stall_ms / 1000
        if self.session.speaker.queued_ms < PACKET_MS and now - self._progress_at > stall_s:
            self.on_failed("engine", TimeoutError(f"expected progress within {stall_s:.1f} s, got none"))

    def hold(self, held: bool) -> None:
        """While it is held no stage makes more of it, and nothing of it is freed."""
        self._progress_at = time.perf_counter()
        if self.reply is not None:
            self.reply.hold(held)

    def _tell_heard(self, samples: int, text: str) -> None:
        if samples != self._told_heard:
            self._told_heard = samples
            told = events.AgentHeard(turn_id=self.id, item_id=self.told.item_id, samples=samples, text=text)
            self.session.tell(told)

    # The early end.

    def stop(self, heard_samples: int, *, went_on: bool = False) -> asyncio.Future[list[Receipt]]:
        """Cancel the scope and abort all stages at once. What was heard, and no more, enters the history.

        `went_on`: because the caller did; then a reply of which less than `KEEP_MS` was heard is none.
        """
        self._scope.cancel()
        self._over = True
        if self._kept or (self._kept_by(heard_samples) if went_on else self._heard(heard_samples)):
            self._keep_heard(heard_samples)
        if not self._kept and self._tools is not None:
            self._tools.cancel()  # it works on a fork of the state that nobody will see
        if self.reply is None:
            done: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
            done.set_result([])
            return done
        return self.reply.abort(heard_samples)

    def tell_cancelled(self, reason: Literal["turn_detected", "client_cancelled"], heard_samples: int) -> None:
        """The client's events, in the order that its clients rely on."""
        if self._started:
            self.session.tell(events.OutputCleared(response_id=self.told.id))
        self.told.done("cancelled", self._words(), Cancelled(reason=reason))
        if self.reply is not None and self.told.has_message and self._spoken:
            self.session.tell_truncated(self.told.item_id, heard_samples, self._heard(heard_samples))

    async def report(self, receipts: asyncio.Future[list[Receipt]], since: float) -> None:
        """Publish the receipts of an abort once every stage has given its own."""
        with anyio.fail_after(10):
            told = await receipts
        given = [events.StageReceipt(stage=r.stage, ms=round(r.ms, 2), wasted=r.wasted) for r in told]
        ms = round(1000 * (time.perf_counter() - since), 2)
        self.session.tell(events.AgentReceipts(turn_id=self.id, ms=ms, receipts=given))

    # Small things.

    @property
    def _joint(self) -> str:
        return "" if self.language == "zh" else " "

    def _words(self) -> str:
        """The words of the response's message so far."""
        return self.reply.text[self._text_before :] if self.reply is not None else ""

    def _heard(self, samples: int) -> str:
        """Those of them that were heard; what is written is read at once."""
        if self.reply is None:
            return ""
        return self.reply.spoken.heard_text(samples)[self._text_before :] if self._spoken else self._words()

    def _end_history(self, samples: int) -> None:
        """The reply was heard to its end."""
        self.keep()
        waiting, self._at_end = self._at_end, []
        for act in waiting:
            act()
        self._keep_heard(samples)

    def _keep_heard(self, samples: int) -> None:
        """The reply enters the history as far as it was heard."""
        if self.reply is None:
            return
        self.keep()
        heard = self._heard(samples)
        if heard:
            self.session.conversation.add_heard(self.told.item_id, heard)
            if self._spoken:
                self.session.remember_reply(self.told.item_id, self.reply.spoken, samples)

    def _recording(self) -> Recording | None:
        """The caller's words as they were recorded, for a model that listens; None if some of them were typed."""
        streams = [source.stream for source in self.sources if source.text]
        if not self.session.runtime.config.qwen.listen or None in streams:
            return None
        return np.concatenate([pcm for stream in streams if stream is not None for pcm in stream.recorded])

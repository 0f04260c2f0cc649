"""A call: it listens all the time, answers one turn at a time, and stops at once when it is cut in on.

feed ─→ VAD ─→ turn policy ─→ commit ─→ Turn (thinker → talker → codec → speaker)
    └─→ ASR ─ words ────────────┘           ↑ interrupt
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import anyio
import numpy as np
import numpy.typing as npt

from voice_agent import wire
from voice_agent.agent import Call, view_of
from voice_agent.conversation import Conversation
from voice_agent.engine.protocols import ToolCall
from voice_agent.engine.reply import Spoken
from voice_agent.floor import Floor
from voice_agent.hearing import Utterance
from voice_agent.live import Turn
from voice_agent.manners import Patience
from voice_agent.realtime.requests import Refused, Requests
from voice_agent.realtime.settings import Settings
from voice_agent.turn import SAMPLES_PER_MS
from voice_agent.wire import server as events
from voice_agent.wire.client import ResponseOptions
from voice_agent.wire.items import InputAudio, MessageItem, OutputAudio, SessionConfig

if TYPE_CHECKING:
    from voice_agent.engine.stage import Receipt
    from voice_agent.media.speaker import Speaker
    from voice_agent.runtime import Runtime

log = logging.getLogger(__name__)

MIN_COMMIT_MS = 100
# Client events that came before `run`; beyond it the oldest go.
EARLY_EVENTS = 32
# Replies that can still be truncated, function calls that may still get their output, system messages, and what was
# said and not answered yet.
KEPT_REPLIES = 8
OPEN_CALLS = 64
NOTES = 64
UNANSWERED = 32
# How long the tools that run when a call ends may take to come to their end.
TOOLS_S = 2.0
TICK_S = 0.05
TICKS_PER_HEARD = 4
# A reply of which no more than this is left to be sent is about to end: what is said now can be the answer to it.
CLOSING_MS = 300
# How often in a row the caller is asked to say it again.
ASK_BACK = 2


@dataclass(frozen=True)
class Memory:
    """What outlives a connection: the call's settings and state (its cart), the dialogue, what was not answered yet,
    and the last replies, of which less may have been heard than was sent."""

    settings: Settings
    call: Call[Any]
    conversation: Conversation
    unanswered: list[Utterance]
    notes: OrderedDict[str, str]
    open_calls: OrderedDict[str, ToolCall]
    said: OrderedDict[str, tuple[Spoken, int]]


class Session:
    """One call. `feed`, `receive` and `close` are for the media side, on the event loop, and never block."""

    def __init__(
        self, call_id: str, runtime: Runtime, speaker: Speaker, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self.call_id, self.runtime, self.speaker = call_id, runtime, speaker
        self.settings = Settings(runtime)
        self.call: Call[Any] = runtime.agent.open_call(call_id, self.settings.language or "zh")
        self.conversation = Conversation()
        self.turn: Turn | None = None
        self.guess: Turn | None = None
        self.epoch = 0
        # A turn reads the dialogue only when the tools of the turn before it have returned.
        self.tools_done = anyio.Lock()
        self.playout_delay_ms = 0.0
        self.asked_back = 0
        self.unanswered: list[Utterance] = []
        self.open_calls: OrderedDict[str, ToolCall] = OrderedDict()
        self.notes: OrderedDict[str, str] = OrderedDict()
        self._send = send
        self._said: OrderedDict[str, tuple[Spoken, int]] = OrderedDict()
        self._requests = Requests(self)
        self.floor = Floor(self)
        self._closed = anyio.Event()
        self._early: deque[dict[str, Any]] = deque(maxlen=EARLY_EVENTS)
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._tools: set[asyncio.Task[None]] = set()
        self._receipts: asyncio.Future[list[Receipt]] | None = None
        self._serial = 0
        self._events = 0
        self.last_said = ("", 0)
        self._patience = Patience(round(runtime.agent.lines.idle_s * 1000) * SAMPLES_PER_MS)
        self._ends = False

    @property
    def conversation_id(self) -> str:
        return f"conv_{self.call_id}"

    # What the media side calls.

    def feed(self, pcm: npt.NDArray[np.int16]) -> None:
        """The caller's audio: int16 mono at 16 kHz, any length, in order."""
        self.floor.hearing.feed(pcm)

    async def room(self) -> None:
        """Wait until the session wants more audio: for sources that can hold it back."""
        await self.floor.hearing.room()

    def receive(self, event: dict[str, Any]) -> None:
        """A client event. A bad one is answered by an `error` event that carries its id."""
        if self._tasks is None:
            self._early.append(event)
            return
        event_id = event.get("event_id") if isinstance(event.get("event_id"), str) else None
        try:
            self._requests.handle(wire.parse(event))
        except wire.InvalidEvent as error:
            self._refuse("invalid_event", str(error), error.param, event_id)
        except Refused as error:
            self._refuse(error.code, str(error), None, event_id)
        except ValueError as error:
            self._refuse("invalid_value", str(error), None, event_id)

    def audio_delta(self, pcm: bytes) -> dict[str, Any] | None:
        """The event that carries this piece (PCM16, 24 kHz) of the live reply; None: no reply is live."""
        if self.turn is None:
            return None
        return self._stamped(self.turn.told.audio_delta(pcm))

    def close(self, reason: str) -> None:
        """End the call; `run` returns soon after."""
        if not self._closed.is_set():
            log.info("call %s ends: %s", self.call_id, reason)
            self._closed.set()

    def memory(self) -> Memory:
        """What a call that takes the place of this one goes on with."""
        return Memory(
            self.settings, self.call, self.conversation, self.unanswered, self.notes, self.open_calls, self._said
        )

    def recall(self, memory: Memory) -> None:
        """Go on with the memory of a call that has ended; before `run`."""
        self.settings = memory.settings
        self._obey_settings()
        self.call = replace(memory.call, id=self.call_id)
        self.conversation, self.unanswered = memory.conversation, memory.unanswered
        self.notes, self.open_calls, self._said = memory.notes, memory.open_calls, memory.said

    async def run(self) -> None:
        """Own the call's tasks until `close`. Whatever happens, nothing of the call is left in any stage."""
        self.speaker.on_started = self._on_started
        self.speaker.on_drained = self._on_drained
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.tell(events.SessionCreated(session=self.settings.describe(self.call_id)))
                self.show_state()
                while self._early:
                    self.receive(self._early.popleft())
                self._take_up()
                self.spawn(self.floor.hearing.run())
                self.spawn(self._tick())
                await self._closed.wait()
                self._leave_turn()
                for task in self._running - self._tools:
                    task.cancel()
                if self._tools:
                    await asyncio.wait(self._tools, timeout=TOOLS_S)
                for task in self._tools:
                    task.cancel()
        finally:
            self._closed.set()
            self.floor.hearing.drop()
            self._leave_turn()
            self.runtime.engine.forget(self.conversation_id)
            if self._receipts is not None:
                with anyio.move_on_after(2, shield=True):
                    await self._receipts

    def _take_up(self) -> None:
        """Answer what was said to the call whose place this one takes, and not answered there."""
        for utterance in self.unanswered:
            if not utterance.ready.is_set():
                self.floor.hearing.finalise(utterance)
        detection = self.settings.turn_detection
        if self.unanswered and self.turn is None and detection is not None and detection.create_response:
            self.begin(0.0)

    def _leave_turn(self) -> None:
        """The call is over: what of the live turn was heard, and no more, is remembered; so is what the caller says."""
        self.drop_guess()
        if self.turn is not None:
            heard = self.silence()
            self._receipts = self.turn.stop(heard)
            self.turn.tell_cancelled("client_cancelled", heard)
            if self.turn.leaves_no_trace:
                self.unanswered = [*self.turn.sources, *self.unanswered]
            self.turn = None
        if self.floor.hearing.current is not None:
            self.take(self.floor.hearing.current)

    def spawn(self, work: Coroutine[Any, Any, None], *, tool: bool = False) -> asyncio.Task[None] | None:
        """A task of the call's, which ends with it; a tool is given `TOOLS_S` to finish what it has begun.

        May be asked for from any callback of the event loop. None: the call is over, and the work is not begun.
        """
        if self._closed.is_set():
            work.close()
            return None
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        for tasks in (self._running, self._tools) if tool else (self._running,):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    def tell(self, event: events.ServerEventBase) -> None:
        """Send an event to the client."""
        self._send(self._stamped(event))

    def _stamped(self, event: events.ServerEventBase) -> dict[str, Any]:
        self._events += 1
        return event.model_dump(mode="json") | {"event_id": f"event_{self.call_id}_{self._events}"}

    def _refuse(self, code: str, message: str, param: str | None, event_id: str | None) -> None:
        detail = events.ErrorDetail(
            type="invalid_request_error", code=code, message=message, param=param, event_id=event_id
        )
        self.tell(events.Error(error=detail))

    # Turns that may be none.

    def begin_guess(self, utterance: Utterance) -> None:
        """Begin to answer words that may be all of the turn; nothing of it is heard, told or kept until they are."""
        self.drop_guess()
        detection = self.settings.turn_detection
        if self.turn is None and utterance.text and detection is not None and detection.create_response:
            sources = [*self.unanswered, utterance]
            self.guess = Turn(self, self.new_id("turn"), sources, ResponseOptions(), certain=False)
            self.spawn(self.guess.run())

    def drop_guess(self) -> None:
        """The turn that was guessed is none, or could not be answered: it leaves no trace."""
        guess, self.guess = self.guess, None
        if guess is not None:
            self._receipts = guess.discard()

    def take(self, utterance: Utterance) -> None:
        """The caller's words are complete: they become an item, and wait to be answered."""
        if utterance.final_at < utterance.last_voiced:
            self.floor.hearing.finalise(utterance)
        if utterance is self.floor.hearing.current:
            self.floor.hearing.current = None
            if not utterance.announced:
                self.floor.announce(utterance)
        self._patience.caller_speaks()
        self.tell(events.InputCommitted(previous_item_id=self.conversation.last_item_id, item_id=utterance.item_id))
        item = self._spoken_item(utterance, None)
        before = self.conversation.put(item)
        self.tell(events.ItemAdded(previous_item_id=before, item=item))
        self.tell(events.ItemDone(previous_item_id=before, item=item))
        self._await_answer(utterance)

    def _await_answer(self, utterance: Utterance) -> None:
        self.unanswered.append(utterance)
        while len(self.unanswered) > UNANSWERED:
            self._settle(self.unanswered.pop(0))
        utterance.committed = True
        if utterance.stream is not None and utterance.ready.is_set():
            self.tell_transcript(utterance)

    def _settle(self, utterance: Utterance) -> None:
        """Words that no reply of the agent's answers are part of the dialogue as they are."""
        if utterance.text:
            self.conversation.add_user({utterance.item_id: utterance.text})

    def tell_transcript(self, utterance: Utterance) -> None:
        if self.conversation.item(utterance.item_id) is None:
            return  # deleted meanwhile
        if utterance.failed:
            cause = events.TranscriptionError(code="asr_failed", message="these words could not be heard")
            self.tell(events.TranscriptionFailed(item_id=utterance.item_id, error=cause))
            return
        self.conversation.put(self._spoken_item(utterance, utterance.text))
        usage = events.Duration(seconds=round(utterance.seconds, 2))
        told = events.TranscriptionCompleted(item_id=utterance.item_id, transcript=utterance.text, usage=usage)
        self.tell(told)

    @staticmethod
    def _spoken_item(utterance: Utterance, text: str | None) -> MessageItem:
        content = [InputAudio(transcript=text)]
        return MessageItem(id=utterance.item_id, status="completed", role="user", content=content)

    # Turns.

    def begin(self, last_voiced_at: float) -> None:
        """Answer what is unanswered, in place of the live reply: the guess goes on if it answers just that."""
        guess = self.guess
        if guess is None or not guess.answers(self.unanswered):
            self._start(ResponseOptions(), "turn_detected", last_voiced_at)
            return
        self.guess, self.unanswered = None, []
        self.interrupt("turn_detected")
        self.speaker.flush(self._next_epoch())
        self.turn = guess
        self.floor.policy.reply_began()
        guess.confirm(last_voiced_at)

    def _start(
        self,
        options: ResponseOptions,
        reason: Literal["turn_detected", "client_cancelled"],
        last_voiced_at: float,
        *,
        say: str = "",
    ) -> Turn:
        self.drop_guess()
        self.interrupt(reason)
        sources, self.unanswered = self.unanswered, []
        self.speaker.flush(self._next_epoch())
        turn = self.turn = Turn(self, self.new_id("turn"), sources, options, say=say)
        self.floor.policy.reply_began()
        turn.confirm(last_voiced_at)
        self.spawn(turn.run())
        return turn

    def interrupt(self, reason: Literal["turn_detected", "client_cancelled"], heard_most: int | None = None) -> None:
        """Cancel the live turn, if there is one: flush first, before anything is awaited.

        `heard_most`: samples at 24 kHz that were heard of it at most.
        """
        turn = self.turn
        if turn is None:
            return
        self.last_said = (turn.saying, self.floor.hearing.now)
        heard = self.silence()
        heard = heard if heard_most is None else min(heard, heard_most)
        self.turn = None
        self.floor.policy.reply_ended()
        self.spawn(turn.report(turn.stop(heard, went_on=reason == "turn_detected"), time.perf_counter()))
        if turn.leaves_no_trace:
            self.unanswered = [*turn.sources, *self.unanswered]
        self.floor.announce_late()
        turn.tell_cancelled(reason, heard)

    def ended(self, turn: Turn) -> None:
        """The turn has said all it had to say, or had nothing to say."""
        if self.turn is turn:
            self.turn = None
            self.last_said = (turn.saying, self.floor.hearing.now)
            self.speaker.resume()
            self.floor.policy.reply_ended(heard_all=True)
            self._patience.agent_heard(self.floor.hearing.now + round(self.playout_delay_ms * SAMPLES_PER_MS))
            if self._ends:
                self.close("the caller said nothing")
            self.floor.announce_late()

    def remember_reply(self, item_id: str, spoken: Spoken, samples: int) -> None:
        """A reply of which `samples` were heard; it may turn out that fewer were."""
        self._said[item_id] = (spoken, samples)
        while len(self._said) > KEPT_REPLIES:
            self._said.popitem(last=False)

    def await_outputs(self, calls: Sequence[ToolCall]) -> None:
        """The client is to run these; calls whose outputs never came are forgotten when there are too many."""
        self.open_calls.update((call.call_id, call) for call in calls)
        while len(self.open_calls) > OPEN_CALLS:
            self.open_calls.popitem(last=False)

    def silence(self) -> int:
        """Silence the speaker and open its next epoch; gives the samples (24 kHz) that were heard before.

        That is what was sent less what the client reports to lie between sending and its ear.
        """
        sent = self.speaker.flush(self._next_epoch())
        return self.heard_of(sent)

    def heard_of(self, sent: int) -> int:
        """Of so many samples (24 kHz) that were sent of a reply that is being spoken, those that were heard by now."""
        return max(0, sent - round(self.playout_delay_ms * self.runtime.engine.sample_rate / 1000))

    def _on_started(self, epoch: int) -> None:
        if self.turn is not None and self.turn.epoch == epoch:
            self.floor.policy.reply_audible()
            self.turn.on_first_packet()

    def _on_drained(self, epoch: int, samples: int) -> None:
        if self.turn is not None and self.turn.epoch == epoch:
            self.turn.on_drained(samples)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await anyio.sleep(TICK_S)
            ticks += 1
            self.floor.tick()
            if self.turn is None:
                self._mind_silence()
            else:
                self._patience.agent_speaks()
                if self.turn.all_written and self.speaker.queued_ms <= CLOSING_MS:
                    self.floor.policy.reply_closing()
                self.turn.tick(self.heard_of(self.speaker.sent()), tell=ticks % TICKS_PER_HEARD == 0)

    # What the client asks for.

    def update(self, update: SessionConfig) -> None:
        """Merge a configuration into the session's. Raises ValueError if it cannot be served."""
        self.settings.update(update)
        if update.agent is not None and update.agent.language is not None:
            self.call.language = update.agent.language
        self._obey_settings()
        self.tell(events.SessionUpdated(session=self.settings.describe(self.call_id)))

    def _obey_settings(self) -> None:
        self.floor.policy.config = self.settings.turn
        self.floor.hearing.client_commits = self.settings.turn_detection is None
        if self.floor.hearing.client_commits:
            self.floor.hearing.drop()
            self.drop_guess()
        else:
            self.floor.hearing.take_held()

    def commit(self) -> None:
        """End the caller's turn here. Raises Refused if nothing was said."""
        utterance = self.floor.hearing.current
        if self.floor.hearing.client_commits:
            pcm = self.floor.hearing.take_held()
            if len(pcm) >= MIN_COMMIT_MS * SAMPLES_PER_MS:
                utterance = self.floor.hearing.record(
                    self.new_id("item"), pcm, self.settings.language, self.call.language
                )
        if utterance is None:
            text = f"input_audio_buffer.commit: expected at least {MIN_COMMIT_MS} ms of speech, got less"
            raise Refused("input_audio_buffer_commit_empty", text)
        utterance.last_voiced = self.floor.hearing.now
        self.take(utterance)
        detection = self.settings.turn_detection
        if detection is not None and detection.create_response:
            self.begin(0.0)

    def clear_input(self) -> None:
        """Forget what was said since the last commit."""
        self.floor.hearing.drop()
        self.floor.hearing.take_held()
        self.drop_guess()
        self.tell(events.InputCleared())

    def hear(self, item_id: str, pcm: npt.NDArray[np.int16]) -> None:
        """Words that came as a recording: int16[T] @ 16 kHz. Raises ValueError if it is too long."""
        try:
            utterance = self.floor.hearing.record(item_id, pcm, self.settings.language, self.call.language)
        except BufferError as error:
            raise ValueError(f"item.content: {error}") from None
        self.floor.hearing.finalise(utterance)
        self._await_answer(utterance)

    def read(self, item_id: str, text: str) -> None:
        """Words that were typed."""
        utterance = Utterance(item_id, text=text)
        utterance.language = "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in text) else "en"
        utterance.ready.set()
        self._await_answer(utterance)

    def write(self, item_id: str, text: str) -> None:
        """Something that the client has the agent say: it answers what was said so far."""
        for utterance in self.unanswered:
            self._settle(utterance)
        self.unanswered = [utterance for utterance in self.unanswered if not utterance.ready.is_set()]
        self.conversation.add_heard(item_id, text)

    def note(self, item_id: str, text: str) -> None:
        """A system message; beyond `NOTES` the oldest go."""
        self.notes[item_id] = text
        while len(self.notes) > NOTES:
            self.notes.popitem(last=False)

    def greet(self) -> bool:
        """Say the greeting, if nobody has spoken yet and the agent has one for the call's language."""
        text = self.runtime.agent.lines.greeting.get(self.call.language, "")
        if not text or self.conversation.messages or not self._is_still:
            return False
        self._say(text).told.created()
        return True

    @property
    def _is_still(self) -> bool:
        """Nobody speaks, and nothing waits to be answered."""
        return self.turn is None and self.floor.hearing.current is None and not self.unanswered

    def _say(self, text: str) -> Turn:
        """Say something without being asked."""
        return self._start(ResponseOptions(), "client_cancelled", 0.0, say=text)

    def ask_back(self, sources: Sequence[Utterance]) -> str:
        """What to say to somebody whose words could not be made out; empty: nothing, or nothing more."""
        if self.asked_back >= ASK_BACK or not any(source.unclear for source in sources):
            return ""
        self.asked_back += 1
        return self.runtime.agent.lines.unclear.get(self.call.language, "")

    def stays(self) -> None:
        """The caller speaks: there is no leave to take."""
        self._ends = False

    def _mind_silence(self) -> None:
        """Ask a caller who says nothing whether they are there, and end the call of one who is not."""
        line = self._patience.due(self.floor.hearing.now)
        text = getattr(self.runtime.agent.lines, line).get(self.call.language, "") if line else ""
        if text and self._is_still:
            self._ends = line == "goodbye"
            self._say(text)

    def answer(self, options: ResponseOptions) -> None:
        """Reply to what is unanswered; a live reply makes way for it. Whoever asked is told at once, and of its end."""
        self._start(options, "client_cancelled", 0.0).told.created()

    def playout_reported(self, delay_ms: float) -> None:
        """The client has measured how long after it was sent the agent's voice is heard."""
        self.playout_delay_ms = delay_ms

    def forget(self, item_id: str) -> None:
        """An item was deleted: it is neither answered nor obeyed any more."""
        self.unanswered = [utterance for utterance in self.unanswered if utterance.item_id != item_id]
        self.notes.pop(item_id, None)

    def truncate(self, item_id: str, samples: int) -> bool:
        """No more than `samples` (24 kHz) of this reply were heard. False if it is not known any more."""
        if self.turn is not None and self.turn.told.item_id == item_id:
            self.interrupt("client_cancelled", heard_most=samples)
            return True
        if item_id not in self._said:
            return False
        spoken, heard = self._said[item_id]
        heard = min(heard, samples)
        self._said[item_id] = (spoken, heard)
        text = spoken.heard_text(heard)
        self.conversation.cut(item_id, text)
        self.tell_truncated(item_id, heard, text)
        return True

    def tell_truncated(self, item_id: str, heard: int, text: str) -> None:
        """The reply's item holds what was heard: `heard` samples at 24 kHz, and their words."""
        item = self.conversation.item(item_id)
        if isinstance(item, MessageItem):
            cut = item.model_copy(update={"status": "incomplete", "content": [OutputAudio(transcript=text)]})
            self.conversation.put(cut)
        cut_ms = 1000 * heard // self.runtime.engine.sample_rate
        self.tell(events.ItemTruncated(item_id=item_id, audio_end_ms=cut_ms, agent=events.HeardText(text=text)))

    def show_state(self) -> None:
        """Send the call's state (the cart) as it is now."""
        match view_of(self.call):
            case ("cart", dict() as cart):
                self.tell(events.AgentCartUpdated(cart=cart))
            case (name, state):
                self.tell(events.AgentStateUpdated(name=name, state=state))

    # Small things.

    def new_id(self, kind: str) -> str:
        """An id that is unique in the call."""
        self._serial += 1
        return f"{kind}_{self.call_id}_{self._serial}"

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

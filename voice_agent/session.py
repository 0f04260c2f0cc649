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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import anyio
import numpy as np
import numpy.typing as npt

from voice_agent import wire
from voice_agent.agent import Call, view_of
from voice_agent.conversation import Conversation
from voice_agent.engine.protocols import Language, ToolCall
from voice_agent.engine.reply import Spoken
from voice_agent.live import Turn
from voice_agent.realtime.requests import Refused, Requests
from voice_agent.realtime.settings import Settings
from voice_agent.turn import SAMPLES_PER_MS, Action, TurnPolicy
from voice_agent.wire import server as events
from voice_agent.wire.client import ResponseOptions
from voice_agent.wire.items import InputAudio, MessageItem, OutputAudio, SessionConfig

if TYPE_CHECKING:
    from voice_agent.asr import AsrStream, Transcript
    from voice_agent.engine.stage import Receipt
    from voice_agent.media.speaker import Speaker
    from voice_agent.runtime import Runtime

log = logging.getLogger(__name__)

# Input that the VAD has not seen yet; beyond it the oldest audio is dropped and counted (the loop was blocked).
INPUT_BOUND_MS = 4000
# A source that can wait, such as a socket, is asked for more when less than this has not been seen yet.
INPUT_ROOM_MS = 1000
RECENT_MS = 3000
# Audio that a client who ends its turns by itself may have said before a commit; beyond it the oldest goes.
HELD_MS = 30_000
MIN_COMMIT_MS = 100
# Client events that came before `run`; beyond it the oldest go.
EARLY_EVENTS = 32
# Replies that can still be truncated, function calls that may still get their output, system messages, and what was
# said and not answered yet.
KEPT_REPLIES = 8
OPEN_CALLS = 64
NOTES = 64
UNANSWERED = 32
PRE_ROLL_MS = 200
# How long the tools that run when a call ends may take to come to their end.
TOOLS_S = 2.0
TICK_S = 0.05
TICKS_PER_HEARD = 4


@dataclass
class Utterance:
    """What the caller said in one go, spoken or typed, and its final transcript once there is one."""

    item_id: str
    onset: int = 0
    stream: AsrStream | None = None
    last_voiced: int = 0
    announced: bool = False
    committed: bool = False
    generation: int = 0
    final_at: int = -1
    guess: str = ""
    told: str = ""
    text: str = ""
    seconds: float = 0.0
    failed: bool = False
    language: Language | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)


@dataclass(frozen=True)
class Memory:
    """What outlives a connection: the call's state (its cart), the dialogue, what was not answered yet, and the last
    replies, of which less may have been heard than was sent."""

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
        self.epoch = 0
        # A turn reads the dialogue only when the tools of the turn before it have returned.
        self.tools_done = anyio.Lock()
        self.dropped_samples = 0
        self.playout_delay_ms = 0.0
        self.unanswered: list[Utterance] = []
        self.open_calls: OrderedDict[str, ToolCall] = OrderedDict()
        self.notes: OrderedDict[str, str] = OrderedDict()
        self._send = send
        self._said: OrderedDict[str, tuple[Spoken, int]] = OrderedDict()
        self._requests = Requests(self)
        self._policy = TurnPolicy(self.settings.turn)
        self._vad = runtime.open_vad()
        self._utterance: Utterance | None = None
        self._client_commits = False
        self._held: deque[npt.NDArray[np.int16]] = deque()
        self._held_samples = 0
        self._input: deque[npt.NDArray[np.int16]] = deque()
        self._input_samples = 0
        self._input_ready = anyio.Event()
        self._input_taken = asyncio.Event()
        self._heard_samples = 0
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=500)
        self._recent = np.zeros(0, np.int16)
        self._recent_end = 0
        self._closed = anyio.Event()
        self._early: deque[dict[str, Any]] = deque(maxlen=EARLY_EVENTS)
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._tools: set[asyncio.Task[None]] = set()
        self._receipts: asyncio.Future[list[Receipt]] | None = None
        self._serial = 0
        self._events = 0

    @property
    def conversation_id(self) -> str:
        return f"conv_{self.call_id}"

    # What the media side calls.

    def feed(self, pcm: npt.NDArray[np.int16]) -> None:
        """The caller's audio: int16 mono at 16 kHz, any length, in order."""
        self._heard_samples += len(pcm)
        self._arrivals.append((self._heard_samples, time.perf_counter()))
        self._input.append(pcm)
        self._input_samples += len(pcm)
        while self._input_samples > INPUT_BOUND_MS * SAMPLES_PER_MS:
            lost = len(self._input.popleft())
            self._input_samples -= lost
            self.dropped_samples += lost
        self._input_ready.set()
        if self._client_commits:
            self._held.append(pcm)
            self._held_samples += len(pcm)
            while self._held_samples > HELD_MS * SAMPLES_PER_MS:
                self._held_samples -= len(self._held.popleft())

    async def room(self) -> None:
        """Wait until the session wants more audio: for sources that can hold it back."""
        while self._input_samples > INPUT_ROOM_MS * SAMPLES_PER_MS:
            self._input_taken.clear()
            await self._input_taken.wait()

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
        return Memory(self.call, self.conversation, self.unanswered, self.notes, self.open_calls, self._said)

    def recall(self, memory: Memory) -> None:
        """Go on with the memory of a call that has ended; before `run`."""
        self.call = replace(memory.call, id=self.call_id)
        self.conversation = memory.conversation
        # Words that were still being recognised when the call ended will never be there.
        self.unanswered = [utterance for utterance in memory.unanswered if utterance.ready.is_set()]
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
                self.spawn(self._listen())
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
            if self._utterance is not None and self._utterance.stream is not None:
                self._utterance.stream.cancel()
            self._leave_turn()
            if self._receipts is not None:
                with anyio.move_on_after(2, shield=True):
                    await self._receipts

    def _leave_turn(self) -> None:
        """The call is over: what of the live turn was heard, and no more, is remembered."""
        if self.turn is not None:
            self._receipts = self.turn.stop(self.speaker.flush(self._next_epoch()))
            if self.turn.leaves_no_trace:
                self.unanswered = [*self.turn.sources, *self.unanswered]
            self.turn = None

    def spawn(self, work: Coroutine[Any, Any, None], *, tool: bool = False) -> None:
        """A task of the call's, which ends with it; a tool is given `TOOLS_S` to finish what it has begun.

        May be asked for from any callback of the event loop.
        """
        if self._closed.is_set():
            work.close()
            return
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        for tasks in (self._running, self._tools) if tool else (self._running,):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

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

    # Listening.

    async def _listen(self) -> None:
        while True:
            await self._input_ready.wait()
            self._input_ready = anyio.Event()
            pcm = np.concatenate(self._input) if self._input else np.zeros(0, np.int16)
            self._input.clear()
            self._input_samples = 0
            self._input_taken.set()
            if not len(pcm):
                continue
            heard = await self.runtime.run_vad(self._vad, pcm)
            self._remember(pcm)
            self._recognise(pcm)
            for event in heard:
                for action in self._policy.on(event):
                    self._act(action)

    def _recognise(self, pcm: npt.NDArray[np.int16]) -> None:
        utterance = self._utterance
        if utterance is None or utterance.stream is None:
            return
        try:
            utterance.stream.push(pcm)
        except BufferError as error:
            log.error("call %s: the recogniser does not keep up: %s", self.call_id, error)
            self._drop_utterance()
            self.tell(events.AgentStageFailed(stage="asr", message="these words could not be heard"))

    def _remember(self, pcm: npt.NDArray[np.int16]) -> None:
        self._recent = np.concatenate([self._recent, pcm])[-RECENT_MS * SAMPLES_PER_MS :]
        self._recent_end += len(pcm)

    def _since(self, at: int) -> npt.NDArray[np.int16]:
        return self._recent[max(0, len(self._recent) - (self._recent_end - at)) :]

    def _act(self, action: Action) -> None:
        detection = self.settings.turn_detection
        if detection is None:
            return
        if action.kind == "speech_started":
            self._open_utterance(action.at)
        elif action.kind == "interrupt":
            if detection.interrupt_response:
                self.interrupt("turn_detected")
        elif self._utterance is None:
            return
        elif action.kind == "speculate":
            self._finalise(self._utterance)
        elif action.kind == "speech_stopped":
            self._utterance.last_voiced = action.at
            if self._utterance.announced:
                told_ms = action.at // SAMPLES_PER_MS
                self.tell(events.SpeechStopped(audio_end_ms=told_ms, item_id=self._utterance.item_id))
        elif action.kind == "commit":
            self._commit(self._utterance)
            answered = detection.create_response and (self.turn is None or detection.interrupt_response)
            if answered:
                self._begin("turn_detected", self._arrival_of(action.at))
        else:
            self._drop_utterance()

    def _open_utterance(self, onset: int) -> None:
        utterance = self._utterance = self._recognised(self.new_id("item"))
        utterance.onset = onset
        assert utterance.stream is not None
        utterance.stream.push(self._since(onset - PRE_ROLL_MS * SAMPLES_PER_MS))
        utterance.stream.on_partial = lambda transcript: self._on_partial(utterance, transcript)
        if self.turn is None:
            self._announce(utterance)

    def _recognised(self, item_id: str) -> Utterance:
        """A new utterance with an open stream."""
        stream = self.runtime.asr.open(self.settings.language, self.runtime.prompt, likely=self.call.language)
        return Utterance(item_id, stream=stream)

    def _drop_utterance(self) -> None:
        if self._utterance is not None and self._utterance.stream is not None:
            self._utterance.stream.cancel()
        self._utterance = None

    def _announce(self, utterance: Utterance) -> None:
        """Clients stop playback at this event, so over a reply it waits until that is cancelled."""
        utterance.announced = True
        told_ms = max(0, utterance.onset) // SAMPLES_PER_MS
        self.tell(events.SpeechStarted(audio_start_ms=told_ms, item_id=utterance.item_id))

    def _on_partial(self, utterance: Utterance, transcript: Transcript) -> None:
        """Tell the hypothesis, and as `delta` the new words that it shares with the one before.

        That is LocalAgreement of Liu et al., 2020 (https://arxiv.org/abs/2005.11185).
        """
        if utterance is not self._utterance or not utterance.announced or not transcript.text:
            return
        agreed = _common_prefix(utterance.guess, transcript.text)
        utterance.guess = transcript.text
        delta = agreed[len(utterance.told) :] if agreed.startswith(utterance.told) else ""
        utterance.told += delta
        told = events.TranscriptionDelta(item_id=utterance.item_id, delta=delta, transcript=transcript.text)
        self.tell(told)

    def _finalise(self, utterance: Utterance) -> None:
        """Begin the final transcript of what was said so far; a later one supersedes it."""
        utterance.generation += 1
        utterance.final_at = self._recent_end
        utterance.ready = anyio.Event()
        self.spawn(self._transcribe(utterance, utterance.generation))

    async def _transcribe(self, utterance: Utterance, generation: int) -> None:
        assert utterance.stream is not None
        try:
            transcript = await utterance.stream.final()
        except Exception:
            log.exception("call %s: recognition failed", self.call_id)
            if generation == utterance.generation:
                utterance.failed = True
                self._heard(utterance)
            return
        if generation == utterance.generation:
            utterance.text, utterance.language = transcript.text, transcript.language
            utterance.seconds = transcript.seconds
            self._heard(utterance)

    def _heard(self, utterance: Utterance) -> None:
        utterance.ready.set()
        if utterance.committed:
            self._tell_transcript(utterance)

    def _commit(self, utterance: Utterance) -> None:
        """The caller's words are complete: they become an item, and wait to be answered."""
        if utterance.final_at < utterance.last_voiced:
            self._finalise(utterance)
        if utterance is self._utterance:
            self._utterance = None
            if not utterance.announced:
                self._announce(utterance)
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
            self._tell_transcript(utterance)

    def _settle(self, utterance: Utterance) -> None:
        """Words that no reply of the agent's answers are part of the dialogue as they are."""
        if utterance.text:
            self.conversation.add_user({utterance.item_id: utterance.text})

    def _tell_transcript(self, utterance: Utterance) -> None:
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

    def _arrival_of(self, sample: int) -> float:
        """When this sample of the caller's audio arrived (`time.perf_counter()`)."""
        return next((at for end, at in self._arrivals if end >= sample), time.perf_counter())

    # Turns.

    def _begin(self, reason: Literal["turn_detected", "client_cancelled"], last_voiced_at: float = 0.0) -> None:
        """Answer what is unanswered, in place of the live reply."""
        self._start(ResponseOptions(), reason, last_voiced_at)

    def _start(
        self, options: ResponseOptions, reason: Literal["turn_detected", "client_cancelled"], last_voiced_at: float
    ) -> Turn:
        self.interrupt(reason)
        sources, self.unanswered = self.unanswered, []
        self.speaker.flush(self._next_epoch())
        turn = self.turn = Turn(self, self.new_id("turn"), self.epoch, sources, last_voiced_at, options)
        self._policy.reply_began()
        self.spawn(turn.run())
        return turn

    def interrupt(self, reason: Literal["turn_detected", "client_cancelled"], heard_most: int | None = None) -> None:
        """Cancel the live turn, if there is one: flush first, before anything is awaited.

        `heard_most`: samples at 24 kHz that were heard of it at most.
        """
        turn = self.turn
        if turn is None:
            return
        heard = self.speaker.flush(self._next_epoch())
        heard = heard if heard_most is None else min(heard, heard_most)
        self.turn = None
        self._policy.reply_ended()
        self.spawn(turn.report(turn.stop(heard), time.perf_counter()))
        if turn.leaves_no_trace:
            self.unanswered = [*turn.sources, *self.unanswered]
        if self._utterance is not None and not self._utterance.announced:
            self._announce(self._utterance)
        turn.tell_cancelled(reason, heard)

    def ended(self, turn: Turn) -> None:
        """The turn has said all it had to say, or had nothing to say."""
        if self.turn is turn:
            self.turn = None
            self._policy.reply_ended()
            if self._utterance is not None and not self._utterance.announced:
                self._announce(self._utterance)

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

    def renew_epoch(self) -> int:
        """Silence the speaker within the turn; gives the samples that were sent before."""
        return self.speaker.flush(self._next_epoch())

    def _on_started(self, epoch: int) -> None:
        if self.turn is not None and self.turn.epoch == epoch:
            self.turn.on_first_packet()

    def _on_drained(self, epoch: int, samples: int) -> None:
        if self.turn is not None and self.turn.epoch == epoch:
            self.turn.on_drained(samples)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await anyio.sleep(TICK_S)
            ticks += 1
            if self.turn is not None:
                self.turn.tick(self.speaker.sent(), tell=ticks % TICKS_PER_HEARD == 0)

    # What the client asks for.

    def update(self, update: SessionConfig) -> None:
        """Merge a configuration into the session's. Raises ValueError if it cannot be served."""
        self.settings.update(update)
        self._policy.config = self.settings.turn
        self._client_commits = self.settings.turn_detection is None
        if self._client_commits:
            self._drop_utterance()
        else:
            self._take_held()
        self.tell(events.SessionUpdated(session=self.settings.describe(self.call_id)))

    def commit(self) -> None:
        """End the caller's turn here. Raises Refused if nothing was said."""
        utterance = self._utterance
        if self._client_commits:
            pcm = self._take_held()
            if len(pcm) >= MIN_COMMIT_MS * SAMPLES_PER_MS:
                utterance = self._recognised(self.new_id("item"))
                assert utterance.stream is not None
                utterance.stream.push(pcm)
        if utterance is None:
            text = f"input_audio_buffer.commit: expected at least {MIN_COMMIT_MS} ms of speech, got less"
            raise Refused("input_audio_buffer_commit_empty", text)
        utterance.last_voiced = self._recent_end
        self._commit(utterance)
        detection = self.settings.turn_detection
        if detection is not None and detection.create_response:
            self._begin("turn_detected")

    def clear_input(self) -> None:
        """Forget what was said since the last commit."""
        self._drop_utterance()
        self._take_held()
        self.tell(events.InputCleared())

    def _take_held(self) -> npt.NDArray[np.int16]:
        pcm = np.concatenate(self._held) if self._held else np.zeros(0, np.int16)
        self._held.clear()
        self._held_samples = 0
        return pcm

    def hear(self, item_id: str, pcm: npt.NDArray[np.int16]) -> None:
        """Words that came as a recording: int16[T] @ 16 kHz. Raises ValueError if it is too long."""
        utterance = self._recognised(item_id)
        assert utterance.stream is not None
        try:
            utterance.stream.push(pcm)
        except BufferError as error:
            raise ValueError(f"item.content: {error}") from None
        self._finalise(utterance)
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
        shown = view_of(self.call)
        if shown is not None:
            name, value = shown
            self.tell(events.AgentStateUpdated(type=f"agent.{name}.updated", **{name: value}))

    # Small things.

    def new_id(self, kind: str) -> str:
        """An id that is unique in the call."""
        self._serial += 1
        return f"{kind}_{self.call_id}_{self._serial}"

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch


def _common_prefix(one: str, other: str) -> str:
    """What both begin with; of alphabetic words only whole ones."""
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    whole = length == len(one) == len(other)
    while not whole and 0 < length < len(other) and other[length - 1].isascii() and other[length].isascii():
        if other[length - 1].isspace() or other[length].isspace():
            break
        length -= 1
    return other[:length]

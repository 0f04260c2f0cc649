"""A call: it listens all the time, answers one turn at a time, and stops at once when it is cut in on.

feed ─→ VAD ─→ turn policy ─→ commit ─→ Turn (thinker → talker → codec → speaker)
    └─→ ASR ─ words ────────────┘           ↑ interrupt
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import numpy.typing as npt

from voice_agent import wire
from voice_agent.agent import Call, view_of
from voice_agent.conversation import Conversation
from voice_agent.engine.protocols import Language
from voice_agent.live import Turn
from voice_agent.turn import SAMPLES_PER_MS, Action, TurnPolicy

if TYPE_CHECKING:
    from voice_agent.asr import AsrStream, Transcript
    from voice_agent.media.speaker import Speaker
    from voice_agent.runtime import Runtime

log = logging.getLogger(__name__)

# Input that the VAD has not seen yet; beyond it the oldest audio is dropped and counted (the loop was blocked).
INPUT_BOUND_MS = 4000
RECENT_MS = 3000
# Client events that came before `run`; beyond it the oldest go.
EARLY_EVENTS = 32
PRE_ROLL_MS = 200
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
    generation: int = 0
    text: str = ""
    language: Language | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)


class Session:
    """One call. `feed`, `receive` and `close` are for the media side, on the event loop, and never block."""

    def __init__(
        self, call_id: str, runtime: Runtime, speaker: Speaker, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self.call_id, self.runtime, self.speaker = call_id, runtime, speaker
        self.send = send
        self.language: Language | None = runtime.config.language
        self.call: Call[Any] = runtime.agent.open_call(call_id, self.language or "zh")
        self.conversation = Conversation()
        self.turn: Turn | None = None
        self.epoch = 0
        # A turn reads the dialogue only when the tools of the turn before it have returned.
        self.tools_done = anyio.Lock()
        self.dropped_samples = 0
        self._policy = TurnPolicy(runtime.config.turn)
        self._vad = runtime.open_vad()
        self._utterance: Utterance | None = None
        self._carried: list[Utterance] = []
        self._input: deque[npt.NDArray[np.int16]] = deque()
        self._input_samples = 0
        self._input_ready = anyio.Event()
        self._heard_samples = 0
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=500)
        self._recent = np.zeros(0, np.int16)
        self._recent_end = 0
        self._closed = anyio.Event()
        self._early: deque[dict[str, Any]] = deque(maxlen=EARLY_EVENTS)
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._serial = 0

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

    def receive(self, event: dict[str, Any]) -> None:
        """A client event. A bad one is answered by an `error` event."""
        if self._tasks is None:
            self._early.append(event)
            return
        event_id = event.get("event_id") if isinstance(event.get("event_id"), str) else None
        try:
            parsed = wire.parse(event)
        except ValueError as error:
            self.send(wire.error_event(str(error), code="invalid_event", event_id=event_id))
            return
        try:
            self._on_event(parsed)
        except ValueError as error:
            self.send(wire.error_event(str(error), code="invalid_value", event_id=event_id))

    def close(self, reason: str) -> None:
        """End the call; `run` returns soon after."""
        if not self._closed.is_set():
            log.info("call %s ends: %s", self.call_id, reason)
            self._closed.set()

    async def run(self) -> None:
        """Own the call's tasks until `close`. Whatever happens, nothing of the call is left in any stage."""
        self.speaker.on_started = self._on_started
        self.speaker.on_drained = self._on_drained
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.send({"type": "session.created", "session": self._describe()})
                self._show_state()
                while self._early:
                    self.receive(self._early.popleft())
                self.spawn(self._listen())
                self.spawn(self._tick())
                await self._closed.wait()
                for task in self._running:
                    task.cancel()
        finally:
            self._closed.set()
            if self._utterance is not None and self._utterance.stream is not None:
                self._utterance.stream.cancel()
            if self.turn is not None:
                receipts = self.turn.stop(self.speaker.flush(self._next_epoch()))
                self.turn = None
                with anyio.move_on_after(2, shield=True):
                    await receipts

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the call's, which ends with it. May be asked for from any callback of the event loop."""
        if self._closed.is_set():
            work.close()
            return
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # Listening.

    async def _listen(self) -> None:
        while True:
            await self._input_ready.wait()
            self._input_ready = anyio.Event()
            pcm = np.concatenate(self._input) if self._input else np.zeros(0, np.int16)
            self._input.clear()
            self._input_samples = 0
            if not len(pcm):
                continue
            events = await self.runtime.run_vad(self._vad, pcm)
            self._remember(pcm)
            self._recognise(pcm)
            for event in events:
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
            utterance.stream.cancel()
            self._utterance = None
            self.send({"type": "agent.stage.failed", "stage": "asr", "message": "these words could not be heard"})

    def _remember(self, pcm: npt.NDArray[np.int16]) -> None:
        self._recent = np.concatenate([self._recent, pcm])[-RECENT_MS * SAMPLES_PER_MS :]
        self._recent_end += len(pcm)

    def _since(self, at: int) -> npt.NDArray[np.int16]:
        return self._recent[max(0, len(self._recent) - (self._recent_end - at)) :]

    def _act(self, action: Action) -> None:
        if action.kind == "speech_started":
            self._open_utterance(action.at)
        elif action.kind == "interrupt":
            self.interrupt("turn_detected")
        elif self._utterance is None:
            return
        elif action.kind == "speculate":
            self._finalise(self._utterance)
        elif action.kind == "speech_stopped":
            self._utterance.last_voiced = action.at
            if self._utterance.announced:
                told = {"audio_end_ms": action.at // SAMPLES_PER_MS, "item_id": self._utterance.item_id}
                self.send({"type": "input_audio_buffer.speech_stopped", **told})
        elif action.kind == "commit":
            self._commit(self._utterance)
        else:
            if self._utterance.stream is not None:
                self._utterance.stream.cancel()
            self._utterance = None

    def _open_utterance(self, onset: int) -> None:
        utterance = Utterance(self._new_id("item"), onset)
        stream = self.runtime.asr.open(self.language, self.runtime.prompt, likely=self.call.language)
        stream.on_partial = lambda transcript: self._on_partial(utterance, transcript)
        stream.push(self._since(onset - PRE_ROLL_MS * SAMPLES_PER_MS))
        utterance.stream, self._utterance = stream, utterance
        if self.turn is None:
            self._announce(utterance)

    def _announce(self, utterance: Utterance) -> None:
        """Clients stop playback at this event, so over a reply it waits until that is cancelled."""
        utterance.announced = True
        told = {"audio_start_ms": max(0, utterance.onset) // SAMPLES_PER_MS, "item_id": utterance.item_id}
        self.send({"type": "input_audio_buffer.speech_started", **told})

    def _on_partial(self, utterance: Utterance, transcript: Transcript) -> None:
        if utterance is self._utterance and utterance.announced and transcript.text:
            kind = "conversation.item.input_audio_transcription.delta"
            self.send(
                {"type": kind, "item_id": utterance.item_id, "delta": transcript.text, "transcript": transcript.text}
            )

    def _finalise(self, utterance: Utterance) -> None:
        """Begin the final transcript of what was said so far; a later one supersedes it."""
        utterance.generation += 1
        utterance.ready = anyio.Event()
        self.spawn(self._transcribe(utterance, utterance.generation))

    async def _transcribe(self, utterance: Utterance, generation: int) -> None:
        assert utterance.stream is not None
        transcript = await utterance.stream.final()
        if generation == utterance.generation:
            utterance.text, utterance.language = transcript.text, transcript.language
            utterance.ready.set()

    def _commit(self, utterance: Utterance) -> None:
        if utterance.generation == 0:
            self._finalise(utterance)
        self._utterance = None
        if not utterance.announced:
            self._announce(utterance)
        self.send({"type": "input_audio_buffer.committed", "item_id": utterance.item_id})
        self._begin([utterance], last_voiced_at=self._arrival_of(utterance.last_voiced))

    def _arrival_of(self, sample: int) -> float:
        """When this sample of the caller's audio arrived (`time.perf_counter()`)."""
        return next((at for end, at in self._arrivals if end >= sample), time.perf_counter())

    # Turns.

    def _begin(self, spoken: list[Utterance], last_voiced_at: float = 0.0) -> None:
        """Answer these words, after those that an earlier turn left unanswered."""
        self.interrupt("turn_detected")
        sources, self._carried = [*self._carried, *spoken], []
        self.speaker.flush(self._next_epoch())
        self.turn = Turn(self, self._new_id("turn"), self.epoch, sources, last_voiced_at)
        self._policy.reply_began()
        self.spawn(self.turn.run())

    def interrupt(self, reason: str) -> None:
        """Cancel the live turn, if there is one: flush first, before anything is awaited."""
        turn = self.turn
        if turn is None:
            return
        heard = self.speaker.flush(self._next_epoch())
        self.turn = None
        self._policy.reply_ended()
        self.spawn(turn.report(turn.stop(heard), time.perf_counter()))
        if turn.leaves_no_trace:
            self._carried = turn.sources
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

    # The client's events.

    def _on_event(self, event: wire.ClientEvent) -> None:
        if isinstance(event, wire.client.SessionUpdate):
            self._update(event.session.model_dump(exclude_unset=True))
        elif isinstance(event, wire.client.ItemCreate):
            self._add_text(event.item.model_dump())
        elif isinstance(event, wire.client.ItemRetrieve):
            item = self.conversation.item(event.item_id)
            if item is None:
                raise ValueError(f"item_id: expected an item of this call, got {event.item_id!r}")
            self.send({"type": "conversation.item.retrieved", "item": item})
        elif isinstance(event, wire.client.ResponseCreate):
            if not self._carried:
                raise ValueError("response.create: expected a user message that has no reply yet, got none")
            self._begin([])
        elif isinstance(event, wire.client.InputClear):
            if self._utterance is not None and self._utterance.stream is not None:
                self._utterance.stream.cancel()
            self._utterance = None
            self.send({"type": "input_audio_buffer.cleared"})
        else:
            self.interrupt("client_cancelled")

    def _update(self, update: dict[str, Any]) -> None:
        transcription = ((update.get("audio") or {}).get("input") or {}).get("transcription") or {}
        language = transcription.get("language")
        if language is not None:
            if language not in ("zh", "en"):
                raise ValueError(f"audio.input.transcription.language: expected 'zh' or 'en', got {language!r}")
            self.language = language
        self.send({"type": "session.updated", "session": self._describe()})

    def _add_text(self, item: dict[str, Any]) -> None:
        parts = [part for part in item.get("content") or [] if part["type"] == "input_text"]
        text = " ".join(part["text"] for part in parts).strip()
        if not text:
            raise ValueError("item.content: expected input_text with text, got none")
        self.interrupt("client_cancelled")
        utterance = Utterance(item.get("id") or self._new_id("item"), announced=True, text=text)
        utterance.language = "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in text) else "en"
        utterance.ready.set()
        self._carried.append(utterance)
        shown = self.conversation.put_item(utterance.item_id, "user", text, kind="input_text")
        self.send({"type": "conversation.item.added", "item": shown})
        self.send({"type": "conversation.item.done", "item": shown})

    # Small things.

    def show_state(self) -> None:
        """Send the call's state (the cart) as it is now."""
        self._show_state()

    def _show_state(self) -> None:
        shown = view_of(self.call)
        if shown is not None:
            name, value = shown
            self.send({"type": f"agent.{name}.updated", name: value})

    def _describe(self) -> dict[str, Any]:
        return {
            "id": self.call_id,
            "object": "realtime.session",
            "type": "realtime",
            "model": self.runtime.agent.model,
            "output_modalities": ["audio"],
            "instructions": self.runtime.agent.instructions,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": {"model": "whisper-base", "language": self.language},
                    "turn_detection": {
                        "type": "server_vad",
                        "silence_duration_ms": self.runtime.config.turn.endpoint_ms,
                    },
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}},
            },
        }

    def _new_id(self, kind: str) -> str:
        self._serial += 1
        return f"{kind}_{self.call_id}_{self._serial}"

    def new_id(self, kind: str) -> str:
        """An id that is unique in the call."""
        return self._new_id(kind)

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

"""A reply in the making: one request through thinker, talker and codec, and one way to cancel it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from voice_agent.engine.protocols import CodecFrame, KnowsTools, OmniModel, ThinkRequest, Thought, ToolCall
from voice_agent.engine.stage import Receipt, receipts_of
from voice_agent.engine.stages import Pcm, Stages

QUIET_DBFS = -61.0
"""A reply begins where a sample first passes this."""
MOST_LEAD_MS = 80
"""Silence before a reply that is left out: nobody is kept waiting for it."""


class ReplyListener(Protocol):
    """Called on the event loop, in order; never after `Reply.abort` has been called."""

    def on_text(self, text: str) -> None: ...

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        """The tools to run; `Reply.resume` gives their results."""

    def on_pcm(self, pcm: Pcm, last: bool) -> None: ...

    def on_text_done(self) -> None: ...

    def on_failed(self, stage: str, error: BaseException) -> None: ...


@dataclass
class Marks:
    """`time.perf_counter()` at each step of a reply; 0: not reached."""

    submitted: float = 0.0
    first_token: float = 0.0
    first_frame: float = 0.0
    first_chunk: float = 0.0


@dataclass(frozen=True)
class Spoken:
    """The text of a reply by tokens, and the token that each codec frame speaks.

    Samples are counted from the first one that is played, which is `lead` samples after the first that was made.
    """

    pieces: tuple[str, ...]
    positions: tuple[int, ...]
    samples_per_frame: int
    lead: int = 0

    def heard_tokens(self, samples: int) -> int:
        """How many tokens were spoken to their end within these samples (codec frame → talker position → token)."""
        frames = min((samples + self.lead) // self.samples_per_frame if samples else 0, len(self.positions))
        if frames == 0:
            return 0
        now = self.positions[frames - 1]
        over = frames == len(self.positions) or self.positions[frames] > now
        return now + 1 if over else now

    def heard_text(self, samples: int) -> str:
        """The part of the reply's text that these samples spoke."""
        return "".join(self.pieces[: self.heard_tokens(samples)])


@dataclass
class Reply:
    """The loop's side of a request. Made by `Engine.reply`."""

    rid: int
    engine: Engine
    listener: ReplyListener
    loop: asyncio.AbstractEventLoop
    speak: bool
    marks: Marks = field(default_factory=Marks)
    pieces: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    aborted: bool = False
    lead: int = 0
    _sounds: bool = False

    @property
    def text(self) -> str:
        """The reply's text so far."""
        return "".join(self.pieces)

    def resume(self, results: Sequence[tuple[ToolCall, Any]]) -> None:
        """Give the results of the calls; the thinker goes on."""
        self.engine.thinker.resume(self.rid, results)

    def played(self, samples: int) -> None:
        """Tell talker and codec how much was heard, in samples of the codec's rate."""
        if self.speak:
            frames = self._frames(samples)
            self.engine.talker.played(self.rid, frames)
            self.engine.codec.played(self.rid, frames)

    def hold(self, held: bool) -> None:
        """Whether the talker is to rest while it is unclear if the reply is still wanted."""
        if self.speak:
            self.engine.talker.hold(self.rid, held)

    @property
    def spoken(self) -> Spoken:
        """What was spoken so far, to be kept when the reply is over."""
        return Spoken(tuple(self.pieces), tuple(self.positions), self.engine.samples_per_frame, self.lead)

    def abort(self, heard_samples: int = 0) -> asyncio.Future[list[Receipt]]:
        """Abort in all stages at once; the future gives their receipts. The listener hears nothing more."""
        self.aborted = True
        frames = self._frames(heard_samples)
        return self.engine.abort(
            self.rid, tokens=self.spoken.heard_tokens(heard_samples), frames=frames, speak=self.speak
        )

    def _frames(self, samples: int) -> int:
        """Codec frames that so many samples, as they are played, have spoken."""
        return (samples + self.lead) // self.engine.samples_per_frame if samples else 0

    # The worker threads' side.

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        def deliver() -> None:
            if not self.aborted:
                callback(*arguments)

        try:
            self.loop.call_soon_threadsafe(deliver)
        except RuntimeError:  # the loop closed first: nobody listens any more
            self.aborted = True

    def _on_thought(self, thought: Thought) -> None:
        if thought.token is not None:
            self.marks.first_token = self.marks.first_token or time.perf_counter()
            self.pieces.append(thought.token.text)
            if self.speak:
                self.engine.talker.push(self.rid, thought.token)
            self._tell(self.listener.on_text, thought.token.text)
        if thought.calls:
            self._tell(self.listener.on_calls, thought.calls)
        if thought.done:
            if self.speak:
                self.engine.talker.finish(self.rid)
            self._tell(self.listener.on_text_done)

    def _on_frame(self, frame: CodecFrame | None) -> None:
        if frame is None:
            self.engine.codec.finish(self.rid)
            return
        self.marks.first_frame = self.marks.first_frame or time.perf_counter()
        self.positions.append(frame.position)
        self.engine.codec.push(self.rid, frame.codes)

    def _on_pcm(self, pcm: Pcm, last: bool) -> None:
        if len(pcm):
            self.marks.first_chunk = self.marks.first_chunk or time.perf_counter()
        self._tell(self.listener.on_pcm, self._from_first_sound(np.asarray(pcm, dtype=np.float32)), last)

    def _from_first_sound(self, pcm: Pcm) -> Pcm:
        """The samples without the silence before the reply's first sound; `lead` counts those that were left out."""
        if self._sounds:
            return pcm
        loud = np.flatnonzero(np.abs(pcm) > 10 ** (self.engine.quiet_dbfs / 20))
        most = MOST_LEAD_MS * self.engine.sample_rate // 1000 - self.lead
        silent = min(int(loud[0]) if len(loud) else len(pcm), most)
        self._sounds = bool(len(loud)) or silent == most
        self.lead += silent
        return pcm[silent:]

    def _on_failed(self, stage: str, error: BaseException) -> None:
        self._tell(self.listener.on_failed, stage, error)


class Engine:
    """The stages of one model, shared by all calls."""

    def __init__(
        self,
        model: KnowsTools,
        *,
        ahead_ms: float = 1500.0,
        quiet_dbfs: float = QUIET_DBFS,
        stages: Stages | None = None,
    ) -> None:
        """`stages`: ready-made ones, wherever they run; without them, a thread here for each part of `model`.

        `quiet_dbfs`: what of a reply's beginning stays below it is not played, up to `MOST_LEAD_MS`.

        Raises TypeError for neither stages nor a model with its parts.
        """
        if stages is None:
            if not isinstance(model, OmniModel):
                raise TypeError(f"expected stages or a model with its parts, got {type(model).__name__}")
            stages = Stages.of(model, ahead_ms=ahead_ms)
        self.model, self.quiet_dbfs = model, quiet_dbfs
        self.thinker, self.talker, self.codec = stages
        self.sample_rate = self.codec.model.sample_rate
        self.samples_per_frame = self.codec.model.samples_per_frame

    def reply(
        self,
        request: ThinkRequest,
        listener: ReplyListener,
        *,
        speak: bool = True,
        voice: str = "",
        speed: float = 1.0,
    ) -> Reply:
        """Start a reply. `speak=False`: text and tool calls alone. Call it on the event loop."""
        reply = Reply(next(self.thinker.ids), self, listener, asyncio.get_running_loop(), speak)
        reply.marks.submitted = time.perf_counter()
        if speak:
            self.codec.submit(reply.rid, reply._on_pcm, reply._on_failed)
            self.talker.submit(reply.rid, request.language, reply._on_frame, reply._on_failed, voice, speed)
        self.thinker.submit(reply.rid, replace(request, speak=speak), reply._on_thought, reply._on_failed)
        return reply

    def abort(self, rid: int, *, tokens: int, frames: int, speak: bool) -> asyncio.Future[list[Receipt]]:
        futures = [self.thinker.abort(rid, tokens)]
        if speak:
            futures += [self.talker.abort(rid, frames), self.codec.abort(rid, frames)]
        gathered: asyncio.Future[list[Receipt]] = receipts_of(futures)
        return gathered

    def forget(self, conversation: str) -> None:
        """The call of this name (`ThinkRequest.conversation`) is over: the thinker drops what it holds of it.

        Abort its replies before. Never blocks; of a thinker that is just being restarted nothing is left to drop.
        """
        self.thinker.forget(conversation)

    def view(self) -> dict[str, dict[str, Any]]:
        """The stages' figures by name."""
        return {stage.name: stage.view() for stage in (self.thinker, self.talker, self.codec)}

    def close(self) -> None:
        for stage in (self.thinker, self.talker, self.codec):
            stage.close()

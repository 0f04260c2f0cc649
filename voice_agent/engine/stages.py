"""The three stages of the engine: what each one's batch policy is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from voice_agent.engine.protocols import (
    Codec,
    CodecFrame,
    JudgesTurnEnd,
    KeepsDialogues,
    Language,
    OmniModel,
    Prefilling,
    Talker,
    TextToken,
    Thinker,
    ThinkRequest,
    Thought,
    ToolCall,
)
from voice_agent.engine.schedule import (
    Claim,
    Deadline,
    Undecoded,
    pick_chunk,
    speech_due,
    thought_due,
)
from voice_agent.engine.stage import Row, Stage

Pcm = npt.NDArray[np.float32]
T = TypeVar("T")


@dataclass
class ThinkRow(Row):
    request: ThinkRequest | None = None
    on_thought: Callable[[Thought], None] = lambda thought: None
    resting: bool = False
    speak: bool = True
    tokens: int = 0
    first_s: float | None = None
    served_s: float = 0.0


class ThinkerStage(Stage[ThinkRow]):
    """Replies that speak go first until their text is ahead of their voice; those that are only read fill the gaps.

    At most half of the slots are given to the latter, so that a caller never waits for a slot behind them.
    """

    def __init__(self, model: Thinker) -> None:
        self.model = model
        self._asked: set[Future[Any]] = set()
        super().__init__("thinker", model.slots, Deadline())

    def submit(
        self,
        rid: int,
        request: ThinkRequest,
        on_thought: Callable[[Thought], None],
        fail: Callable[[str, BaseException], None],
    ) -> None:
        self._admit(ThinkRow(rid, fail, request=request, on_thought=on_thought, speak=request.speak))

    def resume(self, rid: int, results: Sequence[tuple[ToolCall, Any]]) -> None:
        def command(row: ThinkRow) -> None:
            if row.slot is not None and row.resting:
                self.model.resume(row.slot, results)
                row.resting, row.reads, row.served_s = False, True, time.perf_counter()

        self._on(rid, command)

    @property
    def judges(self) -> bool:
        """Whether the model can say if a turn is complete."""
        return isinstance(self.model, JudgesTurnEnd)

    def turn_end(self, request: ThinkRequest) -> Future[float]:
        """Whether the last message is a complete turn (`JudgesTurnEnd`), found between two steps.

        The future is cancelled when the stage closes first. Raises TypeError for a model that does not judge it.
        """
        model = self.model
        if not isinstance(model, JudgesTurnEnd):
            raise TypeError(f"expected a thinker with turn_end, got {type(model).__name__}")
        return self._between_steps(lambda: model.turn_end(request))

    def forget(self, conversation: str) -> Future[None]:
        """A dialogue is over: a model that `KeepsDialogues` drops it between two steps; others hold nothing of it.

        Of turns on their way, those whose `abort` was asked for before are over by then. The future is cancelled when
        the stage closes first.
        """

        def drop() -> None:
            if isinstance(self.model, KeepsDialogues):
                self.model.forget(conversation)

        return self._between_steps(drop)

    def view(self) -> dict[str, Any]:
        """As `Stage.view`; with `dialogues`, if the model `KeepsDialogues`."""
        kept = {"dialogues": self.model.dialogues} if isinstance(self.model, KeepsDialogues) else {}
        return {**super().view(), **kept}

    def close(self) -> None:
        super().close()
        for future in list(self._asked):
            future.cancel()

    def _between_steps(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)

        def command() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)

        self._post(command)
        if self._closing:
            future.cancel()
        return future

    def _start(self, row: ThinkRow, slot: int) -> None:
        assert row.request is not None
        self.model.start(slot, row.request)
        row.reads, row.served_s = True, time.perf_counter()

    def _next(self) -> ThinkRow | None:
        speaking = next((row for row in self._waiting if row.speak), None)
        if speaking is not None or not self._waiting:
            return speaking
        read = sum(not row.speak for row in self._rows.values())
        return self._waiting[0] if read < -(-self.slots // 2) else None

    def _pick(self, rows: Sequence[ThinkRow], now_s: float) -> list[ThinkRow]:
        able = [row for row in rows if not row.resting]
        claims = [
            Claim(thought_due(row.asked_s, row.speak, row.first_s, row.tokens, row.served_s), light=not row.reads)
            for row in able
        ]
        return [able[i] for i in self.policy.pick(claims, now_s)]

    def _step(self, rows: Sequence[ThinkRow]) -> int:
        thoughts = self.model.step([row.slot for row in rows if row.slot is not None])
        now_s = time.perf_counter()
        for row, thought in zip(rows, thoughts, strict=True):
            row.made += 1
            row.reads, row.served_s = False, now_s
            if thought.token is not None:
                row.tokens += 1
                row.first_s = now_s if row.first_s is None else row.first_s
            row.resting = bool(thought.calls)
            if thought.done:
                self._release(row)
            if thought.token is not None or thought.calls or thought.done:
                row.on_thought(thought)
        return len(rows)

    def _free(self, slot: int) -> None:
        self.model.free(slot)


@dataclass
class TalkRow(Row):
    language: Language = "zh"
    voice: str = ""
    speed: float = 1.0
    on_frame: Callable[[CodecFrame | None], None] = lambda frame: None
    played: int = 0
    backlog: list[TextToken] = field(default_factory=list)
    complete: bool = False
    held: bool = False


class TalkerStage(Stage[TalkRow]):
    """Rows with the least audio ahead of playback step first; none runs further ahead than `ahead_ms`."""

    def __init__(self, model: Talker, *, ahead_ms: float = 1500.0) -> None:
        self.model = model
        self.ahead_frames = max(1, round(ahead_ms * model.frame_rate / 1000))
        super().__init__("talker", model.slots, Deadline(longest_s=1 / model.frame_rate))

    def submit(
        self,
        rid: int,
        language: Language,
        on_frame: Callable[[CodecFrame | None], None],
        fail: Callable[[str, BaseException], None],
        voice: str = "",
        speed: float = 1.0,
    ) -> None:
        self._admit(TalkRow(rid, fail, language=language, voice=voice, speed=speed, on_frame=on_frame))

    def push(self, rid: int, token: TextToken) -> None:
        def command(row: TalkRow) -> None:
            if row.slot is None:
                row.backlog.append(token)
            else:
                self.model.push(row.slot, [token])

        self._on(rid, command)

    def finish(self, rid: int) -> None:
        def command(row: TalkRow) -> None:
            row.complete = True
            if row.slot is not None:
                self.model.finish(row.slot)

        self._on(rid, command)

    def played(self, rid: int, frames: int) -> None:
        """The listener has heard this many frames: the row may run on."""

        def command(row: TalkRow) -> None:
            row.played = max(row.played, frames)

        self._on(rid, command)

    def hold(self, rid: int, held: bool) -> None:
        """The listener may have been cut in on: the row is not stepped while it is held, and keeps all it has."""

        def command(row: TalkRow) -> None:
            row.held = held

        self._on(rid, command)

    def _start(self, row: TalkRow, slot: int) -> None:
        self.model.start(slot, row.language, row.voice, row.speed)
        row.reads = True
        if row.backlog:
            self.model.push(slot, row.backlog)
            row.backlog = []
        if row.complete:
            self.model.finish(slot)

    def _pick(self, rows: Sequence[TalkRow], now_s: float) -> list[TalkRow]:
        able = [
            row
            for row in rows
            if row.slot is not None
            and not row.held
            and row.made - row.played < self.ahead_frames
            and self.model.ready(row.slot)
        ]
        rate = self.model.frame_rate
        claims = [Claim(speech_due(row.asked_s, now_s, row.made - row.played, row.made, rate)) for row in able]
        return [able[i] for i in self.policy.pick(claims, now_s)]

    def _step(self, rows: Sequence[TalkRow]) -> int:
        frames = self.model.step([row.slot for row in rows if row.slot is not None])
        for row, frame in zip(rows, frames, strict=True):
            row.reads = isinstance(frame, Prefilling)
            if isinstance(frame, Prefilling):
                continue
            if frame is None:
                self._release(row)
            else:
                row.made += 1
            row.on_frame(frame)
        return len(rows)

    def _free(self, slot: int) -> None:
        self.model.free(slot)


@dataclass
class DecodeRow(Row):
    on_pcm: Callable[[Pcm, bool], None] = lambda pcm, last: None
    pending: deque[torch.Tensor] = field(default_factory=deque)
    complete: bool = False
    played: int = 0


class CodecStage(Stage[DecodeRow]):
    """The first chunk of a row is one frame; later ones take more, up to `max_chunk` frames where there is time."""

    def __init__(self, model: Codec, *, max_chunk: int = 4) -> None:
        self.model, self.max_chunk = model, max_chunk
        self.frame_rate = model.sample_rate / model.samples_per_frame
        self._size = 0
        super().__init__("codec", model.slots, Deadline(longest_s=1 / self.frame_rate))

    def submit(self, rid: int, on_pcm: Callable[[Pcm, bool], None], fail: Callable[[str, BaseException], None]) -> None:
        """`on_pcm(pcm, last)`: float32 PCM in order; `last` is True once, with the final samples."""
        self._admit(DecodeRow(rid, fail, on_pcm=on_pcm))

    def push(self, rid: int, codes: torch.Tensor) -> None:
        self._on(rid, lambda row: row.pending.append(codes))

    def finish(self, rid: int) -> None:
        def command(row: DecodeRow) -> None:
            row.complete = True

        self._on(rid, command)

    def played(self, rid: int, frames: int) -> None:
        """The listener has heard this many frames."""

        def command(row: DecodeRow) -> None:
            row.played = max(row.played, frames)

        self._on(rid, command)

    def _start(self, row: DecodeRow, slot: int) -> None:
        self.model.start(slot)

    def _pick(self, rows: Sequence[DecodeRow], now_s: float) -> list[DecodeRow]:
        undecoded = [
            Undecoded(
                speech_due(row.asked_s, now_s, row.made - row.played, row.made, self.frame_rate),
                len(row.pending),
                row.made,
                row.complete,
            )
            for row in rows
        ]
        picked, self._size = pick_chunk(self.policy, undecoded, now_s, self.max_chunk)
        return [rows[i] for i in picked]

    def _step(self, rows: Sequence[DecodeRow]) -> int:
        frames = self._size
        if frames:
            codes = torch.stack([torch.stack([row.pending.popleft() for _ in range(frames)]) for row in rows])
            pcms = self.model.step([row.slot for row in rows if row.slot is not None], codes)
            for row, pcm in zip(rows, pcms, strict=True):
                row.made += frames
                if len(pcm):
                    row.on_pcm(pcm, False)
        for row in rows:
            if row.complete and not row.pending and row.slot is not None:
                rest = self.model.finish(row.slot)
                self._release(row)
                row.on_pcm(rest, True)
        return len(rows) * frames

    def _free(self, slot: int) -> None:
        self.model.free(slot)


class Stages(NamedTuple):
    """The three stages of an engine."""

    thinker: ThinkerStage
    talker: TalkerStage
    codec: CodecStage

    @classmethod
    def of(cls, model: OmniModel, *, ahead_ms: float) -> Stages:
        """A thread of its own for each part of the model."""
        return cls(ThinkerStage(model.thinker), TalkerStage(model.talker, ahead_ms=ahead_ms), CodecStage(model.codec))

"""The three stages of the engine: what each one's batch policy is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from voice_agent.engine.protocols import (
    Codec,
    CodecFrame,
    Language,
    OmniModel,
    Talker,
    TextToken,
    Thinker,
    ThinkRequest,
    Thought,
    ToolCall,
)
from voice_agent.engine.stage import Row, Stage

Pcm = npt.NDArray[np.float32]


@dataclass
class ThinkRow(Row):
    request: ThinkRequest | None = None
    on_thought: Callable[[Thought], None] = lambda thought: None
    resting: bool = False


class ThinkerStage(Stage[ThinkRow]):
    """All rows that do not wait for a tool step together, oldest first."""

    def __init__(self, model: Thinker) -> None:
        self.model = model
        super().__init__("thinker", model.slots)

    def submit(
        self,
        rid: int,
        request: ThinkRequest,
        on_thought: Callable[[Thought], None],
        fail: Callable[[str, BaseException], None],
    ) -> None:
        self._admit(ThinkRow(rid, fail, request=request, on_thought=on_thought))

    def resume(self, rid: int, results: Sequence[tuple[ToolCall, Any]]) -> None:
        def command(row: ThinkRow) -> None:
            if row.slot is not None and row.resting:
                self.model.resume(row.slot, results)
                row.resting = False

        self._on(rid, command)

    def _start(self, row: ThinkRow, slot: int) -> None:
        assert row.request is not None
        self.model.start(slot, row.request)

    def _pick(self, rows: Sequence[ThinkRow]) -> list[ThinkRow]:
        return [row for row in rows if not row.resting]

    def _step(self, rows: Sequence[ThinkRow]) -> int:
        thoughts = self.model.step([row.slot for row in rows if row.slot is not None])
        for row, thought in zip(rows, thoughts, strict=True):
            row.made += 1
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
    on_frame: Callable[[CodecFrame | None], None] = lambda frame: None
    played: int = 0
    backlog: list[TextToken] = field(default_factory=list)
    complete: bool = False


class TalkerStage(Stage[TalkRow]):
    """Deadline first: rows with the least audio ahead of playback step first; none runs further than `ahead_ms`."""

    def __init__(self, model: Talker, *, ahead_ms: float = 1500.0, max_batch: int = 16) -> None:
        self.model, self.max_batch = model, max_batch
        self.ahead_frames = max(1, round(ahead_ms * model.frame_rate / 1000))
        super().__init__("talker", model.slots)

    def submit(
        self,
        rid: int,
        language: Language,
        on_frame: Callable[[CodecFrame | None], None],
        fail: Callable[[str, BaseException], None],
        voice: str = "",
    ) -> None:
        self._admit(TalkRow(rid, fail, language=language, voice=voice, on_frame=on_frame))

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

    def _start(self, row: TalkRow, slot: int) -> None:
        self.model.start(slot, row.language, row.voice)
        if row.backlog:
            self.model.push(slot, row.backlog)
            row.backlog = []
        if row.complete:
            self.model.finish(slot)

    def _pick(self, rows: Sequence[TalkRow]) -> list[TalkRow]:
        able = [
            row
            for row in rows
            if row.slot is not None and row.made - row.played < self.ahead_frames and self.model.ready(row.slot)
        ]
        able.sort(key=lambda row: row.made - row.played)
        return able[: self.max_batch]

    def _step(self, rows: Sequence[TalkRow]) -> int:
        frames = self.model.step([row.slot for row in rows if row.slot is not None])
        for row, frame in zip(rows, frames, strict=True):
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


class CodecStage(Stage[DecodeRow]):
    """The first chunk of a row is one frame; later ones take what waits, up to `max_chunk` frames."""

    def __init__(self, model: Codec, *, max_chunk: int = 4, max_batch: int = 16) -> None:
        self.model, self.max_chunk, self.max_batch = model, max_chunk, max_batch
        super().__init__("codec", model.slots)

    def submit(self, rid: int, on_pcm: Callable[[Pcm, bool], None], fail: Callable[[str, BaseException], None]) -> None:
        """`on_pcm(pcm, last)`: float32 PCM in order; `last` is True once, with the final samples."""
        self._admit(DecodeRow(rid, fail, on_pcm=on_pcm))

    def push(self, rid: int, codes: torch.Tensor) -> None:
        self._on(rid, lambda row: row.pending.append(codes))

    def finish(self, rid: int) -> None:
        def command(row: DecodeRow) -> None:
            row.complete = True

        self._on(rid, command)

    def _start(self, row: DecodeRow, slot: int) -> None:
        self.model.start(slot)

    def _pick(self, rows: Sequence[DecodeRow]) -> list[DecodeRow]:
        able = [row for row in rows if row.pending or row.complete]
        able.sort(key=lambda row: row.made)
        return able[: self.max_batch]

    def _step(self, rows: Sequence[DecodeRow]) -> int:
        decoding = [row for row in rows if row.pending]
        if decoding:
            chunk = min(
                self.max_chunk,
                *(len(row.pending) for row in decoding),
                *(max(1, row.made) for row in decoding),
            )
            codes = torch.stack([torch.stack([row.pending.popleft() for _ in range(chunk)]) for row in decoding])
            pcms = self.model.step([row.slot for row in decoding if row.slot is not None], codes)
            for row, pcm in zip(decoding, pcms, strict=True):
                row.made += chunk
                if len(pcm):
                    row.on_pcm(pcm, False)
        for row in rows:
            if row.complete and not row.pending and row.slot is not None:
                rest = self.model.finish(row.slot)
                self._release(row)
                row.on_pcm(rest, True)
        return len(rows)

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

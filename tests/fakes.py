"""A model without weights: its thinker repeats the user, its talker holds each token for a few frames, its codec hums.

Frame k of a row decodes to `samples_per_frame` samples of the value (token position + 1) / 1000, so that a test sees
in the PCM which token every sample belongs to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from voice_agent.engine.protocols import (
    CodecFrame,
    Language,
    StageName,
    TextToken,
    ThinkRequest,
    Thought,
    ToolCall,
)


@dataclass
class Gate:
    """Lets a worker through one step at a time while `closed`, so that a test decides when a stage moves."""

    event: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(10), "a gate was never opened"


class FakeThinker:
    """Says `reply`, a token a word; first calls `calls` if there are any, and then says the result's "say"."""

    hidden_size = 4

    def __init__(self, slots: int = 4, reply: str = "one two three four", calls: Sequence[ToolCall] = ()) -> None:
        self.slots, self.reply, self.calls, self.gate = slots, reply, tuple(calls), Gate()
        self.rows: dict[int, list[Thought]] = {}
        self.requests: list[ThinkRequest] = []
        self.fail_at: int | None = None
        self.steps = 0

    def _words(self, text: str) -> list[Thought]:
        words = [word + " " for word in text.split()]
        thoughts = [Thought(token=TextToken(i, word, torch.full((4,), float(i)))) for i, word in enumerate(words)]
        return [*thoughts, Thought(done=True)]

    def start(self, slot: int, request: ThinkRequest) -> None:
        assert slot not in self.rows
        self.requests.append(request)
        text = request.say or self.reply
        self.rows[slot] = [Thought(calls=self.calls)] if self.calls and not request.say else self._words(text)

    def step(self, slots: Sequence[int]) -> list[Thought]:
        self.gate.wait()
        self.steps += 1
        if self.fail_at is not None and self.steps >= self.fail_at:
            raise RuntimeError("the fake thinker was told to fail")
        return [self.rows[slot].pop(0) for slot in slots]

    def resume(self, slot: int, results: Sequence[tuple[ToolCall, Any]]) -> None:
        self.rows[slot] = self._words(" ".join(str(result.get("say", self.reply)) for _, result in results))

    def free(self, slot: int) -> None:
        del self.rows[slot]


class FakeTalker:
    """`frames_per_token` frames for each token; waits for the token it is to speak."""

    frame_rate = 20.0

    def __init__(self, slots: int = 4, frames_per_token: int = 2) -> None:
        self.slots, self.frames_per_token, self.gate = slots, frames_per_token, Gate()
        self.rows: dict[int, dict[str, Any]] = {}
        self.languages: list[Language] = []
        self.speeds: list[float] = []

    def start(self, slot: int, language: Language, voice: str = "", speed: float = 1.0) -> None:
        assert slot not in self.rows
        self.languages.append(language)
        self.speeds.append(speed)
        self.rows[slot] = {"tokens": [], "made": 0, "complete": False}

    def push(self, slot: int, tokens: Sequence[TextToken]) -> None:
        self.rows[slot]["tokens"] += tokens

    def finish(self, slot: int) -> None:
        self.rows[slot]["complete"] = True

    def ready(self, slot: int) -> bool:
        row = self.rows[slot]
        return bool(row["complete"] or row["made"] < self.frames_per_token * len(row["tokens"]))

    def step(self, slots: Sequence[int]) -> list[CodecFrame | None]:
        self.gate.wait()
        frames: list[CodecFrame | None] = []
        for slot in slots:
            row = self.rows[slot]
            position = row["made"] // self.frames_per_token
            if position >= len(row["tokens"]):
                frames.append(None)
                continue
            row["made"] += 1
            frames.append(CodecFrame(torch.tensor([position + 1]), position))
        return frames

    def free(self, slot: int) -> None:
        del self.rows[slot]


class FakeCodec:
    """Holds `latency_samples` back, as a decoder with look-ahead does."""

    sample_rate, samples_per_frame, latency_samples, codebooks = 24_000, 1200, 100, 1

    def __init__(self, slots: int = 4) -> None:
        self.slots = slots
        self.rows: dict[int, np.ndarray] = {}

    def start(self, slot: int) -> None:
        assert slot not in self.rows
        self.rows[slot] = np.zeros(0, np.float32)

    def step(self, slots: Sequence[int], codes: torch.Tensor) -> list[np.ndarray]:
        chunks = []
        for slot, row in zip(slots, codes, strict=True):
            levels = row[:, 0].numpy().astype(np.float32) / 1000
            pcm = np.concatenate([self.rows[slot], np.repeat(levels, self.samples_per_frame)])
            cut = len(pcm) - self.latency_samples
            self.rows[slot] = pcm[cut:]
            chunks.append(pcm[:cut])
        return chunks

    def finish(self, slot: int) -> np.ndarray:
        rest, self.rows[slot] = self.rows[slot], np.zeros(0, np.float32)
        return rest

    def free(self, slot: int) -> None:
        del self.rows[slot]


class FakeModel:
    name = "fake"
    speeds = (0.5, 1.5)

    def __init__(
        self,
        thinker: FakeThinker | None = None,
        talker: FakeTalker | None = None,
        codec: FakeCodec | None = None,
    ) -> None:
        self.thinker, self.talker, self.codec = thinker or FakeThinker(), talker or FakeTalker(), codec or FakeCodec()

    def check(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        pass

    @property
    def rows_in_use(self) -> int:
        return len(self.thinker.rows) + len(self.talker.rows) + len(self.codec.rows)


class JudgingThinker(FakeThinker):
    """Takes what ends in a full stop for a complete turn."""

    def turn_end(self, request: ThinkRequest) -> float:
        text = request.messages[-1].text
        if not text:
            raise ValueError("expected words, got none")
        return float(text.endswith("."))


class KeepingThinker(JudgingThinker):
    """Holds every dialogue that has a name until it is told to forget it."""

    def __init__(self, **fake: Any) -> None:
        super().__init__(**fake)
        self.held: set[str] = set()

    def start(self, slot: int, request: ThinkRequest) -> None:
        super().start(slot, request)
        self.held |= {request.conversation} - {""}

    @property
    def dialogues(self) -> int:
        return len(self.held)

    def forget(self, conversation: str) -> None:
        self.held.discard(conversation)


def load_fakes(
    stages: Sequence[StageName], device: str, reply: str = "one two three four", fail_at: int | None = None
) -> dict[StageName, Any]:
    """The parts of a fake model, for a place; "cpu" and "" are the only devices."""
    if device not in ("", "cpu"):
        raise ValueError(f"expected the device cpu, got {device!r}")
    thinker = KeepingThinker(reply=reply)
    thinker.fail_at = fail_at
    parts: dict[StageName, Any] = {"thinker": thinker, "talker": FakeTalker(), "codec": FakeCodec()}
    return {stage: parts[stage] for stage in stages}


def load_for_ever(stages: Sequence[StageName], device: str) -> dict[StageName, Any]:
    """A model that takes its time."""
    time.sleep(600)
    raise AssertionError("nobody waits so long")

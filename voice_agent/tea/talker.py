"""tea-omni's talker: reply tokens with the thinker's hidden states in, RVQ codes of 20 frames a second out.

What a frame needs before it can be made (`ready`): the phones under it and a frame's length after it, each with
 `RIGHT` further phones known; the phones of a token are known once the next token is there, or the text is
finished. Given that, a frame depends on the text alone, never on how the text arrived. Durations come from the
talker's own head, so the position in the text is known at every frame and nothing is skipped or said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors
import torch
from safetensors.torch import load_file, save_file

from voice_agent.engine.protocols import CodecFrame, Language, TextToken
from voice_agent.tea.talker_net import (
    EDGE_PHONE,
    LANGUAGES,
    PAD,
    RIGHT,
    SUBFRAMES,
    SUBFRAMES_AHEAD,
    PhoneState,
    ResidualQuantiser,
    TalkerConfig,
    TalkerNet,
    language_of,
    placement,
)

LEAD_SECONDS = 0.03
TRAIL_SECONDS = 0.05  # of the edge after the last phone; a pause before it is cut to the same
SHORTEST_SECONDS, LONGEST_SECONDS = 0.0125, 1.0
SPEEDS = (0.5, 1.5)


@dataclass
class _Row:
    """A reply on its way. `phones` are known; the first `len(ends)` of them are encoded and have their times."""

    language: int
    encoder: PhoneState
    speed: float = 1.0
    pronounced: int = 0  # tokens whose phones are known
    last_hidden: torch.Tensor | None = None  # of the latest token, whose phones are not known yet
    phones: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # the token of each phone
    finished: bool = False
    content: list[torch.Tensor] = field(default_factory=list)  # float32[window_width] of each encoded phone
    ends: list[float] = field(default_factory=list)  # seconds
    frame: int = 0


class TeaTalker:
    """The `Talker` of tea-omni. One step gives each row one frame; rows share nothing but the weights."""

    def __init__(self, net: TalkerNet, slots: int) -> None:
        self.net = net.eval().requires_grad_(False)
        self.quantise = ResidualQuantiser(net.codebooks)
        self.slots = slots
        self.frame_rate = net.config.frame_rate
        config = net.config
        self._edge = config.phones.index(EDGE_PHONE)
        self._pauses = frozenset(i for i, name in enumerate(config.phones) if name.startswith("sil/"))
        languages = [language_of(name) for name in config.phones]
        self._languages = [LANGUAGES.index(language) if language else None for language in languages]
        self._rows: list[_Row | None] = [None] * slots
        self._past = torch.zeros(slots, config.blocks, config.block_kernel - 1, config.width)
        self._look_ahead_seconds = SUBFRAMES_AHEAD / SUBFRAMES / config.frame_rate

    @staticmethod
    def load(path: Path, slots: int) -> TeaTalker:
        """Read weights that `save` wrote; they are kept in half precision and computed with in single."""
        with safetensors.safe_open(path, framework="pt") as file:  # type: ignore[no-untyped-call]
            metadata = file.metadata() or {}
        if "config" not in metadata:
            raise ValueError(f"expected a talker's weights with their configuration, got {path} without it")
        tensors = {name: tensor.float() for name, tensor in load_file(path).items()}
        net = TalkerNet(TalkerConfig.from_json(metadata["config"]), torch.empty_like(tensors["codebooks"]))
        net.load_state_dict(tensors)
        return TeaTalker(net, slots)

    def start(self, slot: int, language: Language, voice: str = "", speed: float = 1.0) -> None:
        """A new reply. There is one voice a language, words of the other one in a sentence are spoken by the other
        voice; `voice` must be empty or name the language. `speed`: one of `SPEEDS`."""
        if self._rows[slot] is not None:
            raise ValueError(f"expected a free slot, got slot {slot}, which is in use")
        if voice not in ("", language):
            raise ValueError(f"expected no voice or {language!r}, got {voice!r}")
        if not SPEEDS[0] <= speed <= SPEEDS[1]:
            raise ValueError(f"expected a speed of {SPEEDS[0]} to {SPEEDS[1]}, got {speed}")
        index = LANGUAGES.index(language)
        with torch.inference_mode():
            row = _Row(index, self.net.encoder.start(index), speed)
        self._add(row, self._edge, 0)
        self._rows[slot] = row

    def push(self, slot: int, tokens: Sequence[TextToken]) -> None:
        """More reply text. Raises ValueError for hidden states of another size or after `finish`."""
        row = self._row(slot)
        if row.finished:
            raise ValueError(f"expected no text after the end, got {len(tokens)} tokens for slot {slot}")
        size = self.net.config.hidden_size
        for token in tokens:
            if token.hidden.shape != (size,):
                raise ValueError(f"expected hidden states float32[{size}], got {tuple(token.hidden.shape)}")
        for token in tokens:
            if row.last_hidden is not None:
                self._pronounce(row, row.last_hidden, token.hidden)
            row.last_hidden = token.hidden

    def finish(self, slot: int) -> None:
        """The row's text is complete."""
        row = self._row(slot)
        if row.finished:
            return
        row.finished = True
        if row.last_hidden is not None:
            self._pronounce(row, row.last_hidden, torch.zeros_like(row.last_hidden))
        self._add(row, self._edge, max(0, row.pronounced - 1))
        with torch.inference_mode():
            for _ in range(RIGHT):
                self._encode(row, PAD)

    def ready(self, slot: int) -> bool:
        """Whether the next frame's phones are all there (or the text is finished)."""
        row = self._row(slot)
        if row.finished:
            return True
        return bool(row.ends) and row.ends[-1] > (row.frame + 1) / self.frame_rate + self._look_ahead_seconds

    def step(self, slots: Sequence[int]) -> list[CodecFrame | None]:
        """One frame for each of these rows; None once the text and a short silence after it are spoken."""
        rows = [self._row(slot) for slot in slots]
        speaking = [i for i, row in enumerate(rows) if not self._over(row)]
        frames: list[CodecFrame | None] = [None] * len(slots)
        if not speaking:
            return frames
        active = [rows[i] for i in speaking]
        index = torch.tensor([slots[i] for i in speaking])
        contents, timings, positions = [], [], []
        for slot, row in zip(index.tolist(), active, strict=True):
            if not self.ready(slot):
                raise ValueError(f"expected a row that is ready, got slot {slot}, which waits for text")
            phone, timing = placement(np.array(row.ends), [row.frame], self.frame_rate)
            contents.append(torch.stack([row.content[i] for i in phone[0]]))
            timings.append(torch.from_numpy(timing[0]))
            positions.append(self._position(row))
        with torch.inference_mode():
            latents, past = self.net.frames.step(torch.stack(contents), torch.stack(timings), self._past[index])
            self._past[index] = past
            codes = self.quantise(latents)
        for i, row, code, position in zip(speaking, active, codes, positions, strict=True):
            row.frame += 1
            frames[i] = CodecFrame(code, position)
        return frames

    def free(self, slot: int) -> None:
        """Forget the row."""
        self._rows[slot] = None
        self._past[slot] = 0

    def _row(self, slot: int) -> _Row:
        row = self._rows[slot]
        if row is None:
            raise ValueError(f"expected a started slot, got slot {slot}, which is free")
        return row

    def _over(self, row: _Row) -> bool:
        return row.finished and row.frame / self.frame_rate >= row.ends[-1]

    def _position(self, row: _Row) -> int:
        middle = (row.frame + 0.5) / self.frame_rate
        phone = int(np.searchsorted(np.array(row.ends), middle, side="right"))
        return row.tokens[min(phone, len(row.ends) - 1)]

    @torch.inference_mode()
    def _pronounce(self, row: _Row, here: torch.Tensor, following: torch.Tensor) -> None:
        """Add the phones of the row's next token, given with the one after it."""
        for phone in self.net.pronouncer.phones(here, following):
            self._add(row, phone, row.pronounced)
        row.pronounced += 1

    @torch.inference_mode()
    def _add(self, row: _Row, phone: int, token: int) -> None:
        row.phones.append(phone)
        row.tokens.append(token)
        self._encode(row, phone)

    def _encode(self, row: _Row, phone: int) -> None:
        """Features and time for the phone that has all of its context with this one."""
        language = self._languages[phone]
        encoded = self.net.encoder.step(phone, row.language if language is None else language, row.encoder)
        if encoded is None:
            return
        content, predicted = encoded
        seconds = self._seconds(row, len(row.ends), predicted)
        row.content.append(content)
        row.ends.append((row.ends[-1] if row.ends else 0.0) + seconds)

    def _seconds(self, row: _Row, index: int, predicted: float) -> float:
        last = len(row.phones) - 1
        if index == 0:
            return LEAD_SECONDS
        if index == last or (row.finished and index == last - 1 and row.phones[index] in self._pauses):
            return TRAIL_SECONDS
        return min(max(predicted / row.speed, SHORTEST_SECONDS), LONGEST_SECONDS)


def save(net: TalkerNet, path: Path, thinker_sha256: str) -> None:
    """Write the weights in half precision, with the configuration and the thinker they were made for beside them."""
    tensors = {name: tensor.half().contiguous() for name, tensor in net.state_dict().items()}
    save_file(tensors, path, metadata={"config": net.config.to_json(), "thinker_sha256": thinker_sha256})

"""Qwen3-Omni's talker: reply tokens in, frames of 16 codes out, 12.5 a second, from the reply's first token on.

The prompt is the user's part of the dialogue and nine rows that open the reply; the last one is the first text token
and gives frame 0. A long prompt is read in parts, a step each. From k = 1 on frame k comes of the sum of the previous
frame's code embeddings and text token k: the talker waits for that token rather than read padding in its place, so a
reply never depends on how its text arrived. After the text come one end mark and then padding until the talker itself
says that it is done.

A frame's first code is the talker's; the others are the predictor's, one after another, from the talker's hidden
state and the first code. (Qwen3-Omni technical report, arXiv 2509.17765.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeTalkerForConditionalGeneration

from voice_agent.engine.protocols import CodecFrame, Language, Prefilling, TextToken
from voice_agent.qwen.frames import FrameMaker
from voice_agent.qwen.sampling import Sampling

TALKER_SAMPLING = Sampling(temperature=0.9, top_k=50, repetition_penalty=1.05)
PREDICTOR_SAMPLING = Sampling(top_k=50, top_p=0.8)

# The talker does not tell which token it is speaking. These are slow readings of each language, in characters a
# second, so that an estimate of what was heard errs on the side of too little.
CHARACTERS_PER_SECOND: Mapping[Language, float] = {"zh": 4.0, "en": 13.0}
HEAD_ROWS = 3  # <|im_start|>, assistant, newline


@dataclass
class _Row:
    """A reply in a slot.

    `text` are the projected tokens, `ends` the seconds at which each is taken to be spoken. `prompt` is what is still
    to be read of it, all but its last row; None: no text came yet. `frame` is what the next text token is added to: of
    the latest frame the sum of its code embeddings, at first that of codec_bos.
    """

    language: Language
    speaker: int
    text: list[Tensor] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    prompt: Tensor | None = None
    frame: Tensor | None = None
    generator: torch.Generator | None = None
    finished: bool = False
    length: int = 0
    frames: int = 0

    def position(self, seconds: float) -> int:
        """The token being spoken at a time, by the language's usual rate."""
        return next((i for i, end in enumerate(self.ends) if seconds < end), len(self.ends) - 1)


class QwenTalker:
    """A `Talker` with a KV cache row a slot.

    `marks`: [3, H], the thinker's embeddings of tts_bos, tts_eos and tts_pad. `max_frames`: a reply's longest;
    `max_length`: positions of a row's cache, for prompt and frames. `prefill`: prompt rows read in one step, of all
    replies together, the oldest first. `compile`, `graphs`: as in `QwenConfig`.
    """

    frame_rate = 12.5

    def __init__(
        self,
        model: Qwen3OmniMoeTalkerForConditionalGeneration,
        marks: Tensor,
        slots: int,
        *,
        voice: str = "",
        sampling: Sampling = TALKER_SAMPLING,
        predictor_sampling: Sampling = PREDICTOR_SAMPLING,
        max_frames: int = 1500,
        max_length: int = 4096,
        prefill: int = 512,
        compile: bool = False,
        graphs: bool = False,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.slots, self.max_frames, self.max_length, self.prefill = slots, max_frames, max_length, prefill
        config = model.config
        self._speakers = {name.lower(): int(number) for name, number in config.speaker_id.items()}
        self.voice = voice or ("ethan" if "ethan" in self._speakers else next(iter(self._speakers)))
        self._speaker(self.voice)
        self._device = model.codec_head.weight.device
        with torch.inference_mode():
            self._bos, self._eos, self._pad = self._project(marks)
        self._maker = FrameMaker(
            model,
            slots,
            max_length,
            sampling=sampling,
            predictor_sampling=predictor_sampling,
            compile=compile,
            graphs=graphs,
        )
        self._rows: list[_Row | None] = [None] * slots
        self._reading: list[int] = []  # slots with a prompt to read, the oldest first

    # ---- the protocol ----

    def start(self, slot: int, language: Language, voice: str = "", speed: float = 1.0) -> None:
        """Raises ValueError for a slot in use, a voice that the model does not have, or another speed than its own."""
        if speed != 1.0:
            raise ValueError(f"expected a speed of 1, the only one of Qwen3-Omni, got {speed}")
        if self._rows[slot] is not None:
            raise ValueError(f"expected a free slot, got {slot}, which is in use")
        self._rows[slot] = _Row(language, self._speaker(voice or self.voice))
        self._maker.begin(slot)

    @torch.inference_mode()
    def push(self, slot: int, tokens: Sequence[TextToken]) -> None:
        """Raises ValueError if a reply's first token brings no prompt, or the prompt is too long for the cache."""
        row = self._row(slot)
        for token in tokens:
            if row.prompt is None:
                self._take_prompt(row, token)
                self._reading.append(slot)
            row.text.append(self._project(token.hidden.to(self._device)))
            seconds = len(token.text.strip()) / CHARACTERS_PER_SECOND[row.language]
            row.ends.append((row.ends[-1] if row.ends else 0.0) + seconds)

    def finish(self, slot: int) -> None:
        self._row(slot).finished = True

    def ready(self, slot: int) -> bool:
        row = self._row(slot)
        return row.finished or len(row.text) > row.frames

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> list[CodecFrame | Prefilling | None]:
        """One frame each, or a part of a prompt. A reply without text, or as long as it may be, ends."""
        rows = [self._row(slot) for slot in slots]
        for slot in slots:
            if not self.ready(slot):
                raise ValueError(f"expected text for slot {slot} before its next frame, got none")
        self._read([slot for slot in self._reading if slot in slots])
        speaking = [i for i, slot in enumerate(slots) if slot not in self._reading and self._may_go_on(rows[i])]
        found: list[CodecFrame | Prefilling | None] = [
            Prefilling() if slot in self._reading else None for slot in slots
        ]
        if speaking:
            frames = self._speak([slots[i] for i in speaking], [rows[i] for i in speaking])
            for i, frame in zip(speaking, frames, strict=True):
                found[i] = frame
        return found

    def free(self, slot: int) -> None:
        self._rows[slot] = None
        self._reading = [other for other in self._reading if other != slot]

    # ---- inside ----

    def _row(self, slot: int) -> _Row:
        row = self._rows[slot]
        if row is None:
            raise ValueError(f"expected a started slot, got {slot}, which is free")
        return row

    def _speaker(self, voice: str) -> int:
        speaker = self._speakers.get(voice.lower())
        if speaker is None:
            raise ValueError(f"voice: expected one of {', '.join(self._speakers)}, got {voice!r}")
        return speaker

    def _project(self, states: Tensor) -> Tensor:
        """Thinker embeddings [..., H] as the talker reads text."""
        projected: Tensor = self.model.text_projection(states.to(self._device, self.model.codec_head.weight.dtype))
        return projected

    def _take_prompt(self, row: _Row, token: TextToken) -> None:
        prompt = token.prompt
        if prompt is None:
            raise ValueError("expected the reply's first token to bring the prompt's states, got none")
        rows, heard = prompt.rows.to(self._device), prompt.heard.to(self._device)
        if len(rows) + 6 >= self.max_length:
            raise ValueError(f"expected a prompt of less than {self.max_length - 6} rows, got {len(rows)}")
        row.prompt = self._project(rows)
        if bool(heard.any()):
            row.prompt[heard] = self.model.hidden_projection(rows[heard].to(row.prompt.dtype))
        row.generator = torch.Generator(self._device).manual_seed(prompt.seed)
        config = self.model.config
        opening = torch.tensor(
            [
                config.codec_nothink_id,
                config.codec_think_bos_id,
                config.codec_think_eos_id,
                row.speaker,
                config.codec_pad_id,
                config.codec_bos_id,
            ],
            device=self._device,
        )
        *codes, row.frame = self.model.get_input_embeddings()(opening)
        row.prompt = torch.cat([row.prompt, torch.stack([self._pad] * 4 + [self._bos]) + torch.stack(codes)])

    def _read(self, slots: Sequence[int]) -> None:
        """Read what fits into one step of these slots' prompts."""
        room = self.prefill
        for slot in slots:
            row = self._row(slot)
            assert row.prompt is not None
            part, row.prompt = row.prompt[:room], row.prompt[room:]
            if len(part):
                self._maker.read(slot, row.length, part)
            row.length += len(part)
            room -= len(part)
            if not len(row.prompt):
                self._reading.remove(slot)

    def _may_go_on(self, row: _Row) -> bool:
        return bool(row.text) and row.frames < self.max_frames and row.length < self.max_length

    def _speak(self, slots: Sequence[int], rows: Sequence[_Row]) -> list[CodecFrame | None]:
        """Read each row's latest frame with its next text token and make a frame; None for those that chose to end."""
        inputs, generators = [], []
        for row in rows:
            assert row.frame is not None
            assert row.generator is not None
            over = self._eos if row.frames == len(row.text) else self._pad
            inputs.append(row.frame + (row.text[row.frames] if row.frames < len(row.text) else over))
            generators.append(row.generator)
        codes, sums = self._maker.make(slots, [row.length for row in rows], torch.stack(inputs), generators)
        made: list[CodecFrame | None] = []
        for row, frame_codes, total in zip(rows, codes.cpu(), sums, strict=True):
            if int(frame_codes[0]) == self.model.config.codec_eos_token_id:
                made.append(None)
                continue
            made.append(CodecFrame(frame_codes, row.position(row.frames / self.frame_rate)))
            row.frame = total
            row.frames += 1
            row.length += 1
        return made

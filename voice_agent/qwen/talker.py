"""Qwen3-Omni's talker: reply tokens in, frames of 16 codes out, 12.5 a second, from the reply's first token on.

The prefill is the user's part of the dialogue and nine rows that open the reply; they end with the first text token.
Step k gives frame k. From k = 1 on it reads the sum of the previous frame's code embeddings and text token k: it
waits for that token rather than read padding in its place, so a reply never depends on how its text arrived. After
the text come one end mark and then padding until the talker itself says that it is done.

A frame's first code is the talker's; the others are the predictor's, one after another, from the talker's hidden
state and the first code. (Qwen3-Omni technical report, arXiv 2509.17765.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeTalkerForConditionalGeneration

from voice_agent.engine.protocols import CodecFrame, Language, TextToken
from voice_agent.qwen.cache import SlotCache
from voice_agent.qwen.sampling import Chooser, Sampling

TALKER_SAMPLING = Sampling(temperature=0.9, top_k=50, repetition_penalty=1.05)
PREDICTOR_SAMPLING = Sampling(top_k=50, top_p=0.8)

# The talker does not tell which token it is speaking. These are slow readings of each language, in characters a
# second, so that an estimate of what was heard errs on the side of too little.
CHARACTERS_PER_SECOND: Mapping[Language, float] = {"zh": 4.0, "en": 13.0}
HEAD_ROWS = 3  # <|im_start|>, assistant, newline


@dataclass
class _Row:
    """A reply in a slot. `text` are the projected tokens, `ends` the seconds at which each is taken to be spoken."""

    language: Language
    speaker: int
    text: list[Tensor] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    prompt: Tensor | None = None
    generator: torch.Generator | None = None
    finished: bool = False
    length: int = 0
    first_codes: list[int] = field(default_factory=list)
    frame: Tensor | None = None  # the sum of the code embeddings of the latest frame

    def position(self, seconds: float) -> int:
        """The token being spoken at a time, by the language's usual rate."""
        return next((i for i, end in enumerate(self.ends) if seconds < end), len(self.ends) - 1)


class QwenTalker:
    """A `Talker` with a KV cache row a slot.

    `marks`: [3, H], the thinker's embeddings of tts_bos, tts_eos and tts_pad. `max_frames`: a reply's longest;
    `max_length`: positions of a row's cache, for prompt and frames.
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
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.slots, self.max_frames, self.max_length = slots, max_frames, max_length
        config = model.config
        self._speakers = {name.lower(): int(number) for name, number in config.speaker_id.items()}
        self.voice = voice or ("ethan" if "ethan" in self._speakers else next(iter(self._speakers)))
        self._speaker(self.voice)
        weight = model.codec_head.weight
        self._device = weight.device
        with torch.inference_mode():
            self._bos, self._eos, self._pad = self._project(marks)
        text = config.text_config
        ends = config.codec_eos_token_id
        self._chooser = Chooser(
            sampling,
            suppress=[i for i in range(text.vocab_size - 1024, text.vocab_size) if i != ends],
            device=self._device,
        )
        self._residual_chooser = Chooser(predictor_sampling, device=self._device)
        self._cache = SlotCache(
            layers=text.num_hidden_layers,
            rows=slots,
            heads=text.num_key_value_heads,
            length=max_length,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
            dtype=weight.dtype,
            device=self._device,
        )
        self._rows: list[_Row | None] = [None] * slots

    # ---- the protocol ----

    def start(self, slot: int, language: Language, voice: str = "") -> None:
        """Raises ValueError for a slot in use or a voice that the model does not have."""
        if self._rows[slot] is not None:
            raise ValueError(f"expected a free slot, got {slot}, which is in use")
        self._rows[slot] = _Row(language, self._speaker(voice or self.voice))

    @torch.inference_mode()
    def push(self, slot: int, tokens: Sequence[TextToken]) -> None:
        """Raises ValueError if a reply's first token brings no prompt, or the prompt is too long for the cache."""
        row = self._row(slot)
        for token in tokens:
            if row.prompt is None:
                self._take_prompt(row, token)
            row.text.append(self._project(token.hidden.to(self._device)))
            seconds = len(token.text.strip()) / CHARACTERS_PER_SECOND[row.language]
            row.ends.append((row.ends[-1] if row.ends else 0.0) + seconds)

    def finish(self, slot: int) -> None:
        self._row(slot).finished = True

    def ready(self, slot: int) -> bool:
        row = self._row(slot)
        return row.finished or len(row.text) > len(row.first_codes)

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> list[CodecFrame | None]:
        """One frame each. A reply without text, or as long as `max_frames` or the cache allow, ends."""
        rows = [self._row(slot) for slot in slots]
        for slot in slots:
            if not self.ready(slot):
                raise ValueError(f"expected text for slot {slot} before its next frame, got none")
        hidden: dict[int, Tensor] = {}
        run = [i for i, row in enumerate(rows) if self._may_go_on(row)]
        running = [i for i in run if rows[i].frame is not None]
        if running:
            states = self._decode([slots[i] for i in running], [rows[i] for i in running])
            hidden |= dict(zip(running, states, strict=True))
        for i in run:
            if i not in hidden:
                hidden[i] = self._prefill(slots[i], rows[i])
        return self._speak(rows, hidden)

    def free(self, slot: int) -> None:
        self._rows[slot] = None

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

    def _may_go_on(self, row: _Row) -> bool:
        return bool(row.text) and len(row.first_codes) < self.max_frames and row.length < self.max_length

    def _embed(self, codes: Tensor) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(codes)
        return embedded

    def _prefill(self, slot: int, row: _Row) -> Tensor:
        """Read the prompt and the nine rows that open a reply; gives the hidden state of the last: [hidden]."""
        config = self.model.config
        assert row.prompt is not None
        codes = torch.tensor(
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
        opening = torch.stack([self._pad] * 4 + [self._bos, row.text[0]]) + self._embed(codes)
        x = torch.cat([row.prompt, opening])
        row.length, row.prompt = len(x), row.prompt[:0]
        return self._forward([slot], [0], x.unsqueeze(0))[0]

    def _decode(self, slots: Sequence[int], rows: Sequence[_Row]) -> Tensor:
        """Read each row's latest frame with its next text token: [B, hidden]."""
        inputs = []
        for row in rows:
            assert row.frame is not None
            index = len(row.first_codes)
            over = self._eos if index == len(row.text) else self._pad
            inputs.append(row.frame + (row.text[index] if index < len(row.text) else over))
        hidden = self._forward(slots, [row.length for row in rows], torch.stack(inputs).unsqueeze(1))
        for row in rows:
            row.length += 1
        return hidden

    def _forward(self, slots: Sequence[int], starts: Sequence[int], x: Tensor) -> Tensor:
        step = self._cache.step(slots, starts, x.shape[1])
        out = self.model.model(
            inputs_embeds=x,
            position_ids=step.positions.expand(3, -1, -1),
            attention_mask=step.mask,
            cache=step,
            use_cache=True,
        )
        hidden: Tensor = out.last_hidden_state[:, -1]
        return hidden

    def _speak(self, rows: Sequence[_Row], hidden: Mapping[int, Tensor]) -> list[CodecFrame | None]:
        """Choose the codes of the rows that have a hidden state; the others, and those that chose to end, are done."""
        frames: list[CodecFrame | None] = [None] * len(rows)
        speaking: list[int] = []
        first: list[Tensor] = []
        order = sorted(hidden)
        if not order:
            return frames
        logits = self.model.codec_head(torch.stack([hidden[i] for i in order]))
        for i, scores in zip(order, logits, strict=True):
            generator = rows[i].generator
            assert generator is not None
            code = self._chooser.choose(scores, rows[i].first_codes, generator)
            if int(code) != self.model.config.codec_eos_token_id:
                speaking.append(i)
                first.append(code)
        if not speaking:
            return frames
        codes, sums = self._residuals(
            torch.stack([hidden[i] for i in speaking]), torch.stack(first), [rows[i] for i in speaking]
        )
        for i, frame_codes, total in zip(speaking, codes.cpu(), sums, strict=True):
            row = rows[i]
            frames[i] = CodecFrame(frame_codes, row.position(len(row.first_codes) / self.frame_rate))
            row.first_codes.append(int(frame_codes[0]))
            row.frame = total
        return frames

    def _residuals(self, hidden: Tensor, first: Tensor, rows: Sequence[_Row]) -> tuple[Tensor, Tensor]:
        """hidden: [B, H]; first: int64[B, 1]. Gives all codes, int64[B, Q], and the sums of their embeddings, [B, H].

        The predictor's cache lives for one frame.
        """
        predictor = self.model.code_predictor
        tables = predictor.model.codec_embedding
        codes, embedded = [first], [self._embed(first)]
        x = torch.cat([hidden.unsqueeze(1), embedded[0]], dim=1)
        cache = DynamicCache(config=predictor.config)
        for group, head in enumerate(predictor.lm_head):
            out = predictor.model(inputs_embeds=x, cache=cache, use_cache=True)
            logits = head(out.last_hidden_state[:, -1])
            chosen = []
            for row, scores in zip(rows, logits, strict=True):
                assert row.generator is not None
                chosen.append(self._residual_chooser.choose(scores, (), row.generator))
            codes.append(torch.stack(chosen))
            x = tables[group](codes[-1])
            embedded.append(x)
        return torch.cat(codes, dim=1), torch.cat(embedded, dim=1).sum(1)

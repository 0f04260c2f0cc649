"""One frame of the talker on the device: its first code, and the other codes from the predictor.

Both parts are steps of fixed shapes over tensors alone (`voice_agent.qwen.steps`). The talker's keys and values lie in
a row a slot, the predictor's in a row for each row of the batch, for one frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeTalkerForConditionalGeneration

from voice_agent.qwen.cache import CacheStep, SlotCache
from voice_agent.qwen.sampling import Chooser, Sampling
from voice_agent.qwen.steps import Recorded, Recorder, at_least, compiled, filled, lengths, widths


class FrameMaker:
    """The talker's and the predictor's forward with their caches. length: positions of a slot's row.

    compile, graphs: as in `QwenConfig`.
    """

    def __init__(
        self,
        model: Qwen3OmniMoeTalkerForConditionalGeneration,
        slots: int,
        length: int,
        *,
        sampling: Sampling,
        predictor_sampling: Sampling,
        compile: bool = False,
        graphs: bool = False,
    ) -> None:
        self._model, self._device = model, model.codec_head.weight.device
        text, predictor = model.config.text_config, model.code_predictor.config
        self._chooser = Chooser(
            sampling,
            text.vocab_size,
            suppress=[
                i for i in range(text.vocab_size - 1024, text.vocab_size) if i != model.config.codec_eos_token_id
            ],
            device=self._device,
        )
        self._residual_chooser = Chooser(predictor_sampling, predictor.vocab_size, device=self._device)
        self._seen = torch.zeros(slots + 1, text.vocab_size, dtype=torch.bool, device=self._device)
        self.cache = _cache(text, slots, length, model.codec_head.weight)
        self._groups = int(predictor.num_code_groups)
        self._residual_cache = _cache(predictor, slots, self._groups, model.codec_head.weight)
        self._residual_reach = torch.arange(self._groups, device=self._device)
        self._widths, self._lengths = widths(slots), lengths(length)
        self._first = Recorded(compiled(self._choose_first, on=compile))
        self._predict = compiled(self._run_predictor, on=compile)
        self._rest = Recorded(self._choose_rest)
        if graphs:
            self._record(Recorder(self._device))

    def begin(self, slot: int) -> None:
        """Forget which codes the slot's row has said."""
        self._seen[slot] = False

    def read(self, slot: int, start: int, x: Tensor) -> None:
        """Read a part of a prompt, [T, H], into the slot's row from `start` on."""
        self._forward(self.cache.step([slot], [start], len(x)), x.unsqueeze(0))

    def make(
        self, slots: Sequence[int], starts: Sequence[int], x: Tensor, generators: Sequence[torch.Generator]
    ) -> tuple[Tensor, Tensor]:
        """Read one position a row, x: [B, H], and make its frame.

        Gives the codes, int64[B, Q], and the sum of their embeddings, [B, H]. Where the first code is the end's, the
        others mean nothing.
        """
        count = len(slots)
        width = at_least(count, self._widths)
        length = at_least(max(starts) + 1, self._lengths)
        hidden, first = self._first(
            torch.cat([x, x.new_zeros(width - count, x.shape[1])]),
            filled(slots, width, self.cache.spare, self._device),
            filled(starts, width, 0, self._device),
            torch.arange(length, device=self._device),
            self._chooser.noise(generators, width),
        )
        noise = [self._residual_chooser.noise(generators, width) for _ in range(self._groups - 1)]
        codes, total = self._rest(hidden, first, torch.stack(noise))
        return codes[:count], total[:count]

    # ---- inside ----

    @torch.inference_mode()
    def _record(self, recorder: Recorder) -> None:
        weight = self._model.codec_head.weight
        for width in self._widths:
            x = weight.new_zeros(width, weight.shape[1])
            rows = filled([], width, self.cache.spare, self._device)
            noise = self._chooser.noise([], width)
            for length in self._lengths:
                reach = torch.arange(length, device=self._device)
                self._first.record(recorder, x, rows, torch.zeros_like(rows), reach, noise)
            residual = torch.stack([self._residual_chooser.noise([], width)] * (self._groups - 1))
            self._rest.record(recorder, x, torch.zeros_like(rows), residual)

    def _choose_first(
        self, x: Tensor, rows: Tensor, positions: Tensor, reach: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The hidden states, [B, H], and the first codes, int64[B], which each row from now on has said."""
        step = CacheStep(self.cache, rows, positions.unsqueeze(1), reach)
        hidden = self._forward(step, x.unsqueeze(1))[:, -1]
        codes = self._chooser.choose(self._model.codec_head(hidden), noise, self._seen[rows])
        self._seen[rows, codes] = True
        return hidden, codes

    def _choose_rest(self, hidden: Tensor, first: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """noise: [Q - 1, B, V], for each further code. As `make`."""
        predictor = self._model.code_predictor
        codes, embedded = [first], [self._model.get_input_embeddings()(first)]
        x, start = torch.stack([hidden, embedded[0]], dim=1), 0
        for group, head in enumerate(predictor.lm_head):
            positions = torch.arange(start, start + x.shape[1], device=self._device).expand(len(x), -1)
            (last,) = self._predict(x, positions)
            codes.append(self._residual_chooser.choose(head(last), noise[group]))
            embedded.append(predictor.model.codec_embedding[group](codes[-1]))
            x, start = embedded[-1].unsqueeze(1), start + x.shape[1]
        return torch.stack(codes, dim=1), torch.stack(embedded, dim=1).sum(1)

    def _run_predictor(self, x: Tensor, positions: Tensor) -> tuple[Tensor]:
        """x: [B, N, H] at these positions of the frame, int64[B, N]; gives the last hidden state, [B, H]."""
        rows = torch.arange(len(x), device=self._device)
        step = CacheStep(self._residual_cache, rows, positions, self._residual_reach)
        out = self._model.code_predictor.model(
            inputs_embeds=x,
            position_ids=positions,
            attention_mask={"full_attention": step.mask},
            cache=step,
            use_cache=True,
        )
        return (out.last_hidden_state[:, -1],)

    def _forward(self, step: CacheStep, x: Tensor) -> Tensor:
        out = self._model.model(
            inputs_embeds=x,
            position_ids=step.positions.expand(3, -1, -1),
            attention_mask=step.mask,
            cache=step,
            use_cache=True,
        )
        hidden: Tensor = out.last_hidden_state
        return hidden


def _cache(config: Any, rows: int, length: int, weight: Tensor) -> SlotCache:
    """A cache for a decoder of this configuration, on the weight's device and in its type."""
    return SlotCache(
        layers=config.num_hidden_layers,
        rows=rows,
        heads=config.num_key_value_heads,
        length=length,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        dtype=weight.dtype,
        device=weight.device,
    )

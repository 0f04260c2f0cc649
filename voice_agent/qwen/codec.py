"""Qwen3-Omni's code2wav, one frame after another: the same samples as the whole reply decoded at once.

codes → mean of the code embeddings → transformer over a window of frames → ×2 ×2 → ×8 ×5 ×4 ×3 → PCM. Everything is
causal but for the four last upsamplings, whose kernel spans two inputs: the output between two inputs exists once
the second is there. After n frames there are 1920 n − 555 samples, online as offline; nothing is run twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeCausalConvNet,
    Qwen3OmniMoeCausalTransConvNet,
    Qwen3OmniMoeCode2Wav,
    Qwen3OmniMoeCode2WavDecoderBlock,
    Qwen3OmniMoeCode2WavDecoderResidualUnit,
    Qwen3OmniMoeConvNeXtBlock,
)

from voice_agent.qwen.cache import WindowCache, WindowStep
from voice_agent.qwen.steps import Recorded, Recorder, at_least, compiled, filled, widths


class _Streamed:
    """The past of every convolution of the stack, a row each: the inputs that its next output still needs."""

    def __init__(self, model: Qwen3OmniMoeCode2Wav, rows: int) -> None:
        weight = model.decoder[-1].conv.weight
        self._past: dict[nn.Module, Tensor] = {}
        for module in (*model.upsample.modules(), *model.decoder.modules()):
            held = _inputs_held(module)
            if held:
                self._past[module] = torch.zeros(
                    rows, module.conv.in_channels, held, dtype=weight.dtype, device=weight.device
                )

    def clear(self, row: int) -> None:
        for past in self._past.values():
            past[row] = 0

    def extend(self, module: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        """x: [B, C, T] with the row's past before it; the past moves on."""
        past = self._past[module]
        x = torch.cat([past[rows], x], dim=-1)
        past[rows] = x[..., -past.shape[-1] :]
        return x


def _inputs_held(module: nn.Module) -> int:
    if isinstance(module, Qwen3OmniMoeCausalConvNet):
        return int(module.padding)
    if isinstance(module, Qwen3OmniMoeCausalTransConvNet):
        return 1 if module.left_pad else 0
    return 0


class QwenCodec:
    """A `Codec`. The first chunk of a row lacks the 555 samples that its last frame's successor would complete.

    These samples exist in no decoding of a reply, so `finish` gives none. compile, graphs: as in `QwenConfig`; chunks
    of one frame are what is recorded.
    """

    def __init__(
        self,
        model: Qwen3OmniMoeCode2Wav,
        slots: int,
        *,
        sample_rate: int = 24_000,
        compile: bool = False,
        graphs: bool = False,
    ) -> None:
        config = model.config
        self.model = model.eval().requires_grad_(False)
        self.slots, self.sample_rate = slots, sample_rate
        self.codebooks = int(config.num_quantizers)
        self.samples_per_frame = int(model.total_upsample)
        self.latency_samples = 0
        for rate in config.upsample_rates:
            self.latency_samples = (self.latency_samples + 1) * int(rate)
        weight = model.code_embedding.weight
        self._device = weight.device
        self._window = WindowCache(
            layers=config.num_hidden_layers,
            rows=slots,
            heads=config.num_key_value_heads,
            window=config.sliding_window,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            dtype=weight.dtype,
            device=self._device,
        )
        self._streamed = _Streamed(model, slots + 1)
        self._widths = widths(slots)
        self._opening = Recorded(compiled(partial(self._decode, first=True), on=compile))
        self._going_on = Recorded(compiled(partial(self._decode, first=False), on=compile))
        self._frames: list[int | None] = [None] * slots  # decoded so far, by slot
        if graphs:
            self._record(Recorder(self._device))

    def start(self, slot: int) -> None:
        """Raises ValueError if the slot is in use."""
        if self._frames[slot] is not None:
            raise ValueError(f"expected a free slot, got {slot}, which is in use")
        self._streamed.clear(slot)
        self._frames[slot] = 0

    @torch.inference_mode()
    def step(self, slots: Sequence[int], codes: Tensor) -> list[npt.NDArray[np.float32]]:
        """codes: int64[B, N, Q]. Raises ValueError for codes outside the codebook or another number of codebooks."""
        if codes.shape[-1] != self.codebooks:
            raise ValueError(f"expected {self.codebooks} codes a frame, got {codes.shape[-1]}")
        size = self.model.config.codebook_size
        if int(codes.min()) < 0 or int(codes.max()) >= size:
            raise ValueError(f"expected codes from 0 to {size - 1}, got {int(codes.min())} to {int(codes.max())}")
        # A row's first frame gives fewer samples than its later ones: the two kinds are not stacked.
        fresh = [i for i, slot in enumerate(slots) if self._decoded(slot) == 0]
        running = [i for i, slot in enumerate(slots) if self._decoded(slot) != 0]
        pcm: dict[int, npt.NDArray[np.float32]] = {}
        for group, decode in ((fresh, self._opening), (running, self._going_on)):
            if group:
                (waves,) = decode(*self._inputs([slots[i] for i in group], codes[group]))
                pcm |= dict(zip(group, waves[: len(group)].float().cpu().numpy(), strict=True))
        for slot in slots:
            self._frames[slot] = self._decoded(slot) + codes.shape[1]
        return [pcm[i] for i in range(len(slots))]

    def finish(self, slot: int) -> npt.NDArray[np.float32]:
        self._decoded(slot)
        return np.zeros(0, np.float32)

    def free(self, slot: int) -> None:
        self._frames[slot] = None

    def _decoded(self, slot: int) -> int:
        frames = self._frames[slot]
        if frames is None:
            raise ValueError(f"expected a started slot, got {slot}, which is free")
        return frames

    def _inputs(self, slots: Sequence[int], codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What `_decode` takes, filled up to one of the widths with the spare row."""
        width = at_least(len(slots), self._widths)
        frames = [self._decoded(slot) for slot in slots]
        positions = filled(frames, width, 0, self._device).unsqueeze(1)
        missing = codes.new_zeros(width - len(slots), *codes.shape[1:])
        return (
            torch.cat([codes, missing]).to(self._device),
            filled(slots, width, self._window.spare, self._device),
            positions + torch.arange(codes.shape[1], device=self._device),
        )

    @torch.inference_mode()
    def _record(self, recorder: Recorder) -> None:
        for width in self._widths:
            codes = torch.zeros(width, 1, self.codebooks, dtype=torch.long, device=self._device)
            rows = filled([], width, self._window.spare, self._device)
            for decode in (self._opening, self._going_on):
                decode.record(recorder, codes, rows, torch.zeros_like(rows).unsqueeze(1))

    def _decode(self, codes: Tensor, rows: Tensor, positions: Tensor, *, first: bool) -> tuple[Tensor]:
        """codes: int64[B, N, Q]; rows: int64[B]; positions: int64[B, N], of the frames. Gives PCM, [B, samples]."""
        model = self.model
        x = model.code_embedding(codes.transpose(1, 2) + model.code_offset).mean(1)
        step = WindowStep(self._window, rows, positions)
        out = model.pre_transformer(
            inputs_embeds=x,
            position_ids=step.positions,
            attention_mask={"sliding_attention": step.mask},
            cache=step,
            use_cache=True,
        )
        x = out.last_hidden_state.transpose(1, 2)
        stack = [module for pair in model.upsample for module in pair]
        for module in (*stack, *model.decoder):
            x = self._run(module, x, rows, first)
        return (x.squeeze(1).clamp(-1, 1),)

    def _run(self, module: nn.Module, x: Tensor, rows: Tensor, first: bool) -> Tensor:
        """One module of the stack on the row's next inputs; those that hold no past are run as they are."""
        if isinstance(module, Qwen3OmniMoeCausalConvNet):
            x = self._streamed.extend(module, x, rows) if module.padding else x
            x = module.conv(x)
        elif isinstance(module, Qwen3OmniMoeCausalTransConvNet):
            x = self._upsample(module, x, rows, first)
        elif isinstance(module, Qwen3OmniMoeConvNeXtBlock):
            y = self._run(module.dwconv, x, rows, first).transpose(1, 2)
            y = module.pwconv2(module.act(module.pwconv1(module.norm(y))))
            x = x + (module.gamma * y).transpose(1, 2)
        elif isinstance(module, Qwen3OmniMoeCode2WavDecoderResidualUnit):
            y = self._run(module.conv1, module.act1(x), rows, first)
            x = x + self._run(module.conv2, module.act2(y), rows, first)
        elif isinstance(module, Qwen3OmniMoeCode2WavDecoderBlock):
            for inner in module.block:
                x = self._run(inner, x, rows, first)
        else:
            x = module(x)
        return x

    def _upsample(self, module: Qwen3OmniMoeCausalTransConvNet, x: Tensor, rows: Tensor, first: bool) -> Tensor:
        if module.left_pad:  # otherwise kernel and stride are equal: each input stands alone
            extended = self._streamed.extend(module, x, rows)
            x = x if first else extended  # before the first input there is none, not silence
        x = module.conv(x)
        return x[..., module.left_pad : x.shape[-1] - module.right_pad]

"""The Mandarin teacher's vocoder in PyTorch, unquantised, and how the codec's decoder starts from it.

The TFLite graph rounds the four subbands to 8 bits (28 dB signal to noise); here they stay float. Otherwise the outputs
are equal. Weights come from `teacher_zh.py --vocoder FILE`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from voice_agent.tea.codec import (
    INPUT_LOOK_AHEAD,
    PQMF_TAPS,
    STAGES,
    SUBBANDS,
    ResidualBlock,
    StreamingConv,
    UpsamplingStage,
    Vocoder,
)  # fmt: skip

SLOPE = 0.2
DILATIONS = (1, 3, 9, 27)


class TeacherVocoder:
    """Multi-band MelGAN with centred convolutions and reflected edges, as its training left it."""

    def __init__(self, path: Path) -> None:
        """`path`: the .npz of `teacher_zh.py --vocoder`."""
        self._layers = {name: torch.tensor(value) for name, value in np.load(path).items()}

    def convolution(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(weight float32[out, in, kernel], bias float32[out])."""
        weight = self._layers[f"{layer:02d}.weight"]
        return weight[:, 0].permute(0, 2, 1).contiguous(), self._layers[f"{layer:02d}.bias"]

    def transposed(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(weight float32[in, out, kernel], bias float32[out])."""
        weight = self._layers[f"{layer:02d}.weight"]
        return weight[:, :, 0].permute(2, 0, 1).contiguous(), self._layers[f"{layer:02d}.bias"]

    def synthesis(self) -> torch.Tensor:
        """The PQMF's synthesis filters with its gain: float32[63, 4]."""
        return self._layers["42.weight"][0, 0] * self._layers["41.weight"].max()

    def __call__(self, mel: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Normalised mel float32[B, T, 80] to PCM float32[B, 300 T] and every stage's output float32[B, L, C]."""

        def centred(x: torch.Tensor, layer: int, dilation: int = 1) -> torch.Tensor:
            weight, bias = self.convolution(layer)
            pad = (weight.shape[-1] - 1) * dilation // 2
            padded = functional.pad(x, (pad, pad), mode="reflect") if pad else x
            return functional.conv1d(padded, weight, bias, dilation=dilation)

        x, layer, features = centred(mel.transpose(1, 2), 0), 1, []
        for stage in STAGES:
            length, shift = x.shape[-1] * stage.rate, stage.rate // 2
            weight, bias = self.transposed(layer)
            x = functional.conv_transpose1d(functional.leaky_relu(x, SLOPE), weight, bias, stride=stage.rate)
            x, layer = x[..., shift : shift + length], layer + 1
            for dilation in DILATIONS:
                hidden = centred(functional.leaky_relu(x, SLOPE), layer + 1, dilation)
                x = centred(x, layer) + centred(functional.leaky_relu(hidden, SLOPE), layer + 2)
                layer += 3
            features.append(x.transpose(1, 2))
        bands = torch.tanh(centred(functional.leaky_relu(x, SLOPE), layer))
        spread = torch.zeros(*bands.shape[:2], bands.shape[2] * SUBBANDS)
        spread[..., ::SUBBANDS] = bands
        pad = PQMF_TAPS // 2
        return functional.conv1d(functional.pad(spread, (pad, pad)), self.synthesis().T[None])[:, 0], features


def _put(target: StreamingConv, weight: torch.Tensor, bias: torch.Tensor, dropped: int) -> None:
    """Copy a centred convolution; the `dropped` taps furthest ahead give half of their weight to the newest kept."""
    kernel = weight.shape[-1]
    moved = torch.zeros_like(weight)
    moved[..., dropped:] = weight[..., : kernel - dropped]
    moved[..., -1] += 0.5 * weight[..., kernel - dropped :].sum(-1)
    target.weight.copy_(moved.permute(0, 2, 1).reshape(weight.shape[0], -1))
    target.bias.copy_(bias)


@torch.no_grad()
def initialise(vocoder: Vocoder, teacher: TeacherVocoder) -> None:
    """Copy the teacher's weights into the streaming vocoder."""
    _put(vocoder.input, *teacher.convolution(0), vocoder.input.kernel // 2 - INPUT_LOOK_AHEAD)
    layer = 1
    for stage, module in zip(STAGES, vocoder.stages, strict=True):
        assert isinstance(module, UpsamplingStage)
        weight, bias = teacher.transposed(layer)
        older, newer = weight[..., stage.rate :], weight[..., : stage.rate]
        taps = [part.permute(2, 1, 0).reshape(stage.rate * stage.channels, -1) for part in (older, newer)]
        module.upsample.weight.copy_(torch.cat(taps, dim=1))
        module.upsample.bias.copy_(bias.repeat(stage.rate))
        layer += 1
        for block in module.blocks:
            assert isinstance(block, ResidualBlock)
            shortcut, dilated, mix = (teacher.convolution(layer + i) for i in range(3))
            _put(block.dilated, *dilated, dropped=0 if block.delay else 1)
            block.mix.weight.copy_(mix[0][..., 0])
            block.mix.bias.copy_(mix[1] + shortcut[1])
            block.shortcut.weight.copy_(shortcut[0][..., 0])
            layer += 3
    _put(vocoder.output, *teacher.convolution(layer), dropped=0)
    filters, taps_a_band = teacher.synthesis(), vocoder.synthesis.kernel
    polyphase = torch.zeros(SUBBANDS, taps_a_band, SUBBANDS)
    for phase in range(SUBBANDS):
        for back in range(taps_a_band):
            tap = PQMF_TAPS - 1 - phase - SUBBANDS * back
            if tap >= 0:
                polyphase[phase, taps_a_band - 1 - back] = filters[tap]
    vocoder.synthesis.weight.copy_(polyphase.reshape(SUBBANDS, -1))

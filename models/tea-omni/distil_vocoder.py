"""Fits the streaming decoder to the teacher's vocoder one layer after another, in closed form.

The decoder's convolutions see less of the future than the teacher's, and its mel was quantised. Every layer in turn gets
the weights that predict the teacher's output of that layer best (least squares with a pull towards the teacher's own
weights) from what the layers before it, already fitted, really give. A few CPU minutes instead of hours of gradient
descent; what is left is for `train_codec.py`.

    python models/tea-omni/distil_vocoder.py CODEC --zh ZH --en EN     writes CODEC/distilled.safetensors
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from fit_latents import HELD_OUT, en_mel, read_meta, zh_mel
from safetensors.torch import save_file
from teacher_vocoder import TeacherVocoder, initialise
from torch.nn import functional

from voice_agent.tea.codec import (
    INPUT_LOOK_AHEAD,
    MEL_FLOOR,
    MEL_FRAMES,
    STAGES,
    Decoder,
    LatentSpace,
    ResidualBlock,
    UpsamplingStage,
)  # fmt: skip

_SLOPE, _DILATIONS = 0.2, (1, 3, 9, 27)
BEFORE, KEPT, AFTER = 40, 120, 28
"""Mel frames of an excerpt: context before, frames that count, context after."""

Signals = list[torch.Tensor]


def shifted(x: torch.Tensor, offset: int) -> torch.Tensor:
    """x[t + offset] with zeros outside; float32[T, C]."""
    if offset >= 0:
        return functional.pad(x[offset:], (0, 0, 0, offset))
    return functional.pad(x[:offset], (0, 0, -offset, 0))


def taps(x: torch.Tensor, offsets: Sequence[int]) -> torch.Tensor:
    return torch.cat([shifted(x, offset) for offset in offsets], dim=-1)


class LayerFit:
    """Ridge regression towards given weights, over excerpts whose edges do not count."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, pull: float) -> None:
        """`weight`: float32[out, in], changed in place by `solve`; `pull` relative to the inputs' power."""
        self.weight, self.bias, self.pull = weight, bias, pull
        size = weight.shape[1] + 1
        self.gram = torch.zeros(size, size, dtype=torch.float64)
        self.cross = torch.zeros(size, weight.shape[0], dtype=torch.float64)
        self.count, self.before, self.power = 0, 0.0, 0.0

    def add(self, inputs: torch.Tensor, target: torch.Tensor, rate: int) -> None:
        """float32[T, in] and float32[T, out] at `rate` steps a mel frame."""
        inside = slice(BEFORE * rate, (BEFORE + KEPT) * rate)
        x, y = inputs[inside], target[inside]
        missing = y - functional.linear(x, self.weight, self.bias)
        x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
        self.gram += (x.T @ x).double()
        self.cross += (x.T @ missing).double()
        self.count += len(x)
        self.before += float(missing.square().sum())
        self.power += float((y - y.mean(0)).square().sum())

    def solve(self) -> tuple[float, float]:
        """Relative squared error before and after."""
        ridge = self.gram + self.pull * self.count * torch.eye(len(self.gram), dtype=torch.float64)
        ridge += 1e-6 * self.gram.diagonal().mean() * torch.eye(len(self.gram), dtype=torch.float64)
        change = torch.linalg.solve(ridge, self.cross)
        gain = 2 * (change * self.cross).sum() - (change * (self.gram @ change)).sum()
        self.weight += change[:-1].T.float()
        self.bias += change[-1].float()
        return self.before / self.power, (self.before - float(gain)) / self.power


def distil(decoder: Decoder, teacher: TeacherVocoder, exact: Signals, quantised: Signals, pull: float) -> None:
    """Fit `decoder.vocoder`. `exact`, `quantised`: mels float32[BEFORE + KEPT + AFTER, 80] for teacher and student."""
    vocoder = decoder.vocoder
    meant, got = exact, quantised

    def centred(x: torch.Tensor, layer: int, dilation: int = 1) -> torch.Tensor:
        weight, bias = teacher.convolution(layer)
        pad = (weight.shape[-1] - 1) * dilation // 2
        return functional.conv1d(x.T[None], weight, bias, dilation=dilation, padding=pad)[0].T

    def fit(
        name: str, weight: torch.Tensor, bias: torch.Tensor, rate: int,
        inputs: Callable[[int], torch.Tensor], target: Callable[[int], torch.Tensor],
    ) -> tuple[Signals, Signals]:  # fmt: skip
        layer, wanted = LayerFit(weight, bias, pull), []
        for i in range(len(exact)):
            wanted.append(target(i))
            layer.add(inputs(i), wanted[-1], rate)
        before, after = layer.solve()
        print(f"{name}: relative error {before:.4f} -> {after:.4f}", flush=True)
        return wanted, [functional.linear(inputs(i), weight, bias) for i in range(len(exact))]

    def active(x: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(x, _SLOPE)

    offsets = range(INPUT_LOOK_AHEAD + 1 - vocoder.input.kernel, INPUT_LOOK_AHEAD + 1)
    meant, got = fit(
        "input", vocoder.input.weight, vocoder.input.bias, 1,
        lambda i: taps(got[i], offsets), lambda i: centred(meant[i], 0),
    )  # fmt: skip
    rate, layer = 1, 1
    for stage, module in zip(STAGES, vocoder.stages, strict=True):
        assert isinstance(module, UpsamplingStage)
        weight, bias = teacher.transposed(layer)

        def upsampled(
            i: int, weight: torch.Tensor = weight, bias: torch.Tensor = bias, hop: int = stage.rate
        ) -> torch.Tensor:
            rows = functional.conv_transpose1d(active(meant[i]).T[None], weight, bias, stride=hop)[0].T
            return rows[: len(meant[i]) * hop].reshape(len(meant[i]), -1)

        tall, short = fit(
            f"up {stage.rate}", module.upsample.weight, module.upsample.bias, rate,
            lambda i: taps(active(got[i]), (-1, 0)), upsampled,
        )  # fmt: skip
        shift = stage.rate // 2
        meant = [shifted(x.reshape(-1, stage.channels), shift) for x in tall]
        got = [shifted(x.reshape(-1, stage.channels), shift) for x in short]
        rate, layer = rate * stage.rate, layer + 1
        for block, dilation in zip(module.blocks, _DILATIONS, strict=True):
            assert isinstance(block, ResidualBlock)
            reach = (-dilation, 0, dilation) if block.delay else (-2 * dilation, -dilation, 0)
            inner_meant, inner_got = fit(
                f"  dilated {dilation}", block.dilated.weight, block.dilated.bias, rate,
                lambda i, reach=reach: taps(active(got[i]), reach),  # type: ignore[misc]
                lambda i, layer=layer, dilation=dilation: centred(active(meant[i]), layer + 1, dilation),  # type: ignore[misc]
            )  # fmt: skip
            both = torch.cat([block.mix.weight, block.shortcut.weight], dim=1)
            meant, got = fit(
                f"  block {dilation}", both, block.mix.bias, rate,
                lambda i: torch.cat([active(inner_got[i]), got[i]], dim=1),
                lambda i, layer=layer: centred(meant[i], layer) + centred(active(inner_meant[i]), layer + 2),  # type: ignore[misc]
            )  # fmt: skip
            block.mix.weight.copy_(both[:, : stage.channels])
            block.shortcut.weight.copy_(both[:, stage.channels :])
            layer += 3
    reach = range(-(vocoder.output.kernel // 2), vocoder.output.kernel // 2 + 1)
    fit(
        "output", vocoder.output.weight, vocoder.output.bias, rate,
        lambda i: taps(active(got[i]), reach), lambda i: centred(active(meant[i]), layer),
    )  # fmt: skip


def excerpts(mels: list[torch.Tensor], count: int, rng: random.Random) -> Signals:
    """`count` random excerpts, aligned to codec frames and repeated at the edges where an utterance is too short."""
    chosen = []
    for _ in range(count):
        mel = rng.choice(mels).clamp(min=MEL_FLOOR)
        start = rng.randrange(-BEFORE, max(1, len(mel) - KEPT)) // MEL_FRAMES * MEL_FRAMES
        index = torch.arange(start - BEFORE, start + KEPT + AFTER).clamp(0, len(mel) - 1)
        chosen.append(mel[index])
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codec", type=Path)
    parser.add_argument("--zh", type=Path, required=True)
    parser.add_argument("--en", type=Path, required=True)
    parser.add_argument("--excerpts", type=int, default=140)
    parser.add_argument("--pull", type=float, default=1e-3)
    options = parser.parse_args()
    space = LatentSpace.load(options.codec / "space.safetensors")
    teacher = TeacherVocoder(options.codec / "vocoder.npz")
    rng = random.Random(0)
    zh = [zh_mel(options.zh, line) for line in rng.sample(read_meta(options.zh)[HELD_OUT:], 200)]
    en_lines = read_meta(options.en)[HELD_OUT:]
    en = [en_mel(options.en, line, space) for line in rng.sample(en_lines, min(150, len(en_lines)))]
    exact = excerpts(zh, options.excerpts * 3 // 5, rng) + excerpts(en, options.excerpts * 2 // 5, rng)
    quantised = [space.mel(space.lookup(space.quantise(space.encode(mel)))) for mel in exact]
    decoder = Decoder(space).requires_grad_(False)
    initialise(decoder.vocoder, teacher)
    distil(decoder, teacher, exact, quantised, options.pull)
    save_file(
        {name: value.contiguous() for name, value in decoder.state_dict().items()},
        options.codec / "distilled.safetensors",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.inference_mode():
        main()

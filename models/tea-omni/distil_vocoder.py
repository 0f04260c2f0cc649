"""Fits the decoder's input layer and first stage to the teacher's vocoder, one layer after another, in closed form.

These layers see less of the future than the teacher's, and their mel was quantised. Each in turn gets the weights that
predict the teacher's output of that layer best (least squares with a pull towards the teacher's own weights) from what
the layers before it, already fitted, really give: CPU seconds instead of hours of gradient descent. The later stages
keep the teacher's weights: they make the phase, which nothing predicts, and least squares would answer that with
silence (12 dB were lost between 1 and 3 kHz). What is left is for `train_codec.py`.

    python models/tea-omni/distil_vocoder.py

Reads CACHE/codec/{space.safetensors,vocoder.npz} and the teachers' speech, writes CACHE/codec/distilled.safetensors.
A codec that starts from shipped weights (`train_codec.py --warm`) does not need it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from fit_latents import HELD_OUT
from safetensors.torch import save_file
from speech import CACHE, normalised_mel, read_meta
from teacher_vocoder import DILATIONS, SLOPE, TeacherVocoder, initialise
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
    Vocoder,
)  # fmt: skip

UTTERANCES = {"zh": 200, "en": 150}
"""Of each language, at most, that the excerpts are taken from."""

BEFORE, KEPT, AFTER = 40, 120, 28
"""Mel frames of an excerpt: context before, frames that count, context after."""

Signals = list[torch.Tensor]


def active(x: torch.Tensor) -> torch.Tensor:
    return functional.leaky_relu(x, SLOPE)


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


class Distillation:
    """The input layer and the first stage, fitted in order.

    `exact`, `quantised`: mels float32[BEFORE + KEPT + AFTER, 80] for teacher and student. `meant`, `got`: what the last
    fitted layer gives in the teacher and in the student.
    """

    def __init__(
        self, vocoder: Vocoder, teacher: TeacherVocoder, exact: Signals, quantised: Signals, pull: float
    ) -> None:
        self.vocoder, self.teacher, self.pull = vocoder, teacher, pull
        self.meant, self.got = exact, quantised

    def run(self) -> None:
        layer, kernel = self.vocoder.input, self.vocoder.input.kernel
        reach = range(INPUT_LOOK_AHEAD + 1 - kernel, INPUT_LOOK_AHEAD + 1)
        inputs = [taps(x, reach) for x in self.got]
        self.meant = [self.centred(x, 0) for x in self.meant]
        self.got = self.fit("input", layer.weight, layer.bias, inputs, self.meant, 1)
        stage, rate = self.vocoder.stages[0], STAGES[0].rate
        assert isinstance(stage, UpsamplingStage)
        self.upsample(stage, rate)
        for index, (block, dilation) in enumerate(zip(stage.blocks, DILATIONS, strict=True)):
            assert isinstance(block, ResidualBlock)
            self.block(block, dilation, 2 + 3 * index, rate)

    def upsample(self, stage: UpsamplingStage, rate: int) -> None:
        weight, bias = self.teacher.transposed(1)
        inputs = [taps(active(x), (-1, 0)) for x in self.got]
        spread = [functional.conv_transpose1d(active(x).T[None], weight, bias, stride=rate)[0].T for x in self.meant]
        wanted = [y[: len(x) * rate].reshape(len(x), -1) for x, y in zip(self.meant, spread, strict=True)]
        got = self.fit(f"upsample {rate}", stage.upsample.weight, stage.upsample.bias, inputs, wanted, 1)
        self.meant, self.got = (
            [shifted(x.reshape(-1, stage.channels), rate // 2) for x in signals] for signals in (wanted, got)
        )

    def block(self, block: ResidualBlock, dilation: int, layer: int, rate: int) -> None:
        """`layer`: the teacher's shortcut, which its dilated convolution and the one after follow."""
        reach = (-dilation, 0, dilation) if block.delay else (-2 * dilation, -dilation, 0)
        inner = [self.centred(active(x), layer + 1, dilation) for x in self.meant]
        inputs = [taps(active(x), reach) for x in self.got]
        name, dilated = f"dilated {dilation}", block.dilated
        inner_got = self.fit(name, dilated.weight, dilated.bias, inputs, inner, rate)
        both = torch.cat([block.mix.weight, block.shortcut.weight], dim=1)
        inputs = [torch.cat([active(hidden), x], dim=1) for hidden, x in zip(inner_got, self.got, strict=True)]
        self.meant = [
            self.centred(x, layer) + self.centred(active(hidden), layer + 2)
            for x, hidden in zip(self.meant, inner, strict=True)
        ]
        self.got = self.fit(f"block {dilation}", both, block.mix.bias, inputs, self.meant, rate)
        channels = block.shortcut.weight.shape[1]
        block.mix.weight.copy_(both[:, :channels])
        block.shortcut.weight.copy_(both[:, channels:])

    def centred(self, x: torch.Tensor, layer: int, dilation: int = 1) -> torch.Tensor:
        """A convolution of the teacher: float32[T, in] to float32[T, out]."""
        weight, bias = self.teacher.convolution(layer)
        pad = (weight.shape[-1] - 1) * dilation // 2
        return functional.conv1d(x.T[None], weight, bias, dilation=dilation, padding=pad)[0].T

    def fit(
        self, name: str, weight: torch.Tensor, bias: torch.Tensor, inputs: Signals, wanted: Signals, rate: int
    ) -> Signals:
        """Fit one layer; what it then gives."""
        layer = LayerFit(weight, bias, self.pull)
        for x, y in zip(inputs, wanted, strict=True):
            layer.add(x, y, rate)
        before, after = layer.solve()
        print(f"{name}: relative error {before:.4f} -> {after:.4f}", flush=True)
        return [functional.linear(x, weight, bias) for x in inputs]


def excerpts(mels: list[torch.Tensor], count: int, rng: random.Random) -> Signals:
    """`count` random excerpts, aligned to codec frames and repeated at the edges where an utterance is too short."""
    chosen = []
    for _ in range(count):
        mel = rng.choice(mels).clamp(min=MEL_FLOOR)
        start = rng.randrange(-BEFORE, max(1, len(mel) - KEPT)) // MEL_FRAMES * MEL_FRAMES
        index = torch.arange(start - BEFORE, start + KEPT + AFTER).clamp(0, len(mel) - 1)
        chosen.append(mel[index])
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--excerpts", type=int, default=300)
    parser.add_argument("--pull", type=float, default=1e-3, help="towards the teacher's weights")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="utterances of each language")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with torch.inference_mode():
        distil(options)


def distil(options: argparse.Namespace) -> None:
    folder = options.cache / "codec"
    space = LatentSpace.load(folder / "space.safetensors")
    teacher = TeacherVocoder(folder / "vocoder.npz")
    rng = random.Random(0)
    mels: dict[str, Signals] = {}
    for language, most in UTTERANCES.items():
        lines = read_meta(options.cache / language)[options.held_out :]
        chosen = rng.sample(lines, min(most, len(lines)))
        mels[language] = [normalised_mel(options.cache / language, line, space) for line in chosen]
    exact = excerpts(mels["zh"], options.excerpts * 3 // 5, rng) + excerpts(mels["en"], options.excerpts * 2 // 5, rng)
    quantised = [space.mel(space.lookup(space.quantise(space.encode(mel)))) for mel in exact]
    decoder = Decoder(space).requires_grad_(False)
    initialise(decoder.vocoder, teacher)
    Distillation(decoder.vocoder, teacher, exact, quantised, options.pull).run()
    tensors = {name: value.contiguous() for name, value in decoder.state_dict().items()}
    save_file(tensors, folder / "distilled.safetensors")


if __name__ == "__main__":
    main()

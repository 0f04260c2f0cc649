"""tea-omni's codec: RVQ codes at 20 frames a second to 24 kHz speech, causally.

A frame is 4 mel frames of 12.5 ms. Its latent is the projection of those 4 x 80 values on an orthonormal basis, so that
distance between latents is distance between mels, and its codes are a residual vector quantisation of the latent
(arXiv:2107.03312). The decoder turns quantised latents back into mel frames and these into samples with a multi-band
MelGAN (arXiv:2005.05106) whose weights start from a teacher's vocoder. Its convolutions look back, and a few of them a
little ahead: `LATENCY_SAMPLES` in all.

Every layer works on [B, T, C] and keeps the inputs that its next step still needs, so that a chunk of any length is one
matrix product a layer and streaming output equals offline output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

SAMPLE_RATE = 24_000
HOP = 300
MEL_CHANNELS = 80
MEL_FRAMES = 4
SAMPLES_PER_FRAME = HOP * MEL_FRAMES

MEL_FLOOR = -3.2
"""Normalised mel values below this are silence, whose details are not worth codes."""

REFINE_CHANNELS = 256
_WARM_UP_FRAMES = 16
_SLOPE = 0.2
_DILATIONS = (1, 3, 9, 27)
_KERNEL = 3


@dataclass(frozen=True)
class Stage:
    """One upsampling stage. `look_ahead`: the dilations whose convolution is centred; the others see the past alone."""

    rate: int
    channels: int
    look_ahead: tuple[int, ...]


INPUT_CHANNELS, INPUT_KERNEL, INPUT_LOOK_AHEAD = 384, 7, 2
STAGES = (Stage(3, 192, (1, 3)), Stage(5, 96, (1, 3, 9)), Stage(5, 48, (1, 3, 9)))
OUTPUT_KERNEL = 7
SUBBANDS, PQMF_TAPS = 4, 63
State = list[torch.Tensor]


def _latency_samples() -> int:
    samples, hop = INPUT_LOOK_AHEAD * HOP, HOP
    for stage in STAGES:
        hop //= stage.rate
        samples += (stage.rate // 2 + sum(stage.look_ahead)) * hop
    return samples + OUTPUT_KERNEL // 2 * hop + PQMF_TAPS // 2


LATENCY_SAMPLES = _latency_samples()


class StreamingConv(nn.Module):
    """Convolution over time whose last tap is the newest input.

    `forward` takes the new inputs and the kept ones, float32[B, T, in] and float32[B, context, in], and returns
    float32[B, T, out] and the inputs to keep.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.inputs, self.kernel, self.dilation = inputs, kernel, dilation
        self.context = (kernel - 1) * dilation
        self.weight = nn.Parameter(torch.zeros(outputs, kernel * inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def taps(self, buffered: torch.Tensor) -> torch.Tensor:
        """float32[B, context + T, in] to float32[B, T, out]."""
        length = buffered.shape[1] - self.context
        steps = range(0, self.context + 1, self.dilation)
        gathered = torch.cat([buffered[:, i : i + length] for i in steps], dim=-1)
        return functional.linear(gathered, self.weight, self.bias)

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        buffered = torch.cat([kept, x], dim=1)
        return self.taps(buffered), buffered[:, x.shape[1] :]


class ResidualBlock(nn.Module):
    """A dilated convolution with a 1x1 shortcut, which waits for the taps that look ahead."""

    def __init__(self, channels: int, dilation: int, centred: bool) -> None:
        super().__init__()
        self.dilated = StreamingConv(channels, channels, _KERNEL, dilation)
        self.mix = nn.Linear(channels, channels)
        self.shortcut = nn.Linear(channels, channels, bias=False)
        self.delay = dilation if centred else 0

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        buffered = torch.cat([kept, x], dim=1)
        length, context = x.shape[1], self.dilated.context
        hidden = self.dilated.taps(functional.leaky_relu(buffered, _SLOPE))
        now = buffered[:, context - self.delay : context - self.delay + length]
        out = self.mix(functional.leaky_relu(hidden, _SLOPE)) + self.shortcut(now)
        return out, buffered[:, length:]


class UpsamplingStage(nn.Module):
    """A transposed convolution, as a convolution that makes `rate` outputs a step, and its residual blocks."""

    def __init__(self, inputs: int, stage: Stage) -> None:
        super().__init__()
        self.channels = stage.channels
        self.upsample = StreamingConv(inputs, stage.rate * stage.channels, 2)
        self.blocks = nn.ModuleList(ResidualBlock(stage.channels, d, d in stage.look_ahead) for d in _DILATIONS)

    def forward(self, x: torch.Tensor, kept: Iterator[torch.Tensor], after: State) -> torch.Tensor:
        x, keep = self.upsample(functional.leaky_relu(x, _SLOPE), next(kept))
        after.append(keep)
        x = x.reshape(x.shape[0], -1, self.channels)
        for block in self.blocks:
            x, keep = block(x, next(kept))
            after.append(keep)
        return x


class Vocoder(nn.Module):
    """Streaming multi-band MelGAN: normalised mel float32[B, T, 80] to PCM float32[B, 300 T], `LATENCY_SAMPLES` late.

    `features` gives the output of each stage too, for distillation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.input = StreamingConv(MEL_CHANNELS, INPUT_CHANNELS, INPUT_KERNEL)
        self.stages = nn.ModuleList()
        channels = INPUT_CHANNELS
        for stage in STAGES:
            self.stages.append(UpsamplingStage(channels, stage))
            channels = stage.channels
        self.output = StreamingConv(channels, SUBBANDS, OUTPUT_KERNEL)
        self.synthesis = StreamingConv(SUBBANDS, SUBBANDS, (PQMF_TAPS + 1) // SUBBANDS)

    def forward(self, mel: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        pcm, after, _ = self.features(mel, state)
        return pcm, after

    def features(self, mel: torch.Tensor, state: State) -> tuple[torch.Tensor, State, list[torch.Tensor]]:
        kept = iter(state)
        x, keep = self.input(mel, next(kept))
        after, features = [keep], []
        for stage in self.stages:
            x = stage(x, kept, after)
            features.append(x)
        x, keep = self.output(functional.leaky_relu(x, _SLOPE), next(kept))
        pcm, last = self.synthesis(torch.tanh(x), next(kept))
        return pcm.reshape(mel.shape[0], -1), [*after, keep, last], features


class LatentSpace(nn.Module):
    """What talker and codec agree on: latents of mel frames, and their codes.

    The mel is log10 of 80 Slaney bands (80 to 7600 Hz) of a 2048-point FFT with a Hann window of 1200 samples, hop 300,
    then normalised a channel: (value - mean) / scale.
    """

    center: torch.Tensor
    basis: torch.Tensor
    codebooks: torch.Tensor
    silence: torch.Tensor
    mel_mean: torch.Tensor
    mel_scale: torch.Tensor

    def __init__(self, size: int, codebooks: int, entries: int) -> None:
        super().__init__()
        values = MEL_FRAMES * MEL_CHANNELS
        self.register_buffer("center", torch.zeros(values))
        self.register_buffer("basis", torch.zeros(values, size))
        self.register_buffer("codebooks", torch.zeros(codebooks, entries, size))
        self.register_buffer("silence", torch.zeros(size))
        self.register_buffer("mel_mean", torch.zeros(MEL_CHANNELS))
        self.register_buffer("mel_scale", torch.ones(MEL_CHANNELS))

    @classmethod
    def load(cls, path: Path) -> LatentSpace:
        """The latent space of the codec weights at `path`."""
        prefix = "space."
        tensors = {k.removeprefix(prefix): v.float() for k, v in load_file(path).items() if k.startswith(prefix)}
        space = cls(tensors["basis"].shape[1], *tensors["codebooks"].shape[:2])
        space.load_state_dict(tensors)
        return space.eval()

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """Normalised mel float32[..., T, 80] to latents float32[..., T // 4, D]; drops an incomplete last frame."""
        frames = mel.shape[-2] // MEL_FRAMES
        stacked = mel[..., : frames * MEL_FRAMES, :].clamp(min=MEL_FLOOR).reshape(*mel.shape[:-2], frames, -1)
        return (stacked - self.center) @ self.basis

    def quantise(self, latents: torch.Tensor) -> torch.Tensor:
        """float32[..., D] to codes int64[..., Q]: in every codebook the entry nearest to what is left."""
        left, codes = latents, []
        for book in self.codebooks:
            nearest = (book.square().sum(-1) - 2 * left @ book.T).argmin(-1)
            codes.append(nearest)
            left = left - book[nearest]
        return torch.stack(codes, dim=-1)

    def lookup(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes int64[..., Q] to quantised latents float32[..., D]."""
        return sum((book[codes[..., q]] for q, book in enumerate(self.codebooks)), torch.zeros(()))

    def mel(self, latents: torch.Tensor) -> torch.Tensor:
        """float32[..., N, D] to normalised mel float32[..., 4 N, 80]."""
        stacked = latents @ self.basis.T + self.center
        return stacked.reshape(*latents.shape[:-2], -1, MEL_CHANNELS)


class Decoder(nn.Module):
    """Quantised latents float32[B, N, D] to PCM float32[B, 1200 N], `LATENCY_SAMPLES` late.

    A small network over the last three latents adds to the mel what quantisation took away.
    """

    def __init__(self, space: LatentSpace) -> None:
        super().__init__()
        self.space = space
        self.context = StreamingConv(space.basis.shape[1], REFINE_CHANNELS, 3)
        self.refine = nn.Linear(REFINE_CHANNELS, MEL_FRAMES * MEL_CHANNELS)
        nn.init.zeros_(self.refine.bias)
        self.vocoder = Vocoder()

    @classmethod
    def load(cls, path: Path) -> Decoder:
        """Raises FileNotFoundError without a file, RuntimeError (expected and got) if its tensors do not fit."""
        tensors = {name: tensor.float() for name, tensor in load_file(path).items()}
        decoder = cls(LatentSpace.load(path))
        decoder.load_state_dict(tensors)
        return decoder.eval().requires_grad_(False)

    def mel(self, latents: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised mel float32[B, 4 N, 80], and the latents to keep."""
        hidden, kept = self.context(latents, kept)
        extra = self.refine(functional.gelu(hidden)).reshape(latents.shape[0], -1, MEL_CHANNELS)
        return self.space.mel(latents) + extra, kept

    def forward(self, latents: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        mel, kept = self.mel(latents, state[0])
        pcm, after = self.vocoder(mel, state[1:])
        return pcm, [kept, *after]

    def empty_state(self, batch: int) -> State:
        """Zeros for every layer that keeps inputs, in the order in which they run."""
        layers = [module for module in self.modules() if isinstance(module, StreamingConv)]
        device = self.space.basis.device
        return [torch.zeros(batch, layer.context, layer.inputs, device=device) for layer in layers]

    def silent_state(self, batch: int) -> State:
        """The state after a long silence: what a row starts from."""
        _, primed = self(self.space.silence.expand(batch, _WARM_UP_FRAMES, -1), self.empty_state(batch))
        return list(primed)


@dataclass
class _Row:
    """A row in use, with `frames` decoded; the first `LATENCY_SAMPLES` that come out are the silence before it."""

    frames: int = 0
    finished: bool = False


class TeaCodec:
    """The codec stage of tea-omni: see `voice_agent.engine.protocols.Codec`."""

    sample_rate = SAMPLE_RATE
    samples_per_frame = SAMPLES_PER_FRAME
    latency_samples = LATENCY_SAMPLES

    def __init__(self, decoder: Decoder, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"expected at least 1 slot, got {slots}")
        self.slots = slots
        self.codebooks, self._entries, _ = decoder.space.codebooks.shape
        self._decoder = decoder
        with torch.inference_mode():
            self._initial = decoder.silent_state(1)
            self._state = [kept.repeat(slots, 1, 1) for kept in self._initial]
        self._rows: dict[int, _Row] = {}

    @classmethod
    def load(cls, path: Path, slots: int) -> TeaCodec:
        """The codec whose weights lie at `path`, with `slots` rows."""
        return cls(Decoder.load(path), slots)

    def start(self, slot: int) -> None:
        if not 0 <= slot < self.slots or slot in self._rows:
            raise ValueError(f"expected a free slot below {self.slots}, got {slot}")
        self._rows[slot] = _Row()
        with torch.inference_mode():
            for kept, initial in zip(self._state, self._initial, strict=True):
                kept[slot] = initial[0]

    def step(self, slots: Sequence[int], codes: torch.Tensor) -> list[npt.NDArray[np.float32]]:
        if (
            codes.dtype != torch.int64
            or codes.ndim != 3
            or (codes.shape[0], codes.shape[2]) != (len(slots), self.codebooks)
        ):
            raise ValueError(
                f"expected codes int64[{len(slots)}, N, {self.codebooks}], got {codes.dtype}{list(codes.shape)}"
            )
        if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < self._entries:
            raise ValueError(
                f"expected codes from 0 to {self._entries - 1}, got {int(codes.min())} to {int(codes.max())}"
            )
        rows = [self._row(slot) for slot in slots]
        with torch.inference_mode():
            pcm = self._decode(slots, self._decoder.space.lookup(codes))
        chunks = []
        for row, samples in zip(rows, pcm, strict=True):
            early = max(0, LATENCY_SAMPLES - row.frames * SAMPLES_PER_FRAME)
            row.frames += codes.shape[1]
            chunks.append(samples[early:])
        return chunks

    def finish(self, slot: int) -> npt.NDArray[np.float32]:
        row = self._row(slot)
        row.finished = True
        frames = -(-LATENCY_SAMPLES // SAMPLES_PER_FRAME)
        with torch.inference_mode():
            pcm = self._decode([slot], self._decoder.space.silence.expand(1, frames, -1))
        early = max(0, LATENCY_SAMPLES - row.frames * SAMPLES_PER_FRAME)
        return pcm[0, early:LATENCY_SAMPLES]

    def free(self, slot: int) -> None:
        self._rows.pop(slot, None)

    def _row(self, slot: int) -> _Row:
        row = self._rows.get(slot)
        if row is None or row.finished:
            raise ValueError(f"expected a started row that takes frames, got slot {slot}")
        return row

    def _decode(self, slots: Sequence[int], latents: torch.Tensor) -> npt.NDArray[np.float32]:
        """float32[B, N, D] to float32[B, 1200 N], moving the rows' state on."""
        index = torch.tensor(slots)
        pcm, after = self._decoder(latents, [kept[index] for kept in self._state])
        for kept, new in zip(self._state, after, strict=True):
            kept[index] = new
        decoded: npt.NDArray[np.float32] = pcm.clamp(-1, 1).numpy()
        return decoded

"""The talker's network: hidden states to phones, phones to durations, phones with times to codec latents.

Three parts, each causal up to a look-ahead that `TalkerConfig` states:
- `Pronouncer`: a reply token's hidden state, and the next one's, to the phones that the token is spoken with;
- `PhoneEncoder`: phones to features and durations; sees `LEFT` phones back (and, through a GRU, all of them
  dimly) and `RIGHT` ahead;
- `FrameNet`: causal ConvNeXt blocks (Liu et al. 2022, arXiv:2201.03545) over codec frames. A frame's input are
  the phones under a window of sub-frames, each with the seconds since it began and until it ends, because a
  frame cannot be told from its phones alone without knowing *where* in it they begin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEFT, RIGHT = 8, 4  # phones around a phone that its features depend on
KERNEL = 1 + (LEFT + RIGHT) // 4  # of four convolutions
SUBFRAMES = 4  # a frame
SUBFRAMES_BACK, SUBFRAMES_AHEAD = 2, 4  # beyond the frame, on either side
WINDOW = SUBFRAMES_BACK + SUBFRAMES + SUBFRAMES_AHEAD
DURATION_OFFSET = 2.5  # e^-2.5 s is about the length of a phone
TIMING = 5  # numbers that place a sub-frame in its phone
DROPOUT = 0.1  # in training
PAD = 0
EDGE_PHONE = "sil/edge"
LANGUAGES = ("zh", "en")


def language_of(phone: str) -> str | None:
    """The language of a phone by its name; None for a pause, which has that of its sentence."""
    language = phone.partition("/")[0]
    return language if language in LANGUAGES else None


@dataclass(frozen=True)
class TalkerConfig:
    """Sizes of the network. `phones[0]` is padding; `phone_slots` the most phones of one token."""

    phones: tuple[str, ...]
    hidden_size: int
    latent_size: int
    width: int = 256
    blocks: int = 6
    block_kernel: int = 5
    window_width: int = 96
    pronouncer_width: int = 256
    phone_slots: int = 14
    frame_rate: float = 20.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> TalkerConfig:
        value = json.loads(text)
        return TalkerConfig(**{**value, "phones": tuple(value["phones"])})


class Pronouncer(nn.Module):
    """Hidden states to phone slots: logits over the phones, `PAD` meaning no more of them."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        width = config.pronouncer_width
        self.here = nn.Linear(config.hidden_size, width)
        self.next = nn.Linear(config.hidden_size, width, bias=False)
        self.slot = nn.Parameter(torch.randn(config.phone_slots, width) * 0.5)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, len(config.phones))

    def forward(self, here: Tensor, following: Tensor) -> Tensor:
        """`here`, `following`: float32[N, H] (zeros after the last token) to logits float32[N, slots, phones]."""
        state = F.gelu(self.here(_normalise(here)) + self.next(_normalise(following)))
        slots = F.gelu(self.mix(state)[:, None] + self.slot)
        logits: Tensor = self.out(slots * state[:, None])
        return logits

    def phones(self, here: Tensor, following: Tensor) -> list[int]:
        """The phones of one token, float32[H] and the next one's: the best of every slot, up to the first `PAD`."""
        best: list[int] = self(here[None], following[None])[0].argmax(-1).tolist()
        return best[: best.index(PAD)] if PAD in best else best


def _normalise(hidden: Tensor) -> Tensor:
    """The two halves of a hidden state, each by itself: a token's embedding, and what it is in its place."""
    # Not a layer norm: the zeros that stand for "no token" must stay zeros.
    halves = hidden.reshape(*hidden.shape[:-1], 2, hidden.shape[-1] // 2)
    scaled: Tensor = halves / halves.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()
    return scaled.flatten(-2)


@dataclass
class PhoneState:
    """What a text's next phone needs: the latest inputs of every convolution, float32[<= KERNEL - 1, width] each,
    and the GRU's state."""

    windows: list[Tensor]
    recurrent: Tensor | None = None


class PhoneEncoder(nn.Module):
    """Phones in context. The convolutions are unpadded: the *phones* are padded, on both sides."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        width = config.width
        self.phone = nn.Embedding(len(config.phones), width)
        self.language = nn.Embedding(len(LANGUAGES), width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, KERNEL) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.gru = nn.GRU(width, width, batch_first=True)
        self.duration = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))
        self.content = nn.Linear(2 * width, config.window_width)

    def context(self, phones: Tensor, language: Tensor) -> Tensor:
        """int64[B, LEFT + N + RIGHT] twice, the second the language of every phone, to float32[B, N, width]."""
        x = (self.phone(phones) + self.language(language)).transpose(1, 2)
        back = LEFT // 4
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = F.gelu(convolution(norm(x.transpose(1, 2)).transpose(1, 2)))
            y = F.dropout(y, DROPOUT, self.training)
            x = x[..., back : back + y.shape[-1]] + y
        features: Tensor = x.transpose(1, 2)
        return features

    def forward(self, phones: Tensor, language: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Of `context`'s arguments: features float32[B, N, window_width], log seconds float32[B, N] and the GRU's state
        after them."""
        context = self.context(phones, language)
        past, state = self.gru(context, state)
        joined = torch.cat([context, past], -1)
        return self.content(joined), self.duration(joined)[..., 0] - DURATION_OFFSET, state

    def start(self, language: int) -> PhoneState:
        """The state before a text's first phone."""
        width = self.phone.embedding_dim
        state = PhoneState([torch.zeros(0, width)] * len(self.convolutions))
        for _ in range(LEFT):
            self.step(PAD, language, state)
        return state

    def step(self, phone: int, language: int, state: PhoneState) -> tuple[Tensor, float] | None:
        """Takes one more phone and gives the features float32[window_width] and seconds of the one `RIGHT` before it
        (None for the first `RIGHT`). After the last phone, `RIGHT` times `PAD` gives the rest.

        One phone at a time, so that the result cannot depend on how the text arrives.
        """
        x = self.phone.weight[phone] + self.language.weight[language]
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            window = torch.cat([state.windows[index], x[None]])
            if len(window) < KERNEL:
                state.windows[index] = window
                return None
            state.windows[index] = window[1:]
            weight, bias = convolution.weight, convolution.bias
            assert isinstance(weight, Tensor)
            assert isinstance(bias, Tensor)
            y = F.linear(norm(window).t().flatten(), weight.flatten(1), bias)
            x = window[LEFT // 4] + F.gelu(y)
        past, state.recurrent = self.gru(x[None, None], state.recurrent)
        joined = torch.cat([x, past[0, 0]])
        return self.content(joined), float(torch.exp(self.duration(joined) - DURATION_OFFSET))


class CausalBlock(nn.Module):
    """A ConvNeXt block over frames that sees `kernel - 1` frames back."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.randn(width, 1, kernel) / kernel**0.5)
        self.bias = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 3 * width)
        self.project = nn.Linear(3 * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.3))

    def _mix(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = F.dropout(F.gelu(self.expand(self.norm(y))), DROPOUT, self.training)
        mixed: Tensor = x + self.project(hidden) * self.gain
        return mixed

    def forward(self, x: Tensor) -> Tensor:
        """float32[B, T, width] to the same."""
        padded = F.pad(x.transpose(1, 2), (self.kernel - 1, 0))
        return self._mix(x, F.conv1d(padded, self.weight, self.bias, groups=len(self.bias)).transpose(1, 2))

    def step(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """One frame float32[B, width] after `past` float32[B, kernel - 1, width]; also the new past."""
        window = torch.cat([past, x[:, None]], 1)
        y = (window * self.weight[:, 0].t()).sum(1) + self.bias
        return self._mix(x, y), window[:, 1:]


class FrameNet(nn.Module):
    """Windows of phones with their timing to latents, frame by frame."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.timing = nn.Linear(TIMING, config.window_width)
        self.window = nn.Linear(WINDOW * config.window_width, config.width)
        self.blocks = nn.ModuleList(CausalBlock(config.width, config.block_kernel) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, config.latent_size)

    def inputs(self, content: Tensor, timing: Tensor) -> Tensor:
        """float32[…, WINDOW, window_width] and float32[…, WINDOW, TIMING] to float32[…, width]."""
        x: Tensor = self.window(F.gelu(content + self.timing(timing)).flatten(-2))
        return x

    def forward(self, content: Tensor, timing: Tensor) -> Tensor:
        """float32[B, T, WINDOW, …] to latents float32[B, T, latent_size]."""
        x = self.inputs(content, timing)
        for block in self.blocks:
            x = block(x)
        latents: Tensor = self.out(self.norm(x))
        return latents

    def step(self, content: Tensor, timing: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """One frame of B rows. `past`: float32[B, blocks, kernel - 1, width]; gives latents and the new past."""
        x = self.inputs(content, timing)
        states = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, CausalBlock)
            x, state = block.step(x, past[:, index])
            states.append(state)
        return self.out(self.norm(x)), torch.stack(states, 1)


class TalkerNet(nn.Module):
    """All of the talker's weights, and the codebooks float32[Q, K, latent_size] that its latents are coded with."""

    def __init__(self, config: TalkerConfig, codebooks: Tensor) -> None:
        super().__init__()
        self.config = config
        self.pronouncer = Pronouncer(config)
        self.encoder = PhoneEncoder(config)
        self.frames = FrameNet(config)
        self.codebooks: Tensor
        self.register_buffer("codebooks", codebooks)


class ResidualQuantiser:
    """Residual vector quantisation with fixed codebooks float32[Q, K, latent_size]."""

    def __init__(self, codebooks: Tensor) -> None:
        self._books = [(book, book.t().contiguous(), book.pow(2).sum(-1) / 2) for book in codebooks]

    def __call__(self, latents: Tensor) -> Tensor:
        """float32[B, latent_size] to int64[B, Q]: of each codebook the entry nearest to what is left."""
        left, codes = latents, []
        for book, across, half_square in self._books:
            nearest = torch.addmm(half_square, left, across, alpha=-1).argmin(-1)
            left = left - book[nearest]
            codes.append(nearest)
        return torch.stack(codes, -1)


def placement(
    ends: npt.NDArray[np.float64], frames: Sequence[int], frame_rate: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Which phone lies under each sub-frame of each frame's window, and where in the phone the sub-frame is.

    `ends`: seconds at which each phone ends. Sub-frames before the first phone or after the last one count as
    theirs. Returns int64[T, WINDOW] and float32[T, WINDOW, TIMING]: seconds since the phone began, until it
    ends, its length, the part of it that is over, and how far outside the text the sub-frame lies.
    """
    offsets = (np.arange(WINDOW) - SUBFRAMES_BACK + 0.5) / SUBFRAMES
    seconds = (np.asarray(frames, np.float64)[:, None] + offsets) / frame_rate
    inside = seconds.clip(0.0, ends[-1])
    phone = np.searchsorted(ends, inside, side="right").clip(0, len(ends) - 1)
    begins = np.concatenate([np.zeros(1), ends[:-1]])
    since, until = inside - begins[phone], ends[phone] - inside
    length = ends[phone] - begins[phone]
    timing = np.stack([since * 5, until * 5, length * 5, since / length, (seconds - inside) * 5], -1)
    return phone.astype(np.int64), timing.astype(np.float32)

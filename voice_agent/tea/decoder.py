"""The thinker's network: a small pre-norm decoder with rotary positions, whose layers also see the last few inputs.

Rotary embedding: Su et al., "RoFormer" (2021). RMSNorm: Zhang and Sennrich (2019). Squared ReLU: So et al.,
"Primer" (2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class DecoderConfig:
    """`outputs` of the `vocabulary` tokens can be written; `tapped` layers lie below the hidden state given out."""

    vocabulary: int
    outputs: int
    width: int = 192
    layers: int = 8
    heads: int = 3
    inner: int = 768
    tapped: int = 2
    recent: int = 3
    rotary_base: float = 10_000.0

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


def rotations(positions: Tensor, config: DecoderConfig) -> tuple[Tensor, Tensor]:
    """Cosine and sine for int64 positions: float32[..., head_dim] each."""
    half = config.head_dim // 2
    rates = config.rotary_base ** (-torch.arange(half, device=positions.device) / half)
    angles = positions.unsqueeze(-1) * rates
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the halves of x: float[..., head_dim]."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosine + turned * sine


class Block(nn.Module):
    """Attention and a feed-forward layer, each on the normed residual stream.

    Attention reads every position with the `recent` ones before it, weighted by channel: what stands side by side
    (a number and its drink, the characters of a name) need not be found by attention.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        self.norm_attention = nn.RMSNorm(config.width)
        self.mix = nn.Parameter(torch.zeros(config.recent, config.width))
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm_inner = nn.RMSNorm(config.width)
        self.up = nn.Linear(config.width, config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.width, bias=False)

    def project(self, x: Tensor, before: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values of x: float[B, T, width], each [B, heads, T, head_dim], positions applied.

        `before`: float[B, recent, width], the normed inputs of the positions before x (zeros at the start); the last
        value is what that is for the positions after x.
        """
        batch, length, _ = x.shape
        recent = before.shape[1]
        normed = self.norm_attention(x)
        seen = torch.cat([before.to(normed.dtype), normed], 1)
        if length == 1:
            mixed = normed + (seen[:, :recent] * self.mix.flip(0)).sum(1, keepdim=True)
        else:
            mixed = normed
            for back in range(1, recent + 1):
                mixed = mixed + seen[:, recent - back : recent - back + length] * self.mix[back - 1]
        qkv = self.qkv(mixed).view(batch, length, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key = rotate(qkv[:2], cosine, sine)
        return query, key, qkv[2], seen[:, length:]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Residual stream x: float[..., width] after attention gave `attended` (heads joined) and the inner layer."""
        x = x + self.out(attended)
        inner: Tensor = self.down(F.relu(self.up(self.norm_inner(x))).square())
        return x + inner


class Decoder(nn.Module):
    """Token ids to logits over the tokens that can be written."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.outputs, bias=False)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The whole of int64[B, T] at once: logits float[B, T, outputs] and hidden states float[B, T, 2 width].

        A hidden state is a token's embedding, and what the tapped layers have made of it in its place.
        """
        x = embedding = self.embedding(ids)
        cosine, sine = rotations(torch.arange(ids.shape[1], device=ids.device), self.config)
        before = x.new_zeros(ids.shape[0], self.config.recent, self.config.width)
        hidden = torch.cat([x, x], -1)
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            query, key, value, _ = block.project(x, before, cosine, sine)
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = block.finish(x, attended.transpose(1, 2).flatten(2))
            if index + 1 == self.config.tapped:
                hidden = torch.cat([embedding, x], -1)
        return self.head(self.norm(x)), hidden

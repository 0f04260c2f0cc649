"""Choosing tokens as the reference's `generate()` does, with a random stream of its own for each request.

`torch.multinomial` for one choice divides the probabilities by exponential noise and takes the largest. Here the noise
is drawn first, by each row's own generator; the choice is then the same for all rows at once, and knows no generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


@dataclass(frozen=True)
class Sampling:
    """How a stage chooses. `greedy` takes the likeliest and ignores temperature, top_k (0: off) and top_p (1: off)."""

    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0


class Chooser:
    """Picks one token a row, in the order of the reference: penalty, suppression, temperature, top-k, top-p.

    suppress: ids that are never chosen.
    """

    def __init__(
        self, sampling: Sampling, vocabulary: int, *, suppress: Sequence[int] = (), device: torch.device
    ) -> None:
        self.vocabulary = vocabulary
        self._greedy, self._penalty, self._device = sampling.greedy, sampling.repetition_penalty, device
        self._suppressed = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._suppressed[list(suppress)] = True
        self._warpers = LogitsProcessorList()
        if sampling.greedy:
            return
        if sampling.temperature != 1.0:
            self._warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k:
            self._warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1.0:
            self._warpers.append(TopPLogitsWarper(sampling.top_p))

    def noise(self, generators: Sequence[torch.Generator], width: int) -> Tensor:
        """What the next choice needs, float32[width, V] ([width, 0] if greedy); rows beyond the generators get ones."""
        noise = torch.ones(width, 0 if self._greedy else self.vocabulary, device=self._device)
        if not self._greedy:
            for row, generator in zip(noise, generators, strict=False):
                row.exponential_(generator=generator)
        return noise

    def choose(self, logits: Tensor, noise: Tensor, seen: Tensor | None = None) -> Tensor:
        """logits: float[B, V]; noise: of `noise`; seen: bool[B, V], what the penalty counts. Gives int64[B]."""
        scores = logits.float()
        if seen is not None:
            penalised = torch.where(scores < 0, scores * self._penalty, scores / self._penalty)
            scores = torch.where(seen, penalised, scores)
        scores = scores.masked_fill(self._suppressed, -torch.inf)
        if self._greedy:
            return scores.argmax(-1)
        warped: Tensor = self._warpers(None, scores)
        return (warped.softmax(-1) / noise).argmax(-1)

"""Choosing tokens as the reference's `generate()` does, with a random stream of its own for each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
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
    """Picks one token a row, in the order of the reference: penalty, suppression, temperature, top-k, top-p."""

    def __init__(self, sampling: Sampling, *, suppress: Sequence[int] = (), device: torch.device) -> None:
        self._greedy, self._penalises = sampling.greedy, sampling.repetition_penalty != 1.0
        self._processors = LogitsProcessorList()
        if self._penalises:
            self._processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        if suppress:
            self._processors.append(SuppressTokensLogitsProcessor(list(suppress), device=device))
        if sampling.greedy:
            return
        if sampling.temperature != 1.0:
            self._processors.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k:
            self._processors.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1.0:
            self._processors.append(TopPLogitsWarper(sampling.top_p))

    def choose(self, logits: Tensor, before: Sequence[int], generator: torch.Generator) -> Tensor:
        """logits: float[V] of one row; before: the ids that a penalty counts. Gives int64[1]."""
        seen = torch.tensor([before if self._penalises else []], dtype=torch.long, device=logits.device)
        scores: Tensor = self._processors(seen, logits.float().unsqueeze(0))
        if self._greedy:
            return scores.argmax(-1)
        return torch.multinomial(scores.softmax(-1), 1, generator=generator)[0]

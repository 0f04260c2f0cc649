"""tea-omni's end-of-turn head: whether the words so far are a complete turn, in the dialogue that they are part of.

It reads the residual stream of the thinker's lowest layers and adds one layer of its own, from the last word back to
the beginning of the agent's last reply. What marks the end in a partial transcript is never trusted: its punctuation
is taken away first. Predicting the end of a turn from words in context: Ekstedt and Skantze, "TurnGPT" (2020).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from voice_agent.tea.decoder import Block, Decoder, DecoderConfig, rotations
from voice_agent.tea.template import Context, prompt_tokens
from voice_agent.tea.tokenizer import PUNCTUATION, Vocabulary

LAYERS = 4  # of the thinker lie below it


def unpunctuated(tokens: Sequence[str]) -> list[str]:
    """The tokens without punctuation at the end."""
    end = len(tokens)
    while end and tokens[end - 1] in PUNCTUATION:
        end -= 1
    return list(tokens[:end])


def partial_tokens(context: Context, vocabulary: Vocabulary) -> list[str]:
    """What was heard of the agent's last reply, and the words since: `<zh> <p> <a> … <u> …`, without the cart.

    The last token is the last word; `<u>` if there is none.
    """
    told = Context(context.language, context.utterance, heard=context.heard)
    return unpunctuated(prompt_tokens(told, vocabulary)[:-1])


class TurnEnd(nn.Module):
    """A decoder block and a score on the residual stream after the thinker's first `LAYERS` layers."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.block = Block(config)
        self.norm = nn.RMSNorm(config.width)
        self.score = nn.Linear(config.width, 1)

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        """Logits at the flat positions `targets` of states: float[B, T, width]; none sees the positions after it."""
        cosine, sine = rotations(torch.arange(states.shape[1], device=states.device), self.config)
        before = states.new_zeros(states.shape[0], self.config.recent, self.config.width)
        query, key, value, _ = self.block.project(states, before, cosine, sine)
        future = torch.full((states.shape[1],) * 2, -1e4, device=states.device).triu(1)
        scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5 + future
        attended = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
        x = self.block.finish(states.flatten(0, 1)[targets], attended.flatten(0, 1)[targets])
        logits: Tensor = self.score(self.norm(x)).squeeze(-1)
        return logits

    def save(self, path: Path, decoder: Decoder) -> None:
        """Write the weights as float16, with what they were fitted on."""
        state = {key: value.detach().to(torch.float16).contiguous() for key, value in self.state_dict().items()}
        save_file(state, path, metadata={"fitted_on": lower_digest(decoder)})
        path.chmod(0o644)

    @classmethod
    def load(cls, path: Path, decoder: Decoder) -> TurnEnd:
        """Weights from a safetensors file. Raises ValueError if they were fitted on another thinker."""
        with safe_open(path, framework="pt") as file:
            fitted_on = (file.metadata() or {}).get("fitted_on")
            state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
        if fitted_on != (own := lower_digest(decoder)):
            raise ValueError(
                f"{path}: expected an end-of-turn head that was fitted on this thinker ({own}), got {fitted_on}; "
                "fit it anew with models/tea-omni/train_endpoint.py"
            )
        head = cls(decoder.config)
        head.load_state_dict(state)
        return head.eval().requires_grad_(False)


def lower_states(decoder: Decoder, ids: Tensor) -> Tensor:
    """The residual stream after the first `LAYERS` layers for int64[B, T]: float[B, T, width]."""
    x: Tensor = decoder.embedding(ids)
    cosine, sine = rotations(torch.arange(ids.shape[1], device=ids.device), decoder.config)
    before = x.new_zeros(ids.shape[0], decoder.config.recent, decoder.config.width)
    for block in decoder.blocks[:LAYERS]:
        assert isinstance(block, Block)
        query, key, value, _ = block.project(x, before, cosine, sine)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = block.finish(x, attended.transpose(1, 2).flatten(2))
    return x


def lower_digest(decoder: Decoder) -> str:
    """Names the weights that `lower_states` depends on, as they are in float16."""
    digest = hashlib.sha256()
    for part in (decoder.embedding, *decoder.blocks[:LAYERS]):
        for key, value in sorted(part.state_dict().items()):
            digest.update(key.encode() + value.to(torch.float16).numpy().tobytes())
    return digest.hexdigest()[:16]

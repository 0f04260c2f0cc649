"""Whisper's decoder (https://arxiv.org/abs/2212.04356), greedy, that takes a draft of its text along.

On a processor a pass over the weights takes as long for one token as for ten. While somebody speaks there are partial
transcripts, and the next one mostly begins like the last. So a draft is read in one pass with the prompt, and kept as
far as it is what would have been written there anyway (speculative decoding, https://arxiv.org/abs/2211.17192). Where a
token differs, the rest of the draft is tried again after it; else what follows the last two tokens in the draft or in
the prompt (prompt lookup decoding): the words of a menu come whole.

Products are of activations by row, of 8 bits, and of weights by output channel, of 8 bits where the processor adds
them up in 32 (AVX-512 VNNI), else of 7: two such products do not overflow the 16 that they are added in. The weights
are those of the CTranslate2 file whose encoder this decoder listens to. A draft changes the text only where two tokens
are so near that rounding decides.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Decoded", "Decoder", "Heard", "can_decode", "read_weights"]

_multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

_AHEAD = 6
"""Tokens that are tried after two that stand before them in the draft or the prompt too."""
_NEAR = 3
"""Tokens of a draft among which the one that was written instead is looked for."""
_FAR = 4.0
"""A phrase that begins with a token so much less probable (in nats) than another's first one is not weighed."""
_DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


@dataclass(frozen=True)
class Decoded:
    """`ids`: the text's tokens, without the one that ends it. `avg_logprob`: natural logarithm, mean over the tokens.

    `no_speech_prob`: Whisper's own, read where the transcript starts. `passes`: over the weights, the prompt's one
    counted.
    """

    ids: list[int]
    avg_logprob: float
    no_speech_prob: float
    passes: int


def can_decode() -> bool:
    """Whether this processor has the int8 products that a `Decoder` is made of (x86 has)."""
    return "fbgemm" in torch.backends.quantized.supported_engines


class _Linear:
    """y = x · Wᵀ + b for float32[1, T, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        most = 127 if torch.cpu.get_capabilities().get("avx512_vnni", False) else 63
        scales = weight.abs().amax(1).double() / most
        zeros = torch.zeros(len(scales), dtype=torch.long)
        with warnings.catch_warnings():
            # These tensors leave torch after the release that is pinned; its own successors take twice the time a row.
            warnings.filterwarnings("ignore", message=r"torch\.quantize_per_tensor.* are deprecated")
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(rounded, None)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp_min_(1e-9)
        product: Tensor = _multiply(x / scale, 1 / 127, 128, self._packed)
        product.mul_(scale)
        return product if self._bias is None else product.add_(self._bias)


@dataclass(frozen=True)
class _Norm:
    gamma: Tensor
    beta: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.gamma.shape, self.gamma, self.beta)


@dataclass(frozen=True)
class _Layer:
    norm_self: _Norm
    qkv: _Linear
    out_self: _Linear
    norm_cross: _Norm
    query: _Linear
    key_value: _Linear
    out_cross: _Linear
    norm_feed: _Norm
    widen: _Linear
    narrow: _Linear


Heard = list[tuple[Tensor, Tensor]]
"""What the layers read of a sound: keys and values, float32[1, heads, T, width / heads] each."""


class _Text:
    """The state of one text: keys and values of what was read, float32[layers, 1, heads, positions, width / heads]."""

    def __init__(self, layers: int, heads: int, positions: int, width: int, heard: Heard) -> None:
        self.keys = torch.empty(layers, 1, heads, positions, width // heads)
        self.values = torch.empty_like(self.keys)
        self.heard = heard
        self.length = 0


class Decoder:
    """Weights of a Whisper decoder. Stateless between texts; several threads may decode at once."""

    def __init__(
        self, path: Path, allowed: Collection[int], end: int, no_speech: int, not_first: Collection[int]
    ) -> None:
        """`path`: a CTranslate2 model file. Ids of tokens: `allowed` may be written, `end` ends a text, `no_speech`
        stands where there is none, and with `not_first` no text begins.

        Raises ValueError if the file holds another kind of model.
        """
        weights = read_weights(path, "decoder/")
        depth = sum(name.endswith("/self_attention/linear_0/weight") for name in weights)
        if not depth:
            raise ValueError(f"expected the weights of a Whisper model in {path}, got no decoder layers")

        def linear(name: str) -> _Linear:
            return _Linear(weights[f"{name}/weight"], weights[f"{name}/bias"])

        def norm(name: str) -> _Norm:
            return _Norm(weights[f"{name}/gamma"], weights[f"{name}/beta"])

        self._heads = int(weights["decoder/num_heads"])
        self._embeddings = weights["decoder/embeddings/weight"].half()
        self._positions = weights["decoder/position_encodings/encodings"]
        self._layers = [
            _Layer(
                norm(f"{at}/self_attention/layer_norm"),
                linear(f"{at}/self_attention/linear_0"),
                linear(f"{at}/self_attention/linear_1"),
                norm(f"{at}/attention/layer_norm"),
                linear(f"{at}/attention/linear_0"),
                linear(f"{at}/attention/linear_1"),
                linear(f"{at}/attention/linear_2"),
                norm(f"{at}/ffn/layer_norm"),
                linear(f"{at}/ffn/linear_0"),
                linear(f"{at}/ffn/linear_1"),
            )
            for at in (f"decoder/layer_{number}" for number in range(depth))
        ]
        self._norm = norm("decoder/layer_norm")
        self._end, self._no_speech = end, no_speech
        self._not_first = [end, *not_first]
        self._forbidden = torch.full((len(self._embeddings),), -math.inf)
        self._forbidden[[*allowed, end]] = 0
        self._project = _Linear(weights["decoder/embeddings/weight"], None)

    def listen(self, encoded: npt.NDArray[np.float32]) -> Heard:
        """Keys and values of `encoded`, float32[1, T, width], a Whisper encoder's output: what all texts of it read."""
        with torch.inference_mode():
            states = torch.from_numpy(encoded)
            shape = (1, states.shape[1], 2, self._heads, states.shape[2] // self._heads)
            pairs = (layer.key_value(states).view(shape).permute(2, 0, 3, 1, 4).contiguous() for layer in self._layers)
            return [(keys, values) for keys, values in pairs]

    def detect(self, heard: Heard, start: int, languages: Sequence[int]) -> list[float]:
        """How probable each token of `languages` is after the token `start`, among them all."""
        with torch.inference_mode():
            scores = self._project(self._read(self._text(heard), [start]))[0, 0, languages]
            return torch.softmax(scores, 0).tolist()

    def weigh(self, heard: Heard, task: list[int], phrases: Sequence[list[int]], after: list[int]) -> list[float]:
        """Log probability (natural) of each of `phrases`, tokens, as the beginning of a text that ends then.

        `after`: tokens that may follow, such as a full stop. -inf: not weighed, as others are far more probable.
        """
        with torch.inference_mode():
            text = self._text(heard)
            first = torch.log_softmax(self._project(self._read(text, task)[:, -1:])[0, 0].add_(self._forbidden), 0)
            found = first[[phrase[0] for phrase in phrases]]
            weights = [-math.inf] * len(phrases)
            chosen = torch.nonzero(found >= found.max() - _FAR).flatten().tolist()
            longest = max(len(phrases[number]) for number in chosen)
            rows = [[*phrases[number], *[self._end] * (longest - len(phrases[number]))] for number in chosen]
            states = self._read(text, [token for row in rows for token in row], len(rows))
            places = [row * longest + at for row, number in enumerate(chosen) for at in range(len(phrases[number]))]
            logprobs = torch.log_softmax(self._project(states[:, places])[0].add_(self._forbidden), 1)
            ends = torch.logsumexp(logprobs[:, [self._end, *after]], 1).tolist()
            place = 0
            for number in chosen:
                weights[number] = float(found[number])
                for following in phrases[number][1:]:
                    weights[number] += float(logprobs[place, following])
                    place += 1
                weights[number] += ends[place]
                place += 1
            return weights

    def decode(self, heard: Heard, prompt: list[int], task: list[int], draft: Sequence[int], longest: int) -> Decoded:
        """Write the text of what was heard.

        `prompt`, `task`: tokens before the transcript and those that it starts with; `draft`: what the text probably
        begins with; `longest`: tokens that it may have, of which there may be room for fewer.
        """
        with torch.inference_mode():
            text = self._text(heard)
            start = [*prompt, *task]
            longest = min(longest, len(self._positions) - len(start) - 1)
            guess = draft = list(draft[:longest])
            states = self._read(text, [*start, *guess])
            began = self._project(states[:, len(prompt) : len(prompt) + 1])[0, 0]
            no_speech_prob = float(torch.softmax(began, 0)[self._no_speech])
            states = states[:, len(start) - 1 :]
            written: list[int] = []
            total, passes = 0.0, 1
            while True:
                scores = self._project(states)[0].add_(self._forbidden)
                if not written:
                    scores[0, self._not_first] = -math.inf
                logprobs, best = torch.log_softmax(scores, 1).max(1)
                for place, (token, logprob) in enumerate(zip(best.tolist(), logprobs.tolist(), strict=True)):
                    if len(written) < longest:
                        total += logprob
                    if token == self._end or len(written) == longest:
                        return Decoded(written, total / max(1, len(written)), no_speech_prob, passes)
                    written.append(token)
                    if place >= len(guess) or token != guess[place]:
                        break
                kept = place > 0 or passes == 1
                guess = _next_guess(written, guess[place:], kept, (draft, prompt))[: longest - len(written)]
                text.length = len(start) + len(written) - 1
                states = self._read(text, [written[-1], *guess])
                passes += 1

    def _text(self, heard: Heard) -> _Text:
        (keys, _), *_ = heard
        return _Text(len(self._layers), self._heads, len(self._positions), self._heads * keys.shape[3], heard)

    def _read(self, text: _Text, ids: list[int], rows: int = 1) -> Tensor:
        """Read `ids` behind what was read: float32[1, len(ids), width], the states that the next tokens are told by.

        With more than one row, these are so many continuations of the same length, and none of them is kept.
        """
        began, count = text.length, len(ids) // rows
        ended = began + count
        x = (self._embeddings[ids].float() + self._positions[began:ended].repeat(rows, 1))[None]
        width = x.shape[2]
        split = (rows, count, 3, self._heads, width // self._heads)
        mask = None
        if began and count > 1:
            mask = torch.ones(count, ended, dtype=torch.bool).tril(began)
        for number, layer in enumerate(self._layers):
            query, key, value = layer.qkv(layer.norm_self(x)).view(split).permute(2, 0, 3, 1, 4)
            keys, values = text.keys[number], text.values[number]
            if rows == 1:
                keys[:, :, began:ended], values[:, :, began:ended] = key, value
                key, value = keys[:, :, :ended], values[:, :, :ended]
            else:
                key = torch.cat([keys[:, :, :began].expand(rows, -1, -1, -1), key], 2)
                value = torch.cat([values[:, :, :began].expand(rows, -1, -1, -1), value], 2)
            mixed = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=not began and count > 1)
            x = x + layer.out_self(mixed.transpose(1, 2).reshape(1, rows * count, width))
            query = layer.query(layer.norm_cross(x)).view(1, rows * count, self._heads, -1).transpose(1, 2)
            mixed = functional.scaled_dot_product_attention(query, *text.heard[number])
            x = x + layer.out_cross(mixed.transpose(1, 2).reshape(1, rows * count, width))
            x = x + layer.narrow(functional.gelu(layer.widen(layer.norm_feed(x))))
        if rows == 1:
            text.length = ended
        return self._norm(x)


def _next_guess(written: list[int], missed: list[int], kept: bool, sources: Sequence[list[int]]) -> list[int]:
    """What may follow `written`. `missed`: the rest of the last guess, from where the last token was written instead;
    `kept`: whether anything before it was right.
    """
    near = missed[:_NEAR]
    if written[-1] in near:
        return missed[near.index(written[-1]) + 1 :]
    if kept and len(missed) > 1:
        return missed[1:]
    last = written[-2:]
    for source in sources:
        for at in range(len(source) - 2, 0, -1):
            if source[at - 1 : at + 1] == last:
                return source[at + 1 : at + 1 + _AHEAD]
    return []


def read_weights(path: Path, prefix: str) -> dict[str, Tensor]:
    """The variables of a CTranslate2 model file (binary version 6) whose names begin with `prefix`, as float32.

    Raises ValueError for another version.
    """
    weights: dict[str, Tensor] = {}
    with path.open("rb") as file:
        (version,) = _unpack(file, "<I")
        if version != 6:
            raise ValueError(f"expected a CTranslate2 model of binary version 6 in {path}, got {version}")
        _text(file)
        _, count = _unpack(file, "<II")
        for _ in range(count):
            name = _text(file)
            (rank,) = _unpack(file, "<B")
            shape = _unpack(file, f"<{rank}I")
            kind, size = _unpack(file, "<BI")
            if name.startswith(prefix):
                values = np.frombuffer(file.read(size), _DTYPES[kind]).reshape(shape)
                weights[name] = torch.from_numpy(values.astype(np.float32))
            else:
                file.seek(size, 1)
    return weights


def _unpack(file: IO[bytes], layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: IO[bytes]) -> str:
    (size,) = _unpack(file, "<H")
    return file.read(size)[:-1].decode()

"""What tea-omni asks of a device: its parts built on the meta device, from the headers of its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from voice_agent import weights
from voice_agent.engine.plan import TOKENS_PER_S, Part, Work, bytes_of, counted, part_of
from voice_agent.tea.codec import Decoder as CodecDecoder
from voice_agent.tea.codec import LatentSpace, TeaCodec
from voice_agent.tea.decoder import Decoder, DecoderConfig
from voice_agent.tea.talker import TeaTalker
from voice_agent.tea.talker_net import TIMING, WINDOW, ResidualQuantiser, TalkerConfig, TalkerNet
from voice_agent.tea.thinker import TeaThinker
from voice_agent.tea.tokenizer import Vocabulary

__all__ = ["parts"]

CONTEXT = 100
"""Positions that a step looks back on: the cart, the latest words, the calls and the reply."""


def parts(folder: Path | None = None) -> list[Part]:
    """Thinker, talker and codec. Raises WeightsError when the weights are not what they should be."""
    folder = weights.tea_omni(folder)
    return [_thinker(folder), _talker(folder), _codec(folder)]


def _header(path: Path, *names: str) -> tuple[dict[str, str], list[tuple[int, ...]]]:
    """The metadata of a file of weights, and the shapes of these of its tensors."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}, [tuple(file.get_slice(name).get_shape()) for name in names]


def _thinker(folder: Path) -> Part:
    vocabulary = Vocabulary.load(folder / "thinker.json")
    told, _ = _header(folder / "thinker.safetensors")
    sizes: dict[str, Any] = {name: float(v) if name == "rotary_base" else int(v) for name, v in told.items()}
    config = DecoderConfig(**sizes)

    def make(slots: int) -> tuple[Decoder, TeaThinker]:
        with torch.device("meta"):
            decoder = Decoder(config)
            return decoder, TeaThinker(decoder, vocabulary, slots)

    decoder, _ = make(1)
    flops, kernels = counted(lambda: decoder(torch.zeros(1, 1, dtype=torch.int64)))
    token = 2 * config.layers * config.width * 4
    read = bytes_of([p for name, p in decoder.named_parameters() if not name.startswith("embedding.")])
    work = Work(read, CONTEXT * token, flops, kernels)
    return part_of("thinker", make, token=token, per_s=TOKENS_PER_S, work=work)


def _talker(folder: Path) -> Part:
    told, (codebooks,) = _header(folder / "talker.safetensors", "codebooks")
    config = TalkerConfig.from_json(told["config"])

    def make(slots: int) -> tuple[TalkerNet, TeaTalker]:
        with torch.device("meta"):
            net = TalkerNet(config, torch.empty(codebooks))
            return net, TeaTalker(net, slots)

    net, _ = make(1)

    def step() -> None:
        content, timing = torch.zeros(1, WINDOW, config.window_width), torch.zeros(1, WINDOW, TIMING)
        past = torch.zeros(1, config.blocks, config.block_kernel - 1, config.width)
        ResidualQuantiser(net.codebooks)(net.frames.step(content, timing, past)[0])

    flops, kernels = counted(step)
    state = config.blocks * (config.block_kernel - 1) * config.width * 4
    work = Work(bytes_of([*net.frames.parameters(), net.codebooks]), state, flops, kernels)
    return part_of("talker", make, per_s=config.frame_rate, work=work)


def _codec(folder: Path) -> Part:
    _, (basis, codebooks) = _header(folder / "codec.safetensors", "space.basis", "space.codebooks")

    def make(slots: int) -> tuple[CodecDecoder, TeaCodec]:
        with torch.device("meta"):
            decoder = CodecDecoder(LatentSpace(basis[1], *codebooks[:2]))
            return decoder, TeaCodec(decoder, slots)

    decoder, codec = make(1)
    flops, kernels = counted(lambda: decoder(torch.zeros(1, 1, basis[1]), decoder.empty_state(1)))
    work = Work(bytes_of(list(decoder.parameters())), bytes_of(decoder.empty_state(1)), flops, kernels)
    return part_of("codec", make, per_s=codec.sample_rate / codec.samples_per_frame, work=work)

"""What a Qwen3-Omni asks of a device: its parts built on the meta device, from a configuration."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

from voice_agent.engine.plan import TOKENS_PER_S, Inner, Part, Work, allocated, bytes_of, counted, part_of
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.model import QwenOmni
from voice_agent.qwen.published import published

__all__ = ["parts"]

EXPERTS = ".mlp.experts."
CONTEXT = 1000
"""Positions of dialogue that a step looks back on."""


def parts(folder: Path | None, told: QwenConfig) -> list[Part]:
    """Thinker, talker (with its predictor) and codec of the model in a folder; None: of the published one."""
    config = published() if folder is None else Qwen3OmniMoeConfig.from_pretrained(folder)
    built = {slots: _build(config, told, slots) for slots in (1, 2)}

    def make(stage: str, slots: int) -> tuple[torch.nn.Module, Any]:
        network, served = built[slots]
        return {"thinker": network.thinker, "talker": network.talker, "codec": network.code2wav}[stage], getattr(
            served, stage
        )

    network, served = built[1]
    network.set_experts_implementation("batched_mm")  # what it computes does not depend on which experts are chosen
    return [
        part_of("thinker", partial(make, "thinker"), token=_token(config.thinker_config.text_config, told),
                per_s=TOKENS_PER_S, work=_thinker_work(network, told)),
        part_of("talker", partial(make, "talker"), token=_token(config.talker_config.text_config, told),
                per_s=served.talker.frame_rate, work=_talker_work(network, told), inner=(_predictor(network, told),)),
        part_of("codec", partial(make, "codec"), per_s=served.talker.frame_rate, work=_codec_work(network)),
    ]  # fmt: skip


def _build(
    config: Qwen3OmniMoeConfig, told: QwenConfig, slots: int
) -> tuple[Qwen3OmniMoeForConditionalGeneration, QwenOmni]:
    """As `checkpoint.load` does, without weights. Graphs are recorded on a device alone."""
    with torch.device("meta"):
        network = Qwen3OmniMoeForConditionalGeneration._from_config(config, dtype=getattr(torch, told.dtype)).eval()
        network.code2wav.float()
        planned = told.model_copy(update={"graphs": False, "compile": False, "listen": False})
        return network, QwenOmni.of(network, None, None, slots=slots, config=planned)  # type: ignore[arg-type]


def _predictor(network: Qwen3OmniMoeForConditionalGeneration, told: QwenConfig) -> Inner:
    """Its keys and values are those of one frame: a position for each code."""
    predictor = network.talker.code_predictor
    token = _token(predictor.config, told)
    groups = int(predictor.config.num_code_groups)
    return Inner("predictor", allocated(predictor), groups * token, token)


def _token(text: Any, told: QwenConfig) -> int:
    """Bytes of keys and values for one position."""
    size = getattr(torch, told.dtype).itemsize
    return int(2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * size)


def _experts(model: torch.nn.Module) -> int:
    return bytes_of([parameter for name, parameter in model.named_parameters() if EXPERTS in f".{name}"])


def _rest(model: torch.nn.Module) -> int:
    """All but experts and tables of which a step reads a row."""
    read = [p for name, p in model.named_parameters() if EXPERTS not in f".{name}" and "embed" not in name]
    return bytes_of(read)


def _mask(count: int) -> torch.Tensor:
    """Every position sees every one: bool[1, 1, N, N]."""
    return torch.ones(1, 1, count, count, dtype=torch.bool)


def _alone(model: torch.nn.Module, x: torch.Tensor, mask: Any) -> torch.Tensor:
    """The hidden states of positions without a past. Attention to the past is counted by the bytes that it reads."""
    positions = torch.arange(x.shape[1]).expand(1, -1)
    hidden: torch.Tensor = model(
        inputs_embeds=x, position_ids=positions, attention_mask=mask, use_cache=False
    ).last_hidden_state
    return hidden


def _thinker_work(network: Qwen3OmniMoeForConditionalGeneration, told: QwenConfig) -> Work:
    model, head = network.thinker.model.language_model, network.thinker.lm_head
    text = network.config.thinker_config.text_config

    def step() -> None:
        x = torch.zeros(1, 1, text.hidden_size, dtype=head.weight.dtype)
        head(_alone(model, x, _mask(1)))

    flops, kernels = counted(step)
    return Work(
        _rest(model) + bytes_of(list(head.parameters())),
        min(CONTEXT, told.max_length) * _token(text, told),
        flops,
        kernels,
        _experts(model),
        text.num_experts,
        text.num_experts_per_tok,
    )


def _talker_work(network: Qwen3OmniMoeForConditionalGeneration, told: QwenConfig) -> Work:
    """A step of the talker and, after it, one of the predictor for each further code, which reads its layers anew."""
    talker = network.talker
    predictor, head = talker.code_predictor, talker.codec_head
    text = network.config.talker_config.text_config
    further = network.config.talker_config.num_code_groups - 1

    def first() -> None:
        x = torch.zeros(1, 1, text.hidden_size, dtype=head.weight.dtype)
        head(_alone(talker.model, x, _mask(1)))

    def another() -> None:
        x = torch.zeros(1, 1, predictor.config.hidden_size, dtype=head.weight.dtype)
        predictor.lm_head[0](_alone(predictor.model, x, {"full_attention": _mask(1)}))

    (first_flops, first_kernels), (flops, kernels) = counted(first), counted(another)
    dense = _rest(talker.model) + bytes_of(list(head.parameters())) + bytes_of(list(predictor.lm_head.parameters()))
    return Work(
        dense + further * bytes_of(list(predictor.model.layers.parameters())),
        min(CONTEXT, told.max_length) * _token(text, told),
        first_flops + further * flops,
        first_kernels + further * kernels,
        _experts(talker.model),
        text.num_experts,
        text.num_experts_per_tok,
    )


def _codec_work(network: Qwen3OmniMoeForConditionalGeneration) -> Work:
    wave = network.code2wav

    def decode(frames: int) -> None:
        x = wave.code_embedding(torch.zeros(1, wave.config.num_quantizers, frames, dtype=torch.int64)).mean(1)
        x = _alone(wave.pre_transformer, x, {"sliding_attention": _mask(frames)}).transpose(1, 2)
        for module in (*(module for pair in wave.upsample for module in pair), *wave.decoder):
            x = module(x)

    # The first frames have no past; what the ninth adds is what a frame of a stream takes.
    (eight, _), (nine, kernels) = counted(partial(decode, 8)), counted(partial(decode, 9))
    return Work(bytes_of(list(wave.parameters())), 0, nine - eight, kernels)

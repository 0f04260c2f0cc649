"""Qwen3-Omni as one model: thinker, talker and codec of one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration, WhisperFeatureExtractor

from voice_agent.qwen.codec import QwenCodec
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.prompt import CALL_OPEN, Template
from voice_agent.qwen.sampling import Sampling
from voice_agent.qwen.talker import PREDICTOR_SAMPLING, TALKER_SAMPLING, QwenTalker
from voice_agent.qwen.thinker import QwenThinker

__all__ = ["QwenOmni"]


@dataclass
class QwenOmni:
    """The three parts."""

    thinker: QwenThinker
    talker: QwenTalker
    codec: QwenCodec
    name: str
    speeds: ClassVar[tuple[float, float]] = (1.0, 1.0)

    @classmethod
    def of(
        cls,
        network: Qwen3OmniMoeForConditionalGeneration,
        template: Template,
        extractor: WhisperFeatureExtractor | None,
        *,
        slots: int,
        config: QwenConfig = QwenConfig(),  # noqa: B008
        name: str = "qwen3-omni",
    ) -> QwenOmni:
        """Serve a loaded network. Raises ValueError for an unknown voice, and for graphs without a GPU."""
        ids = network.config
        marks = torch.tensor(mark_ids(ids))
        embeddings = network.thinker.get_input_embeddings()
        return cls(
            make_thinker(network, template, extractor, slots, config),
            make_talker(network, embeddings(marks.to(embeddings.weight.device)), slots, config),
            make_codec(network, slots, config),
            name,
        )

    def check(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises ValueError if there are tools and the tokenizer cannot write calls."""
        QwenCard(self.name, self.thinker.template.takes_tools).check(tools)


@dataclass(frozen=True)
class QwenCard:
    """What a checkpoint was made for. `takes_tools`: its tokenizer can write calls."""

    name: str
    takes_tools: bool
    speeds: ClassVar[tuple[float, float]] = (1.0, 1.0)

    def check(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises ValueError if there are tools and the tokenizer cannot write calls."""
        if tools and not self.takes_tools:
            raise ValueError(f"expected a tokenizer that has {CALL_OPEN!r}, to call {', '.join(tools)}, got none")


def mark_ids(ids: Qwen3OmniMoeConfig) -> tuple[int, int, int]:
    """tts_bos, tts_eos and tts_pad, whose embeddings a talker starts from."""
    return ids.tts_bos_token_id, ids.tts_eos_token_id, ids.tts_pad_token_id


def make_thinker(
    network: Qwen3OmniMoeForConditionalGeneration,
    template: Template,
    extractor: WhisperFeatureExtractor | None,
    slots: int,
    config: QwenConfig,
) -> QwenThinker:
    """Serve the network's thinker; nothing else of the network is used."""
    ids = network.config
    return QwenThinker(
        network.thinker,
        template,
        slots,
        user_token_id=ids.user_token_id,
        im_start_token_id=ids.im_start_token_id,
        accept_layer=ids.talker_config.accept_hidden_layer,
        extractor=extractor,
        listen=config.listen,
        kept=config.kept,
        max_reply=config.max_reply,
        max_length=config.max_length,
        prefill=config.prefill,
    )


def make_talker(
    network: Qwen3OmniMoeForConditionalGeneration, marks: torch.Tensor, slots: int, config: QwenConfig
) -> QwenTalker:
    """Serve the network's talker alone. `marks`: [3, H], the thinker's embeddings of `mark_ids`."""
    return QwenTalker(
        network.talker,
        marks,
        slots,
        voice=config.voice,
        sampling=Sampling(greedy=True, repetition_penalty=1.05) if config.greedy else TALKER_SAMPLING,
        predictor_sampling=Sampling(greedy=True) if config.greedy else PREDICTOR_SAMPLING,
        max_frames=config.max_frames,
        # Whatever prompt the thinker holds, the talker has room for it.
        max_length=config.max_length + config.max_frames + 16,
        prefill=config.prefill,
        compile=config.compile,
        graphs=config.graphs,
    )


def make_codec(network: Qwen3OmniMoeForConditionalGeneration, slots: int, config: QwenConfig) -> QwenCodec:
    """Serve the network's code2wav alone."""
    return QwenCodec(network.code2wav, slots, compile=config.compile, graphs=config.graphs)

"""A Qwen3-Omni of a few thousand parameters with random weights, and a tokenizer and chat template to match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeForConditionalGeneration,
    WhisperFeatureExtractor,
)

from voice_agent.engine.protocols import CodecFrame, TextToken, ThinkRequest
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.model import QwenOmni
from voice_agent.qwen.prompt import Template

WIDTH = 32
SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>", "<|image_pad|>",
    "<|video_pad|>", "<|vision_start|>", "<tts_pad>", "<tts_bos>", "<tts_eos>",
)  # fmt: skip
WORDS = ("system", "user", "assistant", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# ChatML with tools, of the form that the Qwen3 models publish.
CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nCall them as <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' }}
{%- if message.content is string %}{{- message.content }}
{%- else %}
{%- for part in message.content %}
{%- if part.type == 'audio' %}{{- '<|audio_start|><|audio_pad|><|audio_end|>' }}{%- else %}{{- part.text }}{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens, and the control tokens and roles that the template uses."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    made.add_tokens([AddedToken(word, special=False) for word in WORDS])
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _text(vocabulary: int, layers: int, **more: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1], "interleaved": True}
    return dict(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        max_position_embeddings=2048,
        rope_parameters=rope,
        **more,
    )


def config() -> Qwen3OmniMoeConfig:
    """The architecture as published, tiny. The talker's vocabulary has to exceed 1024."""
    ids = tokenizer().get_vocab()
    shared = {
        "audio_token_id": ids["<|audio_pad|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "audio_start_token_id": ids["<|audio_start|>"],
    }
    audio = {
        "d_model": WIDTH,
        "output_dim": WIDTH,
        "downsample_hidden_size": WIDTH,
        "encoder_layers": 1,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 32,
        "num_mel_bins": 16,
        "n_window": 50,
        "n_window_infer": 100,
    }
    vision = {
        "depth": 1,
        "hidden_size": WIDTH,
        "out_hidden_size": WIDTH,
        "intermediate_size": 32,
        "num_heads": 4,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "deepstack_visual_indexes": [0],
        "num_position_embeddings": 16,
    }
    predictor = {
        "vocab_size": 48,
        "hidden_size": WIDTH,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_code_groups": 4,
    }
    talker = dict(
        text_config=_text(1088, 2, shared_expert_intermediate_size=32),
        code_predictor_config=predictor,
        num_code_groups=4,
        thinker_hidden_size=WIDTH,
        accept_hidden_layer=2,
        spatial_merge_size=2,
        speaker_id={"ethan": 60, "chelsie": 61},
        codec_pad_id=1000,
        codec_bos_id=1001,
        codec_eos_token_id=1002,
        codec_nothink_id=1003,
        codec_think_bos_id=1004,
        codec_think_eos_id=1005,
        **shared,
    )
    wave = {
        "codebook_size": 1100,
        "num_quantizers": 4,
        "hidden_size": WIDTH,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "decoder_dim": 32,
        "sliding_window": 8,
    }
    return Qwen3OmniMoeConfig(
        thinker_config=dict(
            audio_config=audio, vision_config=vision, text_config=_text(288, 4), user_token_id=ids["user"], **shared
        ),
        talker_config=talker,
        code2wav_config=wave,
        im_start_token_id=ids["<|im_start|>"],
        im_end_token_id=ids["<|im_end|>"],
        tts_pad_token_id=ids["<tts_pad>"],
        tts_bos_token_id=ids["<tts_bos>"],
        tts_eos_token_id=ids["<tts_eos>"],
        system_token_id=ids["system"],
        user_token_id=ids["user"],
        assistant_token_id=ids["assistant"],
    )


def network(seed: int = 0) -> Qwen3OmniMoeForConditionalGeneration:
    """Random weights, large enough that words, voice and wave depend on what went before. It writes lower-case letters.

    The generator is of this function alone, so that a seed always makes the same network.
    """
    made = Qwen3OmniMoeForConditionalGeneration(config()).eval()
    made.set_experts_implementation("eager")  # the grouped kernels have no float64
    chance = torch.Generator().manual_seed(seed)
    for name, parameter in made.named_parameters():
        if parameter.dim() > 1:
            scale = 0.6 if "code2wav.decoder" in name else 1.5
            deviation = 0.7 if "embed" in name else scale * parameter[0].numel() ** -0.5
            parameter.data.normal_(0, deviation, generator=chance)
    written = [*tokenizer().encode("abcdefghijklmnopqrstuvwxyz "), made.config.im_end_token_id]
    silent = torch.ones(288, dtype=torch.bool)
    silent[written] = False
    made.thinker.lm_head.weight.data[silent] = 0
    return made


def extractor() -> WhisperFeatureExtractor:
    return WhisperFeatureExtractor(feature_size=16, n_samples=480_000)


def save(made: Qwen3OmniMoeForConditionalGeneration, folder: Path, *, shard: str = "200KB") -> None:
    """A folder as the hub has it: sharded weights, tokenizer, template, feature extractor."""
    made.save_pretrained(folder, max_shard_size=shard)
    plain = tokenizer()
    plain.chat_template = None
    plain.save_pretrained(folder)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}), "utf-8")
    extractor().save_pretrained(folder)


def template(made: Qwen3OmniMoeForConditionalGeneration) -> Template:
    ids = made.config
    return Template(tokenizer(), audio_token_id=ids.thinker_config.audio_token_id, im_end_token_id=ids.im_end_token_id)


def model(made: Qwen3OmniMoeForConditionalGeneration, *, slots: int = 4, **config: Any) -> QwenOmni:
    """The network behind the protocols, greedy unless told otherwise."""
    told = {"greedy": True, "max_length": 1024, "max_reply": 8, "max_frames": 10, **config}
    return QwenOmni.of(made, template(made), extractor(), slots=slots, config=QwenConfig(**told))


@dataclass
class Spoken:
    """What one reply gave, and how many steps of each stage it took until the first samples.

    `text_logits` and `code_logits` are what its tokens and first codes were chosen from, where that was watched.
    """

    tokens: list[TextToken] = field(default_factory=list)
    codes: list[torch.Tensor] = field(default_factory=list)
    pcm: list[np.ndarray] = field(default_factory=list)
    text_logits: list[torch.Tensor] = field(default_factory=list)
    code_logits: list[torch.Tensor] = field(default_factory=list)
    thinker_steps: int = 0
    talker_steps: int = 0
    done: bool = False
    first_audio: tuple[int, int] | None = None

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)

    def same_as(self, other: Spoken) -> bool:
        return (
            self.ids == other.ids
            and len(self.codes) == len(other.codes)
            and all(torch.equal(a, b) for a, b in zip(self.codes, other.codes, strict=True))
            and np.allclose(np.concatenate(self.pcm), np.concatenate(other.pcm), rtol=0, atol=1e-6)
        )


class Drive:
    """The engine's stages by hand: rows join and leave whenever a test says so. `watch`: note the logits too."""

    def __init__(self, served: QwenOmni, *, watch: bool = False) -> None:
        self.served = served
        self.rows: dict[int, Spoken] = {}
        if watch:
            self._watch()

    def join(self, slot: int, request: ThinkRequest) -> Spoken:
        self.served.thinker.start(slot, request)
        self.served.talker.start(slot, request.language)
        self.served.codec.start(slot)
        self.rows[slot] = Spoken()
        return self.rows[slot]

    def leave(self, slot: int) -> None:
        for stage in (self.served.thinker, self.served.talker, self.served.codec):
            stage.free(slot)
        del self.rows[slot]

    def think(self, slots: Sequence[int]) -> None:
        slots = [slot for slot in slots if not self.rows[slot].done]
        for slot, thought in zip(slots, self.served.thinker.step(slots), strict=True):
            row = self.rows[slot]
            row.thinker_steps += 1
            if thought.token is not None:
                row.tokens.append(thought.token)
                self.served.talker.push(slot, [thought.token])
            if thought.done:
                row.done = True
                self.served.talker.finish(slot)

    def talk(self, slots: Sequence[int]) -> list[int]:
        """One frame for those that can make one, decoded at once; gives the slots whose reply is over."""
        slots = [slot for slot in slots if self.served.talker.ready(slot)]
        found = dict(zip(slots, self.served.talker.step(slots), strict=True))
        for slot in slots:
            self.rows[slot].talker_steps += 1
        frames = {slot: frame.codes for slot, frame in found.items() if isinstance(frame, CodecFrame)}
        if frames:
            codes = torch.stack(list(frames.values())).unsqueeze(1)
            for slot, pcm in zip(frames, self.served.codec.step(list(frames), codes), strict=True):
                row = self.rows[slot]
                row.codes.append(frames[slot])
                row.pcm.append(pcm)
                row.first_audio = row.first_audio or (row.thinker_steps, row.talker_steps)
        return [slot for slot, frame in found.items() if frame is None]

    def whole(self, slot: int, request: ThinkRequest) -> Spoken:
        """One reply alone, talker and thinker a step each in turn."""
        row = self.join(slot, request)
        while True:
            if not row.done:
                self.think([slot])
            if self.talk([slot]):
                self.leave(slot)
                return row

    def _watch(self) -> None:
        """Note the logits of each row's choices."""
        thinker, maker = self.served.thinker, self.served.talker._maker
        choose_text, make, choose_code = type(thinker)._choose, type(maker).make, type(maker._chooser).choose
        speaking: list[int] = []

        def watch_text(turns: Any, logits: Any) -> Any:
            for turn, scores in zip(turns, logits, strict=True):
                slot = next(s for s, row in enumerate(thinker._by_slot) if row is not None and row.turn is turn)
                if slot in self.rows:
                    self.rows[slot].text_logits.append(scores.clone())
            return choose_text(thinker, turns, logits)

        def watch_make(slots: Any, *arguments: Any) -> Any:
            speaking[:] = slots
            return make(maker, slots, *arguments)

        def watch_code(logits: Any, *arguments: Any) -> Any:
            for slot, scores in zip(speaking, logits, strict=False):
                if slot in self.rows:
                    self.rows[slot].code_logits.append(scores.clone())
            return choose_code(maker._chooser, logits, *arguments)

        thinker._choose, maker.make, maker._chooser.choose = watch_text, watch_make, watch_code  # type: ignore[method-assign]


@dataclass
class Reference:
    """What `generate()` says. `ids`: the reply's, its last one included; `codes`: a frame each, as they are decoded."""

    ids: list[int]
    codes: torch.Tensor
    pcm: np.ndarray
    text_logits: list[torch.Tensor]
    code_logits: list[torch.Tensor]


def reference(
    made: Qwen3OmniMoeForConditionalGeneration,
    ids: Sequence[int],
    *,
    max_reply: int = 8,
    max_frames: int = 10,
    sample: bool = False,
    **inputs: torch.Tensor,
) -> Reference:
    """What `generate()` says to the same prompt, and the logits that it chose from."""
    plain = {} if sample else {"talker_top_k": None, "talker_top_p": None, "talker_temperature": None}
    text_logits: list[torch.Tensor] = []
    code_logits: list[torch.Tensor] = []
    codes: list[torch.Tensor] = []
    hooks = [
        head.register_forward_hook(lambda _m, _i, out, seen=seen: seen.append(out.reshape(-1, out.shape[-1])[-1]))
        for head, seen in ((made.thinker.lm_head, text_logits), (made.talker.codec_head, code_logits))
    ]
    hooks.append(made.code2wav.register_forward_hook(lambda _m, given, _o: codes.append(given[0][0].T)))
    try:
        sequences, wave = made.generate(
            input_ids=torch.tensor([list(ids)]),
            thinker_max_new_tokens=max_reply,
            thinker_eos_token_id=made.config.im_end_token_id,
            talker_do_sample=sample,
            talker_max_new_tokens=max_frames + 1,
            **plain,
            **inputs,
        )
    finally:
        for hook in hooks:
            hook.remove()
    return Reference(sequences[0, len(ids) :].tolist(), torch.cat(codes), wave[0, 0].numpy(), text_logits, code_logits)

"""Qwen3-Omni's engine on a GPU, at the published shapes with random weights: first sample, frame time, use of stages.

Random weights take the time that trained ones take. Widths, experts and vocabularies are the published ones; of the
layers as many as `LAYERS` says. Without a GPU the same runs at tiny shapes: that shows that the script works, and its
times mean nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import torch
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration
from transformers.initialization import no_init_weights

from tests import tiny_qwen
from tests.evidence._listener import Listener
from tests.evidence.tools import quantiles, shown
from voice_agent.agent import Agent
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import Engine, Reply
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.model import QwenOmni

TRIALS = 3
CALLS = (1, 4, 8, 16)
LAYERS = {"thinker": 48, "talker": 20}
PROMPT = "x" * 200
REPLY_TOKENS, FRAMES = 40, 60


def published(layers: Mapping[str, int]) -> Qwen3OmniMoeConfig:
    """Qwen3-Omni-30B-A3B-Instruct's shapes, with the control tokens of the tiny tokenizer."""
    config = tiny_qwen.config()
    thinker, talker = config.thinker_config, config.talker_config
    _set(
        thinker.text_config, vocab_size=152_064, hidden_size=2048, num_hidden_layers=layers["thinker"],
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8,
    )  # fmt: skip
    _set(
        thinker.audio_config, d_model=1280, encoder_layers=32, encoder_attention_heads=20, encoder_ffn_dim=5120,
        output_dim=2048, downsample_hidden_size=480, num_mel_bins=128, n_window_infer=800,
    )  # fmt: skip
    _set(
        talker.text_config, vocab_size=3072, hidden_size=1024, intermediate_size=2048,
        num_hidden_layers=layers["talker"], num_attention_heads=16, num_key_value_heads=2, head_dim=128,
        moe_intermediate_size=384, num_experts=128, num_experts_per_tok=6, shared_expert_intermediate_size=768,
        norm_topk_prob=True,
    )  # fmt: skip
    _set(
        talker.code_predictor_config, vocab_size=2048, hidden_size=1024, intermediate_size=3072, num_hidden_layers=5,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, num_code_groups=16,
        layer_types=["full_attention"] * 5,
    )  # fmt: skip
    _set(talker, thinker_hidden_size=2048, accept_hidden_layer=min(24, layers["thinker"]), num_code_groups=16)
    _set(
        config.code2wav_config, codebook_size=2048, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8,
        num_attention_heads=16, num_key_value_heads=16, decoder_dim=1536, num_quantizers=16, sliding_window=72,
    )  # fmt: skip
    for text in (thinker.text_config, talker.text_config):
        text.rope_parameters["mrope_section"] = [24, 20, 20]
    return config


def _set(config: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(config, name, value)


def build(seed: int, device: str) -> Qwen3OmniMoeForConditionalGeneration:
    """A network of random weights; every dimension's width leaves the size of the signal as it is."""
    if device == "cpu":
        return tiny_qwen.network(seed)
    torch.manual_seed(seed)
    with no_init_weights(), torch.device(device):
        made = Qwen3OmniMoeForConditionalGeneration._from_config(published(LAYERS), dtype=torch.bfloat16)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, parameter[0].numel() ** -0.5)
        else:
            parameter.data.fill_(1.0)
    made.code2wav.float()
    return made.eval()


async def run(seed: int, trials: int) -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = build(seed, device)
    config = QwenConfig(max_length=1024, max_reply=REPLY_TOKENS, max_frames=FRAMES)
    served = QwenOmni.of(network, tiny_qwen.template(network), None, slots=max(CALLS), config=config)
    engine = Engine(served, ahead_ms=60_000)
    loads = []
    try:
        await _answer(engine, 1, seed)  # warm
        for calls in shown(CALLS, "calls"):
            loads.append(await _measure(engine, calls, trials, seed))
    finally:
        engine.close()
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu, tiny shapes",
        "dtype": str(network.thinker.dtype),
        "layers": {
            "thinker": network.config.thinker_config.text_config.num_hidden_layers,
            "talker": network.config.talker_config.text_config.num_hidden_layers,
        },
        "weights_gib": round(sum(p.numel() * p.element_size() for p in network.parameters()) / 2**30, 2),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None,
        "at": loads,
        "generate_first_sample_ms": round(_generate(network, served), 1),
    }


async def _measure(engine: Engine, calls: int, trials: int, seed: int) -> dict[str, Any]:
    """`calls` replies at once, `trials` times: each one's TTFC, and what the stages did meanwhile."""
    stages = (engine.thinker, engine.talker, engine.codec)
    before = {stage.name: (stage.stats.steps, stage.stats.busy_s) for stage in stages}
    ttfc_ms, frames, since = [], 0, time.perf_counter()
    for trial in range(trials):
        for reply in await _answer(engine, calls, seed + 1 + trial * calls):
            ttfc_ms.append(1000 * (reply.marks.first_chunk - reply.marks.submitted))
            frames += len(reply.positions)
    lasted_s = time.perf_counter() - since
    done = {s.name: (s.stats.steps - before[s.name][0], s.stats.busy_s - before[s.name][1]) for s in stages}
    return {
        "calls": calls,
        "ttfc_ms": quantiles(ttfc_ms),
        "frames": frames,
        "seconds_of_speech_per_second": round(frames / engine.talker.model.frame_rate / lasted_s, 2),
        "step_ms": {name: round(1000 * busy / max(1, steps), 2) for name, (steps, busy) in done.items()},
        "utilisation": {name: round(busy / lasted_s, 3) for name, (_, busy) in done.items()},
    }


async def _answer(engine: Engine, calls: int, seed: int) -> list[Reply]:
    agent = Agent("")
    replies, listeners = [], []
    for number in range(calls):
        listener = Listener(agent)
        request = ThinkRequest((Message("user", f"{number} {PROMPT}"),), "en", seed=seed + number)
        replies.append(engine.reply(request, listener))
        listeners.append(listener)
    await asyncio.gather(*(listener.done.wait() for listener in listeners))
    for listener in listeners:
        if listener.failed is not None:
            raise RuntimeError(f"stage {listener.failed[0]} failed") from listener.failed[1]
    return replies


def _generate(network: Qwen3OmniMoeForConditionalGeneration, served: QwenOmni) -> float:
    """Milliseconds until the reference gives its first sample, which is when it gives its last."""
    prompt = served.thinker.template.render(ThinkRequest((Message("user", PROMPT),), "en"))
    ids = torch.tensor([prompt.ids], device=network.thinker.device)
    since = time.perf_counter()
    with torch.inference_mode():
        network.generate(
            input_ids=ids,
            thinker_max_new_tokens=REPLY_TOKENS,
            thinker_eos_token_id=network.config.im_end_token_id,
            talker_max_new_tokens=FRAMES + 1,
        )
    return 1000 * (time.perf_counter() - since)

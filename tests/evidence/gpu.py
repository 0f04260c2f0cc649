"""Qwen3-Omni's engine on a GPU, at the published shapes with random weights: first sample, frame time, use of stages.

Random weights take the time that trained ones take. Widths, experts and vocabularies are the published ones; of the
layers as many as `LAYERS` says and the GPU's memory holds. Everything is measured twice, with the steps of talker,
predictor and codec as they are and as CUDA graphs; then `generate()` answers the same prompt. What does not fit into
`BUDGET_S` is left out, and named. Without a GPU the same runs at tiny shapes: that shows that the script works, and
its times mean nothing.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration
from transformers.initialization import no_init_weights

from tests import tiny_qwen
from tests.evidence.tools import quantiles
from voice_agent.engine.protocols import Message, ThinkRequest, ToolCall
from voice_agent.engine.reply import Engine, Reply
from voice_agent.qwen import published as shapes
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.model import QwenOmni

TRIALS = 3
CALLS = (1, 4, 8, 16)
LAYERS = {"thinker": 48, "talker": 20, "audio": 32, "vision": 27}
PROMPT = "x" * 200
REPLY_TOKENS, FRAMES = 40, 60
CONTROLS = (
    "im_start_token_id", "im_end_token_id", "tts_pad_token_id", "tts_bos_token_id", "tts_eos_token_id",
    "system_token_id", "user_token_id", "assistant_token_id", "audio_token_id", "image_token_id", "video_token_id",
    "vision_start_token_id", "audio_start_token_id",
)  # fmt: skip
BUDGET_S = 330.0  # from the start of the run to its end
SPARE_GIB = 24  # for caches, graphs and what a step needs beside the weights


def published(layers: Mapping[str, int]) -> Qwen3OmniMoeConfig:
    """The published shapes with so many layers, and the control tokens of the tiny tokenizer."""
    config, tiny = shapes.published(), tiny_qwen.config()
    thinker, talker = config.thinker_config, config.talker_config
    thinker.text_config.num_hidden_layers = layers["thinker"]
    thinker.audio_config.encoder_layers = layers["audio"]
    thinker.vision_config.depth = layers["vision"]
    thinker.vision_config.deepstack_visual_indexes = [at for at in (8, 16, 24) if at < layers["vision"]]
    talker.text_config.num_hidden_layers = layers["talker"]
    talker.accept_hidden_layer = min(talker.accept_hidden_layer, layers["thinker"])
    for ours, theirs in ((config, tiny), (thinker, tiny.thinker_config), (talker, tiny.talker_config)):
        for name in CONTROLS:
            if hasattr(ours, name):
                setattr(ours, name, getattr(theirs, name))
    return config


def fitting(room: int) -> dict[str, int]:
    """`LAYERS`, with as many of the thinker's as `room` bytes hold in bfloat16. Raises ValueError if none does."""
    with torch.device("meta"):
        made = Qwen3OmniMoeForConditionalGeneration(published({**LAYERS, "thinker": 2}))
    of_layer = 2 * sum(p.numel() for p in made.thinker.model.language_model.layers[0].parameters())
    rest = 2 * sum(p.numel() for p in made.parameters()) - 2 * of_layer
    count = min(LAYERS["thinker"], (room - rest) // of_layer)
    if count < 1:
        raise ValueError(
            f"expected {(rest + of_layer) / 2**30:.0f} GiB for the smallest network, got {room / 2**30:.0f}"
        )
    return {**LAYERS, "thinker": count}


def build(seed: int, device: str) -> Qwen3OmniMoeForConditionalGeneration:
    """A network of random weights that leave the size of the signal as it is. It writes lower-case letters."""
    if device == "cpu":
        return tiny_qwen.network(seed)
    torch.manual_seed(seed)
    layers = fitting(torch.cuda.mem_get_info()[0] - SPARE_GIB * 2**30)
    with no_init_weights(), torch.device(device):
        made = Qwen3OmniMoeForConditionalGeneration._from_config(published(layers), dtype=torch.bfloat16)
    for name, parameter in made.named_parameters():
        if parameter.dim() > 1:
            read = parameter.shape[-1] if "experts" in name else parameter[0].numel()
            parameter.data.normal_(0, read**-0.5)
        else:
            parameter.data.fill_(0.0 if "alpha" in name or "beta" in name else 1.0)
    made.code2wav.float()
    silent = torch.ones(made.thinker.lm_head.out_features, dtype=torch.bool, device=device)
    silent[tiny_qwen.tokenizer().encode("abcdefghijklmnopqrstuvwxyz")] = False
    made.thinker.lm_head.weight.data[silent] = 0
    return made.eval()


@dataclass
class Heard:
    """A listener that keeps count of one reply."""

    samples: int = 0
    ended_at: float = 0.0
    failed: tuple[str, BaseException] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def on_text(self, text: str) -> None: ...

    def on_calls(self, calls: Sequence[ToolCall]) -> None: ...

    def on_text_done(self) -> None: ...

    def on_pcm(self, pcm: Any, last: bool) -> None:
        self.samples += len(pcm)
        if last:
            self.ended_at = time.perf_counter()
            self.done.set()

    def on_failed(self, stage: str, error: BaseException) -> None:
        self.failed = (stage, error)
        self.done.set()


async def run(seed: int, trials: int) -> dict[str, Any]:
    ends_at = time.perf_counter() + BUDGET_S
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = build(seed, device)
    _tell(f"weights made, {ends_at - time.perf_counter():.0f} s left")
    modes: list[dict[str, Any]] = []
    left_out: list[str] = []
    for graphs in (False, True):
        if graphs and device == "cpu":
            left_out.append("graphs, which need a GPU")
            continue
        # Half of what is left for the first of the two, a fifth of it for `generate()`.
        until = time.perf_counter() + (ends_at - time.perf_counter()) * (0.8 if graphs else 0.45)
        modes.append(await _measure_mode(network, graphs, trials, seed, until, left_out))
        gc.collect()
        torch.cuda.empty_cache()
    generate = _generate(network)
    _print(modes, generate)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu, tiny shapes",
        "torch": torch.__version__,
        "dtype": str(network.thinker.dtype),
        "layers": {
            "thinker": network.config.thinker_config.text_config.num_hidden_layers,
            "talker": network.config.talker_config.text_config.num_hidden_layers,
        },
        "weights_gib": round(sum(p.numel() * p.element_size() for p in network.parameters()) / 2**30, 2),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None,
        "prompt_tokens": len(PROMPT),
        "reply_tokens": REPLY_TOKENS,
        "modes": modes,
        "generate": generate,
        "left_out": left_out,
        "within_budget": time.perf_counter() < ends_at,
    }


async def _measure_mode(
    network: Qwen3OmniMoeForConditionalGeneration,
    graphs: bool,
    trials: int,
    seed: int,
    until: float,
    left_out: list[str],
) -> dict[str, Any]:
    """One model over the network, at every number of calls that there is time for."""
    since = time.perf_counter()
    config = QwenConfig(max_length=1024, max_reply=REPLY_TOKENS, max_frames=FRAMES, kept=0, graphs=graphs)
    served = QwenOmni.of(network, tiny_qwen.template(network), None, slots=max(CALLS), config=config)
    made_s = time.perf_counter() - since
    engine = Engine(served, ahead_ms=60_000)
    loads: list[dict[str, Any]] = []
    try:
        await _answer(engine, max(CALLS), seed)  # warm
        for number, calls in enumerate(CALLS):
            share = (until - time.perf_counter()) / (len(CALLS) - number)
            if share <= 0:
                left_out.append(f"{calls} calls, graphs {'on' if graphs else 'off'}")
                continue
            loads.append(await _measure(engine, calls, trials, seed, time.perf_counter() + share))
            _tell(f"graphs {graphs}, {calls} calls: {loads[-1]['ttfc_ms']}")
    finally:
        engine.close()
    return {"graphs": graphs, "seconds_until_ready": round(made_s, 1), "at": loads}


async def _measure(engine: Engine, calls: int, trials: int, seed: int, until: float) -> dict[str, Any]:
    """`calls` replies at once, up to `trials` times: each one's TTFC, and what the stages did meanwhile."""
    stages = (engine.thinker, engine.talker, engine.codec)
    before = {stage.name: (stage.stats.steps, stage.stats.busy_s) for stage in stages}
    ttfc_ms: list[float] = []
    frame_ms: list[float] = []
    frames, done_trials, since = 0, 0, time.perf_counter()
    while done_trials < trials and (done_trials == 0 or time.perf_counter() < until):
        for reply, heard in await _answer(engine, calls, seed + 1 + done_trials * calls):
            ttfc_ms.append(1000 * (reply.marks.first_chunk - reply.marks.submitted))
            count = len(reply.positions)
            frame_ms.append(1000 * (heard.ended_at - reply.marks.first_frame) / count)
            frames += count
        done_trials += 1
    lasted_s = time.perf_counter() - since
    done = {s.name: (s.stats.steps - before[s.name][0], s.stats.busy_s - before[s.name][1]) for s in stages}
    return {
        "calls": calls,
        "trials": done_trials,
        "ttfc_ms": quantiles(ttfc_ms),
        "frame_ms": quantiles(frame_ms),
        "frames": frames,
        "seconds_of_speech_per_second": round(frames / engine.talker.model.frame_rate / lasted_s, 2),
        "step_ms": {name: round(1000 * busy / max(1, steps), 2) for name, (steps, busy) in done.items()},
        "utilisation": {name: round(busy / lasted_s, 3) for name, (_, busy) in done.items()},
    }


async def _answer(engine: Engine, calls: int, seed: int) -> list[tuple[Reply, Heard]]:
    found = []
    for number in range(calls):
        request = ThinkRequest((Message("user", f"{number} {PROMPT}"),), "en", seed=seed + number)
        heard = Heard()
        found.append((engine.reply(request, heard), heard))
    await asyncio.gather(*(heard.done.wait() for _, heard in found))
    for _, heard in found:
        if heard.failed is not None:
            raise RuntimeError(f"stage {heard.failed[0]} failed") from heard.failed[1]
    return found


def _generate(network: Qwen3OmniMoeForConditionalGeneration) -> dict[str, float]:
    """What the reference takes for one reply: its first sample comes with its last."""
    prompt = tiny_qwen.template(network).render(ThinkRequest((Message("user", f"0 {PROMPT}"),), "en"))
    ids = torch.tensor([prompt.ids], device=network.thinker.device)
    wave_dtype = network.code2wav.dtype
    since = time.perf_counter()
    with torch.inference_mode():
        _, wave = network.generate(
            input_ids=ids,
            thinker_max_new_tokens=REPLY_TOKENS,
            thinker_eos_token_id=network.config.im_end_token_id,
            talker_max_new_tokens=FRAMES + 1,
        )
        samples = wave.to(wave_dtype).cpu().shape[-1]
    lasted_s = time.perf_counter() - since
    return {"first_sample_ms": round(1000 * lasted_s, 1), "frames": (samples + 555) // 1920}


def _print(modes: Sequence[Mapping[str, Any]], generate: Mapping[str, float]) -> None:
    print("calls  graphs  TTFC p50      p95  a frame p50      p95 ms  busy: thinker, talker, codec")
    for mode in modes:
        graphs = "on" if mode["graphs"] else "off"
        for at in mode["at"]:
            ttfc, frame = at["ttfc_ms"], at["frame_ms"]
            busy = ", ".join(f"{share:.0%}" for share in at["utilisation"].values())
            times = f"{ttfc['p50']:10}{ttfc['p95']:9}{frame['p50']:13}{frame['p95']:9}"
            print(f"{at['calls']:5}{graphs:>8}{times}     {busy}")
    print(f"generate(), 1 reply: {generate['first_sample_ms']} ms to its first sample, which comes with its last")


def _tell(what: str) -> None:
    if sys.stderr.isatty():
        print(what, file=sys.stderr, flush=True)

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from typer.testing import CliRunner

from tests import tiny_qwen
from voice_agent.cli import app
from voice_agent.config import Config
from voice_agent.engine.plan import GIB, Device, Part, Plan, Work, allocated, find_device
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.planning import in_bytes, make_plan, told
from voice_agent.qwen.checkpoint import load
from voice_agent.qwen.config import QwenConfig
from voice_agent.tea.model import TeaOmni

DEVICE = Device("a device", 10 * GIB, bytes_per_s=1e11, flops=1e13, launch_s=1e-6)
STAGES = ("thinker", "talker", "codec")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As stages run; threads that wait for one another are slow on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def measured(work: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes that torch's allocator gave out during this and did not get back, and the result, which holds them."""
    gc.collect()  # what earlier tests left and is freed meanwhile would count as given back
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as told:
        made = work()
    return sum(event.self_cpu_memory_usage for event in told.key_averages()), made


def planned(parts: Mapping[str, Part], slots: int) -> int:
    return sum(part.weights + part.shared + slots * part.call for part in parts.values())


def by_stage(plan: Plan) -> dict[str, Part]:
    return {part.stage: part for part in plan.parts}


@pytest.mark.parametrize("slots", [2, 12])
def test_tea_omni_takes_what_was_planned(slots: int) -> None:
    parts = by_stage(make_plan("tea-omni", "H100", Config()))
    taken, model = measured(lambda: TeaOmni.load(slots=slots))
    assert planned(parts, slots) == pytest.approx(taken, rel=0.05)
    for stage in STAGES:
        part = parts[stage]
        held = allocated(getattr(model, stage))
        assert part.weights + part.shared + slots * part.call == pytest.approx(held, rel=0.05), stage


def test_replies_of_tea_omni_stay_within_their_slots() -> None:
    """What a reply allocates beyond its slot is small beside the slot."""
    slots = 2
    parts = by_stage(make_plan("tea-omni", "H100", Config()))
    model = TeaOmni.load(slots=slots)
    spoken = model.thinker.hidden_of_reply("zh", "好的，少冰珍珠奶茶一杯，十八块。")

    def speak() -> None:
        for slot in range(slots):
            model.thinker.start(slot, ThinkRequest((Message("user", "我要一杯珍珠奶茶"),), "zh"))
            model.talker.start(slot, "zh")
            model.talker.push(slot, spoken)
            model.talker.finish(slot)
            model.codec.start(slot)
        for _ in range(4):
            frames = model.talker.step(range(slots))
            codes = torch.stack([frame.codes for frame in frames if frame is not None])
            model.codec.step(range(slots), codes.unsqueeze(1))
        model.thinker.step(range(slots))

    taken, _ = measured(speak)
    assert taken <= 0.05 * slots * sum(part.call for part in parts.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("qwen")
    tiny_qwen.save(tiny_qwen.network(), made)
    return made


@pytest.mark.parametrize("slots", [2, 8])
@pytest.mark.parametrize("config", [QwenConfig(dtype="float32"), QwenConfig(kept=3, max_length=512, max_frames=100)])
def test_a_tiny_qwen3_omni_takes_what_was_planned(folder: Path, config: QwenConfig, slots: int) -> None:
    parts = by_stage(make_plan(str(folder), "H100", Config(qwen=config)))
    taken, model = measured(lambda: load(str(folder), slots=slots, config=config.model_copy(update={"device": "cpu"})))
    assert planned(parts, slots) == pytest.approx(taken, rel=0.05)
    networks = {"thinker": model.thinker.model, "talker": model.talker.model, "codec": model.codec.model}
    for stage in STAGES:
        part = parts[stage]
        assert part.weights == allocated(networks[stage]), stage
        assert part.weights + part.shared + slots * part.call == pytest.approx(
            allocated(getattr(model, stage)), rel=0.05
        ), stage


def test_the_predictor_is_told_apart_from_the_talker_that_it_is_a_part_of(folder: Path) -> None:
    config = QwenConfig(dtype="float32", max_length=512)
    plan = make_plan(str(folder), "H100", Config(qwen=config))
    (predictor,) = by_stage(plan)["talker"].inner
    model = load(str(folder), slots=3, config=config.model_copy(update={"device": "cpu"}))
    assert predictor.name == "predictor"
    assert predictor.weights == allocated(model.talker.model.code_predictor)
    cache = model.talker._maker._residual_cache
    assert predictor.call * (3 + 1) == allocated(cache) == 4 * predictor.token * (3 + 1), "4 codes; a spare row"
    assert predictor.call < by_stage(plan)["talker"].call
    told = plan.view()["stages"]
    assert told["talker"]["inner"]["predictor"]["call_bytes"] == predictor.call
    assert told["thinker"]["inner"] == told["codec"]["inner"] == {}
    shown = CliRunner().invoke(app, ["plan", "--model", str(folder), "--gpu", "H100"])
    assert "\n  predictor  " in shown.output, "below the talker"


def test_a_position_of_dialogue_is_keys_and_values_of_every_layer(folder: Path) -> None:
    parts = by_stage(make_plan(str(folder), "H100", Config(qwen=QwenConfig(dtype="float32", max_length=512, kept=0))))
    assert parts["thinker"].token == 2 * 4 * 2 * 8 * 4, "4 layers, 2 heads of 8, float32"
    assert parts["thinker"].call == 512 * parts["thinker"].token
    assert parts["codec"].token == 0, "its state does not grow"


def test_the_published_model_has_its_published_size() -> None:
    from transformers import Qwen3OmniMoeForConditionalGeneration

    from voice_agent.qwen.published import published

    with torch.device("meta"):
        made = Qwen3OmniMoeForConditionalGeneration(published())
    thinker = [*made.thinker.model.language_model.parameters(), *made.thinker.lm_head.parameters()]
    more_words = 2 * (152_064 - 151_936) * 2048
    assert sum(parameter.numel() for parameter in thinker) == 30_532_122_624 + more_words, "Qwen3-30B-A3B"
    assert 2 * sum(parameter.numel() for parameter in made.parameters()) == pytest.approx(70.5e9, rel=0.005)


def test_a_step_takes_the_longest_of_bytes_arithmetic_and_kernels() -> None:
    assert Work(10**9, 0, 1.0, 1).seconds(DEVICE, 5) == pytest.approx(0.01)
    assert Work(10**9, 10**8, 1.0, 1).seconds(DEVICE, 10) == pytest.approx(0.02)
    assert Work(1, 0, 1e11, 1).seconds(DEVICE, 4) == pytest.approx(0.04)
    assert Work(1, 0, 1.0, 5000).seconds(DEVICE, 4) == pytest.approx(0.005)
    experts = Work(0, 0, 1.0, 1, expert_bytes=10**10, experts=4, chosen=1)
    assert experts.seconds(DEVICE, 1) == pytest.approx(0.025)
    assert experts.seconds(DEVICE, 2) == pytest.approx(0.1 * (1 - 0.75**2)), "a second row shares some experts"


def part(stage: str, seconds: float, per_s: float, call: int = GIB // 2) -> Part:
    """A stage whose step takes so many seconds a row."""
    return Part(stage, GIB, 0, call, 0, per_s, Work(0, 0, seconds * DEVICE.flops, 0))


def test_calls_that_fit_and_the_stage_that_is_full_first() -> None:
    plan = Plan(
        "a model", DEVICE, [part("thinker", 0.01, 5.0), part("talker", 0.004, 12.5), part("codec", 0.001, 12.5)]
    )
    assert plan.fit == 4, "nine tenths of 10 GiB, 3 of them for weights, 1.5 a call"
    assert [one.bears(DEVICE) for one in plan.parts] == [20, 20, 80]
    assert plan.full_first.stage == "thinker"
    assert plan.together == 8
    assert Plan("a model", Device("small", GIB, 1e11, 1e13), plan.parts).fit == -1


def test_a_device_is_named_or_described() -> None:
    assert find_device("H100").memory == pytest.approx(80e9, rel=0.08)
    assert find_device("80,3350,989").bytes_per_s == 3350e9
    cpu = find_device("cpu")
    assert cpu.bytes_per_s > 1e8
    assert cpu.flops > 1e9
    for wrong in ("H1000", "80,3350", "80,3350,-1", "80,nan,1"):
        with pytest.raises(ValueError, match="expected"):
            find_device(wrong)
    with pytest.raises(ValueError, match="expected 'tea-omni'"):
        make_plan("gpt", "H100", Config())


def test_the_command_prints_a_table_or_json() -> None:
    shown = CliRunner().invoke(app, ["plan", "--model", "tea-omni", "--gpu", "H100", "--json"])
    assert shown.exit_code == 0, shown.output
    view = json.loads(shown.stdout)
    assert list(view["stages"]) == list(STAGES)
    assert view["call_bytes"] == sum(stage["call_bytes"] for stage in view["stages"].values())
    sentences = told(make_plan("tea-omni", "1,300,100", Config()))
    assert sentences[0].startswith("There is memory for ")
    assert sentences[-1].endswith("Memory is the limit.")
    assert "do not fit" in told(make_plan("tea-omni", "0.01,300,100", Config()))[0]


def test_bytes_are_told_as_people_read_them() -> None:
    assert [in_bytes(count) for count in (12, 2048, 5 << 20, 3 << 30)] == ["12 B", "2.0 KiB", "5.0 MiB", "3.00 GiB"]

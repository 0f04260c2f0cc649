"""Steps of fixed shapes: compiled, or recorded and replayed, they give what they give as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import Qwen3OmniMoeForConditionalGeneration

from tests import tiny_qwen
from tests.test_qwen import ask
from tests.tiny_qwen import Drive, Spoken, model
from voice_agent.qwen import codec, frames, steps
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.model import QwenOmni
from voice_agent.qwen.steps import Recorded, at_least, lengths, widths

SHORT = {"max_reply": 4, "max_frames": 5}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def network() -> Qwen3OmniMoeForConditionalGeneration:
    made = tiny_qwen.network().double()
    made.set_experts_implementation("batched_mm")  # the default loops over what the host sees
    return made


def together(served: QwenOmni) -> list[Spoken]:
    """Two replies, of which the second joins after the first one's first frame."""
    drive = Drive(served)
    rows = [drive.join(0, ask("good morning", seed=1))]
    left = [0]
    while left:
        drive.think(left)
        for slot in drive.talk(left):
            left.remove(slot)
        if len(rows) == 1:
            rows.append(drive.join(1, ask("hello 你好", seed=2)))
            left.append(1)
    return rows


def test_batches_are_filled_up_to_a_few_widths() -> None:
    assert widths(1) == (1,)
    assert widths(8) == (1, 2, 4, 8)
    assert widths(12) == (1, 2, 4, 8, 12)
    assert lengths(200) == (200,)
    assert lengths(1000) == (256, 512, 1000)
    assert [at_least(count, widths(12)) for count in (1, 3, 8, 9)] == [1, 4, 8, 12]


class Tape:
    """Records what PyTorch's tracer sees of a step: operations on tensors in place, and every other value fixed.

    What a CUDA graph could not record does not get through it either: a look at a tensor's value raises.
    """

    def __init__(self, device: torch.device) -> None:
        self.replays = 0

    def record(
        self, step: Callable[..., Any], inputs: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], None], tuple[torch.Tensor, ...]]:
        step(*inputs)
        outputs = step(*inputs)
        traced = make_fx(lambda *places: step(*places))(*inputs)

        def replay() -> None:
            self.replays += 1
            for place, value in zip(outputs, traced(*inputs), strict=True):
                place.copy_(value)

        return replay, outputs


def test_a_recorded_step_replays_for_whatever_rows_come(
    network: Qwen3OmniMoeForConditionalGeneration, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = together(model(network, greedy=False, **SHORT))
    tapes: list[Tape] = []

    def tape(device: torch.device) -> Tape:
        tapes.append(Tape(device))
        return tapes[-1]

    for module in (codec, frames):
        monkeypatch.setattr(module, "Recorder", tape)
    monkeypatch.setattr(steps, "SHORTEST", 512)  # one length to look at
    served = model(network, greedy=False, graphs=True, slots=2, max_length=256, **SHORT)
    assert all(one.same_as(other) for one, other in zip(together(served), plain, strict=True))
    assert len(tapes) == 2  # the talker's and the codec's
    assert all(tape.replays >= max(len(row.codes) for row in plain) for tape in tapes)


def test_a_step_that_looks_at_a_value_cannot_be_recorded() -> None:
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        Recorded(lambda x: (x[: int(x.sum())],)).record(Tape(torch.device("cpu")), torch.ones(3))  # type: ignore[arg-type]


def test_shapes_that_were_not_recorded_run_as_they_are() -> None:
    tape = Tape(torch.device("cpu"))
    step = Recorded(lambda x: (x * 2,))
    step.record(tape, torch.zeros(2))  # type: ignore[arg-type]
    first = step(torch.tensor([1.0, 2.0]))[0]
    assert step(torch.tensor([3.0]))[0].tolist() == [6.0]
    assert step(torch.tensor([4.0, 5.0]))[0].tolist() == [8.0, 10.0]
    assert first.tolist() == [2.0, 4.0]
    assert tape.replays == 2


@pytest.mark.filterwarnings("ignore")
def test_compiled_steps_give_the_same(
    network: Qwen3OmniMoeForConditionalGeneration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step becomes one graph; the compiler's front end runs it, since the code generator takes minutes."""
    plain = Drive(model(network, slots=1, **SHORT)).whole(0, ask("good morning"))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    counters = torch._dynamo.utils.counters
    counters.clear()
    try:
        compiled = Drive(model(network, slots=1, compile=True, **SHORT)).whole(0, ask("good morning"))
    finally:
        torch.compiler.reset()
    assert compiled.ids == plain.ids
    assert torch.equal(torch.stack(compiled.codes), torch.stack(plain.codes))
    assert np.abs(np.concatenate(compiled.pcm) - np.concatenate(plain.pcm)).max() < 1e-6
    # The first code; the predictor's first step and its further ones; the codec's first chunk and its further ones.
    assert counters["stats"]["unique_graphs"] == 5


def test_graphs_without_a_gpu_are_refused(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    with pytest.raises(ValueError, match="graphs: expected talker and codec on a CUDA device, got cpu"):
        model(network, graphs=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_on_a_gpu_graphs_give_the_same() -> None:
    network = tiny_qwen.network().to("cuda")
    network.set_experts_implementation("batched_mm")
    plain = together(model(network, slots=2, **SHORT))
    for more in ({"graphs": True}, {"graphs": True, "compile": True}):
        other = together(model(network, slots=2, max_length=256, **more, **SHORT))
        assert all(one.same_as(two) for one, two in zip(plain, other, strict=True))


def test_steps_are_as_they_are_unless_told() -> None:
    config = QwenConfig()
    assert (config.compile, config.graphs) == (False, False)

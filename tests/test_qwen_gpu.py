"""The script for a GPU machine, at tiny shapes; and the published shapes, built without memory."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

from tests.evidence import gpu
from voice_agent.qwen import listing


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`:UserWarning")
def test_the_script_runs_at_tiny_shapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "REPLY_TOKENS", 4)
    monkeypatch.setattr(gpu, "FRAMES", 4)
    found = asyncio.run(gpu.run(seed=0, trials=1))
    assert found["device"] == "cpu, tiny shapes"
    assert found["left_out"] == ["graphs, which need a GPU"]
    (mode,) = found["modes"]
    assert mode["graphs"] is False
    assert [at["calls"] for at in mode["at"]] == [1, 4, 8, 16]
    for at in mode["at"]:
        assert 0 < at["frames"] <= 4 * at["calls"]
        assert at["ttfc_ms"]["n"] == at["frame_ms"]["n"] == at["calls"]
        assert min(at["ttfc_ms"]["p50"], at["frame_ms"]["p50"]) > 0
        assert at["utilisation"].keys() == at["step_ms"].keys() == {"thinker", "talker", "codec"}
    assert found["generate"]["first_sample_ms"] > 0
    assert 0 < found["generate"]["frames"] <= 4
    assert found["within_budget"]
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert rows[-5:-1] == [[calls, "off"] for calls in ("1", "4", "8", "16")]
    assert rows[-1][0] == "generate(),"


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`:UserWarning")
def test_what_there_is_no_time_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, value in (("CALLS", (1, 2)), ("REPLY_TOKENS", 2), ("FRAMES", 2), ("BUDGET_S", 0.0)):
        monkeypatch.setattr(gpu, name, value)
    found = asyncio.run(gpu.run(seed=0, trials=1))
    assert found["left_out"][:2] == ["1 calls, graphs off", "2 calls, graphs off"]
    assert not found["within_budget"]


def test_as_many_layers_are_made_as_fit() -> None:
    assert gpu.fitting(139 * 2**30) == gpu.LAYERS
    small = gpu.fitting(24 * 2**30)
    assert small["talker"] == 20
    assert 5 < small["thinker"] < 15
    with pytest.raises(ValueError, match="for the smallest network, got 4"):
        gpu.fitting(4 * 2**30)


def test_the_published_shapes_are_those_of_thirty_billion_parameters() -> None:
    with torch.device("meta"):
        made = Qwen3OmniMoeForConditionalGeneration(gpu.published(gpu.LAYERS))
    count = {
        "thinker": sum(p.numel() for p in made.thinker.model.language_model.parameters())
        + made.thinker.lm_head.weight.numel(),
        "talker": sum(p.numel() for p in made.talker.parameters()),
    }
    assert count["thinker"] == pytest.approx(30.5e9, rel=0.01)
    assert count["talker"] == pytest.approx(3.3e9, rel=0.1)
    assert 2 * sum(p.numel() for p in made.parameters()) == listing.BYTES
    assert made.talker.code_predictor.config.num_hidden_layers == 5
    assert len(made.talker.code_predictor.lm_head) == 15

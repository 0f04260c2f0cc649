"""The script for a GPU machine, at tiny shapes; and the published shapes, built without memory."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

from tests.evidence import gpu


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`:UserWarning")
def test_the_script_runs_at_tiny_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "CALLS", (1, 2))
    monkeypatch.setattr(gpu, "REPLY_TOKENS", 4)
    monkeypatch.setattr(gpu, "FRAMES", 4)
    found = asyncio.run(gpu.run(seed=0, trials=1))
    assert found["device"] == "cpu, tiny shapes"
    assert [at["calls"] for at in found["at"]] == [1, 2]
    for at in found["at"]:
        assert 0 < at["frames"] <= 4 * at["calls"]
        assert at["ttfc_ms"]["p50"] > 0
        assert at["utilisation"].keys() == at["step_ms"].keys() == {"thinker", "talker", "codec"}
    assert found["generate_first_sample_ms"] > 0


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
    assert made.talker.code_predictor.config.num_hidden_layers == 5
    assert len(made.talker.code_predictor.lm_head) == 15

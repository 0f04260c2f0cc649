"""Weights of Qwen3-Omni: what is missing, extra or misshapen is named before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3OmniMoeForConditionalGeneration

from tests import tiny_qwen
from tests.test_qwen import ask
from tests.tiny_qwen import Drive, model
from voice_agent.models import load_model
from voice_agent.qwen import checkpoint
from voice_agent.qwen.checkpoint import INDEX, CheckpointError
from voice_agent.qwen.config import QwenConfig

Tensors = dict[str, torch.Tensor]
EXPERT = "thinker.model.layers.1.mlp.experts.3.up_proj.weight"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def network() -> Qwen3OmniMoeForConditionalGeneration:
    return tiny_qwen.network()


@pytest.fixture(scope="module")
def stored(network: Qwen3OmniMoeForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    tiny_qwen.save(network, folder)
    return folder


def altered(stored: Path, folder: Path, name: str, change: Callable[[Tensors], None]) -> str:
    """A copy of the folder whose file with tensor `name` is changed; gives that file's name."""
    for file in stored.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    index = json.loads((folder / INDEX).read_text())
    file_name: str = index["weight_map"][name]
    tensors = load_file(folder / file_name)
    change(tensors)
    save_file(tensors, folder / file_name)
    others = {key: where for key, where in index["weight_map"].items() if where != file_name}
    (folder / INDEX).write_text(json.dumps({**index, "weight_map": others | dict.fromkeys(tensors, file_name)}))
    return file_name


def test_a_sharded_checkpoint_is_loaded_and_speaks_as_the_network_did(
    network: Qwen3OmniMoeForConditionalGeneration, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(list(stored.glob("*.safetensors"))) > 3
    loaded = checkpoint.load(
        str(stored),
        slots=1,
        config=QwenConfig(greedy=True, max_length=1024, max_reply=4, max_frames=4, device="cpu", dtype="float32"),
    )
    loaded.thinker.model.set_experts_implementation("eager")
    loaded.talker.model.set_experts_implementation("eager")
    assert "Loading weights" in capsys.readouterr().out
    expected = Drive(model(network, max_reply=4, max_frames=4)).whole(0, ask("good morning"))
    assert Drive(loaded).whole(0, ask("good morning")).same_as(expected)


def test_a_model_is_chosen_by_its_folder(stored: Path) -> None:
    loaded = load_model(str(stored), slots=2, qwen=QwenConfig(max_length=256, max_frames=10))
    assert loaded.name == str(stored)
    assert loaded.thinker.slots == loaded.talker.slots == loaded.codec.slots == 2
    with pytest.raises(ValueError, match="or a folder that holds it, got 'qwen'"):
        load_model("qwen", slots=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_read_is_what_transformers_reads(stored: Path, dtype: torch.dtype) -> None:
    """Buffers that no file holds included."""
    read = checkpoint.read(stored, checkpoint.verify(stored), "cpu", dtype)
    other = Qwen3OmniMoeForConditionalGeneration.from_pretrained(stored, dtype=dtype)
    for ours, theirs in (
        (read.named_parameters(), other.named_parameters()),
        (read.named_buffers(), other.named_buffers()),
    ):
        expected = dict(theirs)
        found = dict(ours)
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            assert tensor.dtype == expected[name].dtype, name
            assert torch.equal(tensor, expected[name]), name


def test_the_names_are_those_that_the_hub_has(stored: Path) -> None:
    names = json.loads((stored / INDEX).read_text())["weight_map"]
    assert EXPERT in names
    assert {"thinker.audio_tower.proj1.weight", "talker.code_predictor.lm_head.0.weight"} <= set(names)


def test_a_missing_tensor_is_named(stored: Path, tmp_path: Path) -> None:
    altered(stored, tmp_path, EXPERT, lambda tensors: tensors.pop(EXPERT))
    with pytest.raises(CheckpointError, match=rf"missing {EXPERT} \(32, 32\)"):
        checkpoint.verify(tmp_path)


def test_an_extra_tensor_is_named_with_its_file(stored: Path, tmp_path: Path) -> None:
    file = altered(stored, tmp_path, EXPERT, lambda tensors: tensors.update({"talker.ear": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match=f"{file}: unexpected talker.ear"):
        checkpoint.verify(tmp_path)


def test_a_misshapen_tensor_is_named_with_its_file(stored: Path, tmp_path: Path) -> None:
    file = altered(stored, tmp_path, EXPERT, lambda tensors: tensors.update({EXPERT: torch.zeros(32, 31)}))
    with pytest.raises(CheckpointError, match=rf"{file}: {EXPERT}: expected shape \(32, 32\), got \(32, 31\)"):
        checkpoint.verify(tmp_path)


def test_a_file_that_is_not_whole_is_named(stored: Path, tmp_path: Path) -> None:
    file = altered(stored, tmp_path, EXPERT, lambda tensors: None)
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=f"{file}: expected a safetensors file"):
        checkpoint.verify(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(CheckpointError, match=f"{file}: expected a safetensors file"):
        checkpoint.verify(tmp_path)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"expected config\.json"):
        checkpoint.verify(tmp_path)


MEASURE = """
import sys
from pathlib import Path
import torch
from voice_agent.qwen import checkpoint

def resident(kind):
    line = next(line for line in open("/proc/self/status") if line.startswith(kind))
    return int(line.split()[1]) * 1024

torch.set_num_threads(1)
config = checkpoint.verify(Path(sys.argv[1]))
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
network = checkpoint.read(Path(sys.argv[1]), config, "cpu", torch.float32)
print((resident("VmHWM") - before) / sum(p.numel() * p.element_size() for p in network.parameters()))
"""


def test_loading_takes_little_more_memory_than_the_weights(tmp_path: Path) -> None:
    config = tiny_qwen.config()
    text = config.thinker_config.text_config
    text.num_experts, text.moe_intermediate_size, text.num_hidden_layers = 8, 4096, 8
    made = Qwen3OmniMoeForConditionalGeneration(config)
    assert sum(parameter.numel() for parameter in made.parameters()) > 25e6
    made.save_pretrained(tmp_path, max_shard_size="5MB")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert 0.9 < float(done.stdout.splitlines()[-1]) <= 1.1

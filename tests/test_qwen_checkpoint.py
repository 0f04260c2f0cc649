"""Weights of Qwen3-Omni: what is missing, extra or misshapen is named before anything is loaded."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration
from typer.testing import CliRunner

from tests import tiny_qwen
from tests.evidence import gpu
from tests.test_qwen import ask
from tests.tiny_qwen import Drive, model
from voice_agent import weights
from voice_agent.cli import app
from voice_agent.models import load_model
from voice_agent.qwen import checkpoint, listing
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
    with pytest.raises(CheckpointError, match=rf"{INDEX}: missing {EXPERT} \(32, 32\)"):
        checkpoint.verify(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    other = next(iter(index["weight_map"].values()))
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {**index["weight_map"], EXPERT: other}}))
    with pytest.raises(CheckpointError, match=f"{other}: missing {EXPERT}, which {INDEX} says it holds"):
        checkpoint.verify(tmp_path)


def test_what_is_not_the_model_is_refused_before_anything_is_allocated(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered(stored, tmp_path, EXPERT, lambda tensors: tensors.pop(EXPERT))
    monkeypatch.setattr(checkpoint, "read", lambda *_, **__: pytest.fail("weights were read"))
    with pytest.raises(CheckpointError, match="missing"):
        checkpoint.load(str(tmp_path), slots=1)
    with pytest.raises(pytest.fail.Exception, match="weights were read"):
        checkpoint.load(str(stored), slots=1)


def test_a_checkpoint_of_one_file_is_read_too(network: Qwen3OmniMoeForConditionalGeneration, tmp_path: Path) -> None:
    tiny_qwen.save(network, tmp_path, shard="1GB")
    assert [file.name for file in tmp_path.glob("model*")] == ["model.safetensors"]
    read = checkpoint.read(tmp_path, checkpoint.verify(tmp_path), "cpu", torch.float32)
    state = read.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[EXPERT]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: missing {EXPERT}"):
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


# ---- at the published shapes ----


def sizes(config: Qwen3OmniMoeConfig) -> dict[str, tuple[int, ...]]:
    return dict(checkpoint._expected(config))


def write(folder: Path, config: Qwen3OmniMoeConfig, *, most: int, values: bool) -> None:
    """Shards of up to `most` bytes in bfloat16. values: a number of its own in each tensor; else holes in the files."""
    config.save_pretrained(folder)
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    filled = 0
    for name, shape in sizes(config).items():
        size = 2 * math.prod(shape)
        if filled + size > most:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += size
    where = {}
    for number, shapes in enumerate(shards):
        file = f"model-{number:05d}.safetensors"
        where |= dict.fromkeys(shapes, file)
        if values:
            save_file({n: torch.full(s, number_of(n), dtype=torch.bfloat16) for n, s in shapes.items()}, folder / file)
        else:
            with (folder / file).open("wb") as out:
                end, entries = 0, {}
                for name, shape in shapes.items():
                    start, end = end, end + 2 * math.prod(shape)
                    entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
                header = json.dumps(entries).encode()
                out.write(len(header).to_bytes(8, "little") + header)
                out.truncate(8 + len(header) + end)
    (folder / INDEX).write_text(json.dumps({"weight_map": where}))


def number_of(name: str) -> int:
    """1 to 251, which bfloat16 holds exactly."""
    return zlib.crc32(name.encode()) % 251 + 1


def resident(kind: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) * 1024


def test_the_published_checkpoint_is_compared_before_anything_is_allocated(tmp_path: Path) -> None:
    """70 GB of files, all holes: their names and shapes are read, and no weight."""
    config = gpu.published(gpu.LAYERS)
    write(tmp_path, config, most=5 * 10**9, values=False)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) == 15
    assert sum(file.stat().st_size for file in files) > listing.BYTES
    before = resident("VmRSS")
    found = checkpoint.verify(tmp_path)
    assert found.thinker_config.text_config.num_hidden_layers == 48
    assert resident("VmRSS") - before < 2**30

    index = json.loads((tmp_path / INDEX).read_text())
    name = "talker.model.layers.19.mlp.experts.127.down_proj.weight"
    file = tmp_path / index["weight_map"][name]
    with file.open("r+b") as shard:
        header = shard.read(int.from_bytes(shard.read(8), "little"))
        shard.seek(8)
        shard.write(header.replace(b"[1024, 384]", b"[384, 1024]"))
    with pytest.raises(CheckpointError, match=rf"{file.name}: .*: expected shape \(1024, 384\), got \(384, 1024\)"):
        checkpoint.verify(tmp_path)


LOAD = """
import sys
from pathlib import Path
import torch
from tests.test_qwen_checkpoint import number_of, resident
from voice_agent.qwen import checkpoint

torch.set_num_threads(1)
folder, dtype = Path(sys.argv[1]), getattr(torch, sys.argv[2])
config = checkpoint.verify(folder)
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
network = checkpoint.read(folder, config, "cpu", dtype)
peak = resident("VmHWM") - before
state = checkpoint._published(network.state_dict())
wrong = [name for name, tensor in state.items() if not bool((tensor == number_of(name)).all())]
print(peak / sum(p.numel() * p.element_size() for p in network.parameters()), len(state), wrong[:3])
"""


def load(folder: Path, dtype: str) -> tuple[float, int, str]:
    """In a process of its own: peak memory over the weights' size, tensors, and those that are not as written."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD, str(folder), dtype], capture_output=True, text=True, check=True
    )
    ratio, count, wrong = done.stdout.splitlines()[-1].split(" ", 2)
    return float(ratio), int(count), wrong


def test_loading_takes_little_more_memory_than_the_weights(tmp_path: Path) -> None:
    config = tiny_qwen.config()
    text = config.thinker_config.text_config
    text.num_experts, text.moe_intermediate_size, text.num_hidden_layers = 8, 4096, 8
    write(tmp_path, config, most=5 * 10**6, values=True)
    ratio, count, wrong = load(tmp_path, "float32")
    assert (count, wrong) == (len(sizes(config)), "[]")
    assert 0.9 < ratio <= 1.1


def room() -> bool:
    """6 GiB of weights, in memory and on disk."""
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(available.split()[1]) > 9 * 2**20 and shutil.disk_usage(tempfile.gettempdir()).free > 8 * 2**30


@pytest.mark.skipif(not room(), reason="needs 9 GiB of memory and 8 GiB of disk")
def test_two_layers_at_the_published_shapes_are_saved_and_loaded(tmp_path: Path) -> None:
    config = gpu.published({"thinker": 2, "talker": 2, "audio": 2, "vision": 2})
    write(tmp_path, config, most=512 * 2**20, values=True)
    try:
        ratio, count, wrong = load(tmp_path, "bfloat16")
    finally:
        for file in tmp_path.glob("*.safetensors"):
            file.unlink()
    assert (count, wrong) == (len(sizes(config)), "[]")
    assert 0.9 < ratio <= 1.1


# ---- what `voice-agent models` says ----


def listed(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> list[weights.ModelRow]:
    monkeypatch.setattr(listing, "_cached", lambda: folder)
    return listing.list_qwen()


def test_a_model_that_is_not_there_is_listed_with_source_licence_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = listed(monkeypatch, None)
    assert (row.name, row.source) == ("qwen3-omni", "hub Qwen/Qwen3-Omni-30B-A3B-Instruct")
    assert (row.licence, row.state, row.sha256) == ("Apache-2.0", "missing", "")
    assert row.bytes == pytest.approx(70.5e9, rel=0.01)


def test_the_files_of_the_hub_s_cache_are_listed_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    named = [hashlib.sha256(content).hexdigest() for content in (b"one", b"two")]
    for number, (name, content) in enumerate(zip(named, (b"one", b"damaged"), strict=True), start=1):
        (blobs / name).write_bytes(content)
        (snapshot / f"model-{number}.safetensors").symlink_to(blobs / name)
    rows = listed(monkeypatch, snapshot)
    assert [(row.part, row.sha256, row.bytes, row.state) for row in rows] == [
        ("model-1", named[0], 3, "ok"), ("model-2", named[1], 7, "damaged")
    ]  # fmt: skip


def test_the_command_line_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_cached", lambda: None)
    done = CliRunner().invoke(app, ["models", "--json"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["state"] for row in rows if row["name"] == "qwen3-omni"] == ["missing"]

"""Qwen3-Omni's weights: compared with the architecture, name by name and shape by shape, before any memory is taken.

The names and shapes to expect are those of the model built from `config.json` on meta tensors, as transformers would
store it; the names and shapes there are come from the headers of the safetensors files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration, WhisperFeatureExtractor
from transformers.core_model_loading import revert_weight_conversion

from voice_agent.qwen.model import QwenConfig, QwenOmni
from voice_agent.qwen.prompt import Template

__all__ = ["CheckpointError", "load", "verify"]

INDEX = "model.safetensors.index.json"
NAMED = 8  # problems that an error spells out


class CheckpointError(ValueError):
    """The folder does not hold the model that its `config.json` describes; the message says what differs and where."""


@dataclass(frozen=True)
class _Stored:
    shape: tuple[int, ...]
    file: str


def find(source: str) -> Path:
    """A folder with the model: `source` itself, or the hub's copy of `OWNER/NAME`, downloaded if it is not there yet."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source))


def verify(folder: Path) -> Qwen3OmniMoeConfig:
    """The folder's configuration, once its weights are what it describes. Raises CheckpointError."""
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder}: expected config.json, got none")
    config = Qwen3OmniMoeConfig.from_pretrained(folder)
    expected, stored = _expected(config), _stored(folder)
    problems = [f"missing {name} {shape}" for name, shape in expected.items() if name not in stored]
    problems += [f"{tensor.file}: unexpected {name}" for name, tensor in stored.items() if name not in expected]
    problems += [
        f"{tensor.file}: {name}: expected shape {expected[name]}, got {tensor.shape}"
        for name, tensor in stored.items()
        if name in expected and expected[name] != tensor.shape
    ]
    if problems:
        more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        raise CheckpointError(f"{folder}: {'; '.join(problems[:NAMED])}{more}")
    return config


def load(
    source: str,
    *,
    slots: int,
    config: QwenConfig = QwenConfig(),  # noqa: B008
    device: str = "cuda" if torch.cuda.is_available() else "cpu",
    dtype: torch.dtype = torch.bfloat16,
) -> QwenOmni:
    """Load from a folder or the hub onto one device, with progress shown; the codec computes in float32.

    Raises CheckpointError for weights that are not those of the configuration.
    """
    folder = find(source)
    ids = verify(folder)
    network = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=dtype, device_map=device)
    network.code2wav.float()
    template = Template.load(
        folder,
        audio_token_id=ids.thinker_config.audio_token_id,
        im_end_token_id=ids.im_end_token_id,
        n_window=ids.thinker_config.audio_config.n_window,
    )
    extractor = WhisperFeatureExtractor.from_pretrained(folder) if config.listen else None
    return QwenOmni.of(network.eval(), template, extractor, slots=slots, config=config, name=source)


def _expected(config: Qwen3OmniMoeConfig) -> Mapping[str, tuple[int, ...]]:
    with torch.device("meta"):
        network = Qwen3OmniMoeForConditionalGeneration(config)
    state = revert_weight_conversion(network, network.state_dict())
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _stored(folder: Path) -> Mapping[str, _Stored]:
    """Every tensor's shape and file. Raises CheckpointError for a file that is missing or not whole."""
    index = folder / INDEX
    if index.is_file():
        listed: Mapping[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
        files = sorted(set(listed.values()))
    else:
        listed, files = {}, ["model.safetensors"]
    found: dict[str, _Stored] = {}
    for name in files:
        try:
            with safe_open(folder / name, framework="pt") as file:
                for key in file.keys():  # noqa: SIM118
                    found[key] = _Stored(tuple(file.get_slice(key).get_shape()), name)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{folder / name}: expected a safetensors file, got {error}") from None
    for key, name in listed.items():
        if key not in found or found[key].file != name:
            raise CheckpointError(f"{folder / name}: missing {key}, which {INDEX} says it holds")
    return found

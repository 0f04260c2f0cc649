"""Qwen3-Omni's weights: compared with the architecture, name by name and shape by shape, before any memory is taken.

The names and shapes to expect are those of the model built from `config.json` on meta tensors; those that are there
come from the headers of the safetensors files. Then the model is allocated once and filled in place, a tensor after
another. transformers keeps all experts of a layer in one tensor, the published files each expert's on its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration, WhisperFeatureExtractor
from transformers.initialization import no_init_weights

from voice_agent.engine.protocols import Codec, StageName, Talker, Thinker
from voice_agent.qwen.config import QwenConfig
from voice_agent.qwen.model import QwenCard, QwenOmni, make_codec, make_talker, make_thinker, mark_ids
from voice_agent.qwen.prompt import Template

__all__ = ["CheckpointError", "describe", "load", "load_parts", "verify"]

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
NAMED = 8  # problems that an error spells out
NETWORKS: Mapping[StageName, str] = {"thinker": "thinker", "talker": "talker", "codec": "code2wav"}
EMBEDDINGS = "thinker.model.embed_tokens.weight"
RENAMED = (
    ("thinker.model.audio_tower.", "thinker.audio_tower."),
    ("thinker.model.visual.", "thinker.visual."),
    ("thinker.model.language_model.", "thinker.model."),
)


class CheckpointError(ValueError):
    """The folder does not hold the model that its `config.json` describes; the message says what differs and where."""


@dataclass(frozen=True)
class _Stored:
    shape: tuple[int, ...]
    file: str


def find(source: str) -> Path:
    """A folder with the model: `source` itself, or `OWNER/NAME` from the hub, downloaded if it is not there yet."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source))


def verify(folder: Path) -> Qwen3OmniMoeConfig:
    """The folder's configuration, once its weights are what it describes. Raises CheckpointError."""
    config = _configuration(folder)
    expected, stored = _expected(config), _stored(folder)
    listing = INDEX if (folder / INDEX).is_file() else SINGLE
    problems = [f"{listing}: missing {name} {shape}" for name, shape in expected.items() if name not in stored]
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


def read(
    folder: Path,
    config: Qwen3OmniMoeConfig,
    device: str,
    dtype: torch.dtype,
    *,
    speech_device: str = "",
    networks: Collection[str] = tuple(NETWORKS.values()),
) -> Qwen3OmniMoeForConditionalGeneration:
    """The weights of a verified folder, each put straight where it belongs; shows progress.

    `networks`: those to read; the others stay on meta tensors and take no memory. `speech_device`: of talker and
    code2wav; empty: `device`.
    """
    with no_init_weights(), torch.device("meta"):
        network = Qwen3OmniMoeForConditionalGeneration._from_config(config, dtype=dtype)
    for name in networks:
        empty = getattr(network, name)
        with no_init_weights(), torch.device(device if name == "thinker" else speech_device or device):
            setattr(network, name, type(empty)._from_config(empty.config, dtype=dtype))
    places = {key: place for key, place in _published(network.state_dict()).items() if not place.is_meta}
    stored = _stored(folder)
    for name in track(sorted({stored[key].file for key in places}), description="Loading weights"):
        with safe_open(folder / name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                if key in places:
                    places[key].copy_(file.get_tensor(key))
    return network.eval()


def load(source: str, *, slots: int, config: QwenConfig = QwenConfig()) -> QwenOmni:  # noqa: B008
    """Load from a folder or the hub onto the configured devices, with progress shown; the codec is in float32.

    Raises CheckpointError for weights that are not those of the configuration.
    """
    parts: dict[StageName, Any] = {**load_parts(source, tuple(NETWORKS), slots=slots, config=config)}
    return QwenOmni(parts["thinker"], parts["talker"], parts["codec"], source)


def load_parts(
    source: str, stages: Sequence[StageName], *, slots: int, config: QwenConfig
) -> dict[StageName, Thinker | Talker | Codec]:
    """Load only these parts; no memory is taken for the others. Raises CheckpointError like `load`."""
    folder = find(source)
    ids = verify(folder)
    device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
    speech_device, dtype = config.speech_device or device, getattr(torch, config.dtype)
    wanted = [NETWORKS[stage] for stage in stages]
    network = read(folder, ids, device, dtype, speech_device=speech_device, networks=wanted)
    network.code2wav.float()
    extractor = WhisperFeatureExtractor.from_pretrained(folder) if config.listen else None
    makers: dict[StageName, Callable[[], Thinker | Talker | Codec]] = {
        "thinker": lambda: make_thinker(network, _template(folder, ids), extractor, slots, config),
        "talker": lambda: make_talker(network, _marks(folder, ids).to(speech_device, dtype), slots, config),
        "codec": lambda: make_codec(network, slots, config),
    }
    return {stage: makers[stage]() for stage in stages}


def describe(source: str) -> QwenCard:
    """What the checkpoint was made for, without its weights. Raises CheckpointError for a folder without it."""
    folder = find(source)
    return QwenCard(source, _template(folder, _configuration(folder)).takes_tools)


def _configuration(folder: Path) -> Qwen3OmniMoeConfig:
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder}: expected config.json, got none")
    config: Qwen3OmniMoeConfig = Qwen3OmniMoeConfig.from_pretrained(folder)
    return config


def _template(folder: Path, ids: Qwen3OmniMoeConfig) -> Template:
    return Template.load(
        folder,
        audio_token_id=ids.thinker_config.audio_token_id,
        im_end_token_id=ids.im_end_token_id,
        n_window=ids.thinker_config.audio_config.n_window,
    )


def _marks(folder: Path, ids: Qwen3OmniMoeConfig) -> Tensor:
    """[3, H]: the thinker's embeddings of `mark_ids`, without the others."""
    with safe_open(folder / _stored(folder)[EMBEDDINGS].file, framework="pt") as file:
        rows = file.get_slice(EMBEDDINGS)
        return torch.cat([rows[number : number + 1] for number in mark_ids(ids)])


def _expected(config: Qwen3OmniMoeConfig) -> Mapping[str, tuple[int, ...]]:
    with torch.device("meta"):
        network = Qwen3OmniMoeForConditionalGeneration(config)
    return {name: tuple(tensor.shape) for name, tensor in _published(network.state_dict()).items()}


def _published(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The model's tensors, or views of them, under the names that the published files use."""
    published: dict[str, Tensor] = {}
    for name, tensor in state.items():
        for inside, outside in RENAMED:
            if name.startswith(inside):
                name = outside + name.removeprefix(inside)
                break
        stem, _, kind = name.rpartition(".")
        for expert, of_one in enumerate(tensor if stem.endswith("mlp.experts") else ()):
            halves = dict(zip(("gate_proj", "up_proj"), of_one.chunk(2), strict=True))
            for part, view in (halves if kind == "gate_up_proj" else {kind: of_one}).items():
                published[f"{stem}.{expert}.{part}.weight"] = view
        if not stem.endswith("mlp.experts"):
            published[name] = tensor
    return published


def _stored(folder: Path) -> Mapping[str, _Stored]:
    """Every tensor's shape and file. Raises CheckpointError for a file that is missing or not whole."""
    index = folder / INDEX
    if index.is_file():
        listed: Mapping[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
        files = sorted(set(listed.values()))
    else:
        listed, files = {}, [SINGLE]
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

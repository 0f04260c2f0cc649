"""The models by name. Heavy imports stay inside the factories."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import get_args

from voice_agent.engine.places import Place
from voice_agent.engine.protocols import Codec, KnowsTools, OmniModel, StageName, Talker, Thinker
from voice_agent.qwen.config import QwenConfig

QWEN = "Qwen/Qwen3-Omni-30B-A3B-Instruct"


def load_model(name: str, *, slots: int, qwen: QwenConfig = QwenConfig()) -> OmniModel:  # noqa: B008
    """Load a model with its weights verified: `tea-omni`, Qwen3-Omni by its name on the hub, or a folder that holds it.

    Raises ValueError for a name that is not known, or a folder whose weights are not what its configuration says.
    """
    if name == "tea-omni":
        from voice_agent.tea.model import TeaOmni

        return TeaOmni.load(slots=slots)
    model: OmniModel = _qwen(name).load(name, slots=slots, config=qwen)
    return model


def load_parts(
    name: str, slots: int, qwen: QwenConfig, stages: Sequence[StageName], device: str
) -> Mapping[StageName, Thinker | Talker | Codec]:
    """Load only these parts of a model, onto a device ("": the model's own choice).

    Raises what `load_model` raises, and ValueError for a device that this machine or the model does not have.
    """
    if device:
        _check_device(device)
    if name == "tea-omni":
        from voice_agent.tea import model as tea

        if device not in ("", "cpu"):
            raise ValueError(f"engine.placement: expected cpu, which tea-omni is made for, got {device!r}")
        return tea.load_parts(stages, slots=slots)
    own = {"device": device, "speech_device": device} if device else {}
    parts: Mapping[StageName, Thinker | Talker | Codec]
    parts = _qwen(name).load_parts(name, stages, slots=slots, config=qwen.model_copy(update=own))
    return parts


def describe(name: str) -> KnowsTools:
    """What the model was made for, without its weights. Raises ValueError like `load_model`."""
    if name == "tea-omni":
        from voice_agent.tea.model import TeaCard

        return TeaCard()
    card: KnowsTools = _qwen(name).describe(name)
    return card


def usual_places(name: str) -> tuple[Place, ...]:
    """Where a model's stages run if the configuration does not say.

    `tea-omni` takes many short steps, each of them through Python: in a process of its own it and the media do not wait
    for one interpreter, and with four calls on two cores replies come sooner by a sixth. Processes need Linux.
    """
    if name == "tea-omni" and sys.platform == "linux":
        return (Place(stages=get_args(StageName), process=True),)
    return ()


def _qwen(name: str) -> ModuleType:
    if name != QWEN and not (Path(name) / "config.json").is_file():
        raise ValueError(f"model: expected 'tea-omni', {QWEN!r} or a folder that holds it, got {name!r}")
    try:
        from voice_agent.qwen import checkpoint
    except ModuleNotFoundError as error:
        raise ValueError(f"model {name}: it needs {error.name}; in the checkout: pip install -e '.[qwen]'") from None
    return checkpoint


def _check_device(device: str) -> None:
    import torch

    there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if device not in there and not (device == "cuda" and len(there) > 1):
        raise ValueError(f"engine.placement: expected a device of this machine ({', '.join(there)}), got {device!r}")

"""The models by name. Heavy imports stay inside the factories."""

from __future__ import annotations

from pathlib import Path

from voice_agent.engine.protocols import OmniModel
from voice_agent.qwen.config import QwenConfig

QWEN = "Qwen/Qwen3-Omni-30B-A3B-Instruct"


def load_model(name: str, *, slots: int, qwen: QwenConfig = QwenConfig()) -> OmniModel:  # noqa: B008
    """Load a model with its weights verified: `tea-omni`, Qwen3-Omni by its name on the hub, or a folder that holds it.

    Raises ValueError for a name that is not known, or a folder whose weights are not what its configuration says.
    """
    if name == "tea-omni":
        from voice_agent.tea.model import TeaOmni

        return TeaOmni.load(slots=slots)
    if name == QWEN or (Path(name) / "config.json").is_file():
        try:
            from voice_agent.qwen import checkpoint
        except ModuleNotFoundError as error:
            raise ValueError(f"model {name}: it needs {error.name}; pip install 'voice-agent[qwen]'") from None
        return checkpoint.load(name, slots=slots, config=qwen)
    raise ValueError(f"model: expected 'tea-omni', {QWEN!r} or a folder that holds it, got {name!r}")

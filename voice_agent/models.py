"""The models by name. Heavy imports stay inside the factories."""

from __future__ import annotations

from voice_agent.engine.protocols import OmniModel


def load_model(name: str, *, slots: int) -> OmniModel:
    """Load a model with its weights verified. Raises ValueError for a name that is not known."""
    if name == "tea-omni":
        from voice_agent.tea.model import TeaOmni

        return TeaOmni.load(slots=slots)
    raise ValueError(f"model: expected 'tea-omni', got {name!r}")

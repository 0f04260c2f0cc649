"""tea-omni as one model: its three parts, loaded together and verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_agent import weights
from voice_agent.tea.codec import TeaCodec
from voice_agent.tea.talker import TeaTalker
from voice_agent.tea.thinker import TeaThinker, check

__all__ = ["TeaOmni"]


@dataclass
class TeaOmni:
    """The three parts, trained for one another."""

    thinker: TeaThinker
    talker: TeaTalker
    codec: TeaCodec
    name: str = "tea-omni"

    @classmethod
    def load(cls, *, slots: int, folder: Path | None = None) -> TeaOmni:
        """Load the shipped weights, or those in `folder`. Raises WeightsError when one is not what it should be."""
        folder = weights.tea_omni(folder)
        return cls(
            TeaThinker.load(folder / "thinker.safetensors", slots),
            TeaTalker.load(folder / "talker.safetensors", slots),
            TeaCodec.load(folder / "codec.safetensors", slots),
        )

    def check(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises ValueError for tools other than the ordering tools."""
        check(tools)

"""tea-omni as one model: its three parts, loaded together and verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_agent import weights
from voice_agent.engine.protocols import Codec, StageName, Talker, Thinker
from voice_agent.tea.codec import TeaCodec
from voice_agent.tea.talker import SPEEDS, TeaTalker
from voice_agent.tea.thinker import TeaThinker, check

__all__ = ["TeaCard", "TeaOmni", "load_parts"]


class TeaCard:
    """What tea-omni was made for."""

    name = "tea-omni"
    speeds = SPEEDS

    def check(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises ValueError for tools other than the ordering tools."""
        check(tools)


@dataclass
class TeaOmni(TeaCard):
    """The three parts, trained for one another."""

    thinker: TeaThinker
    talker: TeaTalker
    codec: TeaCodec

    @classmethod
    def load(cls, *, slots: int, folder: Path | None = None) -> TeaOmni:
        """Load the shipped weights, or those in `folder`. Raises WeightsError when one is not what it should be."""
        folder = weights.tea_omni(folder)
        return cls(_thinker(folder, slots), _talker(folder, slots), _codec(folder, slots))


def load_parts(stages: Sequence[StageName], *, slots: int) -> dict[StageName, Thinker | Talker | Codec]:
    """Load only these parts of the shipped weights. Raises WeightsError like `TeaOmni.load`."""
    folder = weights.tea_omni()
    makers: dict[StageName, Callable[[Path, int], Thinker | Talker | Codec]]
    makers = {"thinker": _thinker, "talker": _talker, "codec": _codec}
    return {stage: makers[stage](folder, slots) for stage in stages}


def _thinker(folder: Path, slots: int) -> TeaThinker:
    return TeaThinker.load(folder / "thinker.safetensors", slots, folder / "endpoint.safetensors")


def _talker(folder: Path, slots: int) -> TeaTalker:
    return TeaTalker.load(folder / "talker.safetensors", slots)


def _codec(folder: Path, slots: int) -> TeaCodec:
    return TeaCodec.load(folder / "codec.safetensors", slots)

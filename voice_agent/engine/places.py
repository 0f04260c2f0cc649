"""Where stages run, as it can be set. Imports nothing heavy: a configuration can be read without a model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from voice_agent.engine.protocols import StageName


class Place(BaseModel):
    """A group of stages that run together.

    device: as torch names it, for all copies or a list that they take in turn; empty: the model's own. replicas: copies
    of the group. process: each copy in a process of its own; else a thread of the server for each stage.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stages: tuple[StageName, ...] = Field(min_length=1)
    device: str | tuple[str, ...] = ""
    replicas: int = Field(1, ge=1, le=16)
    process: bool = False

    @property
    def devices(self) -> list[str]:
        """A device for each copy."""
        named = (self.device,) if isinstance(self.device, str) else self.device
        return list(itertools.islice(itertools.cycle(named), self.replicas))


def check_places(places: Sequence[Place]) -> None:
    """Raises ValueError for a stage that is in two places."""
    named = [stage for place in places for stage in place.stages]
    for stage in named:
        if named.count(stage) > 1:
            raise ValueError(f"expected each stage in one place, got {stage} in {named.count(stage)}")

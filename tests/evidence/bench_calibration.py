"""The bench's own error: an agent with known delays and hard cuts, called over the whole path."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from voice_agent.bench.calibrate import calibrate

TRIALS = 72
"""Replies; and half as many stops."""


async def run(seed: int, trials: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = await calibrate(Path(folder), calls=max(1, trials // 12), seed=seed)
    each = result.pop("trials")
    return {**result, "each": each}

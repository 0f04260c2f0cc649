"""`train.sh --smoke`: from nothing, again in the same folder, and from the shipped weights; seconds of each stage."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.evidence.tools import ROOT
from voice_agent.tea.model import TeaOmni

TRIALS = 3
SCRIPT = ROOT / "models" / "tea-omni" / "train.sh"
SHIPPED = ROOT / "models" / "tea-omni" / "weights"


async def run(seed: int, trials: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "nothing"), Path(folder, "shipped")
        ways: dict[str, dict[str, Any]] = {
            "from nothing": {"CACHE": one, "WARM": ""},
            "again": {"CACHE": one, "WARM": ""},
            "from shipped weights": {"CACHE": other, "WARM": SHIPPED},
        }
        each = {way: await _smoke(settings) for way, settings in list(ways.items())[:trials]}
    return {"stages_s": each, "passed": all(each.values())}


async def _smoke(settings: dict[str, Any]) -> dict[str, int]:
    """Seconds of each stage; nothing if a stage failed. Raises WeightsError if the new weights cannot be loaded."""
    environment = os.environ | {name: str(value) for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        str(SCRIPT), "--smoke", env=environment, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    if process.returncode:
        return {}
    TeaOmni.load(slots=1, folder=settings["CACHE"] / "weights")
    return {name: int(seconds) for seconds, name in re.findall(r"^ *(\d+) s  (.+)$", printed.decode(), re.MULTILINE)}

"""The teachers' speech as the recipes read it: CACHE/zh and CACHE/en, each with `meta.jsonl` and what it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from mel import log_mel

from voice_agent.tea.codec import SAMPLE_RATE, LatentSpace

CACHE = Path("~/.cache/tea-omni").expanduser()
"""The teachers' speech, and a folder a part for checkpoints."""

WEIGHTS = Path(__file__).resolve().parent / "weights"

Line = dict[str, Any]
"""A line of meta.jsonl: see `teacher_zh.py` and `teacher_en.py`."""


def read_meta(folder: Path) -> list[Line]:
    """The utterances of one teacher, in the order in which they were made."""
    return [json.loads(line) for line in (folder / "meta.jsonl").read_text(encoding="utf-8").splitlines()]


def audio(folder: Path, line: Line) -> torch.Tensor:
    """float32[S] @ 24 kHz. Raises ValueError for another rate."""
    pcm, rate = soundfile.read(folder / line["wav"], dtype="float32")
    if rate != SAMPLE_RATE:
        raise ValueError(f"expected {SAMPLE_RATE} Hz, got {rate} Hz in {folder / line['wav']}")
    return torch.tensor(pcm)


def normalised_mel(folder: Path, line: Line, space: LatentSpace) -> torch.Tensor:
    """float32[T, 80]: the mel that the Mandarin teacher's audio was made from, or that of the English audio."""
    if "mel" in line:
        return torch.tensor(np.load(folder / line["mel"]))
    return (log_mel(audio(folder, line)) - space.mel_mean) / space.mel_scale

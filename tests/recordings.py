"""Recordings for tests: people's, which lie beside the checkout and may be absent, and the few in `tests/data`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import soxr

SHARED = Path(__file__).resolve().parents[2] / "shared" / "audio"
DATA = Path(__file__).parent / "data"


def recording(name: str) -> npt.NDArray[np.int16]:
    """int16[T] @ 16 kHz, mono. Skips the test if it is a recording that is not here."""
    path = DATA / name if (DATA / name).exists() else SHARED / name
    if not path.exists():
        pytest.skip(f"needs the recording {name}, which is not part of the project")
    pcm, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = soxr.resample(pcm.mean(axis=1), rate, 16_000)
    return np.asarray(np.clip(mono, -1, 1) * 32767, np.int16)


def levelled(pcm: npt.NDArray[np.int16], gain_db: float) -> npt.NDArray[np.int16]:
    return np.asarray(np.clip(pcm * 10 ** (gain_db / 20), -32768, 32767), np.int16)

"""The log-mel spectrogram that the codec and its Mandarin teacher share (before normalisation)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import torch

SAMPLE_RATE, FFT, WINDOW, HOP, CHANNELS = 24_000, 2048, 1200, 300, 80
_LOW_HZ, _HIGH_HZ = 80.0, 7600.0
_LINEAR_HZ, _BREAK_HZ, _LOG_STEP = 200 / 3, 1000.0, np.log(6.4) / 27


def _to_mel(hz: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    bent = _BREAK_HZ / _LINEAR_HZ + np.log(np.maximum(hz, 1.0) / _BREAK_HZ) / _LOG_STEP
    return np.where(hz < _BREAK_HZ, hz / _LINEAR_HZ, bent)


def _to_hz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    bend = _BREAK_HZ / _LINEAR_HZ
    return np.where(mel < bend, mel * _LINEAR_HZ, _BREAK_HZ * np.exp(_LOG_STEP * (mel - bend)))


@cache
def filterbank() -> torch.Tensor:
    """Slaney's triangles of equal area: float32[80, 1025]."""
    edges = _to_hz(np.linspace(*_to_mel(np.array([_LOW_HZ, _HIGH_HZ])), CHANNELS + 2))
    bins = np.linspace(0, SAMPLE_RATE / 2, FFT // 2 + 1)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return torch.tensor(triangles, dtype=torch.float32)


@cache
def _window() -> torch.Tensor:
    return torch.hann_window(WINDOW)


def log_mel(pcm: torch.Tensor) -> torch.Tensor:
    """float32[..., S] @ 24 kHz to log10 mel float32[..., S // 300 + 1, 80]; frame t is centred on sample 300 t."""
    spectrum = torch.stft(pcm, FFT, HOP, WINDOW, _window(), center=True, pad_mode="reflect", return_complex=True)
    mel = filterbank() @ spectrum.abs()
    return mel.clamp(min=1e-10).log10().transpose(-1, -2)

"""The streaming resampler: equal to offline, exact counts, right pitch, quiet beyond the band."""

from __future__ import annotations

import numpy as np
import pytest

from voice_agent.media.resample import Resampler

PAIRS = [
    (24_000, 48_000),
    (48_000, 16_000),
    (48_000, 24_000),
    (16_000, 48_000),
    (16_000, 24_000),
    (22_050, 48_000),
    (44_100, 48_000),
]


def tone(hz: float, rate: int, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


@pytest.mark.parametrize(("rate_in", "rate_out"), PAIRS)
@pytest.mark.parametrize("largest", [1, 37, 700])
def test_streaming_equals_offline(rate_in: int, rate_out: int, largest: int) -> None:
    rng = np.random.default_rng(largest)
    pcm = rng.standard_normal(3000).astype(np.float32)
    offline = Resampler(rate_in, rate_out).push(pcm)
    streaming = Resampler(rate_in, rate_out)
    pieces = []
    at = 0
    while at < len(pcm):
        size = int(rng.integers(0, largest + 1))
        pieces.append(streaming.push(pcm[at : at + size]))
        at += size
        assert sum(map(len, pieces)) == -(-min(at, len(pcm)) * rate_out // rate_in)
    assert np.abs(np.concatenate(pieces) - offline).max() < 1e-5


@pytest.mark.parametrize(("rate_in", "rate_out"), PAIRS)
def test_a_tone_keeps_its_pitch_level_and_place(rate_in: int, rate_out: int) -> None:
    resampler = Resampler(rate_in, rate_out)
    out = resampler.push(tone(440, rate_in))
    at = np.arange(len(out)) / rate_out - resampler.delay_ms / 1000
    wanted = np.sin(2 * np.pi * 440 * at)
    settled = slice(rate_out // 10, None)
    assert np.abs(out[settled] - wanted[settled]).max() < 2e-3


@pytest.mark.parametrize(("rate_in", "rate_out", "hz"), [(48_000, 16_000, 9_000), (48_000, 24_000, 13_500)])
def test_what_does_not_fit_the_new_band_is_gone(rate_in: int, rate_out: int, hz: float) -> None:
    out = Resampler(rate_in, rate_out).push(tone(hz, rate_in))[rate_out // 10 :]
    assert 20 * np.log10(np.sqrt(np.mean(out**2)) + 1e-9) < -70


def test_the_image_of_upsampling_is_gone() -> None:
    out = Resampler(24_000, 48_000).push(tone(9_000, 24_000))[4_800 : 4_800 + 24_000]
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out))))
    assert 20 * np.log10(spectrum[int(15_000 / 2) - 20 : int(15_000 / 2) + 20].max() / spectrum.max()) < -70


def test_delay_is_small_and_rates_are_checked() -> None:
    assert Resampler(24_000, 48_000).delay_ms < 1.1
    assert Resampler(48_000, 16_000).delay_ms < 1.6
    with pytest.raises(ValueError, match="expected positive"):
        Resampler(0, 48_000)

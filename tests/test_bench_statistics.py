"""Percentiles, their intervals, and differences beyond noise."""

from __future__ import annotations

import numpy as np
import pytest

from voice_agent.bench.statistics import difference, shares_differ, summarise


def test_percentiles_and_counts() -> None:
    summary = summarise([float(x) for x in range(1, 102)])
    assert (summary.n, summary.p50, summary.p95, summary.p99, summary.max) == (101, 51.0, 96.0, 100.0, 101.0)
    assert summary.p50_low < 51 < summary.p50_high
    with pytest.raises(ValueError, match="at least one trial"):
        summarise([])


def test_the_interval_holds_the_true_median_about_19_times_in_20() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        summary = summarise(rng.normal(800, 60, 40).tolist())
        held += summary.p50_low <= 800 <= summary.p50_high
    assert 178 <= held <= 199


def test_a_shift_is_found_and_noise_is_not() -> None:
    rng = np.random.default_rng(5)
    base = rng.normal(840, 50, 60).tolist()
    change, low, high = difference(base, (rng.normal(840, 50, 60) * 1.2).tolist())
    assert 120 < low < change < high < 220
    _, low, high = difference(base, rng.normal(840, 50, 60).tolist())
    assert low < 0 < high


def test_fishers_exact_test_of_the_lady_tasting_tea() -> None:
    """Fisher's own table: 3 of 4 and 1 of 4; two-sided p = 0.486."""
    assert shares_differ(3, 4, 1, 4) == pytest.approx(0.4857, abs=1e-4)
    assert shares_differ(10, 10, 0, 10) == pytest.approx(2 / 184756, rel=1e-6)
    assert shares_differ(7, 10, 7, 10) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="got 5 of 4"):
        shares_differ(5, 4, 0, 4)

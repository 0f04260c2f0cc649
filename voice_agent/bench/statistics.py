"""Percentiles with their uncertainty, and whether two sets of trials differ beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """`p50_low`, `p50_high`, `p95_low`, `p95_high`: the 95 % bootstrap interval of that percentile."""

    n: int
    p50: float
    p95: float
    p99: float
    max: float
    p50_low: float
    p50_high: float
    p95_low: float
    p95_high: float


def summarise(values: Sequence[float], seed: int = 1, digits: int = 1) -> Summary:
    """Percentiles of at least one trial; the interval by resampling the trials (Efron's percentile bootstrap).

    `digits`: of the decimals that are kept.
    """
    data = np.asarray(values, np.float64)
    if not len(data):
        raise ValueError("expected at least one trial, got none")
    p50, p95, p99 = np.percentile(data, [50, 95, 99])
    sets = _resample(data, seed)
    low, high = 50 * (1 - CONFIDENCE), 100 - 50 * (1 - CONFIDENCE)
    intervals = [np.percentile(np.percentile(sets, q, axis=1), [low, high]) for q in (50, 95)]
    figures = [p50, p95, p99, data.max(), *intervals[0], *intervals[1]]
    return Summary(len(data), *(round(float(figure), digits) for figure in figures))


def difference(
    before: Sequence[float], after: Sequence[float], quantile: float = 50, confidence: float = 0.99, seed: int = 1
) -> tuple[float, float, float]:
    """By how much a percentile changed, and the bootstrap interval of that change: (change, low, high)."""
    a, b = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if not len(a) or not len(b):
        raise ValueError(f"expected trials on both sides, got {len(a)} and {len(b)}")
    changes = np.percentile(_resample(b, seed + 1), quantile, axis=1) - np.percentile(
        _resample(a, seed), quantile, axis=1
    )
    low, high = np.percentile(changes, [50 * (1 - confidence), 100 - 50 * (1 - confidence)])
    return float(np.percentile(b, quantile) - np.percentile(a, quantile)), float(low), float(high)


def _resample(data: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.float64]:
    drawn: npt.NDArray[np.float64] = data[np.random.default_rng(seed).integers(0, len(data), (RESAMPLES, len(data)))]
    return drawn


def shares_differ(hits_a: int, n_a: int, hits_b: int, n_b: int) -> float:
    """How likely two shares at least this unequal are by chance, if both are the same (Fisher's exact test)."""
    hits, total = hits_a + hits_b, n_a + n_b
    if not 0 <= hits_a <= n_a or not 0 <= hits_b <= n_b:
        raise ValueError(f"expected hits within the trials, got {hits_a} of {n_a} and {hits_b} of {n_b}")
    ways = [comb(n_a, k) * comb(n_b, hits - k) for k in range(max(0, hits - n_b), min(n_a, hits) + 1)]
    own = comb(n_a, hits_a) * comb(n_b, hits_b)
    return sum(way for way in ways if way <= own) / comb(total, hits)

"""What several figures need: quantiles, and the recordings that callers play."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ORDER = ROOT / "demos" / "ordering" / "order.wav"
ORDER_EN = ROOT / "demos" / "ordering" / "order_en.wav"
T = TypeVar("T")


def quantiles(values: Sequence[float]) -> dict[str, Any]:
    """Count, p50, p95, p99 and maximum."""
    if not values:
        return {"n": 0}
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    figures = {"p50": p50, "p95": p95, "p99": p99, "max": max(values)}
    return {"n": len(values), **{name: round(float(value), 1) for name, value in figures.items()}}


async def loop_lag(url: str) -> dict[str, float]:
    """How late the server's event loop ran what was due, in ms, over its last minute."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        figures: dict[str, float] = (await client.get(f"{url}/v1/calls/stats")).json()["loop_lag"]
    return figures


def shown(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with the progress on a terminal's stderr."""
    for number, item in enumerate(items, 1):
        if sys.stderr.isatty():
            print(f"\r{what} {number}/{len(items)}", end="\n" * (number == len(items)), file=sys.stderr, flush=True)
        yield item

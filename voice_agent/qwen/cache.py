"""Keys and values of many requests in one tensor, a row each, in the form that transformers' attention asks for.

A step names the rows that take part and where each of them stands; rows of different lengths share a batch. What a
row holds beyond its own length is masked, so that a row gives the same whoever was there before or sits beside it.
One row more than asked for, `spare`, takes what fills a batch up to a fixed width.

A step is made of tensors alone, so that a forward with it can be compiled or recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class SlotCache:
    """Keys and values: [layers, rows + 1, heads, length, head_dim]. To cut a row, step from an earlier position."""

    def __init__(
        self,
        *,
        layers: int,
        rows: int,
        heads: int,
        length: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.length, self.spare = length, rows
        self.keys = torch.zeros(layers, rows + 1, heads, length, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def step(self, rows: Sequence[int], starts: Sequence[int], count: int) -> CacheStep:
        """The cache of one forward: `count` new positions for each of `rows`, from its own `starts` on.

        Raises ValueError if a row would be longer than the cache.
        """
        longest = max(starts) + count
        if longest > self.length:
            raise ValueError(f"expected at most {self.length} positions a row, got {longest}")
        device = self.keys.device
        positions = torch.tensor(starts, device=device).unsqueeze(1) + torch.arange(count, device=device)
        return CacheStep(self, torch.tensor(rows, device=device), positions, torch.arange(longest, device=device))

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Give row `target` the positions from `start` to before `end` of row `source`."""
        for store in (self.keys, self.values):
            store[:, target, :, start:end] = store[:, source, :, start:end]


class CacheStep:
    """What a transformers model takes as `cache`, `position_ids` and `attention_mask` of one forward.

    rows: int64[B]. positions: int64[B, N], which this forward fills. reach: 0 … K-1, the positions that it looks at.
    mask: bool[B, 1, N, K], True where a query may look.
    """

    def __init__(self, cache: SlotCache, rows: Tensor, positions: Tensor, reach: Tensor) -> None:
        self._cache, self._rows, self._length = cache, rows, reach.shape[0]
        self.positions = positions
        self.mask = (reach <= positions.unsqueeze(-1)).unsqueeze(1)

    def update(self, keys: Tensor, values: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """Store the new keys and values ([B, heads, N, head_dim]); gives what the rows hold within reach."""
        kept = []
        for store, new in ((self._cache.keys[layer], keys), (self._cache.values[layer], values)):
            store[self._rows.unsqueeze(1), :, self.positions] = new.transpose(1, 2)
            kept.append(store[self._rows, :, : self._length])
        return kept[0], kept[1]


class WindowCache:
    """The last `window - 1` positions of each row, for attention over a sliding window that includes the query.

    Keys and values: [layers, rows + 1, heads, window - 1, head_dim], newest last.
    """

    def __init__(
        self,
        *,
        layers: int,
        rows: int,
        heads: int,
        window: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.window, self.spare = window, rows
        self.keys = torch.zeros(layers, rows + 1, heads, window - 1, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)


class WindowStep:
    """As `CacheStep`; the positions of a row follow one another, and K is `window - 1 + N`."""

    def __init__(self, cache: WindowCache, rows: Tensor, positions: Tensor) -> None:
        self._cache, self._rows = cache, rows
        self.positions = positions
        offsets = torch.arange(1 - cache.window, positions.shape[1], device=positions.device)
        held = positions[:, :1] + offsets  # the position of each key: [B, K]
        distance = positions.unsqueeze(-1) - held.unsqueeze(1)
        self.mask = ((held >= 0).unsqueeze(1) & (distance >= 0) & (distance < cache.window)).unsqueeze(1)

    def update(self, keys: Tensor, values: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """Append the new keys and values; gives them with those of the window before them."""
        kept = []
        for store, new in ((self._cache.keys[layer], keys), (self._cache.values[layer], values)):
            joined = torch.cat([store[self._rows], new], dim=2)
            store[self._rows] = joined[:, :, -(self._cache.window - 1) :]
            kept.append(joined)
        return kept[0], kept[1]

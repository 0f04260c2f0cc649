"""Steps of fixed shapes: a batch is filled up to a few widths, so that a step can be compiled or replayed.

A step is a function of tensors alone. What it does not get as an argument (weights, caches) stays where it is in
memory, and nothing in it looks at a value on the host. Such a function can run as it is, by `torch.compile`, or as a
CUDA graph (https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs), which launches all of its kernels at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Step: TypeAlias = Callable[..., tuple[Tensor, ...]]

SHORTEST = 256  # positions; caches are looked at as far as this, or twice, four times … as far
COMPILED = 64  # shapes of one function that are compiled, before others run as they are


def widths(most: int) -> tuple[int, ...]:
    """The batch widths for up to `most` rows: 1, 2, 4 … and `most` itself."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


def lengths(most: int) -> tuple[int, ...]:
    """How far a step may look in a cache of `most` positions."""
    found = []
    length = SHORTEST
    while length < most:
        found.append(length)
        length *= 2
    return (*found, most)


def at_least(wanted: int, sizes: Sequence[int]) -> int:
    """The smallest of these sizes that holds `wanted`."""
    return next(size for size in sizes if size >= wanted)


def filled(values: Sequence[int], width: int, fill: int, device: torch.device) -> Tensor:
    """int64[width]: the values, then `fill`."""
    return torch.tensor([*values, *[fill] * (width - len(values))], device=device)


def compiled(step: Step, *, on: bool) -> Step:
    """The step by `torch.compile`, for each shape anew; as it is where `on` is false."""
    if not on:
        return step
    made: Step = torch.compile(step, dynamic=False, recompile_limit=COMPILED)  # type: ignore[call-overload]
    return made


class Recorder:
    """Makes CUDA graphs that share memory; all of them have to be replayed by the same thread."""

    def __init__(self, device: torch.device) -> None:
        """Raises ValueError for a device that has no CUDA graphs."""
        if device.type != "cuda":
            raise ValueError(f"graphs: expected talker and codec on a CUDA device, got {device}")
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def record(self, step: Step, inputs: Sequence[Tensor]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        """Run the step on these tensors once, then record it: a replay reads them, and writes what is returned."""
        with torch.cuda.device(self._device):
            beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                step(*inputs)
            torch.cuda.current_stream().wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = step(*inputs)
        return graph.replay, outputs


class Recorded:
    """A step that is replayed for the shapes that were recorded, and runs as it is for others."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._made: dict[tuple[torch.Size, ...], tuple[list[Tensor], Callable[[], None], tuple[Tensor, ...]]] = {}

    def record(self, recorder: Recorder, *inputs: Tensor) -> None:
        """Record the step for inputs of these shapes. It runs on the inputs, so that they should name spare rows."""
        places = [value.clone() for value in inputs]
        replay, outputs = recorder.record(self._step, places)
        self._made[tuple(value.shape for value in inputs)] = (places, replay, outputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        made = self._made.get(tuple(value.shape for value in inputs))
        if made is None:
            return self._step(*inputs)
        places, replay, outputs = made
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        replay()
        return tuple(value.clone() for value in outputs)

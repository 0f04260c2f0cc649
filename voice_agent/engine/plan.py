"""What a model asks of a device, before anything is allocated: bytes, calls that fit, the stage that is full first.

The parts of a model are built as they are for serving, on torch's meta device: every weight, cache and state has its
shape and type and takes no memory. What they would take is counted, not estimated. What a step takes is a lower bound,
the roofline (Williams et al., CACM 52(4), 2009): the longest of reading its bytes, doing its arithmetic and launching
its kernels.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

GIB = 2**30
ROOM = 0.9
"""Of a device's memory; the rest is for what steps need beside weights and state."""

TOKENS_PER_S = 5.0
"""Tokens of text that a second of speech takes."""


@dataclass(frozen=True)
class Device:
    """bytes_per_s, flops: what its memory and its arithmetic reach, at best; launch_s: a kernel's start."""

    name: str
    memory: int
    bytes_per_s: float
    flops: float
    launch_s: float = 5e-6


def _gpu(name: str, gib: float, gb_per_s: float, tflops: float) -> Device:
    return Device(name, int(gib * GIB), gb_per_s * 1e9, tflops * 1e12)


# Usable memory as the driver tells it; bandwidth and dense bfloat16 arithmetic as on the vendor's data sheets.
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("B200", 179, 8000, 2250),
        _gpu("H200", 140, 4800, 989),
        _gpu("H100", 79.6, 3350, 989),
        _gpu("A100-80GB", 79.2, 2039, 312),
        _gpu("A100-40GB", 39.4, 1555, 312),
        _gpu("L40S", 45, 864, 362),
        _gpu("L4", 22.5, 300, 121),
        _gpu("RTX-4090", 24, 1008, 165),
        _gpu("RTX-5090", 31.8, 1792, 210),
    )
}


def find_device(name: str) -> Device:
    """A GPU of the table, `GIB,GB/S,TFLOPS` of another, or `cpu`: this machine's, measured for half a second.

    Raises ValueError, expected and got.
    """
    if name == "cpu":
        return _this_cpu()
    if name in GPUS:
        return GPUS[name]
    try:
        gib, gb_per_s, tflops = (float(figure) for figure in name.split(","))
    except ValueError:
        raise ValueError(
            f"expected cpu, {', '.join(GPUS)} or GIB,GB/S,TFLOPS as in 80,3350,989, got {name!r}"
        ) from None
    if not all(math.isfinite(figure) and figure > 0 for figure in (gib, gb_per_s, tflops)):
        raise ValueError(f"expected three figures above 0, got {name!r}")
    return _gpu(name, gib, gb_per_s, tflops)


def _this_cpu() -> Device:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        large, square, small = torch.ones(1 << 24), torch.ones(512, 512), torch.ones(8)
        reading = _quickest(large.sum)
        multiplying = _quickest(lambda: square @ square)
        starting = _quickest(lambda: [small + 1 for _ in range(100)]) / 100
    finally:
        torch.set_num_threads(threads)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Device("one core of this machine", memory, 4 * large.numel() / reading, 2 * 512**3 / multiplying, starting)


def _quickest(work: Callable[[], Any]) -> float:
    took = []
    for _ in range(10):
        since = time.perf_counter()
        work()
        took.append(time.perf_counter() - since)
    return min(took)


@dataclass(frozen=True)
class Work:
    """What a step asks. Of the experts' bytes a row reads `chosen` of `experts`; further rows read others too."""

    dense_bytes: int
    row_bytes: int
    row_flops: float
    kernels: int
    expert_bytes: int = 0
    experts: int = 1
    chosen: int = 1

    def seconds(self, device: Device, rows: int) -> float:
        touched = 1 - (1 - self.chosen / self.experts) ** rows
        read = self.dense_bytes + touched * self.expert_bytes + rows * self.row_bytes
        return max(read / device.bytes_per_s, rows * self.row_flops / device.flops, self.kernels * device.launch_s)


@dataclass(frozen=True)
class Inner:
    """A network inside a stage, whose bytes are among the stage's: its weights, one call's state, a position in it."""

    name: str
    weights: int
    call: int
    token: int


@dataclass(frozen=True)
class Part:
    """A stage of a model. Bytes: its weights, what all calls share, one call's state, one position of dialogue in it.

    per_s: steps that a call asks in a second of its speech.
    """

    stage: str
    weights: int
    shared: int
    call: int
    token: int
    per_s: float
    work: Work
    inner: tuple[Inner, ...] = ()

    def load(self, device: Device, calls: int) -> float:
        """The part of the time that so many speaking calls, batched, keep the device busy: 1 is all of it."""
        return self.per_s * self.work.seconds(device, calls)

    def bears(self, device: Device) -> int:
        """Calls that can speak at once with the device to itself."""
        return _most(lambda calls: self.load(device, calls) <= 1)


@dataclass(frozen=True)
class Plan:
    """A model on one device."""

    model: str
    device: Device
    parts: Sequence[Part]

    @property
    def weights(self) -> int:
        return sum(part.weights + part.shared for part in self.parts)

    @property
    def call(self) -> int:
        return sum(part.call for part in self.parts)

    @property
    def fit(self) -> int:
        """Calls whose state there is memory for; negative: not even the weights fit."""
        room = int(ROOM * self.device.memory) - self.weights
        return -1 if room < 0 else room // self.call

    @property
    def full_first(self) -> Part:
        """The stage that bears the fewest calls."""
        return min(self.parts, key=lambda part: part.bears(self.device))

    @property
    def together(self) -> int:
        """Calls that can speak at once with all stages on the device, one after another."""
        return _most(lambda calls: sum(part.load(self.device, calls) for part in self.parts) <= 1)

    def view(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "device": {**vars(self.device)},
            "stages": {
                part.stage: {
                    "weights_bytes": part.weights,
                    "shared_bytes": part.shared,
                    "call_bytes": part.call,
                    "token_bytes": part.token,
                    "step_ms": {n: round(1000 * part.work.seconds(self.device, n), 3) for n in (1, 8, 64)},
                    "calls": part.bears(self.device),
                    "inner": {
                        one.name: {"weights_bytes": one.weights, "call_bytes": one.call, "token_bytes": one.token}
                        for one in part.inner
                    },
                }
                for part in self.parts
            },
            "weights_bytes": self.weights,
            "call_bytes": self.call,
            "calls_that_fit": self.fit,
            "full_first": self.full_first.stage,
            "calls_together": self.together,
        }


LIMIT = 1 << 16


def _most(bears: Callable[[int], bool]) -> int:
    """The largest number of calls up to LIMIT for which it holds; loads only grow with calls."""
    low, high = 0, LIMIT
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bears(middle) else (low, middle - 1)
    return low


def part_of(
    stage: str,
    make: Callable[[int], tuple[torch.nn.Module, Any]],
    *,
    token: int = 0,
    per_s: float,
    work: Work,
    inner: tuple[Inner, ...] = (),
) -> Part:
    """`make(slots)` builds the stage's network and what serves it, on the meta device."""
    network, one = make(1)
    weights = allocated(network)
    with_one, with_two = allocated(network, one), allocated(*make(2))
    call = with_two - with_one
    return Part(stage, weights, with_one - weights - call, call, token, per_s, work, inner)


def allocated(*roots: Any) -> int:
    """Bytes of all tensors that can be reached from these objects; what shares memory counts once."""
    seen: set[int] = set()
    storages: dict[int, int] = {}
    left = list(roots)
    while left:
        thing = left.pop()
        if isinstance(thing, str | bytes | int | float | type | torch.dtype | torch.device) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            storage = thing.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
        elif isinstance(thing, Mapping):
            left += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            left += thing
        else:
            left += getattr(thing, "__dict__", {}).values()
    return sum(storages.values())


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that compute: all but those that only look at memory in another shape."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        looks = any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns)
        self.count += not looks
        return func(*args, **(kwargs or {}))


def counted(work: Callable[[], Any]) -> tuple[float, int]:
    """Floating point operations of matrix products and convolutions, and kernels, of a computation on meta tensors."""
    with torch.inference_mode(), torch.device("meta"), FlopCounterMode(display=False) as flops, _Kernels() as kernels:  # type: ignore[no-untyped-call]
        work()
    return float(flops.get_total_flops()), kernels.count


def bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

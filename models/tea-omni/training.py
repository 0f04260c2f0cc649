"""What the recipes share: a training run that goes on where it was stopped, its arithmetic, and its picture."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

CHECKPOINT_S = 240

Net = TypeVar("Net", bound=nn.Module)
Points = list[tuple[float, float]]


def read_checkpoint(path: Path, device: str) -> dict[str, Any] | None:
    """What a stopped run has left, if there was one."""
    state: dict[str, Any] | None = None
    if path.exists():
        state = torch.load(path, map_location=device, weights_only=True)
    return state


def fast_bfloat16(device: str) -> bool:
    """Whether products in bfloat16 are fast: on a CPU with AVX2 alone they take twelve times as long as in float32."""
    return device != "cpu" or "AVX512" in torch.backends.cpu.get_cpu_capability()


def mixed_precision(device: str) -> torch.autocast:
    """bfloat16 for products, where that is fast."""
    return torch.autocast(device, torch.bfloat16, enabled=fast_bfloat16(device))


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal (Jordan et al., 2024), scaled to the size of AdamW's steps.

    The scale is that of "Muon is Scalable for LLM Training" (Liu et al., 2025). As `torch.optim.Muon`, which always
    computes in bfloat16: where that is emulated, it takes four times as long as the rest of a step.
    """

    def __init__(self, matrices: Iterable[Any], lr: float = 1.0) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": 0.95, "weight_decay": 0.01})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                mean = state.setdefault("momentum_buffer", torch.zeros_like(matrix))
                mean.lerp_(matrix.grad, 1 - group["momentum"])
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                size = 0.2 * max(matrix.shape) ** 0.5
                matrix.add_(orthogonal(matrix.grad.lerp(mean, group["momentum"])), alpha=-group["lr"] * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T of a matrix, by five Newton-Schulz steps."""
    x = matrix.bfloat16() if fast_bfloat16(matrix.device.type) else matrix
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.T if tall else x).to(matrix.dtype)


class Run(Generic[Net]):
    """Training within a budget of minutes, all starts together.

    `average`, the running average of the weights, is what is evaluated and shipped. The checkpoint `path` is written
    every `CHECKPOINT_S` seconds and at the end, with `curve.json` beside it.
    """

    def __init__(self, net: Net, optimizers: Sequence[torch.optim.Optimizer], path: Path, minutes: float) -> None:
        self.net, self.optimizers, self.path, self.budget_s = net, optimizers, path, minutes * 60
        self.average = copy.deepcopy(net).eval()
        self.extra: dict[str, Any] = {}
        """Goes into the checkpoint as it is."""
        self.step, self.seconds = 0, 0.0
        self.curve: list[dict[str, float]] = []
        self._noted: dict[str, list[float]] = {}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from `read_checkpoint`."""
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]

    def steps(self) -> Iterator[float]:
        """The part of the budget that is over, again and again, until it is used up."""
        saved = time.monotonic()
        began = saved - self.seconds
        while self.seconds < self.budget_s:
            yield self.seconds / self.budget_s
            now = time.monotonic()
            self.seconds = now - began
            if now - saved > CHECKPOINT_S:
                self.save()
                saved = now
        self.save()

    def learn(self, loss: Tensor, rate: float, clip: float, keep: float) -> None:
        """One step of the optimizers at this learning rate, times the `scale` of a group that has one.

        The average keeps the part `keep` of itself.
        """
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for group in groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.net.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        with torch.no_grad():
            for mean, value in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(value, 1 - keep)

    def note(self, values: Mapping[str, Tensor], every: int) -> bool:
        """Every `every` steps adds the means since the last time to the curve; whether it did."""
        for name, value in values.items():
            self._noted.setdefault(name, []).append(value.item())
        if self.step % every:
            return False
        means = {name: round(sum(each) / len(each), 4) for name, each in self._noted.items()}
        self.curve.append({"step": self.step, "seconds": round(self.seconds, 1), **means})
        self._noted = {}
        return True

    def save(self) -> None:
        state = {
            "net": self.net.state_dict(), "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step, "seconds": self.seconds, "curve": self.curve,
        }  # fmt: skip
        partial = self.path.with_suffix(".tmp")
        torch.save(state | self.extra, partial)
        partial.replace(self.path)
        (self.path.parent / "curve.json").write_text(json.dumps(self.curve) + "\n")


def read_curve(folder: Path) -> list[dict[str, float]]:
    curve: list[dict[str, float]] = json.loads((folder / "curve.json").read_text())
    return curve


def points(curve: Sequence[Mapping[str, float]], key: str) -> Points:
    """(step, value) of the entries that have this value."""
    return [(entry["step"], entry[key]) for entry in curve if key in entry]


def plot(panels: Mapping[str, Mapping[str, Points]], target: Path) -> None:
    """Draw curves over steps, a panel a title, with their labels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.4 * len(panels), 3.6), layout="constrained", squeeze=False
    )
    for panel, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for label, curve in curves.items():
            panel.plot(*zip(*curve, strict=True), label=label, alpha=0.8)
        panel.set(title=title, xlabel="step", yscale="log")
        panel.legend()
    figure.savefig(target, dpi=110)

"""A plan for a model by its name: what it asks of a device, and how many calls that device bears."""

from __future__ import annotations

from pathlib import Path

from voice_agent.config import Config
from voice_agent.engine.plan import GIB, Plan, find_device
from voice_agent.models import QWEN

__all__ = ["make_plan", "told"]


def make_plan(model: str, device: str, config: Config) -> Plan:
    """Nothing is allocated or downloaded. `model`: as an agent names it; `device`: as `find_device` takes it.

    Raises ValueError, expected and got, for a model or a device that is not known.
    """
    if model == "tea-omni":
        from voice_agent.tea.plan import parts

        return Plan(model, find_device(device), parts())
    if model == QWEN or (Path(model) / "config.json").is_file():
        try:
            from voice_agent.qwen import plan
        except ModuleNotFoundError as error:
            raise ValueError(
                f"model {model}: it needs {error.name}; in the checkout: pip install -e '.[qwen]'"
            ) from None
        folder = None if model == QWEN else Path(model)
        return Plan(model, find_device(device), plan.parts(folder, config.qwen))
    raise ValueError(f"model: expected 'tea-omni', {QWEN!r} or a folder that holds it, got {model!r}")


def told(plan: Plan) -> list[str]:
    """The plan in sentences."""
    device, first = plan.device, plan.full_first
    if plan.fit < 0:
        memory = f"Its weights do not fit: {plan.weights / GIB:.1f} GiB of {device.memory / GIB:.1f} GiB."
    else:
        memory = (
            f"There is memory for {plan.fit} calls: {in_bytes(plan.weights)} once, and {in_bytes(plan.call)} a call."
        )
    return [
        memory,
        f"Of the stages the {first.stage} is full first: at {first.bears(device)} calls that speak, with the device to "
        "itself.",
        f"All stages on this one device: {plan.together} calls that speak, if nothing but bytes, arithmetic and the "
        f"start of kernels takes time. {'Memory' if plan.fit < plan.together else 'Time'} is the limit.",
    ]


def in_bytes(count: int) -> str:
    """A number of bytes as people read it."""
    size, units = float(count), iter(("B", "KiB", "MiB"))
    for unit in units:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"

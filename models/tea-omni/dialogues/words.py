"""The phrases of a language, from the YAML file of its name. A phrase that stands there twice is twice as likely."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml


def load(name: str) -> dict[str, Any]:
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def phrases(name: str) -> SimpleNamespace:
    """The same, each list as an attribute."""
    return SimpleNamespace(**load(name))

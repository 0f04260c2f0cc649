"""Where files that are not code lie: in the wheel under `_data`, in a checkout at the root."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def asset(relative: str) -> Path:
    """The path of `web`, `demos/…` or `models/…`. Raises FileNotFoundError with both places it looked in."""
    places = (_PACKAGE / "_data" / relative, _PACKAGE.parent / relative)
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"expected {relative} at {places[0]} or {places[1]}, found neither: is the install whole?")

"""Imports go one way: command line → runtime → call → stages → models; nothing below knows what is above it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "voice_agent"

# Each layer may import itself and the layers after it.
LAYERS = (
    ("cli", "__main__"),
    ("bench",),
    ("calling", "loading", "evaluate", "chat", "planning"),
    ("runtime",),
    ("config", "floor", "hearing", "session", "live", "realtime"),
    ("server", "signalling", "client", "metrics"),
    ("media",),
    (
        "agent",
        "conversation",
        "echo_text",
        "manners",
        "wire",
        "turn",
        "words",
        "assets",
        "tls",
        "asr",
        "utterance",
        "ears",
        "vad",
        "whisper",
        "whisper_decoder",
        "whisper_text",
    ),
    ("models",),
    ("tea", "qwen", "weights"),
    ("engine",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def imported(path: Path) -> set[str]:
    """Names of the package's own modules that this file imports when it is loaded."""
    tree = ast.parse(path.read_text("utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in typing_only:
            parts = node.module.split(".")
            if parts[0] == "voice_agent":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    above = {name for name in imported(path) if name in RANK and RANK[name] < RANK[own]}
    assert not above, f"{own} imports {', '.join(sorted(above))}, which lie above it"


def test_every_module_has_its_layer() -> None:
    names = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in modules()} - {"__init__"}
    assert names == set(RANK)


def test_the_demo_uses_the_public_surface_alone() -> None:
    for path in (PACKAGE.parent / "demos" / "ordering").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("voice_agent"):
                assert node.module == "voice_agent", f"{path.name} imports {node.module}"

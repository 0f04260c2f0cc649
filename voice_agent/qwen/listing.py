"""The published checkpoint for `voice-agent models`: source, licence, size, and what of it is on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track

from voice_agent.weights import ModelRow, sha256_of

NAME = "Qwen/Qwen3-Omni-30B-A3B-Instruct"
LICENCE = "Apache-2.0"
BYTES = 70_519_637_090  # 35.3 billion parameters of the architecture in bfloat16


def list_qwen() -> list[ModelRow]:
    """A row for each weight file in the hub's cache, each hashed (a minute or more); one row if there is none.

    The cache names a weight file after the sha256 that it must have.
    """
    folder = _cached()
    files = sorted(folder.glob("*.safetensors")) if folder is not None else []
    if not files:
        from huggingface_hub.constants import HF_HUB_CACHE

        return [ModelRow("qwen3-omni", "all", Path(HF_HUB_CACHE), f"hub {NAME}", "", BYTES, LICENCE, "missing")]
    shown = track(files, "Hashing", console=Console(file=sys.stderr), disable=not sys.stderr.isatty())
    return [_row(file) for file in shown]


def _cached() -> Path | None:
    """The newest snapshot that the hub's cache holds; nothing is asked of the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(NAME, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _row(file: Path) -> ModelRow:
    found, named = sha256_of(file), file.resolve().name
    expected = named if file.is_symlink() else found
    return ModelRow(
        "qwen3-omni",
        file.stem,
        file,
        f"hub {NAME}",
        expected,
        file.stat().st_size,
        LICENCE,
        "ok" if found == expected else "damaged",
    )

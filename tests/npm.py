"""Packages of npm that tests use: `make test` installs them before it runs the tests, which load nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OPENAI_CLIENTS = ROOT / "demos/openai_clients"
WEBRTC_SDK = ROOT / "demos/webrtc_sdk"
SDK_TOOLS = ROOT / "tools/sdk"


def installed(folder: Path) -> Path:
    """The folder's node_modules. Fails the test, and says what to do, where they or npm are missing."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.fail(f"expected {program}: apt-get install nodejs npm")
    modules = folder / "node_modules"
    if not modules.is_dir():
        pytest.fail(f"expected {modules.relative_to(ROOT)}: run `npm install` in {folder.relative_to(ROOT)}")
    return modules

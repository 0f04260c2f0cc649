"""The whole agent, as `make serve` starts it, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.page_mock.site import ROOT


@contextmanager
def serve_agent(config: Path | None = None) -> Iterator[str]:
    """Serves on a free port until the block ends; yields the address."""
    command = [str(Path(sys.executable).parent / "voice-agent"), "serve", "--port", "0"]
    command += [] if config is None else ["--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\w.]+:\d+", line)
        try:
            assert found, f"expected a line with the address, got {line!r} (exit status {process.poll()})"
            yield found[0]
        finally:
            process.terminate()

"""Every block of code in the documents: each is in a language that is known here, and configurations are loaded.

Code is run in `test_documents_run`, `test_readme` and `test_sdk`, command lines in `test_documents_shell`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from voice_agent.bench.scenario import Scenario
from voice_agent.config import load_config

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for folder in (
        ".",
        "docs",
        "docs/sdk",
        "demos/*",
        "web/*",
        "models/*",
        "models/*/card",
        "tests/*",
        "voice_agent/bench/**",
    )
    for path in ROOT.glob(f"{folder}/*.md")
)


def blocks(*languages: str) -> list[object]:
    """The blocks in these languages, each with the name of its document and its place there."""
    found = []
    for path in DOCUMENTS:
        for number, (language, code) in enumerate(
            re.findall(r"^```(\w*)\n(.*?)^```", path.read_text("utf-8"), re.S | re.M)
        ):
            if language in languages:
                found.append(pytest.param(path, code, id=f"{path.relative_to(ROOT)}:{number}"))
    return found


def test_every_block_is_of_a_kind_that_is_run_or_loaded() -> None:
    """Those without a language are diagrams; there is no other way to write a block."""
    fences = sum(len(re.findall(r"^ *(?:```|~~~)", path.read_text("utf-8"), re.M)) for path in DOCUMENTS)
    assert fences == 2 * len(blocks("bash", "python", "js", "yaml", ""))
    assert all("─→" in code for _, code in (block.values for block in blocks("")))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("document", "code"), blocks("yaml"))
def test_configurations_and_scenarios_are_accepted(document: Path, code: str, tmp_path: Path) -> None:
    value = yaml.safe_load(code)
    if "turns" in value:
        assert Scenario.model_validate(value).turns
        return
    file = tmp_path / "config.yaml"
    file.write_text(code, "utf-8")
    load_config(file)


@pytest.mark.parametrize(("document", "code"), blocks("python"))
def test_what_python_imports_is_there(document: Path, code: str) -> None:
    imports = [line for line in code.splitlines() if line.startswith(("from ", "import "))]
    exec(compile("\n".join(imports), document.name, "exec"), {})
    compile(code, document.name, "exec")


@pytest.mark.parametrize(("document", "code"), blocks("js"))
def test_javascript_can_be_parsed(document: Path, code: str, tmp_path: Path) -> None:
    assert shutil.which("node") is not None, "expected node: apt-get install nodejs npm"
    file = tmp_path / "block.mjs"
    file.write_text(code, "utf-8")
    subprocess.run(["node", "--check", str(file)], check=True)


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", path.read_text("utf-8")):
            assert (path.parent / link).exists(), f"{path.relative_to(ROOT)}: {link}"

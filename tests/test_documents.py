"""Every block of code in the documents: configurations are loaded, commands and what is imported looked up.

What ends within seconds is run, in `test_documents_run`, `test_readme` and `test_sdk`.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from voice_agent.bench.scenario import Scenario
from voice_agent.cli import app
from voice_agent.config import load_config

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for folder in ("", "docs", "demos/*", "web/sdk", "models/*", "tests/*")
    for path in ROOT.glob(f"{folder}/*.md" if folder else "*.md")
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


def test_every_block_is_in_a_language_that_is_checked_here() -> None:
    languages = {
        language for path in DOCUMENTS for language in re.findall(r"^```(\w+)\n", path.read_text("utf-8"), re.M)
    }
    assert languages <= {"bash", "python", "js", "yaml"}


@pytest.mark.parametrize(("document", "code"), blocks("yaml"))
def test_configurations_and_scenarios_are_accepted(document: Path, code: str, tmp_path: Path) -> None:
    value = yaml.safe_load(code)
    if "turns" in value:
        assert Scenario.model_validate(value).turns
        return
    file = tmp_path / "config.yaml"
    file.write_text(code, "utf-8")
    load_config(file)


def option_names(words: list[str]) -> tuple[set[str], set[str]]:
    """The options that a command line gives, and those that its command of `voice-agent` knows."""
    command, rest = get_command(app), words
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]  # type: ignore[attr-defined]
    assert not getattr(command, "commands", None), f"expected one of {sorted(command.commands)}, got {rest[:1]}"  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {word.split("=")[0] for word in rest if word.startswith("--")}, known


def check_command(words: list[str]) -> None:
    """Fails for a target, command, option, module or file that does not exist."""
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
        assert rest[0] in targets
        for name, _, value in (word.partition("=") for word in rest[1:] if "=" in word):
            assert name == "TLS" or (ROOT / value).exists() or value == "server.yaml"
    elif program == "voice-agent":
        given, known = option_names(rest)
        assert given <= known
    elif program in ("python", "python3"):
        assert rest[0] == "-m"
        assert importlib.util.find_spec(rest[1]) is not None
        if "--directory" in rest:
            assert (ROOT / rest[rest.index("--directory") + 1]).is_dir()
    elif program == "npm":
        folder = rest[rest.index("--prefix") + 1] if "--prefix" in rest else rest[1]
        assert rest[0] == "install"
        assert (ROOT / folder / "package.json").exists()
    elif program == "node":
        assert all((ROOT / file).exists() for file in rest)
        subprocess.run(["node", "--check", rest[0]], cwd=ROOT, check=True)
    else:
        assert program == "pip"
        assert rest[0] == "install"


@pytest.mark.parametrize(("document", "code"), blocks("bash"))
def test_commands_exist_with_their_options(document: Path, code: str) -> None:
    lines = [shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines()]
    commands = [words for words in lines if words]
    assert commands
    for words in commands:
        check_command(words)


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

"""What the README shows is true: its agent is made, its targets and commands exist, both languages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import voice_agent
from voice_agent import Agent
from voice_agent.cli import app

ROOT = Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", ROOT / "README.zh.md"]


def code(readme: Path, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", readme.read_text("utf-8"), re.S)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_the_agent_is_short_and_starts(readme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = code(readme, "python")
    assert len(source.strip().splitlines()) <= 15
    served: list[Agent] = []
    monkeypatch.setattr(voice_agent, "serve", served.append)
    exec(compile(source, readme.name, "exec"), {})
    assert len(served[0].toolbox) == 8


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_every_target_command_and_file_exists(readme: Path) -> None:
    text = readme.read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", text, re.M)) <= targets
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {str(group.name) for group in app.registered_groups}
    assert set(re.findall(r"`voice-agent ([a-z]+)", text)) <= commands
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link


def test_both_languages_give_the_same_numbers() -> None:
    def numbers(path: Path) -> list[str]:
        rows = [line for line in path.read_text("utf-8").splitlines() if line.startswith("|")]
        return re.findall(r"\d+(?:\.\d+)?", "\n".join(rows))

    assert numbers(READMES[0]) == numbers(READMES[1])

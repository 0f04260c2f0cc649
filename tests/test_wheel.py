"""The wheel holds page, demo and weights, and works from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = {"drink": "pearl_milk_tea", "quantity": 1, "size": "medium", "ice": "less_ice", "sugar": "full_sugar"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files alone, in a folder that is not the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=installed, env=environment, capture_output=True, text=True, timeout=120
    )


def test_page_demo_and_weights_are_inside_and_nothing_else_is(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = "voice_agent/_data"
    assert f"{data}/web/index.html" in names
    assert f"{data}/demos/ordering/menu.yaml" in names
    assert f"{data}/demos/ordering/order.wav" in names
    weights = json.loads((ROOT / "models" / "tea-omni" / "weights" / "manifest.json").read_text("utf-8"))
    assert {f"{data}/models/tea-omni/weights/{entry['file']}" for entry in weights} <= names
    assert "voice_agent/notices/stage_failed_zh.flac" in names
    assert not {name for name in names if "__pycache__" in name or name.startswith("tests/")}


def test_shipped_weights_stay_small() -> None:
    folder = ROOT / "models" / "tea-omni" / "weights"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 64_000_000


def test_the_demo_agent_answers_from_any_folder(installed: Path) -> None:
    dialogue = {"lang": "zh", "turns": ["我要一杯少冰的珍珠奶茶"], "cart": [{**ORDER, "toppings": []}]}
    (installed / "one.jsonl").write_text(json.dumps(dialogue, ensure_ascii=False) + "\n", "utf-8")
    done = run(installed, "-m", "voice_agent", "chat", "--file", "one.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["ok"] is True
    assert first["replies"] == ["好的，少冰珍珠奶茶一杯，十八块。"]
    assert last == {"dialogues": 1, "exact": 1}
    assert run(installed, "-c", "import voice_agent; print(voice_agent.__file__)").stdout.startswith(str(installed))


def test_models_lists_every_weight(installed: Path) -> None:
    done = run(installed, "-m", "voice_agent", "models", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["part"] for row in rows} >= {"asr", "vad", "thinker", "talker", "codec"}
    assert all(row["licence"] and row["source"] for row in rows)
    here = [row for row in rows if row["state"] != "missing"]
    assert {row["part"] for row in here} >= {"asr", "vad", "thinker", "talker", "codec", "endpoint"}
    assert all(row["sha256"] for row in here)


def test_tools_that_the_model_does_not_know_are_refused_at_start(installed: Path) -> None:
    (installed / "mine.py").write_text(
        "from voice_agent import Agent\n\n"
        "def launch(rocket: str) -> str:\n    '''Launch it.'''\n    return 'up'\n\n"
        "agent = Agent('You launch rockets.', [launch])\n"
    )
    done = run(installed, "-m", "voice_agent", "serve", "--agent", "mine.py", "--port", "0")
    assert done.returncode == 2
    assert "launch" in done.stderr
    assert "Qwen3-Omni takes any tools" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr

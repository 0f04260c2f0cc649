from __future__ import annotations

from pathlib import Path

import pytest

from voice_agent.config import Config, ConfigError, load_config
from voice_agent.models import usual_places


def test_no_file_gives_the_defaults() -> None:
    assert load_config(None) == Config()


def test_a_file_sets_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("language: en\nturn: {endpoint_ms: 700}\nserver: {max_calls: 2, host_candidates: [127.0.0.1]}\n")
    config = load_config(path)
    assert config.language == "en"
    assert config.turn.endpoint_ms == 700
    assert config.server.max_calls == 2
    assert config.server.host_candidates == ("127.0.0.1",)


def test_speech_on_a_card_of_its_own_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("engine:\n  placement: [{stages: [talker, codec], device: 'cuda:1', process: true}]\n")
    (place,) = load_config(path).engine.placement or ()
    assert (place.stages, place.devices, place.process) == (("talker", "codec"), ["cuda:1"], True)
    cards = place.model_copy(update={"device": ("cuda:1", "cuda:2"), "replicas": 3})
    assert cards.devices == ["cuda:1", "cuda:2", "cuda:1"]


def test_the_small_model_shares_its_interpreter_with_nobody_unless_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    (place,) = usual_places("tea-omni")
    assert (place.stages, place.devices, place.process) == (("thinker", "talker", "codec"), [""], True)
    assert usual_places("Qwen/Qwen3-Omni-30B-A3B-Instruct") == ()
    monkeypatch.setattr("sys.platform", "darwin")
    assert usual_places("tea-omni") == ()
    path = tmp_path / "c.yaml"
    path.write_text("language: en\n")
    assert load_config(path).engine.placement is None
    path.write_text("engine: {placement: []}\n")
    assert load_config(path).engine.placement == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("turn: {endpoint: 500}", "turn.endpoint"),
        ("server: {max_callz: 2}", "server.max_callz"),
        ("vad: {onset: 0.5}", "vad.onset"),
        ("asr: {worker: 2}", "asr.worker"),
        ("recognizer: {model: x}", "recognizer.model"),
        ("engine: {slots: 0}", "engine.slots"),
        ("engine: {placement: [{stages: [talker], cores: 2}]}", "engine.placement.0.cores"),
        ("engine: {placement: [{stages: [ear]}]}", "engine.placement.0.stages.0"),
        ("engine: {placement: [{stages: [codec]}, {stages: [codec]}]}", "expected each stage in one place, got codec"),
        ("language: ja", "language"),
        ("what: 1", "what"),
        ("- a list", "Config"),
        ("a: b: c", "YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert told in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml"):
        load_config(tmp_path / "nothing.yaml")

"""The whole configuration, read from YAML; unknown keys are refused with their place."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from voice_agent.asr import AsrConfig, RecognizerConfig
from voice_agent.engine.places import Place, check_places
from voice_agent.engine.protocols import Language
from voice_agent.qwen.config import QwenConfig
from voice_agent.server import ServerConfig
from voice_agent.turn import TurnConfig
from voice_agent.vad import VadConfig


class EngineConfig(BaseModel):
    """slots: replies that each stage holds at one moment. ahead_ms: how far speech is made ahead of playback.

    quiet_dbfs: a reply is played from where a sample of it first passes this; what comes before, up to 80 ms, keeps the
    caller waiting and is not heard.

    threads: cores that a model step may use. placement: where stages run; those that it does not name are threads of
    the server, on the model's own device. null: where `voice_agent.models.usual_places` puts them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    slots: int = Field(8, ge=1, le=64)
    ahead_ms: int = Field(1500, ge=200, le=3000)
    quiet_dbfs: float = Field(-36.0, ge=-90.0, le=-20.0)
    threads: int = Field(1, ge=1, le=64)
    placement: tuple[Place, ...] | None = None

    @field_validator("placement")
    @classmethod
    def _check_placement(cls, places: tuple[Place, ...] | None) -> tuple[Place, ...] | None:
        check_places(places or ())
        return places


class Config(BaseModel):
    """language: of all calls; null: each utterance's own is recognised. stall_ms: silence of a stage that fails it.

    echo_cancellation: take the agent's own voice out of what the caller's microphone hears, for clients that do not do
    that themselves, as browsers do. Where no echo is found the microphone is passed on as it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: Language | None = None
    stall_ms: int = Field(4000, ge=500, le=60_000)
    echo_cancellation: bool = True
    server: ServerConfig = ServerConfig()
    turn: TurnConfig = TurnConfig()
    vad: VadConfig = VadConfig()
    asr: AsrConfig = AsrConfig()
    recognizer: RecognizerConfig = RecognizerConfig()
    engine: EngineConfig = EngineConfig()
    qwen: QwenConfig = QwenConfig()


class ConfigError(ValueError):
    """The file is not a configuration; the message says where, what was expected and got."""


def load_config(path: Path | str | None) -> Config:
    """Read a YAML file; None: the defaults. Raises ConfigError."""
    if path is None:
        return Config()
    try:
        value = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected a YAML file, got {error}") from None
    try:
        return Config.model_validate(value or {})
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}, got {e['input']!r}" for e in error.errors()
        )
        raise ConfigError(f"{path}: {told}") from None

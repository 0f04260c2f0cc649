"""The session's configuration as its client has set it, on top of the agent's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from voice_agent.engine.protocols import Language
from voice_agent.turn import TurnConfig
from voice_agent.wire.items import (
    Audio,
    AudioInput,
    AudioOutput,
    Modality,
    PcmFormat,
    Session,
    SessionConfig,
    Transcription,
    TurnDetection,
)

if TYPE_CHECKING:
    from voice_agent.runtime import Runtime


class Settings:
    """What is in force. The tools of the client are added to the agent's; one of the same name replaces it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._given: dict[str, Any] = {}
        self._config = SessionConfig()

    def update(self, update: SessionConfig) -> None:
        """Merge a partial configuration. Raises ValueError, and changes nothing, if it cannot be served."""
        given = _merged(self._given, update.model_dump(exclude_unset=True))
        config = SessionConfig.model_validate(given)
        language = _language(config)
        if language not in (None, "zh", "en"):
            raise ValueError(f"audio.input.transcription.language: expected 'zh' or 'en', got {language!r:.60}")
        if config.tools:
            names = [tool.name for tool in config.tools]
            if len(set(names)) < len(names):
                raise ValueError(f"tools: expected different names, got {names}")
            self._runtime.engine.model.check(_with_tools(self._runtime.schemas, config))
        slowest, fastest = self._runtime.engine.model.speeds
        if not slowest <= _speed(config) <= fastest:
            model = self._runtime.agent.model
            raise ValueError(
                f"audio.output.speed: expected {slowest} to {fastest}, which {model} speaks at, got {_speed(config)}"
            )
        self._given, self._config = given, config

    @property
    def language(self) -> Language | None:
        """Of all utterances; None: each one's own is recognised."""
        return cast("Language | None", _language(self._config)) or self._runtime.config.language

    @property
    def instructions(self) -> str:
        given = self._config.instructions
        return self._runtime.agent.instructions if given is None else given

    @property
    def speed(self) -> float:
        """Of the replies that begin from now on."""
        return _speed(self._config)

    @property
    def modalities(self) -> list[Modality]:
        return self._config.output_modalities or ["audio"]

    @property
    def tools(self) -> Mapping[str, Mapping[str, Any]]:
        """JSON schemas by name, as a `ThinkRequest` carries them."""
        return {} if self._config.tool_choice == "none" else _with_tools(self._runtime.schemas, self._config)

    @property
    def client_tools(self) -> frozenset[str]:
        """Names of the tools that the client runs."""
        return frozenset(tool.name for tool in self._config.tools or ())

    @property
    def turn_detection(self) -> TurnDetection | None:
        """None: the client says when a turn is over."""
        audio = self._config.audio.input if self._config.audio else None
        if audio is None or "turn_detection" not in audio.model_fields_set:
            return TurnDetection()
        return audio.turn_detection

    @property
    def turn(self) -> TurnConfig:
        """Durations of turn taking, with the silence that the client has asked for."""
        config = self._runtime.config.turn
        asked = self.turn_detection.silence_duration_ms if self.turn_detection else None
        if asked is None:
            return config
        fixed = dict.fromkeys(("quick_ms", "endpoint_ms", "patience_ms"), asked)
        return config.model_copy(update={**fixed, "speculate_ms": min(config.speculate_ms, asked)})

    def describe(self, call_id: str) -> Session:
        """The session as its client is shown it."""
        detection = self.turn_detection
        if detection is not None:
            detection = detection.model_copy(update={"silence_duration_ms": self.turn.endpoint_ms})
        transcription = Transcription(model="whisper-base", language=self.language)
        given = self._config
        return Session(
            id=call_id,
            model=self._runtime.agent.model,
            output_modalities=self.modalities,
            instructions=self.instructions,
            audio=Audio(
                input=AudioInput(format=PcmFormat(), transcription=transcription, turn_detection=detection),
                output=AudioOutput(format=PcmFormat(), voice=self._runtime.agent.model, speed=self.speed),
            ),
            tools=given.tools or [],
            tool_choice="auto" if given.tool_choice is None else given.tool_choice,
        )


def _language(config: SessionConfig) -> str | None:
    audio = config.audio.input if config.audio else None
    return audio.transcription.language if audio and audio.transcription else None


def _speed(config: SessionConfig) -> float:
    output = config.audio.output if config.audio else None
    return output.speed if output and output.speed is not None else 1.0


def _with_tools(own: Mapping[str, Mapping[str, Any]], config: SessionConfig) -> dict[str, Mapping[str, Any]]:
    given = {
        tool.name: {"description": tool.description or "", "parameters": tool.parameters} for tool in config.tools or ()
    }
    return {**own, **given}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`new` over `old`, objects field by field; everything else as a whole."""
    out = dict(old)
    for key, value in new.items():
        was = out.get(key)
        out[key] = _merged(was, value) if isinstance(was, dict) and isinstance(value, dict) else value
    return out

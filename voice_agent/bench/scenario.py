"""Scenarios: what a caller says and when, and what is expected of the agent; in YAML, unknown keys are refused."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from voice_agent.assets import asset
from voice_agent.bench.network import Network
from voice_agent.bench.recording import Expect
from voice_agent.client import read_wav
from voice_agent.media.resample import Resampler

RATE = 48_000
LIBRARY = Path(__file__).parent / "library"

Pcm = npt.NDArray[np.float32]


class ScenarioError(ValueError):
    """The file is not a scenario; the message says where, what was expected and got."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Recorded(_Model):
    """A sound file, or a part of it. A relative path is looked up beside the scenario, then in the installed data."""

    file: Path
    from_ms: int = Field(0, ge=0)
    to_ms: int | None = Field(None, gt=0)
    gain_db: float = Field(0, ge=-60, le=20)

    def render(self, folder: Path) -> Pcm:
        path = self.file if self.file.is_absolute() else folder / self.file
        pcm = read_wav(path if path.is_file() else asset(str(self.file)))
        end = None if self.to_ms is None else self.to_ms * RATE // 1000
        part = pcm[self.from_ms * RATE // 1000 : end]
        if not len(part):
            raise ScenarioError(f"{self.file}: expected sound from {self.from_ms} ms on, got {len(pcm) // 48} ms of it")
        return np.asarray(part * 10 ** (self.gain_db / 20), np.float32)


class Spoken(_Model):
    """A sentence read by espeak-ng. `voice`: one of its voices, such as `cmn` or `en-us`."""

    speak: str = Field(min_length=1)
    voice: str = "en-us"

    def render(self, folder: Path) -> Pcm:
        command = ["espeak-ng", "-v", self.voice, "-w", "/dev/stdout", "--", self.speak]
        try:
            done = subprocess.run(command, capture_output=True, check=True)
        except FileNotFoundError:
            raise ScenarioError("speak: expected espeak-ng on this machine (Debian package espeak-ng)") from None
        except subprocess.CalledProcessError as error:
            raise ScenarioError(f"speak: espeak-ng failed: {error.stderr.decode()[:200]}") from None
        # The header of a streamed WAV holds no length.
        pcm: Pcm = (np.frombuffer(done.stdout[44:], "<i2") / np.float32(32768)).astype(np.float32)
        rate = int.from_bytes(done.stdout[24:28], "little")
        return pcm if rate == RATE else Resampler(rate, RATE).push(pcm)


class Tone(_Model):
    """A tone that is cut hard at both ends."""

    tone_hz: float = Field(gt=20, lt=8000)
    ms: int = Field(gt=0, le=600_000)
    level_db: float = Field(-13, ge=-60, le=0)

    def render(self, folder: Path) -> Pcm:
        at = np.arange(self.ms * RATE // 1000)
        return np.asarray(10 ** (self.level_db / 20) * np.sin(2 * np.pi * self.tone_hz * at / RATE), np.float32)


class Noise(_Model):
    """White noise. `level_db`: RMS below full scale."""

    noise_ms: int = Field(gt=0, le=600_000)
    level_db: float = Field(-30, ge=-90, le=0)
    seed: int = 1

    def render(self, folder: Path) -> Pcm:
        noise = np.random.default_rng(self.seed).standard_normal(self.noise_ms * RATE // 1000)
        return np.asarray(np.clip(noise * 10 ** (self.level_db / 20), -1, 1), np.float32)


class Silence(_Model):
    pause_ms: int = Field(gt=0, le=600_000)

    def render(self, folder: Path) -> Pcm:
        return np.zeros(self.pause_ms * RATE // 1000, np.float32)


Sound = Recorded | Spoken | Tone | Noise | Silence


class Start(_Model):
    """When a turn begins: `delay_ms` (or a random delay between two values) after something of the turn before it.

    `agent_speech_start`: the agent begins to speak after it; `agent_speech_end`: the agent has been silent for 0.7 s
    since, counted from its last sound; `turn_end`: the caller has said it. What does not come within `timeout_ms`
    after its end is not waited for.
    """

    after: Literal["call_start", "turn_end", "agent_speech_start", "agent_speech_end"] = "agent_speech_end"
    delay_ms: Annotated[int, Field(ge=0, le=60_000)] | tuple[int, int] = 1000
    timeout_ms: int = Field(12_000, ge=500, le=120_000)

    @model_validator(mode="after")
    def _ordered(self) -> Start:
        if isinstance(self.delay_ms, tuple) and not 0 <= self.delay_ms[0] <= self.delay_ms[1] <= 60_000:
            raise ValueError(f"expected delay_ms as [least, most] within 0 and 60000, got {list(self.delay_ms)}")
        return self


class Assertions(_Model):
    """What a turn has to show. `within_ms`: voice to voice, or for `stop` the yield latency; `cer`: of `text`.

    `reply_has`: words of the reply's transcript, any case. `absent_hz`: no such tone after the turn's last sound.
    """

    within_ms: float | None = Field(None, gt=0)
    answer_within_ms: float | None = Field(None, gt=0)
    resume_within_ms: float | None = Field(None, gt=0)
    cer: float | None = Field(None, ge=0)
    reply_has: tuple[str, ...] = ()
    absent_hz: float | None = Field(None, gt=20, lt=8000)


class Turn(_Model):
    """`say`: sounds one after the other. `text`: the words in them. `expect`: what the agent is to do.

    respond: answer, once the turn is over. stop: end the running reply, then answer. ignore: go on, or stay silent.
    join: wait, for the next turn goes on with the same sentence.
    """

    say: tuple[Sound, ...] = Field(min_length=1)
    text: str = ""
    start: Start = Start()
    expect: Expect = "respond"
    asserts: Assertions = Field(Assertions(), alias="assert")

    @model_validator(mode="before")
    @classmethod
    def _file_names(cls, value: Any) -> Any:
        """A sound by itself need not stand in a list, and one that is a name is a file."""
        if isinstance(value, dict) and isinstance(value.get("say"), dict | str | list):
            say = value["say"] if isinstance(value["say"], list) else [value["say"]]
            return {**value, "say": [{"file": sound} if isinstance(sound, str) else sound for sound in say]}
        return value


class Echo(_Model):
    """The agent's voice comes back by the caller's microphone."""

    delay_ms: int = Field(ge=20, le=1000)
    gain_db: float = Field(ge=-60, le=0)


class CallAssertions(_Model):
    """What the whole call has to show. `cart`: the lines of the final or the placed cart, as ids of the menu."""

    cart: tuple[dict[str, Any], ...] | None = None
    max_gap_ms: float | None = Field(None, gt=0)


class Scenario(_Model):
    """One call. `trials`: how often it is placed; `background`: sounds repeated under it; `clock_ppm`: the caller's."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)
    about: str = ""
    turns: tuple[Turn, ...] = Field(min_length=1, max_length=500)
    trials: int = Field(1, ge=1, le=1000)
    background: tuple[Sound, ...] = ()
    echo: Echo | None = None
    network: Network | None = None
    clock_ppm: float = Field(0, ge=-1000, le=1000)
    session: dict[str, Any] | None = None
    asserts: CallAssertions = Field(CallAssertions(), alias="assert")

    @model_validator(mode="before")
    @classmethod
    def _first_turn(cls, value: Any) -> Any:
        """The first turn begins a second after the call, where nothing else is said."""
        turns = value.get("turns") if isinstance(value, dict) else None
        if not isinstance(turns, list) or not turns or not isinstance(turns[0], dict) or "start" in turns[0]:
            return value
        return {**value, "turns": [{**turns[0], "start": {"after": "call_start"}}, *turns[1:]]}

    @model_validator(mode="after")
    def _sane(self) -> Scenario:
        if self.turns[0].start.after == "turn_end":
            raise ValueError("turns.0.start.after: expected call_start or an agent's greeting, got turn_end")
        if self.turns[-1].expect == "join":
            raise ValueError("turns: expected a turn after the last join, got none")
        return self


def render(sounds: Sequence[Sound], folder: Path) -> Pcm:
    """Sounds one after the other: float32[T] @ 48 kHz. Raises ScenarioError or FileNotFoundError."""
    return np.concatenate([np.zeros(0, np.float32), *(sound.render(folder) for sound in sounds)])


def check_sounds(scenarios: Sequence[tuple[Scenario, Path]]) -> None:
    """Raises ScenarioError or FileNotFoundError if something that is said in them cannot be made here."""
    for scenario, folder in scenarios:
        for sounds in (scenario.background, *(turn.say for turn in scenario.turns)):
            render(sounds, folder)


def uncut(scenario: Scenario) -> Scenario | None:
    """The same call in which nothing is said over the agent: sounds to be ignored are silent, and interruptions wait
    for the end of the reply. None if the scenario is such a call itself.
    """
    if all(turn.expect in ("respond", "join") for turn in scenario.turns):
        return None
    turns = []
    for turn in scenario.turns:
        if turn.expect == "ignore":
            # Its length does not matter: what follows waits for the agent.
            turns.append(turn.model_copy(update={"say": (Silence(pause_ms=400),)}))
        elif turn.expect == "stop":
            turns.append(turn.model_copy(update={"expect": "respond", "start": Start(delay_ms=600)}))
        else:
            turns.append(turn)
    calm = {"turns": tuple(turns), "background": (), "echo": None, "network": None, "clock_ppm": 0.0}
    return scenario.model_copy(update=calm | {"name": f"{scenario.name[:54]}-uncut"})


def load_scenario(path: Path) -> Scenario:
    """Read one YAML file. Raises ScenarioError."""
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: expected a YAML file, got {error}") from None
    try:
        return Scenario.model_validate(value)
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(str(part) for part in e['loc']) or 'file'}: {e['msg']}, got {e['input']!r:.80}"
            for e in error.errors()[:5]
        )
        raise ScenarioError(f"{path}: {told}") from None


def find_scenarios(names: Sequence[str]) -> list[tuple[Scenario, Path]]:
    """Scenarios by file, folder or name in the library, each with the folder of its sounds; none: the whole library.

    Raises ScenarioError for a name that is nothing of these.
    """
    files: list[Path] = []
    for name in names or [str(LIBRARY)]:
        path = Path(name) if Path(name).exists() else LIBRARY / f"{name}.yaml"
        if path.is_dir():
            files += sorted(path.glob("*.yaml"))
        elif path.is_file():
            files.append(path)
        else:
            known = ", ".join(sorted(file.stem for file in LIBRARY.glob("*.yaml")))
            raise ScenarioError(f"{name}: expected a YAML file, a folder of them, or one of {known}")
    return [(load_scenario(file), file.parent) for file in files]

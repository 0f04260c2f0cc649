"""What a server and its stage processes say to each other."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

from voice_agent.engine.protocols import Codec, JudgesTurnEnd, StageName, Talker, Thinker
from voice_agent.engine.stage import Receipt, Stage
from voice_agent.engine.stages import CodecStage, TalkerStage, ThinkerStage

Part: TypeAlias = Thinker | Talker | Codec
Key: TypeAlias = tuple[StageName, int]
"""A request inside a stage: the stage's name, and the request's id."""

FIGURES_S = 0.25
"""How often a process tells its figures, which is also its sign of life."""


class Load(Protocol):
    """Loads these parts of a model onto a device ("": the model's own choice). Raises ValueError, expected and got."""

    def __call__(self, stages: Sequence[StageName], device: str) -> Mapping[StageName, Part]: ...


@dataclass(frozen=True)
class Job:
    """What a copy of a group of stages is to do. `load` has to be picklable, for a process."""

    stages: tuple[StageName, ...]
    device: str
    load: Load
    ahead_ms: float
    threads: int


class Role(enum.Enum):
    """Stands for a callable among the arguments of `submit`: they are, in order, the two that a stage calls."""

    RESULT = enum.auto()
    FAIL = enum.auto()


# To the process.


@dataclass(frozen=True, slots=True)
class Command:
    """A call of a stage's public method, for one request."""

    stage: StageName
    method: str
    rid: int
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    stage: StageName
    rid: int
    used: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of a public method that is about no request, and gives a future. `number`: of the answer."""

    stage: StageName
    method: str
    number: int
    arguments: tuple[Any, ...]


# From the process.


@dataclass(frozen=True, slots=True)
class Ready:
    """All is loaded. `facts`: each part's public numbers; `views`: the first figures."""

    facts: Mapping[StageName, SimpleNamespace]
    views: Mapping[StageName, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Loading failed."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Result:
    stage: StageName
    rid: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    stage: StageName
    rid: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Freed:
    stage: StageName
    rid: int
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question gave; a value or an error."""

    number: int
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    views: Mapping[StageName, Mapping[str, Any]]


def make_stages(job: Job) -> tuple[dict[StageName, Stage[Any]], dict[StageName, SimpleNamespace]]:
    """Load the parts and start a worker for each; also each part's public numbers."""
    makers: dict[StageName, Callable[[Any], Stage[Any]]] = {
        "thinker": ThinkerStage,
        "talker": lambda part: TalkerStage(part, ahead_ms=job.ahead_ms),
        "codec": CodecStage,
    }
    parts = job.load(job.stages, job.device)
    return {name: makers[name](parts[name]) for name in job.stages}, {n: facts_of(parts[n]) for n in job.stages}


def facts_of(part: Part) -> SimpleNamespace:
    """The numbers that the protocols give a part, without the part; and whether it judges the ends of turns."""
    names = (
        "slots",
        "hidden_size",
        "frame_rate",
        "sample_rate",
        "samples_per_frame",
        "latency_samples",
        "codebooks",
    )
    facts = {name: getattr(part, name) for name in names if hasattr(part, name)}
    return SimpleNamespace(**facts, judges=isinstance(part, JudgesTurnEnd))


def is_last(stage: StageName, values: Sequence[Any]) -> bool:
    """Whether these are the values of a request's last result: done, no further frame, the last samples."""
    if stage == "thinker":
        return bool(values[0].done)
    return bool(values[1]) if stage == "codec" else values[0] is None


def portable(error: BaseException) -> BaseException:
    """The error, or its text if it cannot travel."""
    try:
        same = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return same if isinstance(same, BaseException) else RuntimeError(str(error))

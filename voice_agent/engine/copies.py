"""A copy of a group of stages, and its simplest kind: threads of this process."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from voice_agent.engine.process_messages import Job, Key, Role, is_last, make_stages
from voice_agent.engine.protocols import StageName
from voice_agent.engine.stage import Receipt, Stage


@dataclass(frozen=True)
class Request:
    """Whom to tell about a request in a stage."""

    on_result: Callable[..., None]
    fail: Callable[[str, BaseException], None]


class Copy(ABC):
    """A copy of a group of stages, and the requests that it holds. Its methods may be called from any thread."""

    facts: Mapping[StageName, SimpleNamespace]

    def __init__(self, job: Job) -> None:
        self.job = job
        self._requests: dict[Key, Request] = {}
        self._lock = threading.Condition()

    @property
    def load(self) -> int:
        """Requests in its stages."""
        return len(self._requests)

    @property
    def alive(self) -> bool:
        return True

    def holds(self, rid: int) -> bool:
        return any((stage, rid) in self._requests for stage in self.job.stages)

    def in_use(self, stage: StageName) -> int:
        """Requests in one stage."""
        with self._lock:
            return sum(name == stage for name, _ in self._requests)

    @abstractmethod
    def start(self) -> None:
        """Load and start; blocks. Raises what loading raised."""

    @abstractmethod
    def submit(self, stage: StageName, rid: int, arguments: tuple[Any, ...]) -> None:
        """A new request, with its result and fail callables among the arguments."""

    @abstractmethod
    def call(self, stage: StageName, method: str, rid: int, arguments: tuple[Any, ...]) -> None:
        """Call a public method for a request; dropped if the stage does not hold it."""

    @abstractmethod
    def abort(self, stage: StageName, rid: int, used: int) -> Future[Receipt]: ...

    @abstractmethod
    def ask(self, stage: StageName, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        """Call a public method that is about no request and gives a future."""

    @abstractmethod
    def view(self, stage: StageName) -> dict[str, Any]: ...

    @abstractmethod
    def close(self) -> None: ...

    def _enter(self, key: Key, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Note whom to tell; the arguments with roles in the callables' place."""
        on_result, fail = (argument for argument in arguments if callable(argument))
        self._requests[key] = Request(on_result, fail)
        roles = iter((Role.RESULT, Role.FAIL))
        return tuple(next(roles) if callable(argument) else argument for argument in arguments)

    def _result(self, key: Key, values: tuple[Any, ...]) -> None:
        with self._lock:
            request = self._requests.get(key)
            if is_last(key[0], values):
                self._requests.pop(key, None)
        if request is not None:
            request.on_result(*values)

    def _failed(self, key: Key, error: BaseException) -> None:
        with self._lock:
            request = self._requests.pop(key, None)
        if request is not None:
            request.fail(key[0], error)


class ThreadCopy(Copy):
    """The stages as threads of this process."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.stages: dict[StageName, Stage[Any]] = {}

    def start(self) -> None:
        self.stages, self.facts = make_stages(self.job)

    def submit(self, stage: StageName, rid: int, arguments: tuple[Any, ...]) -> None:
        key: Key = (stage, rid)
        with self._lock:
            entered = self._enter(key, arguments)
        roles: dict[Role, Callable[..., None]] = {
            Role.RESULT: lambda *values: self._result(key, values),
            Role.FAIL: lambda _, error: self._failed(key, error),
        }
        target: Any = self.stages[stage]
        target.submit(rid, *(roles[value] if isinstance(value, Role) else value for value in entered))

    def call(self, stage: StageName, method: str, rid: int, arguments: tuple[Any, ...]) -> None:
        if (stage, rid) in self._requests:
            getattr(self.stages[stage], method)(rid, *arguments)

    def abort(self, stage: StageName, rid: int, used: int) -> Future[Receipt]:
        with self._lock:
            self._requests.pop((stage, rid), None)
        return self.stages[stage].abort(rid, used)

    def ask(self, stage: StageName, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        future: Future[Any] = getattr(self.stages[stage], method)(*arguments)
        return future

    def view(self, stage: StageName) -> dict[str, Any]:
        return self.stages[stage].view()

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()

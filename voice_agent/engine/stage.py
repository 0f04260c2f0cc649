"""A stage: one worker thread, its slots, its batch policy, and aborts between two steps.

Rows join and leave between steps (continuous batching, Orca, OSDI 2022). Everything else reaches the worker as a
command in its mailbox; an abort overtakes all of them. The mailbox needs no bound of its own: every sender is
bounded (replies by `max_waiting`, frames by the talker's run-ahead, text by the length of a reply).
"""

from __future__ import annotations

import bisect
import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from voice_agent.engine.schedule import Policy

log = logging.getLogger(__name__)

TOMBSTONES = 1024


class StageBusy(RuntimeError):
    """All slots are taken and the waiting line is full."""


@dataclass(frozen=True)
class Receipt:
    """What a stage returns for an abort. `ms`: from cancel to free. `wasted`: units made that were never used."""

    stage: str
    ms: float
    wasted: int


class Histogram:
    """Counts of values up to each bound, and above the last; their sum."""

    def __init__(self, *bounds: float) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def view(self) -> dict[str, Any]:
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.sum}


@dataclass
class StageStats:
    """Counters since start. `busy_s`: time inside steps. `units`: tokens or frames made; `wasted`: never heard.

    Written by the stage's worker alone; whoever reads them meanwhile may miss the step that is running.
    """

    steps: int = 0
    rows: int = 0
    units: int = 0
    busy_s: float = 0.0
    aborts: int = 0
    wasted: int = 0
    failures: int = 0
    started_at: float = field(default_factory=time.perf_counter)
    step_s: Histogram = field(
        default_factory=lambda: Histogram(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
    )
    batch: Histogram = field(default_factory=lambda: Histogram(1, 2, 4, 8, 16, 32, 64))
    abort_s: Histogram = field(default_factory=lambda: Histogram(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1))

    def stepped(self, rows: int, units: int, seconds: float) -> None:
        self.steps += 1
        self.rows += rows
        self.units += units
        self.busy_s += seconds
        self.step_s.add(seconds)
        self.batch.add(rows)

    def aborted(self, receipt: Receipt) -> None:
        self.aborts += 1
        self.wasted += receipt.wasted
        self.abort_s.add(receipt.ms / 1000)

    def view(self) -> dict[str, Any]:
        lived_s = max(1e-9, time.perf_counter() - self.started_at)
        return {
            "steps": self.steps,
            "units": self.units,
            "batch_mean": self.rows / self.steps if self.steps else 0.0,
            "step_ms_mean": 1000 * self.busy_s / self.steps if self.steps else 0.0,
            "utilisation": self.busy_s / lived_s,
            "lived_s": lived_s,
            "busy_s": self.busy_s,
            "aborts": self.aborts,
            "wasted": self.wasted,
            "failures": self.failures,
            "step_s": self.step_s.view(),
            "batch": self.batch.view(),
            "abort_s": self.abort_s.view(),
        }


@dataclass
class Row:
    """A request inside a stage. `slot` is None while it waits for one; `made` counts its units.

    `asked_s`: when it was submitted, by `time.perf_counter`. `reads`: its next step reads a prompt, which takes longer.
    """

    rid: int
    fail: Callable[[str, BaseException], None]
    slot: int | None = None
    made: int = 0
    asked_s: float = field(default_factory=time.perf_counter)
    reads: bool = False


R = TypeVar("R", bound=Row)


class Stage(ABC, Generic[R]):
    """The worker. Subclasses say how a row starts, which rows can step, and what a step does.

    A request's id is drawn from one stage's `ids` and used in all of its stages. The public methods may be called
    from any thread and never block; `_start`, `_pick`, `_step` and `_free` run on the worker alone.
    """

    def __init__(self, name: str, slots: int, policy: Policy, *, max_waiting: int = 32) -> None:
        if slots < 1:
            raise ValueError(f"stage {name}: expected at least 1 slot, got {slots}")
        self.name, self.slots, self.policy, self.max_waiting = name, slots, policy, max_waiting
        self.stats = StageStats()
        self.ids = itertools.count(1)
        self._rows: dict[int, R] = {}
        self._waiting: deque[R] = deque()
        self._free_slots = list(range(slots - 1, -1, -1))
        self._tombstones: deque[int] = deque(maxlen=TOMBSTONES)
        self._commands: deque[Callable[[], None]] = deque()
        self._aborts: deque[tuple[int, int, float, Future[Receipt]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"stage-{name}", daemon=True)
        self._thread.start()

    @abstractmethod
    def _start(self, row: R, slot: int) -> None: ...

    @abstractmethod
    def _pick(self, rows: Sequence[R], now_s: float) -> list[R]:
        """The rows of the next batch; empty: nothing can step until a command arrives."""

    @abstractmethod
    def _step(self, rows: Sequence[R]) -> int:
        """Advance these rows; gives the number of units made. Calls `_release` for a row that is complete."""

    @abstractmethod
    def _free(self, slot: int) -> None: ...

    def _next(self) -> R | None:
        """The waiting row that a free slot goes to; None: none may have it yet."""
        return self._waiting[0] if self._waiting else None

    @property
    def slots_in_use(self) -> int:
        return self.slots - len(self._free_slots)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def view(self) -> dict[str, Any]:
        """The stage for a stats page."""
        return {
            "slots": self.slots,
            "slots_in_use": self.slots_in_use,
            "waiting": self.waiting,
            **self.stats.view(),
        }

    def abort(self, rid: int, used: int = 0) -> Future[Receipt]:
        """Free the row between two steps. Later commands for it are dropped. `used`: its units that were heard."""
        future: Future[Receipt] = Future()
        # From here on it cannot be cancelled: whoever stops waiting for the receipt must not fail the worker.
        future.set_running_or_notify_cancel()
        with self._wake:
            if self._closing:
                future.set_result(Receipt(self.name, 0.0, 0))
                return future
            self._aborts.append((rid, used, time.perf_counter(), future))
            self._wake.notify()
        return future

    def close(self) -> None:
        """End the worker after the step that it is in; all rows are freed."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def _post(self, command: Callable[[], None]) -> None:
        with self._wake:
            if not self._closing:
                self._commands.append(command)
                self._wake.notify()

    def _admit(self, row: R) -> None:
        """Post a new row. Raises nothing: a full waiting line fails the row."""

        def command() -> None:
            if row.rid in self._tombstones:  # its abort overtook it
                return
            if len(self._waiting) >= self.max_waiting:
                self._tombstones.append(row.rid)
                row.fail(self.name, StageBusy(f"stage {self.name}: {self.slots} slots and {self.max_waiting} places"))
            else:
                self._waiting.append(row)

        self._post(command)

    def _on(self, rid: int, command: Callable[[R], None]) -> None:
        """Post a command for one row. After the row's end it is dropped; for a row never admitted it is a bug."""

        def run() -> None:
            row = self._rows.get(rid) or next((r for r in self._waiting if r.rid == rid), None)
            if row is not None:
                try:
                    command(row)
                except Exception as error:
                    log.exception("stage %s: a command failed", self.name)
                    if row.slot is None:
                        self._waiting.remove(row)
                    self._fail([row], error)
            elif rid not in self._tombstones:
                log.error("stage %s: a command for request %d, which it never saw", self.name, rid)

        self._post(run)

    def _release(self, row: R) -> None:
        """The row is complete: return its slot."""
        self._rows.pop(row.rid, None)
        self._tombstones.append(row.rid)
        if row.slot is not None:
            slot, row.slot = row.slot, None
            try:
                self._free(slot)
            finally:
                self._free_slots.append(slot)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closing or self._aborts or self._commands or self._runnable()):
                    self._wake.wait()
                if self._closing:
                    break
            self._drain_aborts()
            self._drain_commands()
            self._fill_slots()
            batch = self._pick(list(self._rows.values()), time.perf_counter())
            if batch:
                self._advance(batch)
        for row in list(self._rows.values()):
            self._release(row)
        for _, _, _, future in self._aborts:
            future.set_result(Receipt(self.name, 0.0, 0))

    def _runnable(self) -> bool:
        if self._free_slots and self._next() is not None:
            return True
        return bool(self._pick(list(self._rows.values()), time.perf_counter()))

    def _drain_aborts(self) -> None:
        while self._aborts:
            rid, used, since, future = self._aborts.popleft()
            row = self._rows.get(rid)
            made = row.made if row is not None else 0
            if row is not None:
                self._release(row)
            self._waiting = deque(r for r in self._waiting if r.rid != rid)
            if rid not in self._tombstones:
                self._tombstones.append(rid)
            receipt = Receipt(self.name, 1000 * (time.perf_counter() - since), max(0, made - used))
            if row is not None:
                self.stats.aborted(receipt)
            future.set_result(receipt)

    def _drain_commands(self) -> None:
        while self._commands and not self._aborts:
            self._commands.popleft()()

    def _fill_slots(self) -> None:
        while self._free_slots and (row := self._next()) is not None:
            self._waiting.remove(row)
            slot = self._free_slots.pop()
            row.slot = slot
            self._rows[row.rid] = row
            try:
                self._start(row, slot)
            except Exception as error:
                self._fail([row], error)

    def _advance(self, batch: list[R]) -> None:
        # What a step with a prompt takes says nothing of the steps without one.
        usual = not any(row.reads for row in batch)
        since = time.perf_counter()
        try:
            units = self._step(batch)
        except Exception as error:
            log.exception("stage %s: a step failed for %d rows", self.name, len(batch))
            self._fail(batch, error)
            return
        seconds = time.perf_counter() - since
        self.stats.stepped(len(batch), units, seconds)
        if usual and units:
            self.policy.took(units, seconds)

    def _fail(self, rows: Sequence[R], error: BaseException) -> None:
        self.stats.failures += 1
        for row in rows:
            try:
                self._release(row)
            except Exception:
                log.exception("stage %s: freeing a failed row failed", self.name)
            row.fail(self.name, error)


def receipts_of(futures: Sequence[Future[Receipt]]) -> Any:
    """The futures as awaitables of the running loop."""
    import asyncio

    return asyncio.gather(*(asyncio.wrap_future(future) for future in futures))

"""A copy of a group of stages in a process of its own, that is watched and restarted.

Calls to a process go through an outbox that a writer thread empties, so that no caller waits; aborts overtake what
lies in it. It is bounded by `MAX_PENDING`: a process that reads so slowly counts as dead. So does one whose channel
ends, and one that gives no sign of life for `HUNG_S`. What it held fails with `StageDied`, and another is started.
"""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from voice_agent.engine.copies import Copy
from voice_agent.engine.process_channel import Channel, channel_pair
from voice_agent.engine.process_messages import (
    Abort,
    Answer,
    Ask,
    Command,
    Failed,
    Figures,
    Freed,
    Job,
    Key,
    Ready,
    Refused,
    Result,
)
from voice_agent.engine.protocols import StageName
from voice_agent.engine.stage import Receipt

log = logging.getLogger(__name__)

MAX_PENDING = 4096
HUNG_S = 10.0
# Figures that are of what a process holds: none once it is dead.
HELD = ("slots_in_use", "waiting", "dialogues")
# Before another is started, after one that did not come up; each time twice as long. Else there is no pause.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


class StageDied(ConnectionError):
    """The process of a stage is gone; another is being started."""


class ProcessCopy(Copy):
    """The stages in a process of their own."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.name = "+".join(job.stages)
        self.restarts = 0
        self.pid: int | None = None
        self._channel: Channel | None = None
        self._alive = self._ready = self._closing = False
        self._outbox: deque[Command | Ask] = deque()
        self._urgent: deque[Abort] = deque()
        self._aborting: dict[Key, tuple[float, Future[Receipt]]] = {}
        self._asking: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._views: Mapping[StageName, Mapping[str, Any]] = {}
        self._started: Future[None] = Future()
        self._supervisor = threading.Thread(target=self._supervise, name=f"process-{self.name}", daemon=True)

    @property
    def alive(self) -> bool:
        return self._alive

    def start(self) -> None:
        self._supervisor.start()
        self._started.result()

    def submit(self, stage: StageName, rid: int, arguments: tuple[Any, ...]) -> None:
        with self._lock:
            entered = self._enter((stage, rid), arguments)
            alive = self._alive and self._post(Command(stage, "submit", rid, entered))
        if not alive:
            self._failed((stage, rid), StageDied(f"the process of {self.name} is being started"))

    def call(self, stage: StageName, method: str, rid: int, arguments: tuple[Any, ...]) -> None:
        if stage == "codec" and "talker" in self.job.stages and method in ("push", "finish"):
            return  # it has them from the talker beside it
        with self._lock:
            if (stage, rid) in self._requests:
                self._post(Command(stage, method, rid, arguments))

    def abort(self, stage: StageName, rid: int, used: int) -> Future[Receipt]:
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            held = self._requests.pop((stage, rid), None) is not None and self._alive
            if held:
                self._aborting[stage, rid] = (time.perf_counter(), future)
                self._urgent.append(Abort(stage, rid, used))
                self._lock.notify_all()
        if not held:
            future.set_result(Receipt(stage, 0.0, 0))
        return future

    def ask(self, stage: StageName, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            number = next(self._numbers)
            asked = self._alive and self._post(Ask(stage, method, number, arguments))
            if asked:
                self._asking[number] = future
        if not asked:
            future.set_exception(StageDied(f"the process of {self.name} is being started"))
        return future

    def view(self, stage: StageName) -> dict[str, Any]:
        """The stage's figures when they were last told, and how often the process was started anew."""
        return {**self._views[stage], "restarts": self.restarts}

    def close(self) -> None:
        """End the process; what it held is gone, and nobody is told."""
        with self._lock:
            self._closing = True
            self._requests.clear()
            self._lock.notify_all()
            if self._channel is not None:
                self._channel.hang_up()
        if self._supervisor.ident is not None:
            self._supervisor.join()

    # ---- inside; `_post` with the lock held ----

    def _post(self, command: Command | Ask) -> bool:
        if len(self._outbox) >= MAX_PENDING:
            log.error("process of %s: it left %d messages unread and is ended", self.name, MAX_PENDING)
            self._alive = False
            assert self._channel is not None
            self._channel.hang_up()
            return False
        self._outbox.append(command)
        self._lock.notify_all()
        return True

    def _supervise(self) -> None:
        """One process after another, until closed or until the first does not start."""
        pause = 0.0
        while not self._closing:
            self._ready = False
            error = self._live()
            self._bury()
            if not self._started.done():
                self._started.set_exception(error)
                return
            if self._closing:
                return
            log.error("%s; another is started", error)
            self.restarts += 1
            pause = 0.0 if self._ready else min(max(2 * pause, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            with self._lock:
                self._lock.wait_for(lambda: self._closing, timeout=pause)

    def _live(self) -> BaseException:
        """A process from its start to its death; gives what ended it."""
        channel, theirs = channel_pair()
        process: subprocess.Popen[bytes] | None = None
        writer = threading.Thread(target=self._write, args=[channel], name=f"outbox-{self.name}", daemon=True)
        try:
            with theirs:
                process = _spawn(theirs.fileno(), self.job.threads)
            with self._lock:
                self._channel, self.pid = channel, process.pid
                if self._closing:
                    channel.hang_up()
            channel.send(sys.path)
            channel.send(self.job)
            answer = channel.receive()
            if isinstance(answer, Refused):
                return answer.error
            self._open(answer)
            writer.start()
            channel.expect_within(HUNG_S)
            while True:
                self._take(channel.receive())
        except TimeoutError:
            return StageDied(f"the process of {self.name}: expected a sign of life within {HUNG_S:g} s, got none")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return StageDied(f"the process of {self.name} ended")
        except Exception as error:
            log.exception("process of %s: it cannot be started, or sent what cannot be used", self.name)
            return error
        finally:
            with self._lock:
                self._alive = False
                self._lock.notify_all()
            channel.hang_up()
            if process is not None:
                process.kill()
                process.wait()
            if writer.ident is not None:
                writer.join()
            channel.close()

    def _open(self, ready: Ready) -> None:
        self.facts, self._views = ready.facts, ready.views
        with self._lock:
            self._alive = self._ready = True
        if not self._started.done():
            self._started.set_result(None)

    def _write(self, channel: Channel) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._urgent or self._outbox or not self._alive)
                if not self._alive:
                    return
                message = self._urgent.popleft() if self._urgent else self._outbox.popleft()
            try:
                channel.send(message)
            except OSError:
                channel.hang_up()
                return

    def _take(self, message: Result | Failed | Freed | Answer | Figures) -> None:
        if isinstance(message, Figures):
            self._views = message.views
        elif isinstance(message, Result):
            self._result((message.stage, message.rid), message.values)
        elif isinstance(message, Failed):
            self._failed((message.stage, message.rid), message.error)
        elif isinstance(message, Answer):
            with self._lock:
                asking = self._asking.pop(message.number)
            if message.error is None:
                asking.set_result(message.value)
            else:
                asking.set_exception(message.error)
        else:
            with self._lock:
                since, future = self._aborting.pop((message.stage, message.rid))
            receipt = message.receipt
            future.set_result(Receipt(receipt.stage, 1000 * (time.perf_counter() - since), receipt.wasted))

    def _bury(self) -> None:
        """Tell everybody who waits for the dead process."""
        with self._lock:
            requests, self._requests = self._requests, {}
            aborting, self._aborting = self._aborting, {}
            asking, self._asking = self._asking, {}
            self._outbox.clear()
            self._urgent.clear()
            self._views = {
                stage: {**view, **{name: 0 for name in HELD if name in view}} for stage, view in self._views.items()
            }
        for (stage, _), (since, future) in aborting.items():
            future.set_result(Receipt(stage, 1000 * (time.perf_counter() - since), 0))
        for asked in asking.values():
            asked.set_exception(StageDied(f"the process of {self.name} died"))
        for (stage, _), request in requests.items():
            request.fail(stage, StageDied(f"the process of {self.name} died"))


def _spawn(descriptor: int, threads: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "voice_agent.engine.process_child", str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=2,  # what loading prints is not the server's own output
        process_group=0,  # Ctrl-C is meant for the server, which ends this process when its calls have ended
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},  # of all libraries, in all of its threads
    )

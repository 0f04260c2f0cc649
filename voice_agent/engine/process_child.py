"""A stage process: `python -m voice_agent.engine.process_child FD`, started by `StageProcess`.

Its stages run as they do in the server, each with a worker thread of its own; this file only carries calls in and
results out. A worker that has a result waits while the server does not read, so nothing piles up here. Talker and codec
in one process are joined here, so that codes do not cross twice. The process ends when its channel does, at once:
the server that owned it is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn

from voice_agent.engine.heap import WhenQuiet
from voice_agent.engine.process_channel import Channel
from voice_agent.engine.process_messages import (
    FIGURES_S,
    Abort,
    Answer,
    Ask,
    Command,
    Failed,
    Figures,
    Freed,
    Job,
    Ready,
    Refused,
    Result,
    Role,
    make_stages,
    portable,
)
from voice_agent.engine.protocols import StageName
from voice_agent.engine.stage import Receipt, Stage

NICENESS = 5
"""The server's media go first where cores are few: they need little time, and that at once."""


class Host:
    """The stages of this process, and the server's hand on them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.stages: dict[StageName, Stage[Any]] = {}

    def load(self, job: Job) -> None:
        """Load and start the stages, and say so; then tell their figures for ever, and keep no memory for nothing."""
        try:
            self.stages, facts = make_stages(job)
        except Exception as error:
            self._tell(Refused(portable(error)))
            leave()
        self._tell(Ready(facts, self._views()))
        heap = WhenQuiet()
        while True:
            time.sleep(FIGURES_S)
            views = self._views()
            self._tell(Figures(views))
            heap.saw(sum(view["steps"] for view in views.values()), time.monotonic())

    def obey(self, message: Command | Abort | Ask) -> None:
        """Carry out one message of the server's."""
        stage, name = self.stages[message.stage], message.stage
        if isinstance(message, Ask):
            asked: Future[Any] = getattr(stage, message.method)(*message.arguments)
            asked.add_done_callback(lambda future: self._answer(message.number, future))
            return
        rid = message.rid
        if isinstance(message, Abort):
            stage.abort(rid, message.used).add_done_callback(lambda future: self._freed(name, rid, future))
            return
        roles: dict[Role, Callable[..., None]] = {
            Role.RESULT: lambda *values: self._result(name, rid, values),
            Role.FAIL: lambda _, error: self._tell(Failed(name, rid, portable(error))),
        }
        arguments = (roles[value] if isinstance(value, Role) else value for value in message.arguments)
        getattr(stage, message.method)(rid, *arguments)

    def _result(self, name: StageName, rid: int, values: tuple[Any, ...]) -> None:
        codec: Any = self.stages.get("codec")
        if name == "talker" and codec is not None:
            if values[0] is None:
                codec.finish(rid)
            else:
                codec.push(rid, values[0].codes)
        self._tell(Result(name, rid, values))

    def _answer(self, number: int, future: Future[Any]) -> None:
        error = future.exception()
        self._tell(Answer(number, future.result()) if error is None else Answer(number, error=portable(error)))

    def _freed(self, name: StageName, rid: int, future: Future[Receipt]) -> None:
        self._tell(Freed(name, rid, future.result()))

    def _views(self) -> dict[StageName, dict[str, Any]]:
        return {name: stage.view() for name, stage in self.stages.items()}

    def _tell(self, message: Any) -> None:
        try:
            self._channel.send(message)
        except OSError:
            leave()


def leave() -> NoReturn:
    """End at once: nobody waits for what the workers are doing."""
    os._exit(0)


def main(descriptor: int) -> NoReturn:
    # The server decides when this process ends; a Ctrl-C or a service manager that means the server ends both.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        sys.path[:] = channel.receive()
        host = Host(channel)
        # In a thread of its own, so that the end of the channel is noticed while it loads.
        threading.Thread(target=host.load, args=[channel.receive()], name="load", daemon=True).start()
        while True:
            host.obey(channel.receive())
    except EOFError:
        leave()


if __name__ == "__main__":
    main(int(sys.argv[1]))

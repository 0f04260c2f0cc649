"""The real media side and the real page, with a session that follows a script in place of the models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.page_mock.site import ROOT, agent_info
from voice_agent.media.peer import error_event
from voice_agent.media.speaker import Speaker
from voice_agent.server import Server, ServerConfig, create_app


class ScriptedSession:
    """Tells the page that the call began; answers a `response.create` with one tea more, a sentence, a tone.

    It has no greeting: the page's wish for one, which bears an id, is refused.
    """

    def __init__(self, call_id: str, speaker: Speaker, send: Callable[[dict[str, Any]], None]) -> None:
        self.speaker, self.send = speaker, send
        self.loudest = 0
        self.received: list[dict[str, Any]] = []
        self.closed = asyncio.Event()
        self.cart: dict[str, Any] = {"lines": [], "total": 0, "currency": "CNY"}

    def feed(self, pcm: npt.NDArray[np.int16]) -> None:
        self.loudest = max(self.loudest, int(np.abs(pcm.astype(np.int32)).max(initial=0)))

    def receive(self, event: dict[str, Any]) -> None:
        self.received.append(event)
        if event["type"] == "response.create" and "event_id" in event:
            self.send(error_event("invalid_request_error", "nothing_to_answer", "got none", event["event_id"]))
        elif event["type"] == "response.create":
            self._answer()
        elif event["type"] == "conversation.item.truncate":
            self.speaker.flush(self.speaker.epoch + 1)
            self.send({"type": "output_audio_buffer.cleared", "response_id": "r1"})
            self.send({"type": "conversation.item.truncated", "item_id": "a1", "agent": {"text": ""}})

    def memory(self) -> dict[str, Any]:
        return self.cart

    def recall(self, memory: dict[str, Any]) -> None:
        self.cart = memory

    async def run(self) -> None:
        self.send({"type": "session.created", "session": {}})
        self.send({"type": "agent.cart.updated", "cart": self.cart})
        await self.closed.wait()

    def close(self, reason: str) -> None:
        self.closed.set()

    def _answer(self) -> None:
        chosen = {"size": "medium", "ice": "regular_ice", "sugar": "full_sugar", "toppings": []}
        lines = self.cart["lines"]
        line = {"line": len(lines) + 1, "drink": "oolong_tea", "quantity": 1, **chosen, "unit_price": 12, "price": 12}
        where = {"response_id": "r1", "item_id": "a1"}
        self.cart = {"lines": [*lines, line], "total": 12 * (len(lines) + 1), "currency": "CNY"}
        self.send({"type": "agent.cart.updated", "cart": self.cart})
        item = {"type": "message", "id": "a1"}
        self.send({"type": "response.output_item.added", "response_id": "r1", "item": item})
        self.send({"type": "response.output_audio_transcript.delta", **where, "delta": "One oolong tea."})
        self.send({"type": "output_audio_buffer.started", "response_id": "r1"})
        epoch = self.speaker.epoch + 1
        self.speaker.flush(epoch)
        tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(3 * 24_000) / 24_000)
        self.speaker.on_drained = lambda *_: self.send({"type": "output_audio_buffer.stopped", "response_id": "r1"})
        assert self.speaker.write(epoch, tone.astype(np.float32))
        self.speaker.end(epoch)


class ScriptedServer:
    """A running server: its address, and the sessions of the calls it took."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self.sessions: list[ScriptedSession] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def call(self, work: Callable[[], None]) -> None:
        """Run this on the server's event loop."""
        self._loop.call_soon_threadsafe(work)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)


@contextmanager
def serve_scripted() -> Iterator[ScriptedServer]:
    """Serves on a free port of loopback, in a thread of its own, until the block ends."""
    ready = threading.Event()
    running: list[ScriptedServer] = []

    async def run() -> None:
        sessions: list[ScriptedSession] = []

        def make_session(call_id: str, speaker: Speaker, send: Callable[[dict[str, Any]], None]) -> ScriptedSession:
            sessions.append(ScriptedSession(call_id, speaker, send))
            return sessions[-1]

        config = ServerConfig(port=0, host_candidates=("127.0.0.1",))
        server = Server(create_app(config, make_session, agent_info(), ROOT / "web", on_start=None), config)
        scripted = ScriptedServer(server, asyncio.get_running_loop())
        scripted.sessions = sessions
        running.append(scripted)
        serving = asyncio.create_task(server.run_until_stopped())
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        ready.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="scripted server")
    thread.start()
    assert ready.wait(20), "the server did not start"
    try:
        yield running[0]
    finally:
        if thread.is_alive():
            running[0].stop()
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"

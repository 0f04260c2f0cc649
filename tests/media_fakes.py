"""Sessions and a server for tests of everything between the network and the call."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from aiortc import RTCConfiguration, RTCPeerConnection

from voice_agent.client import CallClient, CallRefused
from voice_agent.media.aiortc_patches import host_addresses
from voice_agent.media.speaker import FRAME, RATE, Speaker
from voice_agent.server import Server, ServerConfig, create_app

Pcm16 = npt.NDArray[np.int16]


class FakeSession:
    """Records what the server hands it. `response.create` with `seconds` has it speak a 440 Hz tone of that length."""

    def __init__(self, call_id: str, speaker: Speaker, send: Callable[[dict[str, Any]], None]) -> None:
        self.call_id = call_id
        self.speaker = speaker
        self.send = send
        self.heard: list[Pcm16] = []
        self.received: list[dict[str, Any]] = []
        self.closed = ""
        self.finished = False
        self.echo = False
        self._over = asyncio.Event()
        self._orders: asyncio.Queue[float] = asyncio.Queue()

    def feed(self, pcm: Pcm16) -> None:
        self.heard.append(pcm)
        if self.echo:
            self.speaker.write(self.speaker.epoch, np.repeat(pcm, 3)[::2].astype(np.float32) / 32768)

    def receive(self, event: dict[str, Any]) -> None:
        self.received.append(event)
        if event["type"] == "session.update":
            self.send({"type": "session.updated", "session": event["session"]})
        elif event["type"] == "response.create":
            self._orders.put_nowait(event.get("seconds", 1.0))
        elif event["type"] == "response.cancel":
            samples = self.speaker.flush(self.speaker.epoch + 1)
            self.send({"type": "output_audio_buffer.cleared", "samples": samples})
        elif event["type"] == "fail":
            self._orders.put_nowait(-1.0)

    def memory(self) -> list[dict[str, Any]]:
        return self.received

    def recall(self, memory: list[dict[str, Any]]) -> None:
        self.received = [*memory]

    async def room(self) -> None:
        """There is always room."""

    def audio_delta(self, pcm: bytes) -> dict[str, Any]:
        return {"type": "response.output_audio.delta", "delta": base64.b64encode(pcm).decode()}

    async def run(self) -> None:
        self.send({"type": "session.created", "session": {"id": self.call_id}})
        try:
            async with asyncio.TaskGroup() as tasks:
                talking = tasks.create_task(self._talk())
                await self._over.wait()
                talking.cancel()
        finally:
            self.finished = True

    def close(self, reason: str) -> None:
        self.closed = self.closed or reason
        self._over.set()

    async def _talk(self) -> None:
        while True:
            seconds = await self._orders.get()
            if seconds < 0:
                raise RuntimeError("asked to fail")
            epoch = self.speaker.epoch
            tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * RATE)) / RATE).astype(np.float32)
            for at in range(0, len(tone), FRAME):
                if not await self.speaker.room(epoch, 400):
                    break
                self.speaker.write(epoch, tone[at : at + FRAME])
            else:
                self.speaker.end(epoch)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Running:
    """A server that runs in this event loop."""

    def __init__(self, server: Server, url: str, sessions: list[FakeSession]) -> None:
        self.server = server
        self.url = url
        self.sessions = sessions

    @property
    def calls(self) -> Any:
        return self.server._app.state.calls


@asynccontextmanager
async def running_server(
    page_dir: Path | None = None, make: Callable[..., Any] = FakeSession, **settings: Any
) -> AsyncIterator[Running]:
    """`make`: makes a call's session, as `MakeSession` does."""
    settings.setdefault("host_candidates", ("127.0.0.1",))
    settings.setdefault("stop_linger_s", 0.0)
    config = ServerConfig(port=free_port(), **settings)
    sessions: list[FakeSession] = []

    def make_session(call_id: str, speaker: Speaker, send: Callable[[dict[str, Any]], None]) -> FakeSession:
        sessions.append(make(call_id, speaker, send))
        return sessions[-1]

    app = create_app(config, make_session, {"name": "fake"}, page_dir)
    server = Server(app, config)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run_until_stopped())
        await server.listening.wait()
        try:
            yield Running(server, f"http://{config.host}:{config.port}", sessions)
        finally:
            if not running.done():
                server.stop()


def vanish(call: CallClient) -> None:
    """What a killed client does: its sockets are gone, and it says nothing."""
    for transport in call._pc._RTCPeerConnection__iceTransports:  # type: ignore[attr-defined]
        for protocol in transport._connection._protocols:
            protocol.transport.abort()


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until the condition holds. Fails the test when it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


async def offer() -> str:
    """An offer as a client would send it, from a connection that is closed again and will never answer."""
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("audio", direction="sendrecv")
    pc.createDataChannel("oai-events")
    with host_addresses(("127.0.0.1",)):
        await pc.setLocalDescription(await pc.createOffer())
    sdp = pc.localDescription.sdp
    await pc.close()
    return str(sdp)


def footprint() -> tuple[int, int, int]:
    """Tasks, file descriptors and threads of this process."""
    gc.collect()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), threading.active_count()


ENDINGS = ("hang up", "close the tab", "killed while listening", "killed in a reply", "never connects", "refused offer")
"""The ways in which a caller ends a call, or fails to begin one."""


async def end_one_call(url: str, ending: str, say: dict[str, Any] | None = None) -> None:
    """Place a call and end it in one of `ENDINGS`. `say`: the event that makes the agent speak.

    Raises CallRefused when there is no slot for it.
    """
    if ending in ("never connects", "refused offer"):
        sdp = await offer()
        if ending == "refused offer":
            sdp = sdp.replace("opus/48000/2", "speex/16000")
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
            headers = {"Content-Type": "application/sdp"}
            response = await client.post(f"{url}/v1/realtime/calls", content=sdp, headers=headers)
        if response.status_code not in (201, 422):
            raise CallRefused(response.status_code, response.text)
        return
    async with CallClient(url, connect_s=30) as call:
        await call.wait_for("session.created")
        if ending != "killed while listening":
            call.send(say or {"type": "response.create", "seconds": 3.0})
        await asyncio.sleep(0.2)
        if ending == "close the tab":
            await call._pc.close()
        elif ending.startswith("killed"):
            vanish(call)
            call._location = ""  # a killed client sends no request either

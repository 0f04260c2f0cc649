"""A caller's WebSocket connection: bare PCM16 both ways, or the OpenAI Realtime protocol with base64 PCM16.

Neither has a time line of its own: audio counts from its arrival, and a client drops what it has not played when it
is told to. On bare PCM that is `{"type": "clear"}`; on OpenAI Realtime `input_audio_buffer.speech_started`, upon which
its clients fall silent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import websockets
from websockets.asyncio.client import ClientConnection, connect

from voice_agent.bench.link import Ends, LinkOptions, Target
from voice_agent.bench.scenario import RATE
from voice_agent.client import CallRefused
from voice_agent.media.resample import Resampler
from voice_agent.media.speaker import Pacer

REALTIME_RATE = 24_000
MAX_MESSAGE_BYTES = 1 << 22


class WebSocketLink:
    """See `link.Link`. `target.kind` is pcm or realtime. A network of the scenario's cannot be put into it."""

    def __init__(self, target: Target, ends: Ends, options: LinkOptions) -> None:
        if options.network is not None:
            raise ValueError("expected a scenario without a network for a WebSocket target, got one with")
        self.ended = asyncio.Event()
        self._target, self._ends, self._options = target, ends, options
        self._rate = REALTIME_RATE if target.kind == "realtime" else target.rate
        self._up = Resampler(RATE, self._rate)
        self._down = Resampler(self._rate, RATE)
        self._tasks = asyncio.TaskGroup()
        parts = urlsplit(target.url)
        default = "/v1/realtime" if target.kind == "realtime" else "/v1/pcm"
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        path = parts.path if parts.path.strip("/") else default
        self._url = urlunsplit((scheme, parts.netloc, path, parts.query, ""))

    async def __aenter__(self) -> Self:
        headers = self._target.headers()
        try:
            self._socket: ClientConnection = await connect(
                self._url,
                additional_headers=headers,
                open_timeout=self._target.connect_s,
                max_size=MAX_MESSAGE_BYTES,
                proxy=None,
            )
        except websockets.InvalidStatus as error:
            raise CallRefused(error.response.status_code, error.response.body.decode(errors="replace")[:300]) from None
        except websockets.WebSocketException as error:
            raise ConnectionError(str(error)) from None
        if self._options.session is not None:
            await self._socket.send(json.dumps({"type": "session.update", "session": self._options.session}))
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(self._talk()), self._tasks.create_task(self._listen())]
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.ended.set()
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._socket.close()

    async def _talk(self) -> None:
        """Send 20 ms every 20 ms, silence included."""
        pacer, speed = Pacer(), 1 + self._options.clock_ppm / 1e6
        while True:
            now = time.monotonic() * speed
            await asyncio.sleep(max(pacer.due(now) - now, 0) / speed)
            frame = self._ends.pull()
            pcm = np.clip(self._up.push(frame.astype(np.float32)), -32768, 32767).astype("<i2").tobytes()
            try:
                if self._target.kind == "pcm":
                    await self._socket.send(pcm)
                else:
                    audio = base64.b64encode(pcm).decode()
                    await self._socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            except websockets.ConnectionClosed:
                self.ended.set()
                return
            self._ends.sent(time.monotonic(), frame)

    async def _listen(self) -> None:
        try:
            async for message in self._socket:
                at = time.monotonic()
                if isinstance(message, bytes):
                    self._audio(at, message)
                    continue
                for event in _events(message):
                    self._take(at, event)
        except websockets.ConnectionClosed:
            pass  # told below, like an end that was agreed on
        self.ended.set()

    def _take(self, at: float, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "response.output_audio.delta":
            self._audio(at, base64.b64decode(event["delta"]))
            return
        if kind == ("clear" if self._target.kind == "pcm" else "input_audio_buffer.speech_started"):
            self._ends.clear(at)
        self._ends.event(at, event)

    def _audio(self, at: float, data: bytes) -> None:
        pcm = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) * np.float32(1 / 32768)
        self._ends.arrived(at, None, None, self._down.push(pcm))


def _events(message: str) -> Iterator[dict[str, Any]]:
    try:
        event = json.loads(message)
    except ValueError:
        return
    if isinstance(event, dict):
        yield event

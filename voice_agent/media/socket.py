"""Calls over a WebSocket: the same session as over WebRTC, its audio as base64 in events or as bare PCM16.

Both directions keep back-pressure: the socket is read no faster than the session listens, and audio is taken from
the speaker no faster than the socket takes it, 20 ms at a time and a little ahead of real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_agent.media import pcm
from voice_agent.media.incoming import RATE as LISTENING_RATE
from voice_agent.media.peer import MakeSession, SessionLike, error_event, parse_event
from voice_agent.media.speaker import FRAME, RATE, Speaker

log = logging.getLogger(__name__)

LEAD_MS = 100
"""How far a client's playback buffer is filled ahead of real time, so that it outlives a late packet."""

_PIECE = LISTENING_RATE // 10
"""Samples that are fed at a time."""

_AUDIO_WAITING_BYTES = 32_768
"""Nothing more is said while this much waits to be written."""

_FAILURES = ("internal error", "the session failed")


class SocketSession(SessionLike, Protocol):
    """What a call over a WebSocket runs; see `voice_agent.session.Session`."""

    async def room(self) -> None:
        """Wait until the session wants more of the caller's audio."""

    def audio_delta(self, pcm: bytes) -> dict[str, Any] | None:
        """The event that carries this piece of the live reply; None when no reply is live."""


@dataclass(frozen=True)
class SocketConfig:
    """`outbox_bytes`: what may wait for a client that reads slowly. `close_s`: what a session may take to end.

    `max_event_bytes`: of one client event; 1 MiB holds 16 s of audio.
    """

    outbox_bytes: int = 1 << 20
    max_event_bytes: int = 1 << 20
    close_s: float = 5.0


class SocketSpeaker(Speaker):
    """A speaker that runs up to `LEAD_MS` ahead; `sent` and `flush` count what the client has played by then."""

    _lead_frames = LEAD_MS * RATE // 1000 // FRAME

    def __init__(self, *, as_events: bool) -> None:
        super().__init__()
        self.as_events = as_events
        self._lead_left = self._lead_frames

    def sent(self) -> int:
        return max(0, super().sent() - (self._lead_frames - self._lead_left) * FRAME)

    def flush(self, epoch: int) -> int:
        played = self.sent()
        super().flush(epoch)
        self._lead_left = self._lead_frames
        return played

    def _has_frame(self) -> bool:
        return not self.paused and self._ready() > 0

    async def speech(self) -> npt.NDArray[np.float32] | None:
        """The next 20 ms of a reply, float32[480], when they are to leave; None: 20 ms without anything to say."""
        if self._lead_left and self._has_frame():
            self._lead_left -= 1
            delay = 0.0
        else:
            delay = max(0.0, self.pacer.due(self._now()) - self._now())
        await self._sleep(delay)
        frame = self._next_frame()
        if self._carries_reply:
            self.reference.push(frame, self._now())
            self.packets += 1
            return frame
        self._lead_left = min(self._lead_frames, self._lead_left + 1)
        return None


class _Outbox:
    """What waits to be written: at most `limit_bytes`, beyond which `put` says no, as the client does not read.

    Audio belongs to an epoch, and is dropped if that is over when its turn comes.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting: deque[tuple[str | bytes, int | None]] = deque()
        self._bytes = 0
        self._closed = False
        self._news = asyncio.Event()
        self._read = asyncio.Event()

    def put(self, message: str | bytes, epoch: int | None = None) -> bool:
        if self._bytes + len(message) > self._limit:
            return False
        if not self._closed:
            self._waiting.append((message, epoch))
            self._bytes += len(message)
            self._news.set()
        return True

    async def take(self, speaker: Speaker) -> str | bytes | None:
        """The next message that is still of use; None: the outbox was closed and is empty."""
        while True:
            while self._waiting:
                message, epoch = self._waiting.popleft()
                self._bytes -= len(message)
                self._read.set()
                if epoch is None or epoch == speaker.epoch:
                    return message
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()

    async def below(self, some_bytes: int) -> None:
        """Wait until less than this is waiting."""
        while self._bytes >= some_bytes:
            self._read.clear()
            await self._read.wait()

    def close(self) -> None:
        """Nothing more is taken in; what waits is still given out."""
        self._closed = True
        self._news.set()


class SocketCall(ABC):
    """A call from its accepted WebSocket to its end: `run` once; `end` at any time and any number of times."""

    def __init__(self, call_id: str, config: SocketConfig, make_session: MakeSession, speaker: SocketSpeaker) -> None:
        self.id = call_id
        self.reason = ""
        self.speaker = speaker
        self._notice = ""
        self._config = config
        self._make_session = make_session
        self._ended = asyncio.Event()
        self._outbox = _Outbox(config.outbox_bytes)
        self._session: SocketSession | None = None

    @abstractmethod
    async def _take(self, message: str | bytes) -> None:
        """A message of the client."""

    @abstractmethod
    def _tell(self, event: dict[str, Any]) -> None:
        """An event of the session."""

    @abstractmethod
    def _say(self, frame: npt.NDArray[np.float32]) -> None:
        """20 ms of the live reply: float32[480] @ 24 kHz."""

    def end(self, reason: str, notice: str = "") -> None:
        """Ask the call to end; `run` returns soon after. The first reason counts. `notice`: what the client is told."""
        if not self._ended.is_set():
            self.reason, self._notice = reason, notice
            self._ended.set()

    def view(self) -> dict[str, Any]:
        """Figures of the call's audio."""
        return {
            "state": "connected",
            "speaker": {
                "packets": self.speaker.packets,
                "queued_ms": round(self.speaker.queued_ms),
                "underruns": self.speaker.underruns,
                "shifted_ms": round(self.speaker.pacer.shifted_s * 1000),
            },
            "incoming": None,
        }

    async def run(self, socket: WebSocket, early: list[dict[str, Any]]) -> None:
        """Carry the call on an accepted WebSocket until it is over, and close that. `early`: events before all others.

        Whatever happens, nothing of the call is left when it returns.
        """
        try:
            await self._run(socket, early)
        except Exception:
            log.exception("call %s: failed", self.id)
            self.end("internal error")
        finally:
            self.end("cancelled")
            self.speaker.stop()
        # The client may have closed it first; and one that does not read is not waited for.
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(self._config.close_s):
                await socket.close(1011 if self.reason in _FAILURES else 1000, self.reason)

    async def _run(self, socket: WebSocket, early: list[dict[str, Any]]) -> None:
        # Sessions of calls over a WebSocket have what `SocketSession` adds.
        session = self._session = cast(SocketSession, self._make_session(self.id, self.speaker, self._tell))
        for event in early:
            session.receive(event)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._carry(session), name=f"{self.id} session")
            reading = tasks.create_task(self._read(socket), name=f"{self.id} reader")
            speaking = tasks.create_task(self._speak(), name=f"{self.id} speaker")
            writing = tasks.create_task(self._write(socket), name=f"{self.id} writer")
            await self._ended.wait()
            reading.cancel()
            speaking.cancel()
            session.close(self.reason)
            await asyncio.wait({running}, timeout=self._config.close_s)
            if not running.done():
                log.error("call %s: the session did not close within %.0f s", self.id, self._config.close_s)
                running.cancel()
            if self._notice:
                self._tell(error_event("server_error", "call_ended", self._notice))
            self._outbox.close()
            await asyncio.wait({writing}, timeout=0.5)
            writing.cancel()

    async def _carry(self, session: SocketSession) -> None:
        """Run the session. Its failure ends this call, not the server."""
        try:
            await session.run()
            self.end("the session ended")
        except Exception:
            self._failed()

    async def _read(self, socket: WebSocket) -> None:
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    self.end("the client closed the call")
                    return
                text = message.get("text")
                await self._take(text if text is not None else message["bytes"])
        except Exception:
            self._failed()

    async def _speak(self) -> None:
        while True:
            await self._outbox.below(_AUDIO_WAITING_BYTES)
            frame = await self.speaker.speech()
            if frame is not None:
                self._say(frame)

    async def _write(self, socket: WebSocket) -> None:
        try:
            while (message := await self._outbox.take(self.speaker)) is not None:
                if isinstance(message, str):
                    await socket.send_text(message)
                else:
                    await socket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError):
            self.end("the client closed the call")

    def _put(self, message: str | bytes, epoch: int | None = None) -> None:
        if not self._outbox.put(message, epoch):
            self.end("the client does not read what it is sent")

    async def _listen(self, audio: pcm.Pcm16) -> None:
        """Feed int16[T] @ 16 kHz, no faster than the session listens."""
        assert self._session is not None
        for at in range(0, len(audio), _PIECE):
            await self._session.room()
            self._session.feed(audio[at : at + _PIECE])

    def _failed(self) -> None:
        log.exception("call %s: session failed", self.id)
        self._tell(error_event("server_error", "session_failed", "the call failed on the server"))
        self.end("the session failed")


class RealtimeSocket(SocketCall):
    """The realtime protocol: every message is an event, audio is base64 PCM16 at 24 kHz in it."""

    def __init__(self, call_id: str, config: SocketConfig, make_session: MakeSession) -> None:
        super().__init__(call_id, config, make_session, SocketSpeaker(as_events=True))
        self._input = pcm.PcmResampler(RATE, LISTENING_RATE)

    async def _take(self, message: str | bytes) -> None:
        event = parse_event(message, self._config.max_event_bytes)
        if event["type"] == "error":
            self._tell(event)
        elif event["type"] == "input_audio_buffer.append" and isinstance(event.get("audio"), str):
            try:
                audio = pcm.from_base64(event["audio"])
            except ValueError as error:
                event_id = event.get("event_id") if isinstance(event.get("event_id"), str) else None
                self._tell(error_event("invalid_request_error", "invalid_value", f"audio: {error}", event_id))
                return
            await self._listen(self._input.push(audio))
        else:
            assert self._session is not None
            self._session.receive(event)

    def _tell(self, event: dict[str, Any]) -> None:
        self._put(json.dumps(event, ensure_ascii=False, separators=(",", ":")))

    def _say(self, frame: npt.NDArray[np.float32]) -> None:
        assert self._session is not None
        event = self._session.audio_delta(pcm.to_bytes(pcm.from_float(frame)))
        if event is not None:
            self._put(json.dumps(event, separators=(",", ":")), self.speaker.epoch)


class PcmSocket(SocketCall):
    """Bare audio: binary messages are mono PCM16 at `rate` both ways, little-endian; text messages tell the client

    `{"type": "clear"}`: drop what has not been played, as the reply was cut off;
    `{"type": "transcript", "role": "user" | "agent", "text", "final"}`; `{"type": "error", "message"}`.
    """

    RATES = (8000, 16000, 24000, 48000)

    def __init__(self, call_id: str, config: SocketConfig, make_session: MakeSession, rate: int) -> None:
        super().__init__(call_id, config, make_session, SocketSpeaker(as_events=False))
        self._input = pcm.PcmResampler(rate, LISTENING_RATE)
        self._output = pcm.PcmResampler(RATE, rate)

    async def _take(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._tell_text({"type": "error", "message": "expected binary PCM16, got a text message"})
            return
        try:
            audio = pcm.from_bytes(message)
        except ValueError as error:
            self._tell_text({"type": "error", "message": str(error)})
            return
        await self._listen(self._input.push(audio))

    def _tell(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "output_audio_buffer.cleared":
            self._tell_text({"type": "clear"})
        elif kind == "conversation.item.input_audio_transcription.delta":
            self._tell_text({"type": "transcript", "role": "user", "text": event["transcript"], "final": False})
        elif kind == "conversation.item.input_audio_transcription.completed":
            self._tell_text({"type": "transcript", "role": "user", "text": event["transcript"], "final": True})
        elif kind == "response.output_audio_transcript.done":
            self._tell_text({"type": "transcript", "role": "agent", "text": event["transcript"], "final": True})
        elif kind == "error":
            self._tell_text({"type": "error", "message": event["error"]["message"]})

    def _tell_text(self, message: dict[str, Any]) -> None:
        self._put(json.dumps(message, ensure_ascii=False))

    def _say(self, frame: npt.NDArray[np.float32]) -> None:
        self._put(pcm.to_bytes(self._output.push(pcm.from_float(frame))), self.speaker.epoch)

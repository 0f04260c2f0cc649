"""One call's WebRTC connection: it answers an offer, runs a session on it, and frees everything when it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpCodecCapability,
    RTCRtpReceiver,
    RTCSessionDescription,
)

from voice_agent.media import aiortc_patches
from voice_agent.media.incoming import IncomingAudio
from voice_agent.media.offer import OfferError, check_offer
from voice_agent.media.speaker import Speaker

log = logging.getLogger(__name__)

CHANNEL_LABEL = "oai-events"

aiortc_patches.install()


class SessionLike(Protocol):
    """What a call runs: see `voice_agent.session.Session`. All but `run` return at once and belong to the loop.

    `memory`, after `run`, is what a later call may `recall`, before its `run`: so a client whose connection broke
    goes on where it was.
    """

    def feed(self, pcm: npt.NDArray[np.int16]) -> None: ...
    def receive(self, event: dict[str, Any]) -> None: ...
    async def run(self) -> None: ...
    def close(self, reason: str) -> None: ...
    def memory(self) -> object: ...
    def recall(self, memory: Any) -> None: ...


MakeSession = Callable[[str, Speaker, Callable[[dict[str, Any]], None]], SessionLike]
"""`make_session(call_id, speaker, send)`: called once the call is connected, so that offers which never become
calls cost nothing."""


@dataclass(frozen=True)
class PeerConfig:
    """`hosts`: the addresses that ICE offers; empty: loopback and this machine's own, as they are when a call begins.

    `connect_s`: an offer that has not become a connection by then is given up. `silence_s`: a peer from which no
    packet of any kind has come for so long is gone (a browser sends audio also when muted, and RTCP besides).
    `close_s`: what a session, and then the connection, may take to end before it is cancelled.
    """

    hosts: tuple[str, ...] = ()
    ice_servers: tuple[RTCIceServer, ...] = ()
    connect_s: float = 15.0
    silence_s: float = 9.0
    close_s: float = 5.0
    max_event_bytes: int = 65_536
    outbox_bytes: int = 1 << 20


@dataclass
class Outbox:
    """Events to the client: kept until the data channel opens, in order, then sent.

    At most `limit_bytes` wait. Before the channel opens the oldest go first; in an open channel's send buffer more
    means that the client does not read: the event is dropped and `on_overflow` called. Events for a closed channel
    are dropped in silence.
    """

    limit_bytes: int
    on_overflow: Callable[[], None]
    _channel: RTCDataChannel | None = None
    _waiting: deque[str] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def send(self, event: dict[str, Any]) -> None:
        """Send the event, or keep it until the channel opens."""
        if self._closed:
            return
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        channel = self._channel
        size = len(text.encode())
        if channel is not None and channel.readyState == "open":
            if channel.bufferedAmount + size > self.limit_bytes:
                self.on_overflow()
                return
            channel.send(text)
        elif channel is None:
            self._waiting.append(text)
            self._waiting_bytes += size
            while self._waiting_bytes > self.limit_bytes:
                self._waiting_bytes -= len(self._waiting.popleft().encode())

    def open(self, channel: RTCDataChannel) -> None:
        """The client's channel is there: send what has waited."""
        self._channel = channel
        while self._waiting:
            channel.send(self._waiting.popleft())
        self._waiting_bytes = 0
        self._opened.set()

    async def drain(self) -> None:
        """Wait until everything that was sent has been acknowledged by the peer, also what waits for the channel."""
        if self._waiting:
            await self._opened.wait()
        channel = self._channel
        if channel is None or channel.readyState != "open" or channel.bufferedAmount == 0:
            return
        empty = asyncio.Event()
        channel.bufferedAmountLowThreshold = 0
        channel.on("bufferedamountlow", empty.set)
        channel.on("close", empty.set)
        await empty.wait()

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()


class Call:
    """A call from its offer to its end. `answer` once, then `run` once; `end` at any time and any number of times."""

    def __init__(
        self,
        call_id: str,
        config: PeerConfig,
        make_session: MakeSession,
        before: Callable[[], object | None] | None = None,
    ) -> None:
        """`before`: gives, once connected, the memory of the call whose place this one takes; None: it was taken."""
        self.id = call_id
        self.reason = ""
        self._before = before
        self._notice = ""
        self._config = config
        self._make_session = make_session
        self._ended = asyncio.Event()
        self._connected = asyncio.Event()
        self._session: SessionLike | None = None
        self._incoming: IncomingAudio | None = None
        self._receiver: RTCRtpReceiver | None = None
        self._early_events: deque[dict[str, Any]] = deque(maxlen=16)
        self._outbox = Outbox(config.outbox_bytes, lambda: self.end("the client does not read its events"))
        self.speaker = Speaker()
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=list(config.ice_servers)))
        self._pc.on("connectionstatechange", self._on_state)
        self._pc.on("datachannel", self._on_channel)

    async def answer(self, offer: str, early: list[dict[str, Any]]) -> str:
        """The SDP answer, with all candidates. `early`: events that are handled before all others.

        Raises OfferError; then, and when cancelled, the caller must still `release`.
        """
        self._early_events.extend(early)
        transceiver = self._pc.addTransceiver(self.speaker, direction="sendrecv")
        transceiver.setCodecPreferences(opus_alone())
        aiortc_patches.tap(transceiver.receiver, self._on_packet)
        self._receiver = transceiver.receiver
        try:
            await self._pc.setRemoteDescription(RTCSessionDescription(sdp=check_offer(offer), type="offer"))
            hosts = self._config.hosts or ("127.0.0.1", *aiortc_patches.lan_addresses())
            with aiortc_patches.host_addresses(hosts):
                await self._pc.setLocalDescription(await self._pc.createAnswer())
        except OfferError:
            raise
        except Exception as error:
            # aiortc answers an offer that it cannot serve with errors of many types.
            log.info("call %s: offer refused", self.id, exc_info=True)
            raise OfferError(422, f"expected an offer for a voice call, got one that fails ({error!s:.100})") from None
        if self._pc.sctp is None:
            self._outbox.close()
        return str(self._pc.localDescription.sdp)

    def end(self, reason: str, notice: str = "") -> None:
        """Ask the call to end; `run` returns soon after. The first reason counts. `notice`: what the client is told."""
        if not self._ended.is_set():
            self.reason = reason
            self._notice = notice
            self._ended.set()
            self._connected.set()

    async def run(self) -> None:
        """Carry the call: wait for the connection, run the session, and free everything. Returns when it is over."""
        try:
            if await self._wait_connected():
                await self._run_session()
        except Exception:
            log.exception("call %s: failed", self.id)
            self.end("internal error")
        finally:
            self.end("cancelled")
            await self.release()

    def view(self) -> dict[str, Any]:
        """Figures of the call's audio: what left late or not at all, and what arrived how."""
        incoming = self._incoming
        return {
            "state": self._pc.connectionState,
            "speaker": {
                "packets": self.speaker.packets,
                "queued_ms": round(self.speaker.queued_ms),
                "underruns": self.speaker.underruns,
                "shifted_ms": round(self.speaker.pacer.shifted_s * 1000),
            },
            "incoming": None if incoming is None else {"damaged": incoming.damaged, **asdict(incoming.jitter.stats)},
        }

    def memory(self) -> object | None:
        """What a later call may take over; None if this one never began."""
        return None if self._session is None else self._session.memory()

    async def release(self) -> None:
        """Free the connection, its sockets and its tasks, within `close_s`. Idempotent."""
        self.end("released")
        if self._incoming is not None:
            self._incoming.close()
        self._outbox.close()
        self.speaker.stop()
        try:
            async with asyncio.timeout(self._config.close_s):
                await self._pc.close()
        except TimeoutError:
            log.error("call %s: the connection did not close within %.0f s", self.id, self._config.close_s)

    async def _wait_connected(self) -> bool:
        try:
            async with asyncio.timeout(self._config.connect_s):
                await self._connected.wait()
        except TimeoutError:
            self.end("never connected")
        return not self._ended.is_set()

    async def _run_session(self) -> None:
        memory = None
        if self._before is not None:
            memory = self._before()
            if memory is None:
                self.end("another call took the place first")
                return
        session = self._make_session(self.id, self.speaker, self._outbox.send)
        if memory is not None:
            session.recall(memory)
        self._session = session
        self._incoming = IncomingAudio(self._feed, asyncio.get_running_loop())
        while self._early_events:
            self._receive(self._early_events.popleft())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._carry(session), name=f"{self.id} session")
            watching = tasks.create_task(self._watch(), name=f"{self.id} watch")
            await self._ended.wait()
            watching.cancel()
            self._incoming.close()
            session.close(self.reason)
            await asyncio.wait({running}, timeout=self._config.close_s)
            if not running.done():
                log.error("call %s: the session did not close within %.0f s", self.id, self._config.close_s)
                running.cancel()
        if self._notice:
            self._outbox.send(error_event("server_error", "call_ended", self._notice))
        try:
            async with asyncio.timeout(0.5):
                await self._outbox.drain()
        except TimeoutError:
            log.info("call %s: last events not acknowledged", self.id)

    async def _carry(self, session: SessionLike) -> None:
        """Run the session. Its failure ends this call, not the server."""
        try:
            await session.run()
            self.end("the session ended")
        except Exception:
            self._failed()

    def _feed(self, pcm: npt.NDArray[np.int16]) -> None:
        # An exception would end the connection from inside, with nobody told why.
        try:
            if self._session is not None and not self._ended.is_set():
                self._session.feed(pcm)
        except Exception:
            self._failed()

    def _receive(self, event: dict[str, Any]) -> None:
        try:
            if self._session is not None and not self._ended.is_set():
                self._session.receive(event)
        except Exception:
            self._failed()

    def _failed(self) -> None:
        log.exception("call %s: session failed", self.id)
        self._outbox.send(error_event("server_error", "session_failed", "the call failed on the server"))
        self.end("the session failed")

    async def _watch(self) -> None:
        """Notice a peer that vanished without a word."""
        assert self._receiver is not None
        loop = asyncio.get_running_loop()
        seen, since = -1, loop.time()
        while True:
            await asyncio.sleep(0.5)
            packets = aiortc_patches.packets_received(self._receiver)
            if packets != seen:
                seen, since = packets, loop.time()
            elif loop.time() - since >= self._config.silence_s - 0.5:
                self.end("the peer vanished")
                return

    def _on_state(self) -> None:
        state = self._pc.connectionState
        if state == "connected":
            self._connected.set()
        elif state in ("failed", "closed"):
            self.end(f"connection {state}")

    def _on_packet(self, packet: Any) -> None:
        if self._incoming is not None:
            self._incoming.packet(packet)

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label != CHANNEL_LABEL:
            return
        channel.on("message", self._on_message)
        channel.on("close", lambda: self.end("the client closed the call"))
        self._outbox.open(channel)

    def _on_message(self, message: str | bytes) -> None:
        event = parse_event(message, self._config.max_event_bytes)
        if event["type"] == "error":
            self._outbox.send(event)
        elif self._session is None:
            self._early_events.append(event)
        else:
            self._receive(event)


def opus_alone() -> list[RTCRtpCodecCapability]:
    """The codec preferences of a call: Opus and nothing else."""
    capabilities = RTCRtpReceiver.getCapabilities("audio")
    return [codec for codec in capabilities.codecs if codec.mimeType == "audio/opus"] if capabilities else []


def parse_event(message: str | bytes, max_bytes: int) -> dict[str, Any]:
    """A client's message as an event, with a string `type`; or the `error` event that answers what is none."""
    if len(message) > max_bytes:
        text = f"expected an event of at most {max_bytes} bytes, got {len(message)}"
        return error_event("invalid_request_error", "event_too_large", text)
    try:
        event = json.loads(message)
        if "\\u" in message if isinstance(message, str) else b"\\u" in message:
            # An escape can stand for half a character, which could not be sent to anybody.
            json.dumps(event, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str) or event["type"] == "error":
        text = "expected a JSON object with a string 'type' of a client event, got something else"
        return error_event("invalid_request_error", "invalid_event", text)
    return event


def error_event(kind: str, code: str, message: str, event_id: str | None = None) -> dict[str, Any]:
    """An `error` event of the realtime protocol. `event_id`: of the client's event that it answers."""
    error = {"type": kind, "code": code, "message": message, "param": None, "event_id": event_id}
    return {"type": "error", "event_id": f"event_{uuid.uuid4().hex}", "error": error}

"""A caller: places a real WebRTC call to a server, plays recordings into it and records what comes back."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import av
import httpx
import numpy as np
import numpy.typing as npt
import soundfile
from aiortc import MediaStreamTrack, RTCConfiguration, RTCIceServer, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket
from pydantic import ValidationError

from voice_agent.media import aiortc_patches, opus
from voice_agent.media.peer import CHANNEL_LABEL, opus_alone
from voice_agent.media.resample import Resampler
from voice_agent.media.speaker import Pacer
from voice_agent.wire.items import FunctionCallItem
from voice_agent.wire.server import ResponseDone

RATE = 24_000
"""Rate in Hz of what a call records, in both directions."""

FRAME = 480
"""Samples of 20 ms at 24 kHz."""

VOICED_DBFS = -45.0

CLOSE_S = 2.0
"""What the connection may take to close."""

aiortc_patches.install()

log = logging.getLogger(__name__)


class CallRefused(Exception):
    """The server did not take the call. `status`: its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the server answered {status}: {message}")
        self.status = status


class IceFailed(ConnectionError):
    """The server took the call, and no path for its sound was found: what was tried, and what to do."""


@dataclass(frozen=True)
class Event:
    """A server event and its arrival, in seconds on `time.monotonic`."""

    at: float
    data: dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """20 ms of audio. `at`: when it was handed to RTP or arrived by RTP, on `time.monotonic`, in seconds.

    `pcm`: int16[T] @ 24 kHz. `timestamp`: RTP timestamp (48 kHz), `sequence`: RTP sequence number.
    """

    at: float
    pcm: npt.NDArray[np.int16]
    timestamp: int
    sequence: int


@dataclass(frozen=True)
class Span:
    """A stretch of voice: from the start of its first voiced 20 ms frame to the end of its last one, in seconds."""

    start: float
    end: float


def voiced(pcm: npt.NDArray[np.int16], threshold_dbfs: float = VOICED_DBFS) -> bool:
    """Whether a frame is louder than the threshold (RMS, 0 dBFS = a full-scale square wave)."""
    if not len(pcm):
        return False
    rms = float(np.sqrt(np.mean(np.square(pcm.astype(np.float32) / 32768))))
    return rms > 10 ** (threshold_dbfs / 20)


def voiced_spans(pieces: list[Piece], join_s: float = 0.3, sent: bool = False) -> list[Span]:
    """The stretches of voice in `pieces`, with pauses up to `join_s` inside them.

    A received frame begins when it arrives; a frame that was sent (`sent`) ends when it leaves, as a microphone
    would have taken it.
    """
    spans: list[Span] = []
    for piece in pieces:
        if voiced(piece.pcm):
            length = len(piece.pcm) / RATE
            start = piece.at - length if sent else piece.at
            if spans and start - spans[-1].end <= join_s:
                spans[-1] = Span(spans[-1].start, start + length)
            else:
                spans.append(Span(start, start + length))
    return spans


def read_wav(path: str | Path) -> npt.NDArray[np.float32]:
    """A sound file, any rate and channels → float32[T] @ 48 kHz mono."""
    pcm, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = pcm.mean(axis=1, dtype=np.float32)
    return mono if rate == opus.RATE else Resampler(rate, opus.RATE).push(mono)


class _Microphone(MediaStreamTrack):
    """20 ms Opus packets in real time: what was queued, else silence."""

    kind = "audio"

    def __init__(self, record: Callable[[npt.NDArray[np.int16], int], None]) -> None:
        super().__init__()
        self._record = record
        self._queue: deque[npt.NDArray[np.int16]] = deque()
        self._empty = asyncio.Event()
        self._empty.set()
        self._pacer = Pacer()
        self._encoder = opus.OpusEncoder()
        self.muted = False

    def play(self, pcm: npt.NDArray[np.int16]) -> None:
        """Queue int16[T] @ 48 kHz; the last frame is padded with silence."""
        padded = np.concatenate((pcm, np.zeros(-len(pcm) % opus.FRAME, np.int16)))
        self._queue.extend(padded.reshape(-1, opus.FRAME))
        if self._queue:
            self._empty.clear()

    def clear(self) -> None:
        self._queue.clear()
        self._empty.set()

    async def played(self) -> None:
        await self._empty.wait()

    async def recv(self) -> av.Packet[Any]:
        await asyncio.sleep(max(self._pacer.due(time.monotonic()) - time.monotonic(), 0))
        if self.readyState != "live":
            raise MediaStreamError("the call has ended")
        frame = self._queue.popleft() if self._queue else np.zeros(opus.FRAME, np.int16)
        if self.muted:
            frame = np.zeros(opus.FRAME, np.int16)
        packet = self._encoder.encode(frame)
        self._record(frame, packet.pts or 0)
        if not self._queue:
            self._empty.set()
        return packet

    def stop(self) -> None:
        super().stop()
        self._encoder.close()
        self._empty.set()


class CallClient:
    """A call to a voice agent's server, as an async context manager.

    `received` and `sent` hold the call's audio, 20 ms a piece, with the time at which each piece arrived by RTP (no
    playout buffer lies before it) or left. `session` is a configuration that goes with the offer; `hosts` are the
    addresses that ICE offers, by default loopback for a server on this machine, else all others; `ice_servers` a STUN
    and a TURN server of this side. Entering raises CallRefused, IceFailed when no connection comes up within
    `connect_s`, or TimeoutError when the server has not answered by then.
    """

    def __init__(
        self,
        url: str,
        headers: dict[str, str] | None = None,
        connect_s: float = 10.0,
        max_events: int = 10_000,
        hosts: tuple[str, ...] | None = None,
        session: dict[str, Any] | None = None,
        ice_servers: tuple[RTCIceServer, ...] = (),
    ) -> None:
        self.call_id = ""
        self.received: list[Piece] = []
        self.sent: list[Piece] = []
        self.events_dropped = 0
        self.ended = asyncio.Event()
        self.answer_s = 0.0
        self.connected_s = 0.0
        self._url = urljoin(url, "/v1/realtime/calls")
        self._headers = headers or {}
        self._session = session
        self._connect_s = connect_s
        loopback = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._hosts = hosts if hosts is not None else (("127.0.0.1",) if loopback else ())
        self._events: deque[Event] = deque()
        self._max_events = max_events
        self._news = asyncio.Event()
        self._decoder = opus.OpusDecoder()
        self._down_received = Resampler(opus.RATE, RATE)
        self._down_sent = Resampler(opus.RATE, RATE)
        self._microphone = _Microphone(self._on_sent)
        self._ice_servers = ice_servers
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=list(ice_servers)))
        self._location = ""

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._connect_s):
                await self._connect()
        except (TimeoutError, IceFailed) as error:
            if self._pc.remoteDescription is None:
                text = f"expected an answer of the server within {self._connect_s:.0f} s, got none"
                failure: Exception = TimeoutError(text)
            else:
                failure = error if isinstance(error, IceFailed) else self._ice_failure()
            await self._give_back()
            await self._close()
            raise failure from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hang_up()

    async def play(self, audio: npt.NDArray[np.float32] | str | Path, rate: int = opus.RATE) -> float:
        """Say `audio` (float32[T] at `rate` Hz, or a sound file) in real time; returns when its last packet left.

        The value is that moment, in seconds on `time.monotonic`.
        """
        self.say(audio, rate)
        await self._microphone.played()
        return self.sent[-1].at if self.sent else time.monotonic()

    def say(self, audio: npt.NDArray[np.float32] | str | Path, rate: int = opus.RATE) -> None:
        """Queue `audio` to be said, and go on."""
        if isinstance(audio, str | Path):
            pcm = read_wav(audio)
        else:
            pcm = audio if rate == opus.RATE else Resampler(rate, opus.RATE).push(audio)
        self._microphone.play((np.clip(pcm, -1, 1) * 32767).astype(np.int16))

    def hush(self) -> None:
        """Stop saying what is queued."""
        self._microphone.clear()

    def send(self, event: dict[str, Any]) -> None:
        """Send a client event on the data channel."""
        self._channel.send(json.dumps(event, ensure_ascii=False))

    def write(self, text: str) -> None:
        """Say something in writing, and ask for the reply to it."""
        content = [{"type": "input_text", "text": text}]
        self.send({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
        self.send({"type": "response.create"})

    def interrupt(self) -> None:
        """Cut the agent off; nothing happens while it is silent."""
        self.send({"type": "output_audio_buffer.clear"})

    def mute(self, muted: bool = True) -> None:
        """Send silence in place of what is said, or say it again."""
        self._microphone.muted = muted

    def update(self, session: dict[str, Any]) -> None:
        """Change the session's configuration; what is absent stays as it is."""
        self.send({"type": "session.update", "session": {"type": "realtime", **session}})

    def report_playout(self, delay_ms: float) -> None:
        """Tell the server how long after it was sent its voice is heard; it takes that for 0 until it is told, which is
        right for a caller who hears what arrives."""
        self.send({"type": "agent.playout.report", "delay_ms": delay_ms})

    async def serve_tools(self, tools: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        """Run the tools that the session was told of (`update`) until the call ends: their functions by name.

        A function gets the call's arguments and gives a JSON value, which the agent answers with; it should be
        quick, as it runs on the event loop. It takes the call's events, so nobody else can read them meanwhile.
        Raises KeyError for a tool that is not there, and ValueError for arguments that are not JSON.
        """
        async for event in self.events():
            try:
                done = ResponseDone.model_validate(event.data)
            except ValidationError:
                continue  # another event
            calls = [item for item in done.response.output if isinstance(item, FunctionCallItem)]
            for item in calls:
                output = json.dumps(tools[item.name](json.loads(item.arguments)), ensure_ascii=False)
                answer = {"type": "function_call_output", "call_id": item.call_id, "output": output}
                self.send({"type": "conversation.item.create", "item": answer})
            if calls:
                self.send({"type": "response.create"})

    async def events(self) -> AsyncIterator[Event]:
        """Server events in order, from the first one that was not taken yet; ends with the call.

        At most `max_events` wait; beyond that the oldest go and are counted in `events_dropped`.
        """
        while True:
            while self._events:
                yield self._events.popleft()
            if self.ended.is_set():
                return
            self._news.clear()
            await self._news.wait()

    async def wait_for(self, kind: str) -> Event:
        """The next event of this type; those before it are taken. Raises ConnectionError if the call ends first."""
        async for event in self.events():
            if event.data.get("type") == kind:
                return event
        raise ConnectionError(f"expected an event {kind}, got the end of the call")

    async def hang_up(self) -> None:
        """End the call politely. Idempotent."""
        if not self.ended.is_set():
            await self._give_back()
        await self._close()

    async def _give_back(self) -> None:
        """Tell the server that the call is over, so that it need not notice."""
        if not self._location:
            return
        try:
            async with self._http(5) as http:
                await http.delete(self._location, headers=self._headers)
        except httpx.HTTPError:
            pass  # the server is gone, and so is the call

    def received_pcm(self) -> npt.NDArray[np.int16]:
        """All received audio in order of RTP timestamps, lost packets as silence: int16[T] @ 24 kHz."""
        return _lay_out([(_offset(piece, self.received[0]), piece.pcm) for piece in self.received])

    def save(self, path: str | Path) -> None:
        """Write what was received to a mono 24 kHz WAV file."""
        soundfile.write(path, self.received_pcm(), RATE, subtype="PCM_16")

    def save_aligned(self, path: str | Path) -> None:
        """Write a stereo 24 kHz WAV file: left what was sent, right what was received, on one time line.

        Each direction runs by its own RTP timestamps, anchored where its packets were fastest.
        """
        if not self.sent or not self.received:
            raise ValueError(f"expected audio both ways, got {len(self.sent)} and {len(self.received)} packets")
        anchors = [
            min(piece.at - _offset(piece, pieces[0]) / RATE for piece in pieces)
            for pieces in (self.sent, self.received)
        ]
        start = min(anchors)
        sides = [
            _lay_out([(_offset(piece, pieces[0]) + round((anchor - start) * RATE), piece.pcm) for piece in pieces])
            for pieces, anchor in zip((self.sent, self.received), anchors, strict=True)
        ]
        stereo = np.zeros((max(map(len, sides)), 2), np.int16)
        for channel, side in enumerate(sides):
            stereo[: len(side), channel] = side
        soundfile.write(path, stereo, RATE, subtype="PCM_16")

    async def _connect(self) -> None:
        began = time.monotonic()
        up = asyncio.Event()

        def on_state() -> None:
            if self._pc.connectionState in ("failed", "closed"):
                self._over()
            if self._pc.connectionState != "connecting":
                up.set()

        self._pc.on("connectionstatechange", on_state)
        transceiver = self._pc.addTransceiver(self._microphone, direction="sendrecv")
        transceiver.setCodecPreferences(opus_alone())
        aiortc_patches.tap(transceiver.receiver, self._on_packet)
        self._channel = self._pc.createDataChannel(CHANNEL_LABEL)
        opened = asyncio.Event()
        self._channel.on("open", opened.set)
        self._channel.on("message", self._on_message)
        self._channel.on("close", self._over)
        with aiortc_patches.host_addresses(self._hosts):
            await self._pc.setLocalDescription(await self._pc.createOffer())
        offer = self._pc.localDescription.sdp
        async with self._http(self._connect_s) as http:
            if self._session is None:
                headers = self._headers | {"Content-Type": "application/sdp"}
                response = await http.post(self._url, content=offer, headers=headers)
            else:
                form = {"sdp": (None, offer), "session": (None, json.dumps(self._session))}
                response = await http.post(self._url, files=form, headers=self._headers)
        if response.status_code != 201:
            raise CallRefused(response.status_code, _message(response))
        self.answer_s = time.monotonic() - began
        self._location = urljoin(self._url, response.headers["Location"])
        self.call_id = self._location.rsplit("/", 1)[-1]
        await self._pc.setRemoteDescription(RTCSessionDescription(sdp=response.text, type="answer"))
        await up.wait()
        if self._pc.connectionState != "connected":
            raise self._ice_failure()
        await opened.wait()
        self.connected_s = time.monotonic() - began

    def _ice_failure(self) -> IceFailed:
        own, theirs = (
            sorted({_candidate(line) for line in description.sdp.splitlines() if line.startswith("a=candidate:")})
            for description in (self._pc.localDescription, self._pc.remoteDescription)
        )
        tried = f"no path for the sound: tried from {', '.join(own) or 'nowhere'} to {', '.join(theirs) or 'nowhere'}"
        relayed = any(urls.startswith("turn") for server in self._ice_servers for urls in _urls(server))
        if relayed and not any(candidate.startswith("relay") for candidate in own):
            tried += "; the TURN server gave no address: check that it runs, and its username and credential"
        return IceFailed(f"{tried}; allow UDP, or give the server or this caller a TURN server")

    def _http(self, timeout_s: float) -> httpx.AsyncClient:
        # Loading the certificate store blocks the loop for a fifth of a second: only where one is needed.
        return httpx.AsyncClient(trust_env=False, timeout=timeout_s, verify=self._url.startswith("https:"))

    async def _close(self) -> None:
        self._microphone.stop()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pc.close()
        except TimeoutError:
            pass  # aiortc waits for ever for a close of its own that was cancelled, as when a program ends early
        finally:
            self._over()

    def _over(self) -> None:
        self.ended.set()
        self._news.set()

    def _on_sent(self, pcm: npt.NDArray[np.int16], timestamp: int) -> None:
        low = self._down_sent.push(pcm.astype(np.float32))
        self.sent.append(Piece(time.monotonic(), low.astype(np.int16), timestamp, len(self.sent)))

    def _on_packet(self, packet: RtpPacket) -> None:
        at = time.monotonic()
        try:
            pcm = self._decoder.decode(packet.payload)
        except av.FFmpegError:
            return
        low = np.clip(self._down_received.push(pcm), -1, 1) * 32767
        self.received.append(Piece(at, low.astype(np.int16), packet.timestamp, packet.sequence_number))

    def _on_message(self, message: str | bytes) -> None:
        try:
            event = json.loads(message)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            log.warning("expected an event of the server, a JSON object with a string 'type', got %r", message[:80])
            return
        self._events.append(Event(time.monotonic(), event))
        if len(self._events) > self._max_events:
            self._events.popleft()
            self.events_dropped += 1
        self._news.set()


def _offset(piece: Piece, first: Piece) -> int:
    """Samples at 24 kHz from `first` to `piece` by RTP timestamps."""
    ticks = (piece.timestamp - first.timestamp + (1 << 31)) % (1 << 32) - (1 << 31)
    return ticks * RATE // opus.RATE


def _lay_out(pieces: list[tuple[int, npt.NDArray[np.int16]]]) -> npt.NDArray[np.int16]:
    """Put each piece at its sample offset; offsets before 0 are cut."""
    line = np.zeros(max((at + len(pcm) for at, pcm in pieces), default=0), np.int16)
    for at, pcm in pieces:
        if at >= 0:
            line[at : at + len(pcm)] = pcm
    return line


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]


def _candidate(line: str) -> str:
    """The kind and the address of an SDP candidate line."""
    fields = line.split()
    return f"{fields[7]} {fields[4]}"


def _urls(server: RTCIceServer) -> list[str]:
    return [server.urls] if isinstance(server.urls, str) else server.urls

"""A caller's WebRTC connection: audio both ways with the times at which packets left and arrived, and events."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import av
import httpx
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket

from voice_agent.bench.link import Ends, LinkOptions, Target, Unwrap
from voice_agent.bench.network import impair
from voice_agent.client import CallRefused
from voice_agent.media import aiortc_patches, opus
from voice_agent.media.peer import CHANNEL_LABEL, opus_alone
from voice_agent.media.speaker import Pacer

aiortc_patches.install()


class Microphone(MediaStreamTrack):
    """Pulls 20 ms when they are due and sends them as Opus."""

    kind = "audio"

    def __init__(self, ends: Ends, clock_ppm: float = 0.0) -> None:
        super().__init__()
        self._ends = ends
        self._speed = 1 + clock_ppm / 1e6
        self._pacer = Pacer()
        self._encoder = opus.OpusEncoder()

    async def recv(self) -> av.Packet[Any]:
        now = time.monotonic() * self._speed
        await asyncio.sleep(max(self._pacer.due(now) - now, 0) / self._speed)
        if self.readyState != "live":
            raise MediaStreamError("the call has ended")
        frame = self._ends.pull()
        packet = self._encoder.encode(frame)
        self._ends.sent(time.monotonic(), frame)
        return packet


class WebRtcLink:
    """See `link.Link`. `target.kind` is webrtc or offer."""

    def __init__(self, target: Target, ends: Ends, options: LinkOptions) -> None:
        self.ended = asyncio.Event()
        self._target, self._ends, self._options = target, ends, options
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._decoder = opus.OpusDecoder()
        self._timestamp, self._sequence = Unwrap(32), Unwrap(16)
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []
        self._location = ""
        default = "/v1/realtime/calls" if target.kind == "webrtc" else "/offer"
        self._url = target.url if urlsplit(target.url).path.strip("/") else urljoin(target.url, default)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        try:
            async with asyncio.timeout(self._target.connect_s):
                await self._connect()
        except BaseException:
            await self._close()
            await self._tasks.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._location and not self.ended.is_set():
            try:
                async with self._http(5) as http:
                    await http.delete(self._location, headers=self._target.headers())
            except httpx.HTTPError:
                pass  # the server is gone, and so is the call
        await self._close()
        await self._tasks.__aexit__(None, None, None)

    async def _connect(self) -> None:
        up = asyncio.Event()

        def on_state() -> None:
            if self._pc.connectionState in ("failed", "closed"):
                self.ended.set()
            if self._pc.connectionState not in ("new", "connecting"):
                up.set()

        self._pc.on("connectionstatechange", on_state)
        transceiver = self._pc.addTransceiver(Microphone(self._ends, self._options.clock_ppm), direction="sendrecv")
        transceiver.setCodecPreferences(opus_alone())
        aiortc_patches.tap(transceiver.receiver, self._on_packet)
        channel = self._pc.createDataChannel(CHANNEL_LABEL)
        channel.on("message", self._on_message)
        channel.on("close", self.ended.set)
        with aiortc_patches.host_addresses(self._hosts()):
            await self._pc.setLocalDescription(await self._pc.createOffer())
        if self._options.network is not None:
            ice = transceiver.sender.transport.transport
            self._running = impair(ice, self._options.network, self._options.seed, self._tasks)
        try:
            answer = await (self._realtime() if self._target.kind == "webrtc" else self._bare_offer())
        except httpx.TransportError as error:
            raise ConnectionError(f"{self._url}: {error or type(error).__name__}") from None
        await self._pc.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))
        await up.wait()
        if self._pc.connectionState != "connected":
            raise ConnectionError(f"expected a connection, got the state {self._pc.connectionState}")

    def _hosts(self) -> tuple[str, ...]:
        if self._target.hosts is not None:
            return self._target.hosts
        return ("127.0.0.1",) if urlsplit(self._url).hostname in ("127.0.0.1", "localhost", "::1") else ()

    async def _realtime(self) -> str:
        offer, headers = self._pc.localDescription.sdp, self._target.headers()
        async with self._http(self._target.connect_s) as http:
            if self._options.session is None:
                response = await http.post(
                    self._url, content=offer, headers=headers | {"Content-Type": "application/sdp"}
                )
            else:
                form = {"sdp": (None, offer), "session": (None, json.dumps(self._options.session))}
                response = await http.post(self._url, files=form, headers=headers)
        if response.status_code not in (200, 201):
            raise CallRefused(response.status_code, response.text[:300])
        if "Location" in response.headers:
            self._location = urljoin(self._url, response.headers["Location"])
        return response.text

    async def _bare_offer(self) -> str:
        """pipecat and fastrtc take the same body; fastrtc asks for an id of the connection too."""
        offer = {"sdp": self._pc.localDescription.sdp, "type": "offer", "webrtc_id": secrets.token_hex(8)}
        async with self._http(self._target.connect_s) as http:
            response = await http.post(self._url, json=offer, headers=self._target.headers())
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.status_code not in (200, 201) or not isinstance(answer, dict) or "sdp" not in answer:
            raise CallRefused(response.status_code, response.text[:300])
        return str(answer["sdp"])

    def _http(self, timeout_s: float) -> httpx.AsyncClient:
        # Loading the certificate store blocks the loop for a fifth of a second: only where one is needed.
        return httpx.AsyncClient(trust_env=False, timeout=timeout_s, verify=self._url.startswith("https:"))

    async def _close(self) -> None:
        self.ended.set()
        await self._pc.close()
        for task in self._running:
            task.cancel()

    def _on_packet(self, packet: RtpPacket) -> None:
        at = time.monotonic()
        try:
            pcm = self._decoder.decode(packet.payload)
        except av.FFmpegError:
            return  # a damaged packet is a lost one
        self._ends.arrived(at, self._timestamp(packet.timestamp), self._sequence(packet.sequence_number), pcm)

    def _on_message(self, message: str | bytes) -> None:
        at = time.monotonic()
        try:
            event = json.loads(message)
        except ValueError:
            return  # peers send texts of their own; only events are kept
        if isinstance(event, dict):
            self._ends.event(at, event)

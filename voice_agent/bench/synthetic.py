"""An agent with known delays, and with bad habits on demand: what the bench itself is measured with.

It hears by packets, decides on a sample clock, and speaks in tones that are cut hard, so that the moment of each start
and stop is known to the sample. It tells those moments in `synthetic.started` and `synthetic.stopped` events, in
seconds on this machine's monotonic clock, which a caller on the same machine shares.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import uvicorn
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field

from voice_agent.bench.detect import BLOCK, voiced_blocks
from voice_agent.bench.priority import urgent
from voice_agent.bench.recording import RATE
from voice_agent.media import aiortc_patches, opus
from voice_agent.media.peer import opus_alone
from voice_agent.media.resample import Resampler
from voice_agent.media.speaker import Pacer

FRAME = RATE // 50
CODEC_S = 0.0065
"""What Opus adds between encoder in and decoder out (its look-ahead): the agent takes it out of its delays."""

EAR_DBFS = -40.0
"""Above what Opus leaves ringing after a hard cut."""


class Behaviour(BaseModel):
    """What the agent does; delays in ms from the caller's last voiced sample, or for `stop_ms` from the first.

    delays_ms: of the reply, one a turn, repeated. stop_ms: the reply is cut so long after the caller's onset; null:
    never. eot_ms: silence that ends the caller's turn. ignore_ms: sounds up to this length do not cut the reply.
    Bad habits: leading_silence_ms goes before the reply's first sound and counts as speech; ack_ms: a short tone comes
    at the delay, and the reply so much later; burst: the whole reply is sent at once; stale_ms: so much of the cut
    reply comes 300 ms after it was cut.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delays_ms: tuple[float, ...] = Field((400.0,), min_length=1)
    reply_ms: float = Field(2000, gt=0, le=60_000)
    stop_ms: float | None = Field(200, ge=60)
    eot_ms: float = Field(60, ge=40)
    ignore_ms: float = Field(0, ge=0)
    leading_silence_ms: float = Field(0, ge=0)
    ack_ms: float = Field(0, ge=0)
    burst: bool = False
    stale_ms: float = Field(0, ge=0)


class SyntheticAgent:
    """The agent of one call, sans-IO: `hear` what arrives, ask `frame` for what to send. Times in seconds."""

    def __init__(self, behaviour: Behaviour, tell: Callable[[dict[str, Any]], None], codec_s: float = CODEC_S) -> None:
        self._behaviour, self._tell, self._codec_s = behaviour, tell, codec_s
        self._tones: list[tuple[float, float]] = []  # what is to be heard from the agent, on the caller's clock
        self._turn = 0
        self._onset: float | None = None  # of the caller's voice, while the caller has the turn
        self._last: float | None = None  # the caller's last voiced sample
        self._cut = False
        self._phase = 0
        self._sounding = False
        self._due: list[tuple[float, str]] = []  # what the agent says of itself, when it is so

    def hear(self, at: float, pcm: npt.NDArray[np.int16]) -> None:
        """A piece of the caller's voice: int16[T] @ 24 kHz that ended when it left, just before `at`."""
        loud = np.flatnonzero(voiced_blocks(pcm, EAR_DBFS))
        if not len(loud):
            return
        begin = at - len(pcm) / RATE - self._codec_s
        if self._onset is None:
            self._onset = begin + loud[0] * BLOCK / RATE
            self._cut = False
            self._tell({"type": "input_audio_buffer.speech_started"})
        self._last = begin + min((loud[-1] + 1) * BLOCK, len(pcm)) / RATE

    def frame(self, now: float) -> npt.NDArray[np.int16]:
        """The 20 ms that leave now: int16[480] @ 24 kHz."""
        self.decide(now)
        return self._render(now + self._codec_s)

    def decide(self, now: float) -> None:
        """Reply to what was heard until now, or stop for it."""
        behaviour = self._behaviour
        if self._onset is not None and self._last is not None:
            speaking = bool(self._tones) and self._tones[0][0] <= self._onset < self._tones[-1][1]
            long_enough = self._last - self._onset > behaviour.ignore_ms / 1000
            if speaking and long_enough and not self._cut and behaviour.stop_ms is not None:
                self._stop(self._onset + behaviour.stop_ms / 1000)
            if now - self._last >= behaviour.eot_ms / 1000:
                if not speaking or (self._cut and long_enough):
                    self._reply(self._last)
                self._onset = None
        for due, kind in [told for told in self._due if told[0] <= now + FRAME / RATE]:
            self._due.remove((due, kind))
            self._tell({"type": kind})

    def _stop(self, at: float) -> None:
        self._cut = True
        self._tones = [(start, min(end, at)) for start, end in self._tones if start < at]
        if self._behaviour.stale_ms:
            self._tones.append((at + 0.3, at + 0.3 + self._behaviour.stale_ms / 1000))
        self._due = [(at, "output_audio_buffer.cleared")]

    def _reply(self, ended: float) -> None:
        behaviour = self._behaviour
        start = ended + behaviour.delays_ms[self._turn % len(behaviour.delays_ms)] / 1000
        self._turn += 1
        self._tell({"type": "input_audio_buffer.committed"})
        self._due.append((start, "output_audio_buffer.started"))
        self._tones = [tone for tone in self._tones if tone[1] > ended]
        if behaviour.ack_ms:
            self._tones.append((start, start + 0.1))
            start += behaviour.ack_ms / 1000
        start += behaviour.leading_silence_ms / 1000
        self._tones.append((start, start + behaviour.reply_ms / 1000))

    def _render(self, begin: float) -> npt.NDArray[np.int16]:
        at = begin + np.arange(FRAME) / RATE
        on = np.zeros(FRAME, np.bool_)
        for start, end in self._tones:
            on |= (at >= start) & (at < end)
        hz = 400 + 100 * (self._turn % 8)
        # Half way between two zeros, so that a cut is a cut.
        wave = 0.3 * np.sin(2 * np.pi * hz * (self._phase + np.arange(FRAME)) / RATE + np.pi / 2) * on
        self._phase += FRAME
        edges = np.diff(np.concatenate(([self._sounding], on)).astype(np.int8))
        for index in np.flatnonzero(edges):
            kind = "synthetic.started" if edges[index] > 0 else "synthetic.stopped"
            self._tell({"type": kind, "at": float(at[index])})
        self._sounding = bool(on[-1])
        return np.asarray(wave * 32767, np.int16)

    def burst_frames(self, now: float) -> int:
        """How many frames are to be sent at once from now: the whole reply of an agent that sends in bursts."""
        if not self._behaviour.burst or not self._tones or not self._tones[-1][0] <= now + 0.02 < self._tones[-1][1]:
            return 0
        return int((self._tones[-1][1] - now) / 0.02) + 1


class _Voice(MediaStreamTrack):
    """What the agent says, as paced Opus packets; a burst leaves at once, and then nothing until its time is over."""

    kind = "audio"

    def __init__(self, agent: SyntheticAgent) -> None:
        super().__init__()
        self._agent = agent
        self._pacer = Pacer()
        self._encoder = opus.OpusEncoder()
        self._up = Resampler(RATE, opus.RATE)
        self._ahead = 0
        self._ahead_at = 0.0

    async def recv(self) -> av.Packet[Any]:
        now = time.monotonic()
        if self._ahead == 0:
            await asyncio.sleep(max(self._pacer.due(now) - now, 0))
            now = time.monotonic()
            self._ahead, self._ahead_at = self._agent.burst_frames(now), now
        else:
            self._ahead -= 1
            self._ahead_at = now = self._ahead_at + 0.02
            self._pacer.due(now)
            await asyncio.sleep(0)
        if self.readyState != "live":
            raise MediaStreamError("the call has ended")
        pcm = self._up.push(self._agent.frame(now).astype(np.float32))
        return self._encoder.encode(np.clip(pcm, -32768, 32767).astype(np.int16))


class _Call:
    """A WebRTC call to the agent."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._waiting: list[str] = []
        self._channel: Any = None
        self._agent = SyntheticAgent(behaviour, self._tell)
        self._decoder = opus.OpusDecoder()
        self._down = Resampler(opus.RATE, RATE)
        self._pc.on("datachannel", self._on_channel)

    async def answer(self, offer: str) -> str:
        transceiver = self._pc.addTransceiver(_Voice(self._agent), direction="sendrecv")
        transceiver.setCodecPreferences(opus_alone())
        aiortc_patches.tap(transceiver.receiver, self._on_packet)
        await self._pc.setRemoteDescription(RTCSessionDescription(sdp=offer, type="offer"))
        with aiortc_patches.host_addresses(("127.0.0.1",)):
            await self._pc.setLocalDescription(await self._pc.createAnswer())
        return str(self._pc.localDescription.sdp)

    async def close(self) -> None:
        await self._pc.close()

    def _on_packet(self, packet: RtpPacket) -> None:
        at = time.monotonic()
        pcm = self._down.push(self._decoder.decode(packet.payload)) * 32767
        self._agent.hear(at, np.clip(pcm, -32768, 32767).astype(np.int16))

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        for text in self._waiting:
            channel.send(text)

    def _tell(self, event: dict[str, Any]) -> None:
        text = json.dumps(event)
        if self._channel is None:
            self._waiting.append(text)
        elif self._channel.readyState == "open":
            self._channel.send(text)


async def _carry(socket: WebSocket, behaviour: Behaviour, wrapped: bool) -> None:
    """A WebSocket call: bare PCM16, or `wrapped` in the events of the realtime protocol. At most 200 texts wait."""
    texts: asyncio.Queue[str] = asyncio.Queue(maxsize=200)
    ahead_until = 0.0  # what was sent in a burst lasts until then, unless it is cut

    def tell(event: dict[str, Any]) -> None:
        nonlocal ahead_until
        if event["type"] == "output_audio_buffer.cleared":
            ahead_until = 0.0
        if not wrapped and event["type"] == "output_audio_buffer.cleared":
            event = {"type": "clear"}
        with contextlib.suppress(asyncio.QueueFull):
            texts.put_nowait(json.dumps(event))

    agent = SyntheticAgent(behaviour, tell, codec_s=0.0)

    async def flush() -> None:
        while not texts.empty():
            await socket.send_text(texts.get_nowait())

    async def talk() -> None:
        nonlocal ahead_until
        pacer = Pacer()
        while True:
            now = time.monotonic()
            await asyncio.sleep(max(pacer.due(now) - now, 0))
            now = time.monotonic()
            agent.decide(now)
            if now < ahead_until:
                await flush()
                continue
            burst = agent.burst_frames(now)
            pcm = np.concatenate([agent.frame(now + 0.02 * i) for i in range(1 + burst)])
            ahead_until = now + 0.02 * burst
            await flush()
            if wrapped:
                delta = base64.b64encode(pcm.astype("<i2").tobytes()).decode()
                await socket.send_text(json.dumps({"type": "response.output_audio.delta", "delta": delta}))
            else:
                await socket.send_bytes(pcm.astype("<i2").tobytes())

    await socket.accept()
    async with asyncio.TaskGroup() as tasks:
        talking = tasks.create_task(talk())
        try:
            while True:
                if wrapped:
                    event = await socket.receive_json()
                    pcm = base64.b64decode(event["audio"]) if event["type"] == "input_audio_buffer.append" else b""
                else:
                    pcm = await socket.receive_bytes()
                agent.hear(time.monotonic(), np.frombuffer(pcm, "<i2"))
                await flush()
        except WebSocketDisconnect:
            talking.cancel()


def create_app(behaviour: Behaviour) -> FastAPI:
    """A realtime server's routes, WebRTC and WebSocket, one that takes an offer as JSON, and one of bare PCM."""
    calls: dict[str, _Call] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for call in calls.values():
            await call.close()

    app = FastAPI(lifespan=lifespan)

    async def answer(offer: str) -> tuple[str, str]:
        call_id, call = secrets.token_hex(8), _Call(behaviour)
        calls[call_id] = call
        return call_id, await call.answer(offer)

    @app.post("/v1/realtime/calls")
    async def realtime(request: Request) -> Response:
        call_id, sdp = await answer((await request.body()).decode())
        headers = {"Location": f"/v1/realtime/calls/{call_id}"}
        return Response(sdp, 201, headers, "application/sdp")

    @app.delete("/v1/realtime/calls/{call_id}")
    async def hang_up(call_id: str) -> Response:
        call = calls.pop(call_id, None)
        if call is None:
            return Response(status_code=404)
        await call.close()
        return Response(status_code=204)

    @app.post("/offer")
    async def offer(body: dict[str, Any]) -> dict[str, str]:
        _, sdp = await answer(str(body["sdp"]))
        return {"sdp": sdp, "type": "answer"}

    @app.websocket("/v1/pcm")
    async def pcm(socket: WebSocket) -> None:
        await _carry(socket, behaviour, wrapped=False)

    @app.websocket("/v1/realtime")
    async def events(socket: WebSocket) -> None:
        await _carry(socket, behaviour, wrapped=True)

    return app


def main() -> None:
    """Serve one behaviour on a free port of this machine; prints the address."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--behaviour", default="{}", help="JSON")
    behaviour = Behaviour.model_validate_json(parser.parse_args().behaviour)
    config = uvicorn.Config(create_app(behaviour), host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    sock = config.bind_socket()
    print(f"listening on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt), urgent():
        asyncio.run(server.serve(sockets=[sock]))


if __name__ == "__main__":
    main()

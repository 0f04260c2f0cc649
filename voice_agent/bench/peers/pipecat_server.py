"""A pipecat server as its documentation builds one, with Whisper, smart-turn and a scripted reply.

Runs in an environment of pipecat's own, with nothing of this package: `pipecat_server.py WEIGHTS REPLY`. Every setting
of turn-taking and media is pipecat's default. WEIGHTS: folder of a faster-whisper model; REPLY: the WAV file that
answers every turn. Prints the address of its route.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import wave
from collections.abc import AsyncGenerator
from typing import Any

import aioice.ice
import uvicorn
from fastapi import BackgroundTasks, FastAPI
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.request_handler import SmallWebRTCRequest, SmallWebRTCRequestHandler
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport

WORDS = "This is the reply."

# ICE leaves loopback out unless it is told of it; caller and server share a machine.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


class ScriptedLLM(FrameProcessor):  # type: ignore[misc]
    """Answers every context at once with the same sentence."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        for reply in (LLMFullResponseStartFrame(), LLMTextFrame(WORDS), LLMFullResponseEndFrame()):
            await self.push_frame(reply)


class ScriptedTTS(TTSService):  # type: ignore[misc]
    """Speaks a recording, in the pieces of 100 ms that a fast synthesis would give."""

    def __init__(self, path: str) -> None:
        with wave.open(path) as file:
            rate, self._pcm = file.getframerate(), file.readframes(file.getnframes())
        settings = TTSSettings(model=None, voice=None, language=None)
        super().__init__(push_start_frame=True, push_stop_frames=True, sample_rate=rate, settings=settings)

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame, None]:
        size = self.sample_rate // 10 * 2
        for start in range(0, len(self._pcm), size):
            yield TTSAudioRawFrame(self._pcm[start : start + size], self.sample_rate, 1, context_id=context_id)


async def answer(connection: Any, weights: str, reply: str) -> None:
    """One call."""
    transport = SmallWebRTCTransport(
        webrtc_connection=connection, params=TransportParams(audio_in_enabled=True, audio_out_enabled=True)
    )
    # Whisper recognises the language by itself, as this project's does.
    settings = WhisperSTTService.Settings(model=weights, language=None)
    recognition = WhisperSTTService(device="cpu", compute_type="int8", settings=settings)
    turns = LLMContextAggregatorPair(
        LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )
    stages = [
        transport.input(),
        recognition,
        turns.user(),
        ScriptedLLM(),
        ScriptedTTS(reply),
        transport.output(),
        turns.assistant(),
    ]
    worker = PipelineWorker(Pipeline(stages))

    @transport.event_handler("on_client_disconnected")  # type: ignore[untyped-decorator]
    async def on_gone(transport: Any, client: Any) -> None:
        await worker.cancel()

    await PipelineRunner(handle_sigint=False).run(worker)


def create_app(weights: str, reply: str) -> FastAPI:
    app = FastAPI()
    handler = SmallWebRTCRequestHandler(ice_servers=[])

    @app.post("/api/offer")
    async def offer(body: dict[str, Any], tasks: BackgroundTasks) -> Any:
        async def on_connection(connection: Any) -> None:
            tasks.add_task(answer, connection, weights, reply)

        request = SmallWebRTCRequest(sdp=body["sdp"], type=body["type"])
        return await handler.handle_web_request(request, on_connection)

    return app


async def main(weights: str, reply: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/api/offer", flush=True)
        config = uvicorn.Config(create_app(weights, reply), log_level="warning")
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

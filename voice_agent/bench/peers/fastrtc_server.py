"""A fastrtc server as its documentation builds one: ReplyOnPause, Whisper, and a scripted reply.

Runs in an environment of fastrtc's own, with nothing of this package: `fastrtc_server.py WEIGHTS REPLY`. Every setting
of turn-taking and media is fastrtc's default, but one: its voice detector is Silero's fourth release, which it fetches
from a hub; here it is the sixth one, out of faster-whisper's wheel, with the same thresholds. WEIGHTS: folder of a
faster-whisper model; REPLY: the WAV file that answers every turn. Prints the address of its route.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import wave
from collections.abc import Iterator
from typing import Any

import aioice.ice
import librosa
import numpy as np
import numpy.typing as npt
import uvicorn
from fastapi import FastAPI
from faster_whisper import WhisperModel
from faster_whisper.vad import VadOptions, get_speech_timestamps
from fastrtc import ReplyOnPause, Stream
from fastrtc.pause_detection.silero import SileroVadOptions

RATE = 16_000

# ICE leaves loopback out unless it is told of it; caller and server share a machine.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]

Sound = tuple[int, npt.NDArray[np.int16]]


def at_16k(audio: Sound) -> npt.NDArray[np.float32]:
    rate, pcm = audio
    samples = np.asarray(pcm).squeeze().astype(np.float32) / 32768
    return np.asarray(librosa.resample(samples, orig_sr=rate, target_sr=RATE), np.float32)


class Silero:
    """How much of a piece of sound is speech, by fastrtc's own thresholds."""

    def __init__(self) -> None:
        given = SileroVadOptions()
        self._options = VadOptions(
            threshold=given.threshold,
            min_speech_duration_ms=given.min_speech_duration_ms,
            min_silence_duration_ms=given.min_silence_duration_ms,
            speech_pad_ms=given.speech_pad_ms,
        )

    def vad(self, audio: Sound, options: Any) -> tuple[float, list[dict[str, int]]]:
        chunks = get_speech_timestamps(at_16k(audio), self._options)
        return sum(chunk["end"] - chunk["start"] for chunk in chunks) / RATE, chunks

    def warmup(self) -> None:
        self.vad((RATE, np.zeros(RATE, np.int16)), None)


def create_app(weights: str, path: str) -> FastAPI:
    recognition = WhisperModel(weights, device="cpu", compute_type="int8")
    with wave.open(path) as file:
        rate = file.getframerate()
        reply = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(1, -1)

    def answer(audio: Sound) -> Iterator[Sound]:
        segments, _ = recognition.transcribe(at_16k(audio))
        if not "".join(segment.text for segment in segments).strip():
            return
        for start in range(0, reply.shape[1], rate // 10):
            yield rate, reply[:, start : start + rate // 10]

    detector = Silero()
    detector.warmup()
    stream = Stream(
        ReplyOnPause(answer, model=detector, output_sample_rate=rate),
        modality="audio",
        mode="send-receive",
        server_rtc_configuration={"iceServers": []},
        concurrency_limit=8,
    )
    app = FastAPI()
    stream.mount(app)
    return app


async def main(weights: str, reply: str) -> None:
    app = create_app(weights, reply)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/webrtc/offer", flush=True)
        await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

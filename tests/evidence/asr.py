"""Recognition in real time: how far partials are behind, and how long a final takes, with one call and with four.

A trial is an utterance of one call. `lag_ms` is from a partial's last sample to its delivery, `age_ms` from the last
sample on display to the moment the next partial replaces it, `final_ms` from asking for a final to having it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from demos.ordering.agent import agent
from tests.evidence.tools import ORDER, ORDER_EN, ROOT, quantiles, shown
from voice_agent.asr import AsrPool, Recognizer, Transcript
from voice_agent.vad import SileroModel, StreamingVad, VadConfig

TRIALS = 16
CALLS = 4
APART_S = 0.5
SOURCES = (ORDER, ORDER_EN, ROOT / "tests" / "data" / "order_zh.flac", ROOT / "tests" / "data" / "order_en.flac")


def load(number: int) -> npt.NDArray[np.int16]:
    pcm, rate = soundfile.read(SOURCES[number % len(SOURCES)], dtype="float32", always_2d=True)
    mono = soxr.resample(pcm.mean(axis=1), rate, 16_000)
    return np.asarray(np.clip(mono, -1, 1) * 32767, np.int16)


class Call:
    """Speaks an utterance in real time into voice activity detection and recognition."""

    def __init__(self, pool: AsrPool, silero: SileroModel) -> None:
        self.pool, self.silero = pool, silero
        self.lag_ms: list[float] = []
        self.age_ms: list[float] = []
        self.final_ms: list[tuple[float, float]] = []
        self.texts: list[str] = []

    async def speak(self, pcm: npt.NDArray[np.int16]) -> None:
        stream = self.pool.open(None, agent.vocabulary)
        vad = StreamingVad(VadConfig(), self.silero)
        began = time.perf_counter()
        shown_s = 0.0

        def on_partial(transcript: Transcript) -> None:
            nonlocal shown_s
            now = time.perf_counter() - began
            self.lag_ms.append((now - transcript.seconds) * 1000)
            if shown_s:
                self.age_ms.append((now - shown_s) * 1000)
            shown_s = transcript.seconds

        stream.on_partial = on_partial
        for at in range(0, len(pcm), 320):
            vad.push(pcm[at : at + 320])
            stream.push(pcm[at : at + 320])
            await asyncio.sleep(max(0.0, began + (at + 320) / 16_000 - time.perf_counter()))
        asked = time.perf_counter()
        transcript = await stream.final()
        self.final_ms.append((round(len(pcm) / 16_000, 1), round((time.perf_counter() - asked) * 1000)))
        self.texts.append(transcript.text)
        stream.cancel()


def figures(calls: list[Call]) -> dict[str, Any]:
    return {
        "lag_ms": quantiles([lag for call in calls for lag in call.lag_ms]),
        "age_ms": quantiles([age for call in calls for age in call.age_ms]),
        "final_ms": quantiles([ms for call in calls for _, ms in call.final_ms]),
    }


async def run(seed: int, trials: int) -> dict[str, Any]:
    recognizer, silero = await asyncio.to_thread(Recognizer), await asyncio.to_thread(SileroModel)
    pool = AsrPool(recognizer)
    alone = Call(pool, silero)
    await alone.speak(load(0)[:16_000])
    alone = Call(pool, silero)
    for number in shown(range(trials), "one call"):
        await alone.speak(load(number))
    calls = [Call(pool, silero) for _ in range(CALLS)]

    async def later(number: int) -> None:
        await asyncio.sleep(number * APART_S)
        for turn in range(max(1, trials // CALLS)):
            await calls[number].speak(load(number + turn))

    await asyncio.gather(*(later(number) for number in range(CALLS)))
    await pool.aclose()
    one = figures([alone])
    return {
        "one_call": one,
        "four_calls": figures(calls),
        "passed": one["lag_ms"].get("p95", 0) <= 600,
        "each": [
            {"seconds": seconds, "final_ms": ms, "text": text}
            for (seconds, ms), text in zip(alone.final_ms, alone.texts, strict=True)
        ],
    }

"""A call of twenty minutes and a hundred turns: voice, speed and memory at its end as at its beginning.

Orders are spoken and taken back, and in between the agent is greeted, in both languages, which it answers the same way
every time: of those answers length, level and spectrum are compared. `unlike_db`: the distance of an answer's log mel
spectrum from that of the first one in its language; Opus alone makes some.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from tests.evidence.tools import ORDER, ORDER_EN, shown
from voice_agent.calling import own_server
from voice_agent.client import RATE, CallClient

TRIALS = 100
APART_S = 12.0
CYCLE = (ORDER, "你好", ORDER_EN, "hello", "全部不要了")
WARM_UP = 20
"""Turns after which memory is compared."""
ENDS = 5
"""So many answers at either end are compared."""
AUDIBLE = 0.01
BANDS, SIZE, HOP, RANGE_DB, SHIFTS = 40, 1024, 240, 60, 10


async def run(seed: int, trials: int) -> dict[str, Any]:
    answers: dict[str, list[npt.NDArray[np.float32]]] = defaultdict(list)
    memory: list[float] = []
    answered, began = 0, time.monotonic()
    async with own_server() as url, CallClient(url) as call:
        for number in shown(range(trials), "turn"):
            said, first = CYCLE[number % len(CYCLE)], len(call.received)
            if isinstance(said, str):
                call.write(said)
            else:
                await call.play(said)
            async with asyncio.timeout(APART_S + 8):
                await call.wait_for("output_audio_buffer.stopped")
            answered += 1
            if said in ("你好", "hello"):
                answers[str(said)].append(_audible(call, first))
            memory.append(await _memory_mib(url))
            await asyncio.sleep(max(0.0, began + (number + 1) * APART_S - time.monotonic()))
        seconds = time.monotonic() - began
    compared = {said: _drift(each) for said, each in answers.items()}
    grown = memory[-1] - memory[min(WARM_UP, len(memory)) - 1]
    return {
        "minutes": round(seconds / 60, 1),
        "answered": answered,
        "answers": compared,
        "memory_mib": [round(memory[i]) for i in range(0, len(memory), max(1, len(memory) // 10))],
        "grown_mib": round(grown, 1),
        "passed": answered == trials
        and grown <= 20
        and all(
            abs(each["longer"]) <= 0.02
            and abs(each["louder_db"]) <= 0.5
            and each["unlike_db"]["last"] <= each["unlike_db"]["first"] + 0.5
            for each in compared.values()
        ),
    }


def _audible(call: CallClient, first: int) -> npt.NDArray[np.float32]:
    """What was received since, from its first sound to its last."""
    pcm = np.concatenate([piece.pcm for piece in call.received[first:]]).astype(np.float32) / 32768
    loud = np.flatnonzero(np.abs(pcm) > AUDIBLE)
    return pcm[loud[0] : loud[-1] + 1]


async def _memory_mib(url: str) -> float:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        return float((await client.get(f"{url}/v1/calls/stats")).json()["process"]["rss_mib"])


def _spectrum(pcm: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """dB[T, BANDS], bands of equal width in octaves."""
    frames = np.lib.stride_tricks.sliding_window_view(pcm, SIZE)[::HOP] * np.hanning(SIZE)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = np.geomspace(4, power.shape[1], BANDS + 1).astype(int)
    bands = [power[:, a : max(b, a + 1)].mean(1) for a, b in pairwise(edges)]
    level = 10 * np.log10(np.stack(bands, 1) + 1e-9)
    return np.maximum(level, level.max() - RANGE_DB)


def _unlike(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Mean distance in dB where the two fit best: what is heard as the first sound may be a little later or earlier."""
    distances = []
    for shift in range(-SHIFTS, SHIFTS + 1):
        a, b = one[max(0, shift) :], other[max(0, -shift) :]
        count = min(len(a), len(b))
        distances.append(float(np.abs(a[:count] - b[:count]).mean()))
    return min(distances)


def _drift(answers: list[npt.NDArray[np.float32]]) -> dict[str, Any]:
    """The last ones against the first ones."""
    seconds = [len(each) / RATE for each in answers]
    levels = [float(20 * np.log10(np.sqrt(np.mean(np.square(each))))) for each in answers]
    spectra = [_spectrum(each) for each in answers]
    unlike = [_unlike(spectra[0], each) for each in spectra]
    begin, end = slice(1, 1 + ENDS), slice(-ENDS, None)  # the first one is like itself
    return {
        "n": len(answers),
        "seconds": round(float(np.mean(seconds)), 3),
        "longer": round(float(np.mean(seconds[end]) / np.mean(seconds[begin]) - 1), 4),
        "louder_db": round(float(np.mean(levels[end]) - np.mean(levels[begin])), 2),
        "unlike_db": {
            "first": round(float(np.mean(unlike[begin])), 2),
            "last": round(float(np.mean(unlike[end])), 2),
        },
    }

"""What a step of tea-omni's stages takes, by rows and frames, on one core: the input of the simulated schedules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.evidence.tools import shown
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.loading import load_agent
from voice_agent.tea.model import TeaOmni

TRIALS = 25
ROWS = (1, 2, 4, 8, 16, 32, 64)
FRAMES = (1, 2, 4, 8, 16, 32, 64)
ORDERS = ("我要一杯少冰的珍珠奶茶", "再来两杯大杯的拿铁，一杯去冰一杯热的，还要一杯半糖的四季春")
REPLY = "好的，少冰珍珠奶茶一杯，十八块。还需要别的吗？"


async def run(seed: int, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    model = TeaOmni.load(slots=max(ROWS))
    return {
        "model": model.name,
        "frame_rate": model.talker.frame_rate,
        "thinker_ms": {rows: _thinker_ms(model, rows, trials) for rows in shown(ROWS, "thinker")},
        "prompt_ms": dict(sorted(_prompt_ms(model, turns, trials) for turns in (1, 3, 6, 12))),
        "talker_ms": {rows: _talker_ms(model, rows, trials) for rows in shown(ROWS, "talker")},
        "codec_ms": {frames: _codec_ms(model, frames, trials) for frames in shown(FRAMES, "codec")},
    }


def _median_ms(step: Callable[[], Any], trials: int) -> float:
    took = []
    for _ in range(trials):
        since = time.perf_counter()
        step()
        took.append(time.perf_counter() - since)
    return round(1000 * float(np.median(took)), 3)


def _request(turns: int) -> ThinkRequest:
    words = [Message(("user", "assistant")[i % 2], (ORDERS[i % 2], REPLY)[i % 2]) for i in range(2 * turns - 1)]
    return ThinkRequest(tuple(words), "zh", tools=load_agent().schemas())


def _thinker_ms(model: TeaOmni, rows: int, trials: int) -> float:
    """A token for each of these rows. They stand at their prompt's end, and go back there when a call is complete."""
    took: list[float] = []
    request = _request(1)
    while len(took) < trials:
        for slot in range(rows):
            model.thinker.start(slot, request)
        model.thinker.step(range(rows))
        for _ in range(3):
            took.append(_median_ms(lambda: model.thinker.step(range(rows)), 1))
        for slot in range(rows):
            model.thinker.free(slot)
    return float(np.median(took))


def _prompt_ms(model: TeaOmni, turns: int, trials: int) -> tuple[int, float]:
    took, length = [], 0
    for _ in range(trials):
        model.thinker.start(0, _request(turns))
        length = len(model.thinker._row(0).waiting)
        took.append(_median_ms(lambda: model.thinker.step([0]), 1))
        model.thinker.free(0)
    return length, float(np.median(took))


def _talker_ms(model: TeaOmni, rows: int, trials: int) -> float:
    tokens = model.thinker.hidden_of_reply("zh", REPLY)
    for slot in range(rows):
        model.talker.start(slot, "zh")
        model.talker.push(slot, tokens)
        model.talker.finish(slot)
    ms = _median_ms(lambda: model.talker.step(range(rows)), trials)
    for slot in range(rows):
        model.talker.free(slot)
    return ms


def _codec_ms(model: TeaOmni, frames: int, trials: int) -> float:
    """`frames` in all: of up to four rows of up to four frames, and of more rows beyond that."""
    chunk = min(4, max(1, frames // 4))
    rows = frames // chunk
    for slot in range(rows):
        model.codec.start(slot)
    codes = torch.zeros(rows, chunk, model.codec.codebooks, dtype=torch.int64)
    ms = _median_ms(lambda: model.codec.step(range(rows), codes), trials)
    for slot in range(rows):
        model.codec.free(slot)
    return ms

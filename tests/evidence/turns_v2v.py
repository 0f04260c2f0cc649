"""Voice to voice after finished orders, Mandarin and English, five voices: 60 calls' worth in one piece.

The callers' audio is made by `models/tea-omni/callers.py dialogues FOLDER …`; CALLERS names the folder.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from tests.evidence._calls import at_most, known, placed, share, sound
from voice_agent.bench.scenario import Scenario

TRIALS = 60
TURNS = 5
P50_MS, P95_MS = 400.0, 700.0


async def run(seed: int, trials: int) -> dict[str, Any]:
    folder = Path(os.path.expanduser(os.environ.get("CALLERS", "~/.cache/tea-omni/callers")))  # noqa: ASYNC240
    lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text("utf-8").splitlines()]
    orders = [line for line in lines if line["turn"] == 0]
    random.Random(seed).shuffle(orders)
    chosen = orders[:trials]
    calls = [chosen[at : at + TURNS] for at in range(0, len(chosen), TURNS)]
    scenarios = [(_call(number, call, folder), 1) for number, call in enumerate(calls)]
    told = await placed(f"turns-v2v-{seed}", scenarios, seed)
    each = [
        {"text": order["text"], "voice": order["voice"], **{k: turn[k] for k in ("v2v_ms", "eot_delay_ms", "early")}}
        for call, orders in zip(told.calls, calls, strict=True)
        for turn, order in zip(call.figures["turns"], orders, strict=False)
    ]
    return {"name": f"turns-v2v-{seed}", **told.facts(), **judge(each), "each": each}


def _call(number: int, orders: list[dict[str, Any]], folder: Path) -> Scenario:
    turns = [{"say": sound(folder / order["wav"], most_ms=20_000), "text": order["text"]} for order in orders]
    for turn in turns[1:]:
        turn["start"] = {"after": "agent_speech_end", "delay_ms": [300, 1000]}
    return Scenario.model_validate({"name": f"orders-{number:02d}", "turns": turns})


def judge(each: list[dict[str, Any]]) -> dict[str, Any]:
    v2v = known(trial["v2v_ms"] for trial in each)
    return {
        "v2v_ms": v2v,
        "eot_delay_ms": known(trial["eot_delay_ms"] for trial in each),
        "answered": share(trial["v2v_ms"] is not None for trial in each),
        "broken_into": share(bool(trial["early"]) for trial in each),
        "voices": sorted({trial["voice"] for trial in each}),
        "bars": {"p50_ms": P50_MS, "p95_ms": P95_MS},
        "passed": at_most(v2v, "p50", P50_MS) and at_most(v2v, "p95", P95_MS),
    }

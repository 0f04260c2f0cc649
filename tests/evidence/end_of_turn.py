"""Utterances written by hand as recognised text, complete and unfinished: how well the end-of-turn head tells them."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from tests.evidence.tools import ROOT, quantiles
from voice_agent.tea.thinker import TeaThinker
from voice_agent.weights import tea_omni

sys.path.insert(0, str(ROOT / "models/tea-omni"))
from evaluate_endpoint import figures, judge, read

sys.path.remove(str(ROOT / "models/tea-omni"))

TRIALS = 400
AUC, RECALL, FALSE_ALARMS, CORE_MS = 0.95, 0.9, 0.1, 10.0


async def run(seed: int, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    folder = tea_omni()
    thinker = TeaThinker.load(folder / "thinker.safetensors", 1, folder / "endpoint.safetensors")
    rows = random.Random(seed).sample(read(ROOT / "tests" / "data" / "end_of_turn.jsonl"), trials)
    judge(thinker, rows[:20])  # the first calls of a process are slow
    scores, took_ms = judge(thinker, rows)
    by_language = {}
    for language in ("zh", "en"):
        of = [(row["complete"], score) for row, score in zip(rows, scores, strict=True) if row["lang"] == language]
        by_language[language] = figures(*zip(*of, strict=True))
    result = figures([row["complete"] for row in rows], scores)
    cost = quantiles(took_ms)
    reached = result["auc"] >= AUC and result["recall"] >= RECALL and result["false_alarms"] <= FALSE_ALARMS
    each = [{**row, "probability": round(score, 3)} for row, score in zip(rows, scores, strict=True)]
    return {**result, **by_language, "core_ms": cost, "passed": reached and cost["p50"] <= CORE_MS, "each": each}

"""Orders by text on the real model: forty corrections, and a shop that loses the second line of an order.

A line that was lost is told if the reply names it.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.evidence.tools import shown
from tests.test_cases_orders import ORDERS, SCRIPTS, named, order_from, play
from voice_agent.engine.stages import ThinkerStage
from voice_agent.evaluate import final_cart
from voice_agent.models import load_model

TRIALS = 40
"""Corrections."""

EXACT = 0.95


async def run(seed: int, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    stage = ThinkerStage(load_model("tea-omni", slots=1).thinker)
    each: list[dict[str, Any]] = []
    try:
        for script in shown(SCRIPTS[:trials], "script"):
            right, chat, replies, _ = await play(stage, script)
            cart = [line.model_dump() for line in final_cart(chat)]
            each.append({"kind": "correction", "said": script[1], "right": right, "cart": cart, "replies": replies})
        for how in ("not", "in silence", "refused", "too late"):
            for language, text in ORDERS:
                reply, drinks, chat = await order_from(stage, language, text, how)
                asked = [call.arguments["drink"] for call, _ in chat.tools if call.name == "add"]
                taken = reply.partition("不好意思")[0].partition("Sorry")[0].partition("We do not")[0]
                lost = [drink for drink in asked if drink not in drinks]
                told = not lost or lost[0] in named(reply, language)
                right = named(taken, language) == drinks
                each.append({"kind": f"lost {how}", "said": text, "right": right, "told": told, "reply": reply})
    finally:
        stage.close()
    corrections = [trial["right"] for trial in each if trial["kind"] == "correction"]
    summaries = [trial for trial in each if trial["kind"] != "correction"]
    exact = sum(corrections) / len(corrections)
    silent = [trial["said"] for trial in summaries if not trial["told"]]
    return {
        "corrections_exact": f"{sum(corrections)}/{len(corrections)}",
        "summaries_that_are_the_cart": f"{sum(trial['right'] for trial in summaries)}/{len(summaries)}",
        "lost_lines_not_told": len(silent),
        "passed": exact >= EXACT and not silent and all(trial["right"] for trial in summaries),
        "each": each,
    }

"""The hand-written dialogues by text: how many final carts are exact."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.evidence.tools import ROOT
from voice_agent.engine.stages import ThinkerStage
from voice_agent.evaluate import play, read_dialogues
from voice_agent.loading import load_agent
from voice_agent.models import load_model

TRIALS = 150


async def run(seed: int, trials: int) -> dict[str, Any]:
    agent = load_agent()
    dialogues = read_dialogues(ROOT / "tests" / "dialogues" / "hand_150.jsonl")[:trials]
    stage = ThinkerStage(load_model(agent.model, slots=2).thinker)
    exact: Counter[str] = Counter()
    each = []
    try:
        async for outcome in play(agent, stage, dialogues):
            exact[outcome.dialogue.lang] += outcome.ok
            each.append(
                {
                    "turns": outcome.dialogue.turns,
                    "ok": outcome.ok,
                    "cart": [line.model_dump() for line in outcome.cart],
                    "replies": outcome.replies,
                }
            )
    finally:
        stage.close()
    rate = exact.total() / len(dialogues)
    by_language = {
        language: f"{exact[language]}/{sum(d.lang == language for d in dialogues)}" for language in ("zh", "en")
    }
    return {"exact": exact.total(), "rate": round(rate, 3), **by_language, "passed": rate >= 0.85, "each": each}

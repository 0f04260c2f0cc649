"""The hand-written dialogues by text: how many final carts are exact.

`later`: of those that were written when the thinker had been trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.evidence.tools import ROOT
from voice_agent.agent import Agent
from voice_agent.engine.stages import ThinkerStage
from voice_agent.evaluate import Dialogue, play, read_dialogues
from voice_agent.loading import load_agent
from voice_agent.models import load_model

TRIALS = 150


async def run(seed: int, trials: int) -> dict[str, Any]:
    agent = load_agent()
    folder = ROOT / "tests" / "dialogues"
    stage = ThinkerStage(load_model(agent.model, slots=2).thinker)
    try:
        told = await _played(agent, stage, read_dialogues(folder / "hand_150.jsonl")[:trials])
        later = await _played(agent, stage, read_dialogues(folder / "later_60.jsonl")[:trials])
    finally:
        stage.close()
    return {**told, "passed": told["rate"] >= 0.85, "later": later}


async def _played(agent: Agent, stage: ThinkerStage, dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    exact: Counter[str] = Counter()
    each = []
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
    by_language = {
        language: f"{exact[language]}/{sum(d.lang == language for d in dialogues)}" for language in ("zh", "en")
    }
    return {"exact": exact.total(), "rate": round(exact.total() / len(dialogues), 3), **by_language, "each": each}

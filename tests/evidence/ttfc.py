"""TTFC of one call on one core: the user's final text enters the thinker → the first PCM leaves the codec.

The tool call and its result are included, and nothing is computed before. Also the RTF of the whole speaking path.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from tests.evidence._listener import Listener
from tests.evidence.tools import ROOT, quantiles, shown
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import Engine
from voice_agent.evaluate import Dialogue, read_dialogues
from voice_agent.loading import load_agent
from voice_agent.models import load_model

TRIALS = 60
THREE = (
    Dialogue(lang="zh", turns=("我要一杯珍珠奶茶，一杯大杯的拿铁，还有一杯去冰的乌龙茶",), cart=()),
    Dialogue(lang="en", turns=("one pearl milk tea, one large latte and one oolong tea without ice please",), cart=()),
    Dialogue(lang="zh", turns=("来两杯四季春，一杯半糖的茉莉绿茶，再来一杯芒果冰沙",), cart=()),
    Dialogue(lang="en", turns=("two four seasons teas, a jasmine green tea with half sugar and a cocoa",), cart=()),
)


async def run(seed: int, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    agent = load_agent()
    engine = Engine(load_model(agent.model, slots=4), ahead_ms=60_000)
    hand = read_dialogues(ROOT / "tests" / "dialogues" / "hand_150.jsonl")
    ones = [dialogue for dialogue in hand if len(dialogue.turns) == 1 and len(dialogue.cart) == 1]
    one, three, rtfs = [], [], []
    try:
        await _first_chunk(engine, agent, ones[0])  # warm
        for number in shown(range(trials), "reply"):
            dialogue = ones[number % len(ones)]
            ttfc_ms, rtf = await _first_chunk(engine, agent, dialogue)
            one.append(ttfc_ms)
            rtfs.append(rtf)
        for number in range(max(4, trials // 3)):
            three.append((await _first_chunk(engine, agent, THREE[number % len(THREE)]))[0])
    finally:
        engine.close()
    figures = quantiles(one)
    return {
        "one_drink_ttfc_ms": figures,
        "three_drinks_ttfc_ms": quantiles(three),
        "speaking_path_rtf": {"mean": round(sum(rtfs) / len(rtfs), 3), "max": round(max(rtfs), 3)},
        "passed": figures["p95"] <= 200 and sum(rtfs) / len(rtfs) <= 0.3,
    }


async def _first_chunk(engine: Engine, agent: Any, dialogue: Dialogue) -> tuple[float, float]:
    """TTFC in ms, and the time that all stages worked per second of speech."""
    stages = (engine.thinker, engine.talker, engine.codec)
    busy = sum(stage.stats.busy_s for stage in stages)
    listener = Listener(agent)
    request = ThinkRequest((Message("user", dialogue.turns[0]),), dialogue.lang, tools=agent.schemas())
    began = time.perf_counter()
    listener.reply = engine.reply(request, listener)
    await listener.done.wait()
    if listener.failed is not None:
        raise RuntimeError(f"stage {listener.failed[0]} failed") from listener.failed[1]
    seconds = sum(map(len, listener.pcm)) / engine.sample_rate
    worked = sum(stage.stats.busy_s for stage in stages) - busy
    return 1000 * (listener.reply.marks.first_chunk - began), worked / seconds

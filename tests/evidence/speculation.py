"""Turns whose caller goes on after a reply was begun ahead: what the dropped guesses left behind, if anything.

The real session, model and tools; the words of the recogniser are scripted. As soon as a guess was dropped it is
looked for in the cart, the history, the events, the queue of the speaker and the slots of the stages; and each dialogue
is compared with the same one in a session that never guesses. Runs as fast as the machine goes.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import torch

from tests.evidence.tools import shown
from tests.resumed import KINDS, dialogue, differences, play
from voice_agent.engine.reply import Engine
from voice_agent.models import load_model

TRIALS = 200
"""Turns that were guessed on and resumed."""


async def run(seed: int, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    chance = random.Random(seed)
    engine = Engine(load_model("tea-omni", slots=2))
    guesses: Counter[str] = Counter()
    traces: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    turns = guessed = orders = tools = 0
    each = []
    try:
        for number in shown(range(trials), "dialogue"):
            if guessed >= trials:
                break
            said = dialogue(chance, chance.sample(KINDS, len(KINDS)))
            with_guesses = await play(engine, said, resumed=True)
            without = await play(engine, said, resumed=False)
            different = differences(with_guesses, without)
            turns += len(said)
            guessed += with_guesses.turns_guessed
            guesses += with_guesses.guesses
            traces.update(with_guesses.traces)
            differ.update(different)
            orders += len(with_guesses.orders)
            tools += with_guesses.tools_kept
            each.append(
                {
                    "dialogue": number,
                    "turns": [[*turn.pauses, turn.whole] for turn in said],
                    "orders": with_guesses.orders,
                    "traces": with_guesses.traces,
                    "differences": different,
                }
            )
    finally:
        engine.close()
    return {
        "turns": turns,
        "turns_resumed_after_a_guess": guessed,
        "guesses_dropped": dict(guesses),
        "traces": dict(traces),
        "dialogues_that_differ": dict(differ),
        "orders_placed": orders,
        "tools_kept": tools,
        "passed": guessed >= trials and not traces and not differ and len(guesses) == len(KINDS),
        "each": each,
    }

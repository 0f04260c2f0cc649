"""Turns that come of sounds without speech, with the menu prompt on, and the order after them.

A trial is a second of each sound: silence, room noise, a fan, a keyboard, breath, music.
"""

from __future__ import annotations

from typing import Any

from tests import hallucination
from voice_agent.vad import SileroModel
from voice_agent.whisper import Recognizer

TRIALS = 600


async def run(seed: int, trials: int) -> dict[str, Any]:
    recognizer, silero = Recognizer(), SileroModel()
    outcomes = [hallucination.run(sound, trials, seed, recognizer, silero) for sound in hallucination.SOUNDS]
    return {
        "turns": {outcome.sound: len(outcome.turns) for outcome in outcomes},
        "orders_heard": sum(hallucination.ORDER_WORDS in outcome.order for outcome in outcomes),
        "passed": all(outcome.passed for outcome in outcomes),
        "each": [vars(outcome) for outcome in outcomes],
    }

import numpy as np
import pytest

from tests import hallucination
from tests.recordings import recording
from voice_agent.vad import SileroModel
from voice_agent.whisper import Recognizer

SECONDS = 60


@pytest.fixture(scope="module")
def models() -> tuple[Recognizer, SileroModel]:
    return Recognizer(), SileroModel()


@pytest.mark.parametrize("sound", hallucination.SOUNDS)
def test_no_turn_without_speech_and_the_order_after_it_is_heard(
    models: tuple[Recognizer, SileroModel], sound: str
) -> None:
    """Case B12, a minute of each sound; `make evidence hallucination` has the ten."""
    outcome = hallucination.run(sound, SECONDS, seed=1, recognizer=models[0], silero=models[1])
    assert outcome.passed, outcome


def test_a_recorded_room_gives_no_turn(models: tuple[Recognizer, SileroModel]) -> None:
    room = recording("noise_room.wav").astype(np.float32) / 32768
    outcome = hallucination.listen("noise_room", iter([room] * 4), 34, *models)
    assert outcome.turns == []


@pytest.mark.parametrize("sound", [name for name in hallucination.SOUNDS if name != "silence"])
def test_the_recogniser_alone_believes_no_noise(models: tuple[Recognizer, SileroModel], sound: str) -> None:
    pcm = hallucination.SOUNDS[sound](np.random.default_rng(5), hallucination.BLOCK)
    for seconds in (1, 2, 4):
        transcript = models[0].transcribe(pcm[: seconds * hallucination.RATE], None, hallucination.PROMPT)
        assert transcript.text == "", transcript

"""Cases that are about sound, by the model's own voice, recordings and the real recogniser: one trial of each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import soxr
import torch

from demos.ordering.menu import default_menu
from demos.ordering.sound import match
from tests.evidence._listener import Listener
from tests.recordings import recording
from tests.test_ordering_sound import DRINKS, TOPPINGS
from tests.test_turn_heard import library
from voice_agent.engine.protocols import Language, Message, ThinkRequest
from voice_agent.engine.reply import Engine
from voice_agent.loading import load_agent
from voice_agent.models import load_model
from voice_agent.whisper import SAMPLE_RATE, Recognizer, RecognizerConfig, Transcript

Samples = npt.NDArray[np.float32]
MENU = {str(language): words for language, words in default_menu().vocabulary().items()}
FOREIGN = re.compile("[\u3040-\u30ff\uac00-\ud7af]")


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer(RecognizerConfig(parallel=1))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    torch.set_num_threads(1)
    engine = Engine(load_model("tea-omni", slots=1), ahead_ms=60_000)
    yield engine
    engine.close()


def spoken(engine: Engine, text: str, language: Language) -> Samples:
    """What the agent says, float32[T] @ 24 kHz."""

    async def say() -> Samples:
        listener = Listener(load_agent())
        listener.reply = engine.reply(ThinkRequest((Message("user"),), language, say=text), listener)
        await listener.done.wait()
        assert listener.failed is None
        return np.concatenate(listener.pcm)

    return asyncio.run(say())


def heard(recognizer: Recognizer, *parts: Samples, likely: Language = "zh") -> Transcript:
    """The transcript of these, float32[T] @ 16 kHz, one after the other, in a quiet room."""
    silence = np.zeros(SAMPLE_RATE // 10, np.float32)
    pcm = np.concatenate([silence, *(piece for part in parts for piece in (part, silence))])
    noise = np.random.default_rng(1).normal(0, 2e-4, len(pcm))
    return recognizer.transcribe((pcm + noise).astype(np.float32), None, MENU, likely)


def sound(name: str) -> Samples:
    """A sound of the library without the silence around it, float32[T] @ 16 kHz."""
    pcm = library(name).astype(np.float32) / np.float32(32768)
    loud = np.flatnonzero(np.abs(pcm) > 0.01)
    return np.asarray(pcm[loud[0] : loud[-1]], np.float32)


def test_b14_a_topping_that_sounds_like_another_word_is_that_topping(recognizer: Recognizer, engine: Engine) -> None:
    """Case B14, clean: of five, in a voice that is no clear one, most are understood; none is taken for another."""
    wanted = {
        "椰果": "coconut_jelly", "布丁": "pudding", "仙草": "grass_jelly", "芋圆": "taro_balls", "红豆": "red_bean"
    }  # fmt: skip
    found = {}
    for name in wanted:
        pcm = np.asarray(soxr.resample(spoken(engine, f"我要一杯奶茶，加{name}", "zh"), 24_000, SAMPLE_RATE))
        said = heard(recognizer, pcm).text
        found[name] = match(said.rpartition("加")[2], TOPPINGS).ids
    assert all(found[name] in ((), (item,)) for name, item in wanted.items()), found
    assert sum(found[name] == (item,) for name, item in wanted.items()) >= 3, found


def test_b14_sentences_without_an_item_have_none(recognizer: Recognizer, engine: Engine) -> None:
    """Case B14, its third set."""
    for text in ("不好意思，我没听清，请再说一遍。", "还需要别的吗？"):
        pcm = np.asarray(soxr.resample(spoken(engine, text, "zh"), 24_000, SAMPLE_RATE))
        said = heard(recognizer, pcm).text
        assert match(said, TOPPINGS).ids == match(said, DRINKS).ids == ()


def test_b15_an_item_named_in_the_other_language_is_heard(recognizer: Recognizer) -> None:
    """Case B15: the name keeps its sound, whatever the words around it are."""
    said = heard(recognizer, sound("i-would-like-en"), sound("pearl-milk-tea-zh")).text
    assert re.search("珍珠奶茶|pearl milk tea", said, re.IGNORECASE), said
    assert not FOREIGN.search(said)


@pytest.mark.parametrize("likely", ["zh", "en"])
def test_b15_short_words_stay_in_their_language(recognizer: Recognizer, likely: Language) -> None:
    """Case B15, its single words: what was expected does not bend them; none is in a third script."""
    for name, language in (
        *((name, "zh") for name in ("stop-zh", "good-zh", "pearl-milk-tea-zh")),
        *((name, "en") for name in ("stop-en", "wait-en", "right-en", "hold-on-en")),
    ):
        found = heard(recognizer, sound(name), likely=likely)
        assert found.language == language, (name, found.text)
        assert not FOREIGN.search(found.text + found.raw)
    long = recording("order_zh.flac").astype(np.float32) / np.float32(32768)
    assert heard(recognizer, long, likely=likely).language == "zh"


@pytest.mark.parametrize(
    ("marked", "plain", "language"),
    [
        ("**好的**，少冰 珍珠奶茶😀 # 一杯", "好的，少冰珍珠奶茶一杯", "zh"),
        ("- Sure, *one* large `latte` 🙂", "Sure, one large latte", "en"),
    ],
)
def test_b25_marks_and_emoji_are_not_spoken(engine: Engine, marked: str, plain: str, language: Language) -> None:
    """Case B25: a marked text sounds sample for sample like the same without marks."""
    np.testing.assert_allclose(spoken(engine, marked, language), spoken(engine, plain, language), atol=1e-4)


def test_b25_a_mixed_sentence_has_neither_noise_nor_a_gap(engine: Engine) -> None:
    """Case B25: no silence above 300 ms inside, nothing that clips, and as long as its words take."""
    mixed, plain = spoken(engine, "您的 latte 大杯好了", "zh"), spoken(engine, "您的拿铁大杯好了", "zh")
    assert 0.75 <= len(mixed) / len(plain) <= 1.25
    assert np.abs(mixed).max() < 1.0
    frames = mixed[: len(mixed) // 480 * 480].reshape(-1, 480)
    voiced = np.flatnonzero(np.sqrt(np.mean(np.square(frames), axis=1)) > 10 ** (-45 / 20))
    assert np.diff(voiced).max() * 20 <= 300

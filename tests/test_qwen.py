"""Qwen3-Omni step by step against transformers' `generate()`: same tokens, same codes, same samples."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

from tests import tiny_qwen
from tests.test_engine import Listener
from tests.tiny_qwen import Drive, Spoken, model, reference
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import Engine

pytestmark = pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`:UserWarning")

PROMPTS = ("good morning", "hello 你好", "one two three", "what is it?", "a", "我要一杯珍珠奶茶", "less ice", "no")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def network() -> Qwen3OmniMoeForConditionalGeneration:
    return tiny_qwen.network().double()


def ask(text: str, *, seed: int = 0, before: tuple[Message, ...] = (), audio: np.ndarray | None = None) -> ThinkRequest:
    messages = (*before, Message("user", text, audio=audio))
    return ThinkRequest(messages, "en", instructions="Be brief.", seed=seed)


@contextmanager
def last_logits(network: Qwen3OmniMoeForConditionalGeneration) -> Iterator[dict[str, list[torch.Tensor]]]:
    """The logits of the last position, at every forward of the thinker's and the talker's head."""
    seen: dict[str, list[torch.Tensor]] = {"thinker": [], "talker": []}
    hooks = [
        head.register_forward_hook(lambda _m, _i, out, name=name: seen[name].append(out.reshape(-1, out.shape[-1])[-1]))
        for name, head in (("thinker", network.thinker.lm_head), ("talker", network.talker.codec_head))
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def assert_equal(spoken: Spoken, expected: tuple[list[int], np.ndarray]) -> None:
    ids, wave = expected
    assert spoken.ids == ids[:-1]  # the last is the end, or was cut off before it was spoken
    pcm = np.concatenate(spoken.pcm)
    assert len(pcm) == len(wave) == 1920 * len(spoken.codes) - 555
    assert np.abs(pcm - wave).max() < 1e-6
    assert np.abs(wave).max() > 0.01


@pytest.mark.parametrize("text", PROMPTS[:2])
def test_a_text_prompt_gives_what_generate_gives(network: Qwen3OmniMoeForConditionalGeneration, text: str) -> None:
    served = model(network)
    with last_logits(network) as streamed:
        spoken = Drive(served).whole(0, ask(text))
    with last_logits(network) as whole:
        expected = reference(network, served.thinker.template.render(ask(text)).ids)
    assert_equal(spoken, expected)
    assert len(streamed["thinker"]) == len(whole["thinker"]) == 8
    assert len(streamed["talker"]) == len(spoken.codes)
    for name in ("thinker", "talker"):
        assert all(float((a - b).abs().max()) < 1e-9 for a, b in zip(streamed[name], whole[name], strict=False))


def test_a_reply_that_the_model_ends_by_itself_is_the_same() -> None:
    network = tiny_qwen.network(1).double()
    request = ThinkRequest((Message("user", "hello 你好"),), "zh")
    served = model(network, max_frames=40)
    spoken = Drive(served).whole(0, request)
    ids, wave = reference(network, served.thinker.template.render(request).ids, max_frames=40)
    assert ids[-1] == network.config.im_end_token_id
    assert len(ids) < 8
    assert_equal(spoken, (ids, wave))


def test_a_recording_is_heard_as_generate_hears_it(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network, listen=True)
    audio = (3000 * np.sin(np.arange(23_456) ** 1.3 / 900)).astype(np.int16)
    request = ask("", audio=audio)
    spoken = Drive(served).whole(0, request)
    prompt = served.thinker.template.render(request, listen=True)
    features = tiny_qwen.extractor()(
        audio / np.float32(32768), sampling_rate=16_000, padding=True, truncation=False,
        return_attention_mask=True, return_tensors="pt",
    )  # fmt: skip
    expected = reference(
        network,
        prompt.ids,
        input_features=features["input_features"].double(),
        feature_attention_mask=features["attention_mask"],
    )
    assert prompt.ids.count(network.config.thinker_config.audio_token_id) == 19
    assert_equal(spoken, expected)
    assert Drive(served).whole(1, ask("", audio=audio[::-1].copy())).ids != spoken.ids


def test_sampled_voices_follow_the_seed_as_generate_does(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network, greedy=False)
    spoken = Drive(served).whole(0, ask("good morning", seed=11))
    torch.manual_seed(11)
    expected = reference(network, served.thinker.template.render(ask("good morning")).ids, sample=True)
    assert_equal(spoken, expected)
    assert Drive(served).whole(0, ask("good morning", seed=11)).same_as(spoken)
    assert not Drive(served).whole(0, ask("good morning", seed=12)).same_as(spoken)


def test_in_float32_the_wave_of_the_same_codes_is_the_same() -> None:
    network = tiny_qwen.network()
    spoken = Drive(model(network)).whole(0, ask("good morning"))
    with torch.inference_mode():
        wave = network.code2wav(torch.stack(spoken.codes).T.unsqueeze(0))[0, 0]
    assert np.abs(np.concatenate(spoken.pcm) - wave.numpy()).max() < 1e-4


def test_the_first_samples_need_one_thinker_step_and_one_talker_step(
    network: Qwen3OmniMoeForConditionalGeneration,
) -> None:
    spoken = Drive(model(network)).whole(0, ask("good morning"))
    assert spoken.first_audio == (1, 1)
    assert len(spoken.pcm[0]) == 1920 - 555
    assert all(len(chunk) == 1920 for chunk in spoken.pcm[1:])


def test_the_talker_waits_for_text_rather_than_speak_padding(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network)
    alone = Drive(served).whole(0, ask("good morning"))
    drive = Drive(served)
    row = drive.join(0, ask("good morning"))
    for count in range(1, 4):
        assert not served.talker.ready(0)
        with pytest.raises(ValueError, match="expected text"):
            served.talker.step([0])
        drive.think([0])
        drive.talk([0])
        assert len(row.codes) == count
    while not row.done:
        drive.think([0])
    while not drive.talk([0]):
        pass
    assert row.same_as(alone)
    drive.leave(0)


@pytest.fixture(scope="module")
def alone(network: Qwen3OmniMoeForConditionalGeneration) -> list[Spoken]:
    """Each prompt's reply when nobody else speaks."""
    drive = Drive(model(network))
    return [drive.whole(0, ask(text)) for text in PROMPTS]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_reply_does_not_depend_on_who_shares_its_batch(
    network: Qwen3OmniMoeForConditionalGeneration, alone: list[Spoken], seed: int
) -> None:
    chance = random.Random(seed)
    drive = Drive(model(network, slots=8, prefill=7))
    waiting, speaking, finished = list(range(len(PROMPTS))), {}, 0
    chance.shuffle(waiting)
    while waiting or speaking:
        if waiting and (not speaking or chance.random() < 0.3):
            slot = chance.choice([s for s in range(8) if s not in speaking])
            speaking[slot] = waiting.pop()
            drive.join(slot, ask(PROMPTS[speaking[slot]]))
        thinking = [s for s in speaking if not drive.rows[s].done and chance.random() < 0.8]
        if thinking:
            drive.think(thinking)
        talking = [s for s in speaking if drive.rows[s].tokens and chance.random() < 0.8]
        for slot in drive.talk(talking):
            assert drive.rows[slot].same_as(alone[speaking[slot]])
            drive.leave(slot)
            del speaking[slot]
            finished += 1
    assert finished == len(PROMPTS)


@pytest.mark.parametrize("index", range(0, 9))
def test_an_abort_at_any_step_leaves_the_others_as_they_were(
    network: Qwen3OmniMoeForConditionalGeneration, alone: list[Spoken], index: int
) -> None:
    """`index` steps of both are made; then one goes, in the middle of its prompt, text or voice, and another comes."""
    served = model(network, prefill=20)
    size = served.thinker._cache.keys.numel() + served.talker._cache.keys.numel()
    drive = Drive(served)
    kept = drive.join(0, ask(PROMPTS[0]))
    drive.join(1, ask(PROMPTS[1]))
    for _ in range(index):
        drive.think([0, 1])
        drive.talk([0, 1])
    drive.leave(1)
    late = drive.join(1, ask(PROMPTS[2]))
    over: list[int] = []
    while len(over) < 2:
        thinking = [slot for slot in (0, 1) if not drive.rows[slot].done]
        if thinking:
            drive.think(thinking)
        over += drive.talk([slot for slot in (0, 1) if slot not in over])
    assert kept.same_as(alone[0])
    assert late.same_as(alone[2])
    drive.leave(0)
    drive.leave(1)
    assert served.thinker.rows_in_use == 0
    assert served.talker._rows == [None] * 4
    assert size == served.thinker._cache.keys.numel() + served.talker._cache.keys.numel()


def test_through_the_engine_a_reply_is_the_same(
    network: Qwen3OmniMoeForConditionalGeneration, alone: list[Spoken]
) -> None:
    engine = Engine(model(network), ahead_ms=60_000)

    async def work() -> None:
        listeners = [Listener(), Listener()]
        replies = [engine.reply(ask(PROMPTS[i]), listener) for i, listener in enumerate(listeners)]
        await asyncio.gather(*(listener.done.wait() for listener in listeners))
        for spoken, listener, reply in zip(alone, listeners, replies, strict=False):
            assert not listener.failures
            assert reply.text == "".join(token.text for token in spoken.tokens)
            assert np.allclose(np.concatenate(listener.pcm), np.concatenate(spoken.pcm), rtol=0, atol=1e-6)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert engine.thinker.slots_in_use == engine.talker.slots_in_use == engine.codec.slots_in_use == 0
    engine.close()


def test_a_voice_that_the_model_does_not_have_is_refused(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network)
    with pytest.raises(ValueError, match="expected one of ethan, chelsie, got 'nobody'"):
        served.talker.start(0, "en", "nobody")
    request = ask("good morning")
    spoken = []
    for voice in ("ethan", "Chelsie"):
        drive = Drive(served)
        row = drive.join(0, request)
        served.talker.free(0)
        served.talker.start(0, "en", voice)
        drive.think([0])
        drive.talk([0])
        spoken.append(row.codes[0])
        drive.leave(0)
    assert not torch.equal(*spoken)

"""Qwen3-Omni step by step against transformers' `generate()`: same tokens, same codes, same samples."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

from tests import tiny_qwen
from tests.test_engine import Listener
from tests.tiny_qwen import Drive, Reference, Spoken, model, reference
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import QUIET_DBFS, Engine, Reply
from voice_agent.qwen.model import QwenOmni

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


def recording(seed: int = 0) -> np.ndarray:
    """A caller's 1.5 seconds, int16 at 16 kHz."""
    return (3000 * np.sin(np.arange(23_456 + seed) ** (1.3 + seed / 100) / 900)).astype(np.int16)


def expected(
    network: Qwen3OmniMoeForConditionalGeneration, served: QwenOmni, request: ThinkRequest, **longest: int
) -> Reference:
    """What `generate()` answers to a request that a fresh model would read; `longest`: as for `reference`."""
    prompt = served.thinker.template.render(request, listen=served.thinker.listen)
    inputs = {}
    if prompt.audio:
        found = tiny_qwen.extractor()(
            [pcm / np.float32(32768) for _, pcm in prompt.audio], sampling_rate=16_000, padding=True, truncation=False,
            return_attention_mask=True, return_tensors="pt",
        )  # fmt: skip
        inputs = {
            "input_features": found["input_features"].double(),
            "feature_attention_mask": found["attention_mask"],
        }
    return reference(network, prompt.ids, **longest, **inputs)  # type: ignore[arg-type]


def assert_equal(spoken: Spoken, whole: Reference) -> None:
    """Same tokens, codes, logits within 1e-9, and samples within 1e-6."""
    assert spoken.ids == whole.ids[:-1]  # the last is the end, or was cut off before it was spoken
    assert torch.equal(torch.stack(spoken.codes), whole.codes)
    pcm = np.concatenate(spoken.pcm)
    assert len(pcm) == len(whole.pcm) == 1920 * len(spoken.codes) - 555
    assert np.abs(pcm - whole.pcm).max() < 1e-6
    assert np.abs(whole.pcm).max() > 0.01
    assert len(spoken.text_logits) == len(whole.text_logits)
    assert len(spoken.code_logits) - len(spoken.codes) in (0, 1)  # one more where the talker itself chose to end
    for ours, theirs in ((spoken.text_logits, whole.text_logits), (spoken.code_logits, whole.code_logits)):
        assert ours
        assert all(float((a - b).abs().max()) < 1e-9 for a, b in zip(ours, theirs, strict=False))


def assert_heard(reply: Reply, listener: Listener, spoken: Spoken) -> None:
    """The listener got the same samples, but for silence before the first sound."""
    whole = np.concatenate(spoken.pcm)
    assert np.abs(whole[: reply.lead]).max(initial=0) <= 10 ** (QUIET_DBFS / 20)
    assert np.allclose(np.concatenate(listener.pcm), whole[reply.lead :], rtol=0, atol=1e-6)


def cases() -> list[ThinkRequest]:
    """Eight calls: words in two languages, recordings, and second turns after either."""
    first, second = Message("assistant", "one latte"), Message("assistant", "好的")
    return [
        *(ask(text) for text in PROMPTS[:3]),
        ask("", audio=recording()),
        ask("less ice", before=(Message("user", "good morning"), first)),
        ask("不要冰", before=(Message("user", "", audio=recording(1)), second)),
        ask("", audio=recording(2), before=(Message("user", "hello"), first)),
        ask(PROMPTS[7]),
    ]


@pytest.fixture(scope="module")
def answers(network: Qwen3OmniMoeForConditionalGeneration) -> list[Reference]:
    """What `generate()` answers to each of the eight."""
    served = model(network, listen=True)
    return [expected(network, served, request) for request in cases()]


@pytest.mark.parametrize("case", range(8))
def test_a_reply_is_what_generate_gives(
    network: Qwen3OmniMoeForConditionalGeneration, answers: list[Reference], case: int
) -> None:
    spoken = Drive(model(network, listen=True), watch=True).whole(0, cases()[case])
    assert_equal(spoken, answers[case])


@pytest.mark.parametrize("heard", [False, True])
def test_the_second_turn_of_a_call_is_what_generate_gives(
    network: Qwen3OmniMoeForConditionalGeneration, heard: bool
) -> None:
    """The keys and values of the first turn are those that the second goes on from."""
    served = model(network, listen=heard)
    drive = Drive(served, watch=True)
    first = Message("user", "" if heard else "good morning", audio=recording() if heard else None)
    said = drive.whole(0, ThinkRequest((first,), "en", conversation="a")).text
    answer = (Message("user", "less ice", audio=recording(1) if heard else None),)
    request = ThinkRequest((first, Message("assistant", said), *answer), "en", conversation="a")
    before = served.thinker._rows[0].keys
    assert_equal(drive.whole(1, request), expected(network, served, request))
    assert served.thinker._rows[0].keys[: len(before)] == before


def test_recordings_are_told_apart(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network, listen=True)
    prompt = served.thinker.template.render(ask("", audio=recording()), listen=True)
    assert prompt.ids.count(network.config.thinker_config.audio_token_id) == 19
    spoken = Drive(served).whole(0, ask("", audio=recording()))
    assert Drive(served).whole(1, ask("", audio=recording()[::-1].copy())).ids != spoken.ids


def test_a_reply_that_the_model_ends_by_itself_is_the_same() -> None:
    network = tiny_qwen.network(1).double()
    request = ThinkRequest((Message("user", "hello 你好"),), "zh")
    served = model(network, max_frames=40)
    spoken = Drive(served, watch=True).whole(0, request)
    whole = reference(network, served.thinker.template.render(request).ids, max_frames=40)
    assert whole.ids[-1] == network.config.im_end_token_id
    assert len(whole.ids) < 8
    assert_equal(spoken, whole)


def test_sampled_voices_follow_the_seed_as_generate_does(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network, greedy=False)
    spoken = Drive(served, watch=True).whole(0, ask("good morning", seed=11))
    torch.manual_seed(11)
    assert_equal(spoken, reference(network, served.thinker.template.render(ask("good morning")).ids, sample=True))
    assert Drive(served).whole(0, ask("good morning", seed=11)).same_as(spoken)
    assert not Drive(served).whole(0, ask("good morning", seed=12)).same_as(spoken)


def test_in_a_batch_each_reply_follows_its_own_seed(network: Qwen3OmniMoeForConditionalGeneration) -> None:
    served = model(network, greedy=False, max_reply=4, max_frames=5)
    drive = Drive(served)
    wanted = [Drive(served).whole(0, ask("good morning", seed=seed)) for seed in range(3)]
    rows = [drive.join(slot, ask("good morning", seed=slot)) for slot in range(3)]
    left = [0, 1, 2]
    while left:
        drive.think(left)
        for slot in drive.talk(left):
            left.remove(slot)
    assert all(row.same_as(other) for row, other in zip(rows, wanted, strict=True))


def test_in_float32_the_wave_of_the_same_codes_is_the_same() -> None:
    network = tiny_qwen.network()
    spoken = Drive(model(network)).whole(0, ask("good morning"))
    with torch.inference_mode():
        wave = network.code2wav(torch.stack(spoken.codes).T.unsqueeze(0))[0, 0]
    assert np.abs(np.concatenate(spoken.pcm) - wave.numpy()).max() < 1e-4


def test_the_first_samples_need_one_thinker_step_and_one_talker_step(
    network: Qwen3OmniMoeForConditionalGeneration, answers: list[Reference]
) -> None:
    """`generate()` gives none before the last token and the last frame."""
    spoken = Drive(model(network)).whole(0, ask(PROMPTS[0]))
    assert spoken.first_audio == (1, 1)
    assert len(spoken.pcm[0]) == 1920 - 555
    assert all(len(chunk) == 1920 for chunk in spoken.pcm[1:])
    whole = answers[0]
    assert (len(whole.text_logits), len(whole.code_logits)) == (8, len(spoken.codes) + 1) == (8, 11)


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
    """Some prompts' replies when nobody else speaks."""
    drive = Drive(model(network))
    return [drive.whole(0, ask(text)) for text in PROMPTS[:3]]


@pytest.mark.parametrize("seed", [1, 2])
def test_eight_calls_that_join_and_leave_at_random_are_each_what_generate_gives(
    network: Qwen3OmniMoeForConditionalGeneration, answers: list[Reference], seed: int
) -> None:
    chance = random.Random(seed)
    drive = Drive(model(network, slots=8, prefill=7, listen=True), watch=True)
    requests = cases()
    waiting, speaking, most, left = list(range(8)), {}, 0, 0
    chance.shuffle(waiting)
    while waiting or speaking:
        if waiting and (not speaking or chance.random() < 0.4):
            slot = chance.choice([s for s in range(8) if s not in speaking])
            speaking[slot] = waiting.pop()
            drive.join(slot, requests[speaking[slot]])
        most = max(most, len(speaking))
        thinking = [s for s in speaking if not drive.rows[s].done and chance.random() < 0.8]
        if thinking:
            drive.think(thinking)
        talking = [s for s in speaking if drive.rows[s].tokens and chance.random() < 0.8]
        for slot in drive.talk(talking):
            assert_equal(drive.rows[slot], answers[speaking[slot]])
            drive.leave(slot)
            del speaking[slot]
        for slot in [s for s in speaking if drive.rows[s].codes and chance.random() < 0.1]:
            drive.leave(slot)  # cut off in mid reply; asks again later
            waiting.insert(0, speaking.pop(slot))
            left += 1
    assert most > 4
    assert left > 1


def allocated(served: QwenOmni) -> int:
    """Elements of every tensor that holds something of a row."""
    caches = (served.thinker._cache, served.talker._maker.cache, served.codec._window)
    kept = [store for cache in caches for store in (cache.keys, cache.values)]
    return sum(store.numel() for store in (*kept, *served.codec._streamed._past.values()))


# The target's steps until its end: 3 of its prompt and 4 tokens; 3 of its prompt, 5 frames and the end; 5 chunks.
STEPS = {"thinker": 7, "talker": 9, "codec": 5}


class Abort:
    """Aborts the reply in slot 0 in the middle of a stage's step, and counts the steps of that slot in every stage."""

    def __init__(self, served: QwenOmni, stage: str, index: int) -> None:
        self.steps: dict[str, list[bool]] = {
            "thinker": [],
            "talker": [],
            "codec": [],
        }  # whether it came after the abort
        self.order = lambda: None
        self._given, self._at = threading.Event(), (stage, index)
        for name in self.steps:
            part = getattr(served, name)
            part.step = self._watched(name, part.step)

    def _watched(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def watched(slots: Sequence[int], *arguments: Any) -> Any:
            if 0 in slots:
                self.steps[name].append(self._given.is_set())
                if (name, len(self.steps[name]) - 1) == self._at:
                    self.order()
                    assert self._given.wait(20)
            return step(slots, *arguments)

        return watched

    def given(self) -> None:
        self._given.set()


@pytest.mark.parametrize(("stage", "index"), [(stage, i) for stage, count in STEPS.items() for i in range(count)])
def test_an_abort_at_any_step_of_any_stage_leaves_the_others_as_they_were(
    network: Qwen3OmniMoeForConditionalGeneration, stage: str, index: int
) -> None:
    served = model(network, prefill=20, max_reply=5, max_frames=5)
    drive = Drive(served)
    wanted = [drive.whole(0, ask(text)) for text in PROMPTS[1:4]]
    size = allocated(served)
    abort = Abort(served, stage, index)
    engine = Engine(served, ahead_ms=60_000)
    engine.codec.max_chunk = 1

    async def work() -> None:
        loop = asyncio.get_running_loop()
        receipts: asyncio.Future[Any] = loop.create_future()

        def give() -> None:
            future = target.abort()
            abort.given()
            future.add_done_callback(lambda done: receipts.set_result(done.result()))

        abort.order = lambda: loop.call_soon_threadsafe(give)
        listeners = [Listener() for _ in range(3)]
        target = engine.reply(ask("0123456789" * 4), listeners[0])  # the first: slot 0 of every stage
        others = [engine.reply(ask(text), one) for text, one in zip(PROMPTS[1:3], listeners[1:], strict=True)]
        ended = asyncio.ensure_future(listeners[0].done.wait())
        await asyncio.wait([receipts, ended], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():  # its prompt was read in fewer parts: it had ended before this step, the last one of the stage
            assert index == STEPS[stage] - 1
            assert len(abort.steps[stage]) == index
            for listener in listeners[1:]:
                await listener.done.wait()
            return
        ended.cancel()
        assert [receipt.stage for receipt in await receipts] == ["thinker", "talker", "codec"]
        late = {name: sum(after) for name, after in abort.steps.items()}
        assert late[stage] == 0
        assert max(late.values()) <= 1
        next_one = Listener()  # takes the slot that was left
        others.append(engine.reply(ask(PROMPTS[3]), next_one))
        for spoken, listener, reply in zip(wanted, [*listeners[1:], next_one], others, strict=True):
            await listener.done.wait()
            assert not listener.failures
            assert reply.text == spoken.text
            assert_heard(reply, listener, spoken)
        assert not listeners[0].done.is_set()

    asyncio.run(asyncio.wait_for(work(), 60))
    engine.close()
    assert engine.thinker.slots_in_use == engine.talker.slots_in_use == engine.codec.slots_in_use == 0
    assert served.thinker.rows_in_use == 0
    assert allocated(served) == size


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
            assert reply.text == spoken.text
            assert_heard(reply, listener, spoken)

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

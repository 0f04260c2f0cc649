from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.fakes import FakeCodec, FakeModel, FakeTalker, FakeThinker, KeepingThinker
from voice_agent.engine.protocols import Message, ThinkRequest, ToolCall
from voice_agent.engine.reply import Engine, Reply
from voice_agent.engine.schedule import TEXT_GAP_S, Claim, Deadline

REQUEST = ThinkRequest(messages=(Message("user", "hello"),), language="en")


class Listener:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.pcm: list[np.ndarray] = []
        self.calls: list[ToolCall] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.done = asyncio.Event()
        self.called = asyncio.Event()
        self.text_done = False

    def on_text(self, text: str) -> None:
        self.texts.append(text)

    def on_calls(self, calls: object) -> None:
        self.calls += calls  # type: ignore[arg-type]
        self.called.set()

    def on_pcm(self, pcm: np.ndarray, last: bool) -> None:
        self.pcm.append(pcm)
        if last:
            self.done.set()

    def on_text_done(self) -> None:
        self.text_done = True

    def on_failed(self, stage: str, error: BaseException) -> None:
        self.failures.append((stage, error))
        self.done.set()


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def engine(model: FakeModel) -> Iterator[Engine]:
    engine = Engine(model, ahead_ms=60_000)
    yield engine
    engine.close()
    assert model.rows_in_use == 0


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


def test_a_reply_flows_from_the_first_token_to_the_last_sample(engine: Engine) -> None:
    async def work() -> None:
        listener = Listener()
        reply = engine.reply(REQUEST, listener)
        await listener.done.wait()
        assert "".join(listener.texts) == "one two three four " == reply.text
        pcm = np.concatenate(listener.pcm)
        assert np.array_equal(pcm, np.repeat(np.arange(1, 5, dtype=np.float32) / 1000, 2400))
        marks = reply.marks
        assert marks.submitted <= marks.first_token <= marks.first_frame <= marks.first_chunk
        assert engine.thinker.slots_in_use == engine.talker.slots_in_use == engine.codec.slots_in_use == 0

    run(work)


def test_the_talker_speaks_before_the_thinker_is_done(engine: Engine, model: FakeModel) -> None:
    async def work() -> None:
        listener = Listener()
        original = model.thinker.step

        def step(slots):  # type: ignore[no-untyped-def]
            if len(model.thinker.rows[slots[0]]) == 3:  # two tokens said: hold the rest back
                model.thinker.gate.event.clear()
                model.thinker.step = original  # type: ignore[method-assign]
            return original(slots)

        model.thinker.step = step  # type: ignore[method-assign]
        engine.reply(REQUEST, listener)
        while sum(map(len, listener.pcm)) < 2 * 2 * 1200 - 100 or model.thinker.gate.event.is_set():
            await asyncio.sleep(0.001)
        assert not listener.text_done
        model.thinker.gate.event.set()
        await listener.done.wait()

    run(work)


def test_heard_samples_map_to_the_tokens_spoken_to_their_end(engine: Engine) -> None:
    async def work() -> None:
        listener = Listener()
        reply = engine.reply(REQUEST, listener)
        await listener.done.wait()
        spoken = [reply.spoken.heard_text(frames * 1200) for frames in range(9)]
        assert spoken == [
            "", "", "one ", "one ", "one two ", "one two ", "one two three ", "one two three ", "one two three four "
        ]  # fmt: skip
        assert reply.spoken.heard_text(2 * 1200 - 1) == ""

    run(work)


def test_tool_results_go_back_into_the_same_reply() -> None:
    call = ToolCall("c1", "add", {"drink": "latte"})
    model = FakeModel(FakeThinker(calls=[call]))
    engine = Engine(model)

    async def work() -> None:
        listener = Listener()
        reply = engine.reply(REQUEST, listener, speak=False)
        await listener.called.wait()
        assert listener.calls == [call]
        reply.resume([(call, {"say": "one latte"})])
        while not listener.text_done:
            await asyncio.sleep(0.001)
        assert reply.text == "one latte "

    run(work)
    engine.close()


def test_the_talker_runs_a_bounded_time_ahead_of_playback() -> None:
    model = FakeModel(FakeThinker(reply="word " * 40))
    engine = Engine(model, ahead_ms=500)

    async def work() -> None:
        listener = Listener()
        reply = engine.reply(REQUEST, listener)
        while len(reply.positions) < 10:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert len(reply.positions) == 10
        reply.played(5 * 1200)
        while len(reply.positions) < 15:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert len(reply.positions) == 15
        await reply.abort()

    run(work)
    engine.close()


def test_rows_that_are_about_to_run_dry_step_first() -> None:
    model = FakeModel(FakeThinker(reply="word " * 40))
    engine = Engine(model, ahead_ms=60_000)
    engine.talker.policy = Deadline(max_batch=1)
    order: list[int] = []
    original = FakeTalker.step

    def step(self: FakeTalker, slots):  # type: ignore[no-untyped-def]
        order.extend(slots)
        return original(self, slots)

    model.talker.step = step.__get__(model.talker)  # type: ignore[method-assign]

    async def work() -> None:
        first, second = Listener(), Listener()
        model.talker.gate.event.clear()
        replies = [engine.reply(REQUEST, first), engine.reply(REQUEST, second)]
        while not (first.text_done and second.text_done):
            await asyncio.sleep(0.001)
        replies[0].played(30 * 1200)
        model.talker.gate.event.set()
        await asyncio.gather(first.done.wait(), second.done.wait())

    run(work)
    engine.close()
    # The first row has heard 30 frames more than it has made: it goes first until it is 1 frame ahead of the second.
    assert order.count(order[1]) >= 30
    assert len(set(order[1:30])) == 1


def test_a_failing_stage_fails_its_rows_and_goes_on(engine: Engine, model: FakeModel) -> None:
    async def work() -> None:
        model.thinker.fail_at = 2
        broken = Listener()
        reply = engine.reply(REQUEST, broken)
        await broken.done.wait()
        assert broken.failures[0][0] == "thinker"
        await reply.abort()
        model.thinker.fail_at = None
        healthy = Listener()
        engine.reply(REQUEST, healthy)
        await healthy.done.wait()
        assert not healthy.failures

    run(work)


def test_text_that_the_talker_cannot_take_fails_its_reply_alone(
    engine: Engine, model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        with monkeypatch.context() as broken:
            broken.setattr(model.talker, "push", lambda slot, tokens: 1 / 0)
            failed = Listener()
            engine.reply(REQUEST, failed)
            await failed.done.wait()
        assert failed.failures[0][0] == "talker"
        listener = Listener()
        engine.reply(REQUEST, listener)
        await listener.done.wait()
        assert not listener.failures
        assert listener.texts

    run(work)


def test_more_replies_than_slots_wait_for_their_turn_and_all_are_answered(engine: Engine) -> None:
    async def work() -> None:
        listeners = [Listener() for _ in range(12)]
        for listener in listeners:
            engine.reply(REQUEST, listener)
        await asyncio.gather(*(listener.done.wait() for listener in listeners))
        assert all("".join(listener.texts) == "one two three four " for listener in listeners)

    run(work)


def test_replies_that_are_only_read_leave_half_of_the_slots_to_those_that_speak(
    engine: Engine, model: FakeModel
) -> None:
    async def work() -> None:
        model.thinker.gate.event.clear()
        readers, speaker = [Listener() for _ in range(4)], Listener()
        written = [engine.reply(REQUEST, reader, speak=False) for reader in readers]
        while len(model.thinker.requests) < 2:
            await asyncio.sleep(0.001)
        engine.reply(REQUEST, speaker)
        model.thinker.gate.event.set()
        await speaker.done.wait()
        while not all(reader.text_done for reader in readers):
            await asyncio.sleep(0.001)
        assert [request.speak for request in model.thinker.requests[:3]] == [False, False, True]
        assert all(reply.text == "one two three four " for reply in written)

    run(work)


class Seen(Deadline):
    """Keeps the claims that were made."""

    def pick(self, claims: Sequence[Claim], now_s: float, size: int = 1) -> list[int]:
        self.claims = [*getattr(self, "claims", []), *claims]
        return super().pick(claims, now_s, size)


def test_a_reply_that_is_only_read_is_due_a_while_after_it_was_served(engine: Engine) -> None:
    async def work() -> None:
        seen = engine.thinker.policy = Seen()
        began, reader = time.perf_counter(), Listener()
        engine.reply(REQUEST, reader, speak=False)
        while not reader.text_done:
            await asyncio.sleep(0.001)
        assert seen.claims
        assert all(began + TEXT_GAP_S <= claim.due_s <= time.perf_counter() + TEXT_GAP_S for claim in seen.claims)

    run(work)


def test_the_codec_begins_with_a_frame_and_then_waits_for_whole_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel(FakeThinker(reply="word " * 40))
    engine = Engine(model, ahead_ms=60_000)
    sizes: list[int] = []
    decode = model.codec.step
    monkeypatch.setattr(model.codec, "step", lambda slots, codes: sizes.append(codes.shape[1]) or decode(slots, codes))

    async def work() -> None:
        listener = Listener()
        engine.reply(REQUEST, listener)
        await listener.done.wait()

    run(work)
    engine.close()
    assert sum(sizes) == 80
    assert sizes[0] == 1
    later = [size for i, size in enumerate(sizes) if sum(sizes[:i]) >= 8]  # 400 ms ahead of playback
    assert later[:-1] == [4] * (len(later) - 1)


def test_an_abort_frees_every_slot_and_nothing_is_heard_afterwards(engine: Engine, model: FakeModel) -> None:
    async def work() -> None:
        model.talker.gate.event.clear()
        listener = Listener()
        reply = engine.reply(REQUEST, listener)
        while not listener.text_done:
            await asyncio.sleep(0.001)
        aborting = reply.abort()
        model.talker.gate.event.set()
        receipts = await aborting
        heard = len(listener.pcm)
        assert [receipt.stage for receipt in receipts] == ["thinker", "talker", "codec"]
        assert engine.thinker.slots_in_use == engine.talker.slots_in_use == engine.codec.slots_in_use == 0
        await asyncio.sleep(0.02)
        assert len(listener.pcm) == heard

    run(work)


def test_nobody_waiting_for_the_receipts_any_more_does_not_end_a_stage(engine: Engine, model: FakeModel) -> None:
    async def work() -> None:
        model.thinker.gate.event.clear()
        reply = engine.reply(REQUEST, Listener())
        while not engine.thinker.slots_in_use:
            await asyncio.sleep(0.001)
        receipts = reply.abort()
        receipts.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receipts
        model.thinker.gate.event.set()
        listener = Listener()
        engine.reply(REQUEST, listener)
        await listener.done.wait()
        assert "".join(listener.texts) == "one two three four "

    run(work)


def test_receipts_count_what_was_made_and_never_heard(engine: Engine) -> None:
    async def work() -> None:
        listener = Listener()
        reply = engine.reply(REQUEST, listener)
        while len(reply.positions) < 8:
            await asyncio.sleep(0)
        receipts = {receipt.stage: receipt for receipt in await reply.abort(heard_samples=3 * 1200)}
        # The talker may have finished by itself between the check and the abort; then nothing of it was live.
        assert receipts["talker"].wasted in (0, 5)

    run(work)


def test_a_thousand_aborts_at_random_moments_leave_everything_as_it_was(engine: Engine, model: FakeModel) -> None:
    chance = random.Random(7)

    async def work() -> None:
        tasks = len(asyncio.all_tasks())
        for _ in range(1000):
            reply: Reply = engine.reply(REQUEST, Listener())
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            await reply.abort(chance.randrange(5000))
        listener = Listener()
        engine.reply(REQUEST, listener)
        await listener.done.wait()
        assert not listener.failures
        assert "".join(listener.texts) == "one two three four "
        assert len(asyncio.all_tasks()) == tasks

    run(work)
    for stage in (engine.thinker, engine.talker, engine.codec):
        assert stage.slots_in_use == stage.waiting == 0
        assert len(stage._tombstones) <= 1024
    assert model.rows_in_use == 0


@pytest.mark.parametrize(("breath", "quiet_dbfs"), [(0.0, -61.0), (0.0005, -61.0), (0.0005, -70.0)])
@pytest.mark.parametrize(("quiet", "left_out"), [(0, 0), (1000, 1000), (1700, 1700), (4000, 1920)])
def test_the_silence_before_a_reply_is_left_out_and_what_was_heard_is_counted_with_it(
    quiet: int, left_out: int, breath: float, quiet_dbfs: float
) -> None:
    if breath > 10 ** (quiet_dbfs / 20):
        left_out = 0

    class Hesitant(FakeCodec):
        def step(self, slots: Sequence[int], codes: torch.Tensor) -> list[np.ndarray]:
            chunks = super().step(slots, codes)
            for chunk in chunks:
                chunk[: max(0, quiet - self.made)] = breath
                self.made += len(chunk)
            return chunks

        made = 0

    async def work() -> None:
        model = FakeModel(codec=Hesitant())
        engine, listener = Engine(model, ahead_ms=60_000, quiet_dbfs=quiet_dbfs), Listener()
        try:
            reply = engine.reply(REQUEST, listener)
            await listener.done.wait()
            whole = np.repeat(np.arange(1, 5, dtype=np.float32) / 1000, 2400)
            whole[:quiet] = breath
            pcm = np.concatenate(listener.pcm)
            assert np.array_equal(pcm, whole[left_out:])
            for token in range(4):
                end = 2400 * (token + 1) - left_out
                assert reply.spoken.heard_text(end).split() == ["one", "two", "three", "four"][: token + 1]
                assert len(reply.spoken.heard_text(end - 1200).split()) == token
        finally:
            engine.close()

    run(work)


def test_a_dialogue_that_is_over_is_dropped_between_two_steps() -> None:
    model = FakeModel(KeepingThinker())

    async def work() -> None:
        engine = Engine(model)
        listeners = [Listener(), Listener()]
        for name, listener in zip("ab", listeners, strict=True):
            engine.reply(replace(REQUEST, conversation=name), listener)
        await asyncio.gather(*(listener.done.wait() for listener in listeners))
        assert engine.view()["thinker"]["dialogues"] == 2
        await asyncio.wrap_future(engine.thinker.forget("a"))
        assert model.thinker.held == {"b"}
        engine.close()
        assert engine.thinker.forget("b").cancelled()

    run(work)


def test_what_was_aborted_before_is_over_when_its_dialogue_is_dropped() -> None:
    model = FakeModel(KeepingThinker(reply="word " * 50))
    order: list[str] = []
    free, forget = model.thinker.free, model.thinker.forget
    model.thinker.free = lambda slot: (order.append("free"), free(slot))[1]  # type: ignore[method-assign]
    model.thinker.forget = lambda name: (order.append("forget"), forget(name))[1]  # type: ignore[method-assign]

    async def work() -> None:
        engine = Engine(model)
        reply = engine.reply(replace(REQUEST, conversation="a"), Listener())
        while len(reply.pieces) < 2:
            await asyncio.sleep(0.001)
        model.thinker.gate.event.clear()
        receipts = reply.abort()
        engine.forget("a")
        model.thinker.gate.event.set()
        await receipts
        await asyncio.wrap_future(engine.thinker.forget("a"))
        assert order == ["free", "forget", "forget"]
        engine.close()

    run(work)


def test_a_thinker_that_keeps_no_dialogue_has_none_to_drop(engine: Engine) -> None:
    """As tea-omni's, which reads every turn anew."""

    async def work() -> None:
        listener = Listener()
        engine.reply(replace(REQUEST, conversation="a"), listener)
        await listener.done.wait()
        await asyncio.wrap_future(engine.thinker.forget("a"))
        assert "dialogues" not in engine.view()["thinker"]

    run(work)

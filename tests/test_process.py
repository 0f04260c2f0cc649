"""Stages in processes of their own, on fakes: the same output, aborts, deaths, restarts, and nothing left behind."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import tiny_qwen
from tests.call_fakes import Bench, in_call
from tests.fakes import FakeModel, FakeThinker, load_fakes
from tests.test_engine import REQUEST, Listener
from voice_agent.engine import process as process_module
from voice_agent.engine import process_child
from voice_agent.engine.placement import PlacedStage, place_stages, together
from voice_agent.engine.places import Place
from voice_agent.engine.process import ProcessCopy, StageDied
from voice_agent.engine.process_channel import SHARED_FROM, Channel, channel_pair
from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.engine.reply import Engine, Reply
from voice_agent.engine.stage import Stage
from voice_agent.models import describe, load_parts
from voice_agent.qwen.config import QwenConfig
from voice_agent.session import Session

SPEECH = Place(stages=("talker", "codec"), process=True)
TEXT = "one two three four five six seven eight"
FRAME = 1200


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 150))  # type: ignore[arg-type]


@contextmanager
def placed(places: Sequence[Place], **fake: Any) -> Iterator[Engine]:
    """Its talker runs 10 frames ahead of playback."""
    load = functools.partial(load_fakes, **{"reply": TEXT, **fake})
    stages = place_stages(places, load, ahead_ms=500, threads=1)
    with closing(Engine(FakeModel(), stages=stages)) as engine:
        yield engine


@pytest.fixture(scope="module")
def apart() -> Iterator[Engine]:
    """The thinker in one process, talker and codec in another."""
    with placed([Place(stages=("thinker",), process=True), SPEECH]) as engine:
        yield engine


def copies(engine: Engine) -> list[ProcessCopy]:
    """The processes of an engine."""
    placed = [stage for stage in (engine.thinker, engine.talker, engine.codec) if isinstance(stage, PlacedStage)]
    groups = {id(stage._group): stage._group for stage in placed}
    return [copy for group in groups.values() for copy in group.copies if isinstance(copy, ProcessCopy)]


def children(of: int | str = "self") -> set[int]:
    threads = os.listdir(f"/proc/{of}/task")
    return {int(pid) for tid in threads for pid in _read(f"/proc/{of}/task/{tid}/children").split()}


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def gone(pid: int) -> bool:
    status = _read(f"/proc/{pid}/stat")
    return not status or status.rpartition(")")[2].split()[0] == "Z"


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def said(engine: Engine) -> tuple[str, np.ndarray, list[int]]:
    """A reply whose listener hears at once what is made."""
    listener = Listener()
    reply = engine.reply(REQUEST, listener)
    while not listener.done.is_set():
        reply.played(sum(map(len, listener.pcm)))
        await asyncio.sleep(0.002)
    assert not listener.failures
    return "".join(listener.texts), np.concatenate(listener.pcm), reply.positions


async def all_free(engine: Engine) -> None:
    """Nothing is left of any request, on either side."""
    assert all(copy.load == 0 for copy in copies(engine))
    await until(lambda: all(view["slots_in_use"] == view["waiting"] == 0 for view in engine.view().values()))


# ---- the channel ----


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = channel_pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(7),
        torch.zeros(0, 3),
        torch.randn(5, 7)[:, ::2],
        torch.randn(300, 200, dtype=torch.bfloat16),
        torch.arange(200_000) % 2 == 0,
    ],
    ids=["scalar", "empty", "strided", "shared bfloat16", "shared bool"],
)
def test_tensors_arrive_as_they_were_sent(channels: tuple[Channel, Channel], tensor: torch.Tensor) -> None:
    ours, theirs = channels
    array = np.arange(SHARED_FROM, dtype=np.int16)
    sending = threading.Thread(target=ours.send, args=[("name", tensor, array)])
    sending.start()
    name, got, same = theirs.receive()
    sending.join()
    assert name == "name"
    assert got.dtype == tensor.dtype
    assert torch.equal(got, tensor)
    assert np.array_equal(same, array)
    got.zero_()  # what arrives may be written to


def test_big_arrays_leave_neither_descriptors_nor_names_behind(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    before = len(os.listdir("/proc/self/fd")), os.listdir("/dev/shm")
    for _ in range(50):
        ours.send(torch.zeros(SHARED_FROM))
        assert len(theirs.receive()) == SHARED_FROM
    ours.send(torch.zeros(SHARED_FROM))  # and one that nobody reads
    theirs.close()
    assert len(os.listdir("/proc/self/fd")) <= before[0]
    assert os.listdir("/dev/shm") == before[1]


def test_an_end_is_noticed_and_so_is_silence(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    theirs.expect_within(0.05)
    with pytest.raises(TimeoutError, match="expected a message in time"):
        theirs.receive()
    ours.hang_up()
    with pytest.raises(EOFError):
        theirs.receive()
    with pytest.raises(OSError, match="pipe"):
        ours.send("nobody hears it")


# ---- output ----


def test_a_process_gives_what_a_thread_gives_sample_for_sample(apart: Engine) -> None:
    async def work() -> None:
        with closing(Engine(FakeModel(FakeThinker(reply=TEXT)), ahead_ms=500)) as threads:
            wanted = await said(threads)
        assert len(wanted[1]) == 16 * FRAME
        for got in await asyncio.gather(*(said(apart) for _ in range(6))):
            assert got[0] == wanted[0]
            assert np.array_equal(got[1], wanted[1])
            assert got[2] == wanted[2]
        await all_free(apart)

    run(work)


def test_the_end_of_a_turn_is_judged_where_the_thinker_is(apart: Engine) -> None:
    def asked(text: str) -> ThinkRequest:
        return ThinkRequest((Message("user", text),), "en")

    assert apart.thinker.judges
    assert apart.thinker.turn_end(asked("I am done.")).result(10) == 1.0
    assert apart.thinker.turn_end(asked("And then")).result(10) == 0.0
    with pytest.raises(ValueError, match="expected words, got none"):
        apart.thinker.turn_end(asked("")).result(10)


def dialogues(engine: Engine) -> int:
    held: int = engine.view()["thinker"]["dialogues"]
    return held


def test_a_dialogue_that_is_over_is_dropped_in_every_copy() -> None:
    async def work(engine: Engine) -> None:
        thinker = engine.thinker
        assert isinstance(thinker, PlacedStage)
        models: list[Any] = [copy.stages["thinker"].model for copy in thinker._group.copies]  # type: ignore[attr-defined]
        for model in models:
            model.held = {"a", "b"}
        assert dialogues(engine) == 4
        engine.forget("a")
        await until(lambda: dialogues(engine) == 2)
        assert [future.result(10) for future in thinker.forget("b")] == [None, None]
        assert [model.held for model in models] == [set(), set()]

    with placed([Place(stages=("thinker",), replicas=2)]) as engine:
        run(lambda: work(engine))


def test_a_turn_goes_where_its_dialogue_is_held_while_there_is_a_free_slot() -> None:
    async def turn(engine: Engine, conversation: str) -> None:
        listener = Listener()
        engine.reply(replace(REQUEST, conversation=conversation), listener, speak=False)
        await until(lambda: listener.text_done)

    async def work(engine: Engine) -> None:
        assert isinstance(engine.thinker, PlacedStage)
        first, second = engine.thinker._group.copies
        models: list[Any] = [copy.stages["thinker"].model for copy in (first, second)]  # type: ignore[attr-defined]
        gates = [model.gate.event for model in models]

        def held() -> list[set[str]]:
            return [set(model.held) for model in models]

        gates[0].clear()
        waiting = engine.reply(replace(REQUEST, conversation="a"), Listener(), speak=False)
        await turn(engine, "b")
        gates[0].set()
        await until(lambda: first.load == 0)
        assert "".join(waiting.pieces).split() == TEXT.split()
        assert held() == [{"a"}, {"b"}]
        for name in ("a", "b", "b", "a"):
            await turn(engine, name)
        assert held() == [{"a"}, {"b"}], "though the first copy was as little busy as the second"

        gates[1].clear()
        full = [engine.reply(replace(REQUEST, conversation="b"), Listener(), speak=False) for _ in range(4)]
        assert (first.load, second.load) == (0, 4)
        await turn(engine, "b")
        assert held() == [{"a", "b"}, {"b"}]
        gates[1].set()
        await asyncio.gather(*(reply.abort() for reply in full))

        engine.forget("b")
        await until(lambda: held() == [{"a"}, set()])
        assert list(engine.thinker._group._homes) == ["a"]

    with placed([Place(stages=("thinker",), replicas=2)]) as engine:
        run(lambda: work(engine))


# ---- failures and aborts ----


def test_a_part_that_fails_in_its_process_fails_its_requests_alone() -> None:
    async def work() -> None:
        with placed([Place(stages=("thinker",), process=True)], fail_at=5) as engine:
            failed = Listener()
            reply = engine.reply(REQUEST, failed)
            await failed.done.wait()
            stage, error = failed.failures[0]
            assert stage == "thinker"
            assert "told to fail" in str(error)
            await reply.abort()
            assert engine.view()["thinker"]["restarts"] == 0
            assert engine.thinker.slots_in_use == 0

    run(work)


def test_aborts_at_random_moments_free_everything_in_all_processes(apart: Engine) -> None:
    chance = random.Random(1)

    async def work() -> None:
        for _ in range(60):
            listener = Listener()
            reply = apart.reply(REQUEST, listener)
            await asyncio.sleep(chance.random() * 0.01)
            receipts = await reply.abort()
            heard = len(listener.pcm)
            assert [receipt.stage for receipt in receipts] == ["thinker", "talker", "codec"]
            await asyncio.sleep(0)
            assert len(listener.pcm) == heard
        await all_free(apart)
        assert (await said(apart))[0].split() == TEXT.split()

    run(work)


def test_an_abort_overtakes_what_waits_for_the_process(apart: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        speech = copies(apart)[1]
        order: list[str] = []
        original = Channel.send

        def send(self: Channel, message: Any) -> None:
            if self is speech._channel:
                order.append(type(message).__name__)
            original(self, message)

        monkeypatch.setattr(Channel, "send", send)
        with speech._lock:  # its outbox is not emptied meanwhile
            reply = apart.reply(REQUEST, Listener())
            aborting = reply.abort()
        receipts = await aborting
        await until(lambda: len(order) == 4)
        assert order == ["Abort", "Abort", "Command", "Command"]
        assert [receipt.wasted for receipt in receipts[1:]] == [0, 0]
        await all_free(apart)

    run(work)


async def kill_in_mid_reply(engine: Engine, pid: int, number: int) -> float:
    """Seconds from the signal until the listener knew."""
    listener = Listener()
    reply = engine.reply(REQUEST, listener)
    await until(lambda: len(reply.positions) == 10)
    began = time.perf_counter()
    os.kill(pid, number)
    await listener.done.wait()
    noticed_s = time.perf_counter() - began
    assert listener.failures[0][0] in ("talker", "codec")
    assert isinstance(listener.failures[0][1], StageDied | TimeoutError)
    assert {receipt.stage for receipt in await reply.abort()} == {"thinker", "talker", "codec"}
    return noticed_s


def test_a_killed_process_is_noticed_at_once_and_the_next_replies_are_whole(apart: Engine) -> None:
    async def work() -> None:
        thinking, speech = copies(apart)
        for number in (1, 2):
            pid = speech.pid
            assert pid is not None
            # By the end of its channel, not by its silence.
            assert await kill_in_mid_reply(apart, pid, signal.SIGKILL) < process_module.HUNG_S / 2
            # Until another is there, replies fail at once, and their aborts are answered.
            listener = Listener()
            reply = apart.reply(REQUEST, listener)
            await asyncio.wait_for(listener.done.wait(), 5)
            assert isinstance(listener.failures[0][1], StageDied)
            await reply.abort()
            with pytest.raises(StageDied):
                speech.ask("talker", "turn_end", ()).result(5)
            await until(lambda: speech.alive)
            assert gone(pid)
            assert apart.view()["talker"]["restarts"] == number
            assert len((await said(apart))[1]) == 16 * FRAME
        assert thinking.restarts == 0
        await all_free(apart)

    run(work)


def test_the_server_goes_before_its_processes(apart: Engine) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for copy in copies(apart):
        assert copy.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, copy.pid) == min(19, own + process_child.NICENESS)


def test_a_process_that_hangs_is_ended_and_replaced(apart: Engine) -> None:
    async def work() -> None:
        speech = copies(apart)[1]
        assert speech._channel is not None
        speech._channel.expect_within(1.0)
        pid = speech.pid
        assert pid is not None
        await kill_in_mid_reply(apart, pid, signal.SIGSTOP)
        await until(lambda: speech.alive)
        assert gone(pid)
        await said(apart)

    run(work)


def test_a_process_that_leaves_too_much_unread_is_ended_and_replaced(
    apart: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "MAX_PENDING", 50)

    async def work() -> None:
        speech = copies(apart)[1]
        pid = speech.pid
        assert pid is not None
        listener = Listener()
        reply = apart.reply(REQUEST, listener)
        await until(lambda: len(reply.positions) == 10)
        os.kill(pid, signal.SIGSTOP)
        for _ in range(20_000):
            reply.played(0)
            if not speech.alive:
                break
        assert not speech.alive
        await listener.done.wait()
        assert isinstance(listener.failures[0][1], StageDied)
        await until(lambda: speech.alive)
        assert gone(pid)
        await said(apart)

    run(work)


def test_a_call_whose_speech_process_dies_in_mid_reply_hears_the_notice_and_goes_on(apart: Engine) -> None:
    async def work() -> None:
        speech = copies(apart)[1]
        bench = Bench(FakeModel(), ["This is first.", "This is second."])
        bench.runtime.engine = apart
        bench.session = Session("call1", bench.runtime, bench.speaker, bench.events.append)
        async with in_call(bench):
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 300)
            await bench.play(10)
            assert speech.pid is not None
            os.kill(speech.pid, signal.SIGKILL)
            await bench.until(lambda: "agent.stage.failed" in bench.kinds())
            assert bench.last("agent.stage.failed")["stage"] in ("talker", "codec")
            assert bench.speaker.queued_ms == 200  # the notice, and nothing of the reply
            await bench.play(12)
            await bench.until(lambda: bench.session.turn is None and speech.alive)
            told = len(bench.events)
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 300)
            assert "agent.stage.failed" not in bench.kinds()[told:]
            await until(lambda: dialogues(apart) == 1)
        await until(lambda: dialogues(apart) == 0)
        await all_free(apart)

    run(work)


def test_a_process_drops_the_dialogue_that_is_over_and_a_dead_one_holds_none(apart: Engine) -> None:
    async def work() -> None:
        thinking = copies(apart)[0]
        for name in ("a", "b"):
            listener = Listener()
            apart.reply(replace(REQUEST, conversation=name), listener, speak=False)
            await until(lambda: listener.text_done)  # noqa: B023
        await until(lambda: dialogues(apart) == 2)
        apart.forget("a")
        await until(lambda: dialogues(apart) == 1)
        assert thinking.pid is not None
        os.kill(thinking.pid, signal.SIGKILL)
        await until(lambda: not thinking.alive)
        apart.forget("b")
        await until(lambda: dialogues(apart) == 0)
        await until(lambda: thinking.alive)
        await said(apart)
        await all_free(apart)

    run(work)


# ---- starting, copies, the end ----


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_a_device_that_is_not_there_is_refused_and_nothing_stays(
    process: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    before = children(), threading.enumerate()
    place = Place(stages=("codec",), device="cuda:7", process=process)
    with pytest.raises(ValueError, match="expected the device cpu, got 'cuda:7'"):
        place_stages([place], load_fakes, ahead_ms=500, threads=1)
    assert (children(), threading.enumerate()) == before
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_that_dies_as_it_starts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StageDied, match=r"the process of talker\+codec ended"):
        place_stages([SPEECH], load_fakes, ahead_ms=500, threads=1)


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        place_stages([SPEECH], load_fakes, ahead_ms=500, threads=1)


def test_a_stage_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="expected each stage in one place, got codec in 2"):
        place_stages([SPEECH, Place(stages=("codec",))], load_fakes, ahead_ms=500, threads=1)


@pytest.mark.parametrize("process", [False, True], ids=["threads", "processes"])
def test_requests_go_to_the_least_busy_copy_that_lives_and_stay_there(process: bool) -> None:
    place = Place(stages=("talker", "codec"), replicas=2, process=process, device=("cpu", ""))

    async def work(engine: Engine) -> None:
        assert isinstance(engine.talker, PlacedStage)
        assert engine.talker.slots == engine.view()["talker"]["slots"] == 8
        first, second = engine.talker._group.copies
        assert (first.job.device, second.job.device) == ("cpu", "")
        replies: list[Reply] = [engine.reply(REQUEST, Listener()) for _ in range(4)]
        await until(lambda: all(len(reply.positions) == 10 for reply in replies))
        assert (first.load, second.load) == (4, 4)
        for reply in replies:
            held = [copy for copy in (first, second) if copy.holds(reply.rid)]
            assert len(held) == 1
        await asyncio.gather(*(reply.abort() for reply in replies if first.holds(reply.rid)))
        assert (first.load, second.load) == (0, 4)
        late = engine.reply(REQUEST, Listener())
        await until(lambda: len(late.positions) == 10)
        assert (first.load, second.load) == (2, 4)
        await asyncio.gather(*(reply.abort() for reply in [*replies, late]))
        await until(lambda: engine.view()["talker"]["aborts"] == 5)
        if process:
            assert isinstance(first, ProcessCopy)
            assert first.pid is not None
            os.kill(first.pid, signal.SIGKILL)
            await until(lambda: not (first.alive and second.alive))
            await asyncio.gather(*(said(engine) for _ in range(3)))
        assert (first.load, second.load) == (0, 0)

    with placed([place]) as engine:
        run(lambda: work(engine))


def test_figures_of_copies_are_added_up() -> None:
    figures = {"steps": 3, "utilisation": 0.5, "step_s": {"bounds": [1, 2], "counts": [1, 0, 2], "sum": 4.0}}
    assert together([figures, figures]) == {
        "steps": 6,
        "utilisation": 0.5,
        "step_s": {"bounds": [1, 2], "counts": [2, 0, 4], "sum": 8.0},
    }


def test_a_placed_stage_has_the_public_methods_of_its_stage_and_no_others() -> None:
    with placed([Place(stages=("talker",), replicas=2)]) as engine:
        assert callable(engine.talker.push)
        for name in ("resume", "_step", "nonsense"):
            with pytest.raises(AttributeError, match=f"stage talker has no '{name}'"):
                getattr(engine.talker, name)
        assert isinstance(engine.thinker, Stage)
        assert isinstance(engine.codec, Stage)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-Omni in float32, as it is published."""
    folder = tmp_path_factory.mktemp("qwen")
    tiny_qwen.save(tiny_qwen.network(), folder)
    return folder


def test_qwen_speaks_from_two_processes_as_from_threads(checkpoint: Path) -> None:
    """The thinker's process has no talker and no codec, and the other way round; a prompt's states cross between."""
    config = QwenConfig(greedy=True, max_length=512, max_reply=6, max_frames=8, device="cpu", dtype="float32")
    load = functools.partial(load_parts, str(checkpoint), 2, config)

    async def spoken(places: Sequence[Place]) -> tuple[str, np.ndarray]:
        stages = place_stages(places, load, ahead_ms=60_000, threads=1)
        with closing(Engine(describe(str(checkpoint)), stages=stages)) as engine:
            text, pcm, _ = await said(engine)
            return text, pcm

    async def work() -> None:
        text, pcm = await spoken([])
        apart_text, apart_pcm = await spoken([Place(stages=("thinker",), process=True), SPEECH])
        assert text == apart_text != ""
        assert len(pcm) == len(apart_pcm) > 0
        np.testing.assert_allclose(apart_pcm, pcm, rtol=0, atol=1e-4)

    run(work)


@pytest.mark.parametrize(
    ("model", "device", "told"),
    [
        ("tea-omni", "tpu:0", r"expected a device of this machine \(cpu.*\), got 'tpu:0'"),
        ("tea-omni", "cuda:99", r"expected a device of this machine \(cpu.*\), got 'cuda:99'"),
        ("nonsense", "cpu", "expected 'tea-omni'"),
    ],
)
def test_a_device_or_model_that_there_is_not_is_refused_before_anything_is_loaded(
    model: str, device: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        load_parts(model, 1, QwenConfig(), ("talker",), device)


def test_each_part_is_on_its_own_device(checkpoint: Path) -> None:
    """No other device than the CPU may be there, but meta tensors tell where a part was put."""
    config = QwenConfig(max_length=256, max_frames=4, device="meta", dtype="float32")
    parts = load_parts(str(checkpoint), 1, config, ("talker",), "cpu")
    assert list(parts) == ["talker"]
    assert {tensor.device.type for tensor in parts["talker"].model.parameters()} == {"cpu"}  # type: ignore[union-attr]


def test_tools_are_known_without_the_weights(checkpoint: Path) -> None:
    tool = {"fly": {"description": "", "parameters": {}}}
    describe(str(checkpoint)).check(tool)
    with pytest.raises(ValueError, match="expected the ordering tools"):
        describe("tea-omni").check(tool)
    with pytest.raises(ValueError, match="expected 'tea-omni'"):
        describe("nonsense")


SERVER = """
import sys, threading
from tests import fakes
from voice_agent.engine.placement import place_stages
from voice_agent.engine.places import Place

load, *stages = sys.argv[1:]
places = [Place(stages=[stage], process=True) for stage in stages]
starting = threading.Thread(
    target=place_stages, args=[places, getattr(fakes, load)], kwargs={"ahead_ms": 500, "threads": 1}, daemon=True
)
starting.start()
starting.join(None if load == "load_fakes" else 3)
print("ready", flush=True)
input()
"""


@pytest.mark.parametrize(
    ("end", "load", "stages"),
    [
        ("SIGKILL", "load_fakes", ["thinker", "talker"]),
        ("SIGKILL", "load_for_ever", ["thinker"]),
        ("its program ends", "load_fakes", ["codec"]),
    ],
    ids=["SIGKILL", "SIGKILL while it loads", "exit"],
)
def test_no_process_outlives_its_server(end: str, load: str, stages: list[str]) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, load, *stages],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        left = children(server.pid)
        assert len(left) == len(stages)
        if end == "SIGKILL":
            server.kill()
        else:
            server.stdin.write(b"\n")
            server.stdin.flush()
        server.wait(20)
        since = time.monotonic()
        while not all(gone(pid) for pid in left):
            assert time.monotonic() - since < 5.0
            time.sleep(0.01)

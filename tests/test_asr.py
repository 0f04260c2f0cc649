import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.recordings import recording
from voice_agent.asr import AsrConfig, AsrPool, AsrStream, Recognizer, RecognizerConfig, Transcript
from voice_agent.utterance import Utterance
from voice_agent.words import LIKELY

pytestmark = pytest.mark.anyio
S = 16_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def audio(ms: int, value: int = 1000) -> npt.NDArray[np.int16]:
    return np.full(ms * 16, value, np.int16)


class Stub:
    """Writes how many milliseconds it was given, and waits for `let` before each of them while `held`."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.prompts: list[Any] = []
        self.over_reply: list[bool] = []
        self.before: list[str | None] = []
        self.silent = False
        self.held = False
        self.fails = False
        self._gate = threading.Semaphore(0)
        self._entered = threading.Semaphore(0)

    def transcribe(
        self, pcm: Any, language: Any, prompt: Any, likely: Any, before: Transcript | None, over_reply: bool
    ) -> Transcript:
        ms = len(pcm) // 16
        self.before.append(before and before.text)
        self.jobs.append(ms)
        self.prompts.append(prompt)
        self.over_reply.append(over_reply)
        self._entered.release()
        if self.held:
            assert self._gate.acquire(timeout=10)
        if self.fails:
            raise RuntimeError("no memory")
        return Transcript("" if self.silent else f"{ms}", language or likely, len(pcm) / S)

    def let(self, jobs: int = 1) -> None:
        self._gate.release(jobs)

    async def entered(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            assert await asyncio.to_thread(self._entered.acquire, timeout=10)


@pytest.fixture
async def open_pool() -> AsyncIterator[Callable[..., tuple[Stub, AsrPool]]]:
    pools: list[tuple[Stub, AsrPool]] = []

    def make(**settings: Any) -> tuple[Stub, AsrPool]:
        stub = Stub()
        pool = AsrPool(stub, AsrConfig(**{"workers": 1, "partial_share": 1.0, **settings}))  # type: ignore[arg-type]
        pools.append((stub, pool))
        return stub, pool

    yield make
    for stub, pool in pools:
        stub.let(1000)
        await pool.aclose()


OpenPool = Callable[..., tuple[Stub, AsrPool]]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_final_has_everything_pushed_so_far(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stream = pool.open("zh", "")
    for _ in range(50):
        stream.push(audio(20))
    assert (await stream.final()).text == "1000"
    stream.push(audio(40))
    assert (await stream.final()).text == "1040"
    assert stub.jobs == [1000, 1040]


async def test_the_same_audio_is_not_transcribed_twice(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stream = pool.open("zh", "")
    stream.push(audio(500))
    one, other = await asyncio.gather(stream.final(), stream.final())
    assert one is other
    assert await stream.final() is one
    assert stub.jobs == [500]


async def test_partials_come_at_their_cadence_and_cover_the_latest_audio(open_pool: OpenPool) -> None:
    stub, pool = open_pool(partial_every_ms=400)
    stub.held = True
    stream = pool.open("zh", "")
    seen: list[str] = []
    came = asyncio.Event()

    def on_partial(transcript: Transcript) -> None:
        seen.append(transcript.text)
        came.set()

    stream.on_partial = on_partial
    stream.push(audio(380))
    await settle()
    assert stub.jobs == []
    stream.push(audio(20))
    await stub.entered()
    for _ in range(100):
        stream.push(audio(20))
    assert pool.stats.queue_depth == 0
    stub.let()
    await came.wait()
    came.clear()
    stream.push(audio(20))
    await stub.entered()
    stub.let()
    await came.wait()
    assert seen == ["400", "2420"]


async def test_finals_go_before_partials_and_a_stream_has_one_partial_waiting(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    busy, talking, ended = (pool.open("zh", "") for _ in range(3))
    busy.push(audio(100))
    first = asyncio.create_task(busy.final())
    await stub.entered()
    talking.on_partial = lambda transcript: None
    for _ in range(10):
        talking.push(audio(500))
    ended.push(audio(300))
    last = asyncio.create_task(ended.final())
    await settle()
    assert pool.stats.queue_depth == 2
    stub.let()
    await stub.entered()
    stub.let()
    await stub.entered()
    stub.let()
    assert (await first).text == "100"
    assert (await last).text == "300"
    assert stub.jobs == [100, 300, 5000]


async def test_a_final_does_not_wait_for_a_partial_with_a_second_worker(open_pool: OpenPool) -> None:
    stub, pool = open_pool(workers=2)
    stub.held = True
    talking, ended = pool.open("zh", ""), pool.open("zh", "")
    talking.on_partial = lambda transcript: None
    talking.push(audio(500))
    await stub.entered()
    ended.push(audio(300))
    final = asyncio.create_task(ended.final())
    await stub.entered()
    assert stub.jobs == [500, 300]
    stub.let(2)
    assert (await final).text == "300"


async def test_a_final_takes_the_place_of_the_partial_that_waits(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    busy, stream = pool.open("zh", ""), pool.open("zh", "")
    busy.push(audio(100))
    first = asyncio.create_task(busy.final())
    await stub.entered()
    partials: list[Transcript] = []
    stream.on_partial = partials.append
    stream.push(audio(500))
    final = asyncio.create_task(stream.final())
    await settle()
    stub.let(2)
    await first
    assert (await final).text == "500"
    assert stub.jobs == [100, 500]
    stub.held = False
    stream.push(audio(500))
    await stub.entered(2)
    assert stub.jobs[-1] == 1000


async def test_an_urgent_stream_has_partials_sooner_and_under_the_words_of_turn_taking(open_pool: OpenPool) -> None:
    stub, pool = open_pool(urgent_first_ms=550, urgent_every_ms=200)
    stream = pool.open("zh", {"zh": "珍珠奶茶", "en": ""})
    stream.urgent = True
    seen: asyncio.Queue[Transcript] = asyncio.Queue()
    stream.on_partial = seen.put_nowait
    for _ in range(27):
        stream.push(audio(20))
    await settle()
    assert stub.jobs == []
    stream.push(audio(20))
    assert (await seen.get()).text == "560"
    stream.push(audio(200))
    assert (await seen.get()).text == "760"
    await stream.final()
    partial, _, final = stub.prompts
    assert partial == LIKELY
    assert final["zh"].startswith("珍珠奶茶、嗯")
    assert final["en"] == LIKELY["en"]
    stream.urgent = False
    stream.push(audio(200))
    await settle()
    assert len(stub.jobs) == 3
    stream.push(audio(200))
    await seen.get()
    assert stub.prompts[3] == {"zh": "珍珠奶茶", "en": ""}


async def test_who_asks_for_an_urgent_final_hears_the_words_that_decide_before_it(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stream = pool.open("zh", {"zh": "珍珠奶茶", "en": ""})
    stream.urgent = True
    seen: list[str] = []
    stream.on_partial = lambda transcript: seen.append(f"{transcript.text} after {len(stub.jobs)}")
    stream.push(audio(300))
    assert (await stream.final()).text == "300"
    assert seen == ["300 after 1"]
    assert stub.prompts[0] == LIKELY
    assert stub.prompts[1]["zh"].startswith("珍珠奶茶、嗯")
    assert (pool.stats.partials, pool.stats.finals) == (1, 1)


async def test_an_urgent_final_that_nobody_needs_any_more_is_not_made(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stream = pool.open("zh", "")
    stream.urgent = True
    stream.on_partial = lambda transcript: stream.cancel()
    stream.push(audio(300))
    with pytest.raises(asyncio.CancelledError):
        await stream.final()
    assert stub.jobs == [300]
    assert pool.stats.queue_depth == 0


@pytest.mark.parametrize("by", ["task", "stream"])
async def test_an_urgent_final_is_cancelled_before_its_first_look(open_pool: OpenPool, by: str) -> None:
    stub, pool = open_pool()
    stub.held = True
    other, stream = pool.open("zh", ""), pool.open("zh", "")
    first = asyncio.create_task(other.final())
    await stub.entered()
    stream.urgent, stream.on_partial = True, lambda transcript: None
    stream.push(audio(300))
    wanted = asyncio.create_task(stream.final())
    await settle()
    assert pool.stats.queue_depth == 1
    wanted.cancel() if by == "task" else stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wanted
    assert pool.stats.queue_depth == 0
    stub.let(2)
    await first
    assert stub.jobs == [0]


async def test_an_urgent_partial_goes_first_rests_never_and_takes_any_worker(open_pool: OpenPool) -> None:
    stub, pool = open_pool(workers=2, partial_share=0.001)
    stub.held = True
    busy, other, urgent = (pool.open("zh", "") for _ in range(3))
    urgent.urgent = True
    for stream in (busy, other, urgent):
        stream.on_partial = lambda transcript: None
    busy.push(audio(500))
    await stub.entered()
    other.push(audio(520))
    urgent.push(audio(600))
    await stub.entered()
    assert stub.jobs == [500, 600]
    stub.let(2)
    urgent.push(audio(10))
    await settle()
    assert stub.jobs == [500, 600]


async def test_a_hypothesis_without_words_is_told_too(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.silent = True
    stream = pool.open("zh", "")
    seen: asyncio.Queue[Transcript] = asyncio.Queue()
    stream.on_partial = seen.put_nowait
    stream.push(audio(500))
    assert (await seen.get()).text == ""


async def test_a_final_that_is_overtaken_by_more_audio_is_told_as_a_hypothesis(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    stream = pool.open("zh", "")
    seen: list[str] = []
    stream.on_partial = lambda transcript: seen.append(transcript.text)
    stream.push(audio(300))
    final = asyncio.create_task(stream.final())
    await stub.entered()
    stream.push(audio(380))
    stub.let()
    assert (await final).text == "300"
    assert seen == ["300"]
    stream.push(audio(20))
    await stub.entered()
    assert stub.jobs == [300, 700]


async def test_a_newer_final_supersedes_one_that_waits(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    busy, stream = pool.open("zh", ""), pool.open("zh", "")
    busy.push(audio(100))
    first = asyncio.create_task(busy.final())
    await stub.entered()
    stream.push(audio(200))
    older = asyncio.create_task(stream.final())
    await settle()
    stream.push(audio(50))
    newer = asyncio.create_task(stream.final())
    await settle()
    assert pool.stats.queue_depth == 1
    stub.let(2)
    await first
    assert (await older).text == (await newer).text == "250"
    assert stub.jobs == [100, 250]


async def test_a_final_that_runs_is_not_disturbed_by_a_newer_one(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    stream = pool.open("zh", "")
    stream.push(audio(200))
    older = asyncio.create_task(stream.final())
    await stub.entered()
    stream.push(audio(50))
    newer = asyncio.create_task(stream.final())
    await settle()
    stub.let(2)
    assert (await older).text == "200"
    assert (await newer).text == "250"


async def test_cancel_drops_what_waits_and_discards_what_runs(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    running, waiting = pool.open("zh", ""), pool.open("zh", "")
    for stream in (running, waiting):
        stream.on_partial = lambda transcript: pytest.fail("a cancelled stream spoke")
        stream.push(audio(600))
    await stub.entered()
    final = asyncio.create_task(waiting.final())
    await settle()
    running.cancel()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await final
    stub.let()
    other = pool.open("zh", "")
    other.push(audio(100))
    stub.let()
    assert (await other.final()).text == "100"
    assert stub.jobs == [600, 100]
    assert pool.stats.queue_depth == 0
    with pytest.raises(RuntimeError, match="it was cancelled"):
        waiting.push(audio(20))
    with pytest.raises(RuntimeError, match="it was cancelled"):
        await waiting.final()


async def test_a_cancelled_wait_leaves_the_queue(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    busy, stream = pool.open("zh", ""), pool.open("zh", "")
    busy.push(audio(100))
    first = asyncio.create_task(busy.final())
    await stub.entered()
    stream.push(audio(200))
    speculative = asyncio.create_task(stream.final())
    await settle()
    speculative.cancel()
    await settle()
    assert pool.stats.queue_depth == 0
    stub.let(2)
    await first
    assert (await stream.final()).text == "200"


async def test_a_failure_reaches_whoever_waits_and_the_pool_goes_on(
    open_pool: OpenPool, caplog: pytest.LogCaptureFixture
) -> None:
    stub, pool = open_pool()
    stub.fails = True
    stream = pool.open("zh", "")
    stream.push(audio(100))
    with pytest.raises(RuntimeError, match="no memory"):
        await stream.final()
    stream.on_partial = lambda transcript: None
    stream.push(audio(500))
    await stub.entered(2)
    stub.fails = False
    assert (await stream.final()).text == "600"
    assert pool.stats.failures == 2
    assert "partial transcription failed" in caplog.text


async def test_closing_cancels_what_is_waited_for(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    streams = [pool.open("zh", "") for _ in range(2)]
    finals = []
    for stream in streams:
        stream.push(audio(100))
        finals.append(asyncio.create_task(stream.final()))
    await stub.entered()
    closing = asyncio.create_task(pool.aclose())
    await settle()
    stub.let()
    await closing
    for final in finals:
        with pytest.raises(asyncio.CancelledError):
            await final
    assert not any(thread.is_alive() for thread in pool._threads)
    with pytest.raises(RuntimeError, match="it was closed"):
        pool.open("zh", "")


async def test_wrong_input_is_refused(open_pool: OpenPool) -> None:
    _, pool = open_pool(backlog_max_s=16)
    with pytest.raises(ValueError, match="expected a language of zh, en"):
        pool.open("jp", "")  # type: ignore[arg-type]
    stream = pool.open(None, {"zh": "珍珠奶茶", "en": "pearl milk tea"})
    with pytest.raises(ValueError, match=r"expected int16\[T\], got float32\[3\]"):
        stream.push(np.zeros(3, np.float32))  # type: ignore[arg-type]
    stream.push(audio(16_000))
    with pytest.raises(BufferError, match="at most 16 s of audio to wait"):
        stream.push(audio(1))
    with pytest.raises(ValueError, match="segment_min_s < segment_max_s"):
        AsrConfig(segment_min_s=20)


async def test_a_partial_that_comes_after_the_final_is_not_delivered(open_pool: OpenPool) -> None:
    stub, pool = open_pool(workers=2)
    stub.held = True
    stream = pool.open("zh", "")
    stream.on_partial = lambda transcript: pytest.fail("older than the final")
    stream.push(audio(500))
    await stub.entered()
    stream.push(audio(20))
    final = asyncio.create_task(stream.final())
    await stub.entered()
    stub.let(2)
    assert (await final).text == "520"
    await pool.aclose()


async def test_a_final_that_nobody_waits_for_any_more_is_a_hypothesis(open_pool: OpenPool) -> None:
    stub, pool = open_pool()
    stub.held = True
    heard: list[str] = []
    stream = pool.open("zh", "")
    stream.on_partial = lambda transcript: heard.append(transcript.text)
    stream.push(audio(300))
    final = asyncio.create_task(stream.final())
    await stub.entered()
    stream.push(audio(20))
    final.cancel()
    await asyncio.gather(final, return_exceptions=True)
    stub.let()
    async with asyncio.timeout(5):
        while not heard:
            await asyncio.sleep(0.01)
    assert heard == ["300"]


async def test_a_pool_counts_the_other_streams_that_are_transcribed(open_pool: OpenPool) -> None:
    _, pool = open_pool()
    one, other = pool.open("zh", ""), pool.open("zh", "")
    one.push(audio(300))
    assert pool.others(one) == 0
    await one.final()
    assert pool.others(one) == 0
    assert pool.others(other) == 1


async def test_streams_share_the_cadence_of_partials(open_pool: OpenPool) -> None:
    stub, pool = open_pool(partial_every_ms=400)
    for _ in range(2):
        other = pool.open("zh", "")
        other.push(audio(100))
        await other.final()
    stream = pool.open("zh", "")
    came = asyncio.Event()
    stream.on_partial = lambda transcript: came.set()
    stream.push(audio(1180))
    await settle()
    assert stub.jobs == [100, 100]
    stream.push(audio(20))
    await asyncio.wait_for(came.wait(), 10)
    assert stub.jobs == [100, 100, 1200]


def spoken(seconds: float, pause_at: float) -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(3)
    pcm = rng.normal(0, 3000, int(seconds * S))
    pcm[int(pause_at * S) : int((pause_at + 0.3) * S)] *= 0.01
    return np.asarray(pcm, np.int16)


def test_a_long_utterance_is_cut_in_its_pause_and_lets_go_of_its_audio() -> None:
    stub = Stub()
    utterance = Utterance("zh", "", "zh", segment_min=8 * S, segment_max=15 * S, backlog_max=60 * S)
    pcm = spoken(22, pause_at=11)
    for at in range(0, len(pcm), 320):
        utterance.push(pcm[at : at + 320])
    result = utterance.transcribe(stub, utterance.samples)  # type: ignore[arg-type]
    first, rest = stub.jobs
    assert 11_000 <= first <= 11_300
    assert first + rest == 22_000
    assert result.text == f"{first}{rest}"
    assert result.seconds == pytest.approx(22)
    assert utterance.kept <= rest * 16 + 320
    utterance.transcribe(stub, utterance.samples)  # type: ignore[arg-type]
    assert stub.jobs[2:] == [rest]
    assert stub.before == [None, None, f"{rest}"]


def test_no_transcription_is_longer_than_a_segment() -> None:
    stub = Stub()
    utterance = Utterance("en", "", "en", segment_min=8 * S, segment_max=15 * S, backlog_max=200 * S)
    utterance.push(spoken(100, pause_at=50))
    result = utterance.transcribe(stub, utterance.samples)  # type: ignore[arg-type]
    assert all(8_000 <= ms <= 15_000 for ms in stub.jobs[:-1])
    assert stub.jobs[-1] <= 15_000
    assert result.text == " ".join(str(ms) for ms in stub.jobs)
    utterance.clear()
    assert utterance.kept == 0


async def test_real_partials_and_final() -> None:
    recognizer = await asyncio.to_thread(Recognizer, RecognizerConfig(parallel=2))
    pool = AsrPool(recognizer)
    stream: AsrStream = pool.open(None, {"zh": "珍珠奶茶、椰果奶茶、柠檬红茶、抹茶拿铁、少冰、半糖、大杯", "en": ""})
    pcm = recording("order_zh.flac")
    partials: asyncio.Queue[Transcript] = asyncio.Queue()
    stream.on_partial = partials.put_nowait
    stream.push(pcm[: len(pcm) // 2])
    early = await partials.get()
    stream.push(pcm[len(pcm) // 2 :])
    final = await stream.final()
    assert early.seconds < final.seconds
    assert early.text.startswith("我要")
    assert "珍珠奶茶" in final.text
    assert final.language == "zh"
    await pool.aclose()

"""The speaker on a virtual clock: pacing, exact counts, epochs, flush and room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import av
import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from voice_agent.media.opus import OpusDecoder
from voice_agent.media.speaker import FRAME, RATE, Pacer, Speaker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """Time that passes only by sleeping, plus what a test adds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def tone(samples: int, hz: float = 440.0, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(samples) / RATE)).astype(np.float32)


def chirp(samples: int, rate: int) -> np.ndarray:
    at = np.arange(samples) / rate
    return (0.5 * np.sin(2 * np.pi * (200 + 1000 * at) * at)).astype(np.float32)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def speaker(clock: Clock) -> Speaker:
    return Speaker(now=clock, sleep=clock.sleep)


async def packets(speaker: Speaker, count: int) -> list[av.Packet]:
    return [await speaker.recv() for _ in range(count)]


def decoded(encoded: list[av.Packet]) -> np.ndarray:
    decoder = OpusDecoder()
    return np.concatenate([decoder.decode(bytes(packet)) for packet in encoded])


async def test_packets_leave_every_20_ms_with_silence_when_there_is_nothing_to_say(
    speaker: Speaker, clock: Clock
) -> None:
    began = clock.now
    out = await packets(speaker, 500)
    assert clock.now - began == pytest.approx(499 * 0.02)
    assert [packet.pts for packet in out] == [960 * i for i in range(500)]
    assert np.abs(decoded(out)).max() < 1e-3


async def test_the_schedule_does_not_drift_when_the_loop_is_a_little_late(clock: Clock) -> None:
    async def late(seconds: float) -> None:
        await clock.sleep(seconds + 0.004)

    speaker = Speaker(now=clock, sleep=late)
    began = clock.now
    await packets(speaker, 1000)
    assert clock.now - began == pytest.approx(999 * 0.02 + 0.004, abs=0.001)
    assert speaker.pacer.shifted_s == 0


def test_after_a_long_stall_only_a_few_packets_follow_at_once() -> None:
    pacer = Pacer(burst=3)
    assert pacer.due(0.0) == 0.0
    assert pacer.due(0.0) == pytest.approx(0.02)
    dues = [pacer.due(1.0) for _ in range(6)]
    assert sum(due <= 1.0 for due in dues) == 4  # the one that is due, and a burst of 3
    assert dues[4:] == pytest.approx([1.02, 1.04])
    assert pacer.shifted_s == pytest.approx(0.9)


@pytest.mark.parametrize("size", [1, 77, 480, 481, 1920, 5000])
async def test_every_sample_is_sent_and_counted_whatever_the_pieces(speaker: Speaker, size: int) -> None:
    drained: list[tuple[int, int]] = []
    started: list[int] = []
    speaker.on_started = started.append
    speaker.on_drained = lambda epoch, samples: drained.append((epoch, samples))
    pcm = chirp(10_001, RATE)
    for at in range(0, len(pcm), size):
        assert speaker.write(0, pcm[at : at + size])
    speaker.end(0)
    assert speaker.queued_ms == pytest.approx(10_001 / 24)
    out = await packets(speaker, 1)
    await asyncio.sleep(0)
    assert (started, drained, speaker.sent()) == ([0], [], FRAME)
    out += await packets(speaker, 20)
    await asyncio.sleep(0)
    assert (started, drained, speaker.sent()) == ([0], [(0, 10_001)], 10_001)
    out += await packets(speaker, 5)
    await asyncio.sleep(0)
    assert len(drained) == 1
    heard = decoded(out)
    wanted = chirp(20_002, 2 * RATE)[:15_000]
    lag = int(np.argmax(np.correlate(heard[: 15_000 + 800], wanted, "valid")))
    assert lag <= 0.012 * 48_000  # the delay of the encoder and of the resampler
    assert np.corrcoef(heard[lag : lag + 15_000], wanted)[0, 1] > 0.98
    assert np.abs(heard[lag + 20_002 + 960 :]).max() < 0.01


async def test_a_part_of_a_frame_waits_for_the_rest(speaker: Speaker) -> None:
    speaker.write(0, tone(300))
    await packets(speaker, 3)
    assert speaker.sent() == 0
    speaker.write(0, tone(180))
    await packets(speaker, 1)
    assert speaker.sent() == 480
    assert speaker.underruns == 0
    await packets(speaker, 2)
    assert speaker.underruns == 2


async def test_an_end_without_audio_drains_at_once(speaker: Speaker) -> None:
    drained: list[tuple[int, int]] = []
    speaker.on_drained = lambda epoch, samples: drained.append((epoch, samples))
    speaker.end(0)
    await packets(speaker, 2)
    await asyncio.sleep(0)
    assert drained == [(0, 0)]


async def test_flush_is_immediate_and_no_old_sample_follows(speaker: Speaker) -> None:
    drained: list[tuple[int, int]] = []
    speaker.on_drained = lambda epoch, samples: drained.append((epoch, samples))
    speaker.write(0, tone(24_000))
    speaker.end(0)
    before = await packets(speaker, 10)
    assert speaker.flush(1) == 4800
    assert (speaker.epoch, speaker.sent(), speaker.queued_ms) == (1, 0, 0)
    assert not speaker.write(0, tone(480))
    speaker.end(0)
    after = await packets(speaker, 10)
    await asyncio.sleep(0)
    assert speaker.sent() == 0
    assert drained == []
    out = decoded(before + after)
    cut = 10 * 960
    # The ramp of 5 ms and the delay of the codec; then nothing.
    assert np.abs(out[cut + 240 + 600 :]).max() < 0.02
    assert np.sqrt(np.mean(out[cut - 2000 : cut] ** 2)) > 0.3


async def test_the_cut_makes_no_click(clock: Clock) -> None:
    worst = 0.0
    for phase in range(8):
        speaker = Speaker(now=clock, sleep=clock.sleep)
        speaker.write(0, tone(4800 + phase * 7, hz=200))
        frames = [speaker._next_frame() for _ in range(5)]
        speaker.flush(1)
        frames += [speaker._next_frame() for _ in range(2)]
        step = np.abs(np.diff(np.concatenate(frames)))
        worst = max(worst, float(step[5 * FRAME - 2 :].max()))
    assert worst <= 2 * np.pi * 200 / RATE * 0.5 + 0.01  # no steeper than the tone itself


async def test_a_new_reply_may_start_within_the_frame_of_the_cut(speaker: Speaker) -> None:
    speaker.write(0, tone(4800))
    await packets(speaker, 3)
    speaker.flush(1)
    started: list[int] = []
    speaker.on_started = started.append
    assert speaker.write(1, tone(960))
    await packets(speaker, 2)
    await asyncio.sleep(0)
    assert (started, speaker.sent()) == ([1], 960)


async def test_the_queue_is_bounded_and_room_is_waited_for(speaker: Speaker) -> None:
    speaker.write(0, tone(4 * RATE))
    with pytest.raises(BufferError, match="expected at most 96000 samples queued, got 96001"):
        speaker.write(0, tone(1))
    waiting = asyncio.ensure_future(speaker.room(0, 3900))
    await packets(speaker, 4)
    assert not waiting.done()
    await packets(speaker, 2)
    await asyncio.sleep(0)
    assert waiting.result() is True
    assert await speaker.room(0, 4000) is True


@pytest.mark.parametrize("over", [lambda speaker: speaker.flush(1), lambda speaker: speaker.stop()])
async def test_room_is_denied_when_the_epoch_or_the_call_is_over(
    speaker: Speaker, over: Callable[[Speaker], None]
) -> None:
    speaker.write(0, tone(RATE))
    waiting = asyncio.ensure_future(speaker.room(0, 100))
    await asyncio.sleep(0)
    over(speaker)
    assert await waiting is False
    assert await speaker.room(0, 100) is False


async def test_room_that_is_no_longer_waited_for_leaves_nothing(speaker: Speaker) -> None:
    speaker.write(0, tone(RATE))
    waiting = asyncio.ensure_future(speaker.room(0, 100))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await packets(speaker, 1)
    assert speaker._waiters == []


async def test_misuse_is_refused(speaker: Speaker) -> None:
    with pytest.raises(ValueError, match="expected an epoch above 0, got 0"):
        speaker.flush(0)
    with pytest.raises(ValueError, match=r"expected float32\[T\], got float64\[3\]"):
        speaker.write(0, np.zeros(3))  # type: ignore[arg-type]
    assert not speaker.write(5, tone(480))
    speaker.end(0)
    with pytest.raises(ValueError, match="after its end"):
        speaker.write(0, tone(480))


async def test_a_failing_listener_does_not_end_the_stream(speaker: Speaker) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def fail(epoch: int) -> None:
        raise RuntimeError("listener")

    speaker.on_started = fail
    speaker.write(0, tone(960))
    await packets(speaker, 3)
    assert len(failures) == 1
    assert speaker.sent() == 960


async def test_a_stopped_speaker_sends_and_takes_nothing(speaker: Speaker) -> None:
    speaker.stop()
    assert not speaker.write(0, tone(480))
    with pytest.raises(MediaStreamError):
        await speaker.recv()

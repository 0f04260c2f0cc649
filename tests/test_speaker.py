"""The speaker on a virtual clock: pacing, exact counts, epochs, flush, room, pause and resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import av
import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voice_agent.media.opus import OpusDecoder
from voice_agent.media.reference import RATE as REFERENCE_RATE
from voice_agent.media.socket import SocketSpeaker
from voice_agent.media.speaker import FRAME, RATE, REWIND_MS, Pacer, Speaker, quiet_place

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


async def test_a_pause_fades_within_one_packet_and_keeps_everything(speaker: Speaker) -> None:
    pcm = tone(24_000)
    speaker.write(0, pcm)
    await packets(speaker, 10)
    speaker.pause()
    assert speaker.paused
    faded = speaker._next_frame()
    np.testing.assert_allclose(faded, pcm[4800 : 4800 + FRAME] * np.linspace(1, 0, FRAME, dtype=np.float32))
    assert not np.concatenate([speaker._next_frame() for _ in range(50)]).any()
    assert (speaker.sent(), speaker.queued_ms, speaker.underruns) == (4800, 800, 0)
    speaker.resume()
    assert not speaker.paused
    again = speaker._next_frame()
    assert again[0] == 0
    np.testing.assert_array_equal(again[120:], pcm[4920 : 4800 + FRAME])
    np.testing.assert_array_equal(speaker._next_frame(), pcm[4800 + FRAME : 4800 + 2 * FRAME])


async def test_neither_pause_nor_resume_makes_a_click() -> None:
    steepest = 2 * np.pi * 200 / RATE * 0.5
    for phase in range(8):
        for rewind_ms in (0, 300):
            speaker = Speaker()
            speaker.write(0, tone(24_000, hz=200)[phase * 7 :])
            frames = [speaker._next_frame() for _ in range(20)]
            speaker.pause()
            frames += [speaker._next_frame() for _ in range(3)]
            speaker.resume(rewind_ms)
            frames += [speaker._next_frame() for _ in range(5)]
            assert np.abs(np.diff(np.concatenate(frames))).max() <= steepest + 0.01


async def test_a_pause_that_ends_before_the_next_packet_is_not_heard(speaker: Speaker) -> None:
    pcm = tone(4800)
    speaker.write(0, pcm)
    speaker.resume()
    frames = [speaker._next_frame() for _ in range(5)]
    speaker.pause()
    speaker.pause()
    speaker.resume(REWIND_MS)
    speaker.resume()
    frames += [speaker._next_frame() for _ in range(5)]
    np.testing.assert_array_equal(np.concatenate(frames), pcm)


async def test_a_short_rest_of_a_reply_fades_too(speaker: Speaker) -> None:
    drained: list[tuple[int, int]] = []
    speaker.on_drained = lambda epoch, samples: drained.append((epoch, samples))
    speaker.write(0, tone(500))
    speaker.end(0)
    await packets(speaker, 1)
    speaker.pause()
    frames = np.concatenate([speaker._next_frame() for _ in range(4)])
    assert np.abs(np.diff(frames)).max() < 0.1
    await asyncio.sleep(0)
    assert (speaker.sent(), drained) == (FRAME, [])
    speaker.resume()
    await packets(speaker, 1)
    await asyncio.sleep(0)
    assert drained == [(0, 500)]


async def test_a_reply_that_begins_while_paused_waits(speaker: Speaker) -> None:
    started: list[int] = []
    speaker.on_started = started.append
    speaker.pause()
    speaker.write(0, tone(4 * RATE))
    assert np.abs(decoded(await packets(speaker, 20))).max() < 1e-3
    with pytest.raises(BufferError, match="expected at most 96000 samples queued, got 96001"):
        speaker.write(0, tone(1))
    waiting = asyncio.ensure_future(speaker.room(0, 3990))
    await packets(speaker, 5)
    assert (started, speaker.sent(), waiting.done()) == ([], 0, False)
    speaker.resume(REWIND_MS)
    await packets(speaker, 1)
    await asyncio.sleep(0)
    assert (started, speaker.sent(), waiting.result()) == ([0], FRAME, True)


async def test_nothing_is_drained_while_paused(speaker: Speaker) -> None:
    drained: list[tuple[int, int]] = []
    speaker.on_drained = lambda epoch, samples: drained.append((epoch, samples))
    speaker.write(0, tone(2 * FRAME))
    await packets(speaker, 2)
    speaker.pause()
    speaker.end(0)
    await packets(speaker, 5)
    await asyncio.sleep(0)
    assert drained == []
    speaker.resume()
    await packets(speaker, 1)
    await asyncio.sleep(0)
    assert drained == [(0, 2 * FRAME)]
    speaker.pause()
    speaker.resume(REWIND_MS)
    await packets(speaker, 3)
    await asyncio.sleep(0)
    assert (drained, speaker.sent()) == ([(0, 2 * FRAME)], 2 * FRAME)


async def test_a_paused_reply_can_be_flushed(speaker: Speaker) -> None:
    speaker.write(0, tone(24_000))
    await packets(speaker, 10)
    speaker.pause()
    await packets(speaker, 3)
    assert speaker.flush(1) == 4800
    assert (speaker.paused, speaker.sent(), speaker.queued_ms) == (False, 0, 0)
    pcm = tone(FRAME, hz=600)
    speaker.write(1, pcm)
    np.testing.assert_array_equal(speaker._next_frame(), pcm)


async def test_a_rewind_goes_back_to_the_pause_between_words(speaker: Speaker) -> None:
    pcm = tone(24_000)
    pcm[9600:10_560] = 0  # 400 to 440 ms
    speaker.write(0, pcm)
    await packets(speaker, 25)
    speaker.pause()
    await packets(speaker, 2)
    speaker.resume(200)
    began = speaker.sent()
    assert 9600 < began < 10_560
    assert speaker.queued_ms == pytest.approx((24_000 - began) / 24)
    frames = np.concatenate([speaker._next_frame() for _ in range(10)])
    np.testing.assert_array_equal(frames[120:], pcm[began + 120 : began + 10 * FRAME])
    assert speaker.sent() == began + 10 * FRAME


async def test_a_rewind_keeps_to_its_limits(speaker: Speaker) -> None:
    for wrong in (-1, REWIND_MS + 1):
        with pytest.raises(ValueError, match=f"expected a rewind of 0 to 300 ms, got {wrong}"):
            speaker.resume(wrong)
    speaker.write(0, np.concatenate([np.zeros(4800, np.float32), tone(19_200)]))
    await packets(speaker, 40)
    speaker.pause()
    await packets(speaker, 2)
    speaker.resume(100)
    assert 40 * FRAME - 2400 <= speaker.sent() < 40 * FRAME


def test_of_places_that_are_as_quiet_the_last_is_taken() -> None:
    pcm = tone(7200)
    pcm[1200:1680] *= 0.01
    pcm[4800:5280] *= 0.012
    assert 4800 < quiet_place(pcm) < 5280
    pcm[4800:5280] *= 3
    assert 1200 < quiet_place(pcm) < 1680
    assert quiet_place(pcm[:100]) == 100


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 3000)),
    st.tuples(st.just("packets"), st.integers(1, 8)),
    st.tuples(st.just("pause"), st.just(0)),
    st.tuples(st.just("resume"), st.integers(0, REWIND_MS)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("end"), st.just(0)),
)


@settings(max_examples=150, deadline=None, database=None)
@example([("write", 480), ("packets", 1), ("flush", 0), ("pause", 0), ("write", 120), ("packets", 1)])
@given(st.lists(STEPS, min_size=5, max_size=60))
def test_whatever_the_order_of_calls_every_sample_is_sent_in_its_place(steps: list[tuple[str, int]]) -> None:
    asyncio.run(_follow(steps))


async def _follow(steps: list[tuple[str, int]]) -> None:
    """Do the steps, then play the rest; each frame must carry what comes next in the reply, and nothing else."""
    speaker, source = Speaker(), np.random.default_rng(1).uniform(0.1, 1, 400_000).astype(np.float32)
    drained: list[tuple[int, int]] = []
    speaker.on_drained = lambda epoch, samples: drained.append((epoch, samples))
    written, ended, before, ramp = 0, False, np.zeros(FRAME, np.float32), False

    async def play(count: int) -> None:
        nonlocal before, ramp
        for _ in range(count):
            at, paused, seen = speaker.sent(), speaker.paused, len(drained)
            frame = speaker._next_frame()
            await asyncio.sleep(0)
            sent = speaker.sent() - at
            if sent:
                assert not paused
                soft = 0 if before[-1] and not ramp else min(120, sent)
                np.testing.assert_array_equal(frame[soft:sent], source[at + soft : at + sent])
                # The ramp of a flush lies over what begins in its packet; a reply that goes on rises by itself.
                over = np.linspace(1, 0, 120, dtype=np.float32)[:soft] if ramp else 0
                assert (frame[:soft] <= source[at : at + soft] + over + 1e-6).all()
            elif paused and ramp:  # only what was flushed fades
                assert (frame[:120] <= np.linspace(1, 0, 120, dtype=np.float32) + 1e-6).all()
                assert not frame[120:].any()
            elif paused and before[-1]:
                due = source[at : min(at + FRAME, written)]
                assert (frame[: len(due)] <= due).all() or len(due) < 120
                assert frame[-1] < 1e-6
            elif not (speaker.sent() == 0 and before[-1]):  # the ramp of a flush
                assert not frame.any()
            assert not (paused and len(drained) > seen)
            before, ramp = frame, False

    for kind, value in steps:
        at = speaker.sent()
        if kind == "write" and not ended and speaker.queued_ms < 3000:
            assert speaker.write(speaker.epoch, source[written : written + value])
            written += value
        elif kind == "packets":
            await play(value)
        elif kind == "pause":
            speaker.pause()
        elif kind == "resume":
            speaker.resume(value)
            assert at - value * RATE // 1000 <= speaker.sent() <= at
        elif kind == "end" and not ended:
            speaker.end(speaker.epoch)
            ended = True
        elif kind == "flush":
            assert speaker.flush(speaker.epoch + 1) == at
            written, ended = 0, False
            ramp = ramp or bool(before[-1])
            before = np.ones(FRAME, np.float32) if before[-1] else before
        assert speaker.queued_ms == pytest.approx((written - speaker.sent()) / 24)
    if not ended:
        speaker.end(speaker.epoch)
    speaker.resume(0)
    told = len([epoch for epoch, _ in drained if epoch == speaker.epoch])
    await play(-(-written // FRAME) + 5)
    assert speaker.sent() == written
    assert len([epoch for epoch, _ in drained if epoch == speaker.epoch]) == max(told, 1)


async def test_a_pause_over_a_socket_lets_the_lead_play_out_and_does_not_spin(clock: Clock) -> None:
    speaker = SocketSpeaker(as_events=False)
    speaker._now, speaker._sleep = clock, clock.sleep
    speaker.write(0, tone(24_000))
    position = round(clock.now * REFERENCE_RATE)
    for _ in range(15):
        assert await speaker.speech() is not None
    sent = speaker.reference.read(position, 15 * 320).reshape(15, 320)
    assert (np.abs(sent.astype(int)).max(axis=1) > 10_000).all()  # the lead is heard in a row, as the client plays it
    assert speaker.sent() == 10 * FRAME  # 100 ms wait in the client
    speaker.pause()
    faded = await speaker.speech()
    assert faded is not None
    assert abs(faded[-1]) < 1e-6
    began = clock.now
    assert [await speaker.speech() for _ in range(20)] == [None] * 20
    assert clock.now - began == pytest.approx(0.4)
    assert speaker.sent() == 15 * FRAME
    speaker.resume()
    assert await speaker.speech() is not None

"""The agent's echo: where it was sent in time, how late it returns, and how it is told from the caller's voice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import soxr

from tests.recordings import recording
from voice_agent.media.echo import FRAME, LIKELY_ECHO, Coherence, DelayEstimator, EchoCanceller
from voice_agent.media.reference import KEPT_S, RATE, Reference
from voice_agent.media.resample import Resampler
from voice_agent.media.speaker import RATE as SPEAKER_RATE
from voice_agent.media.speaker import Speaker
from voice_agent.vad import SileroModel, StreamingVad, VadConfig

Pcm16 = npt.NDArray[np.int16]

BEGAN_S = 100.0


def tone(samples: int, rate: int = RATE) -> npt.NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(samples) / rate)).astype(np.float32)


def agent_voice(seconds: float) -> Pcm16:
    """int16 @ 16 kHz at -20 dBFS: half a second of silence, then speech."""
    speech = np.concatenate([recording("order_zh.flac"), recording("order_en.flac")]).astype(np.float32)
    speech *= 3277 / np.sqrt(np.mean(np.square(speech)))
    pcm = np.concatenate([np.zeros(RATE // 2), np.resize(speech, int(seconds * RATE))])
    return np.clip(pcm, -32768, 32767).astype(np.int16)[: int(seconds * RATE)]


def echo_of(far: Pcm16, delay_ms: int, level_db: float) -> Pcm16:
    """What a microphone hears of it in a room: the direct path, 250 ms of reverberation, a little noise."""
    noise = np.random.default_rng(1)
    reverberation = noise.standard_normal(RATE // 4) * 10 ** (-3 * np.arange(RATE // 4) / (RATE // 4)) * 0.15
    reverberation[0] = 1
    reverberation /= np.sqrt(np.sum(np.square(reverberation)))
    size = len(far) + len(reverberation)
    heard = np.fft.irfft(np.fft.rfft(far, size) * np.fft.rfft(reverberation, size), size)[: len(far)]
    late = np.concatenate([np.zeros(delay_ms * RATE // 1000), heard])[: len(far)]
    return np.asarray(late * 10 ** (level_db / 20) + noise.standard_normal(len(far)) * 3, np.int16)


def listen(
    canceller: EchoCanceller, reference: Reference, far: Pcm16, mic: Pcm16, chunk: int = 320
) -> Iterator[tuple[Pcm16, Pcm16]]:
    """A call: 20 ms of the far end are sent when they are due, the microphone's samples come in chunks."""
    sent = soxr.resample(far.astype(np.float32) / 32768, RATE, SPEAKER_RATE).astype(np.float32)
    due = 0
    for at in range(0, len(mic), chunk):
        piece = mic[at : at + chunk]
        while due * FRAME * 2 < at + len(piece):
            reference.push(sent[due * 480 : (due + 1) * 480], BEGAN_S + due * 0.02)
            due += 1
        yield piece, canceller.push(piece, BEGAN_S + (at + len(piece)) / RATE)


def cancelled(far: Pcm16, mic: Pcm16, chunk: int = 320) -> tuple[EchoCanceller, Pcm16]:
    reference = Reference(SPEAKER_RATE)
    canceller = EchoCanceller(reference)
    return canceller, np.concatenate([out for _, out in listen(canceller, reference, far, mic, chunk)])


def level_db(pcm: Pcm16) -> float:
    return float(10 * np.log10(np.mean(np.square(pcm, dtype=np.float64)) + 1e-9))


# The reference.


def test_what_was_sent_is_placed_by_its_time() -> None:
    reference = Reference(RATE)
    pcm = tone(3200)
    for at in range(0, 3200, 320):
        reference.push(pcm[at : at + 320], BEGAN_S + at / RATE + 1e-7)
    position = round(BEGAN_S * RATE)
    assert not reference.read(position - 320, 320).any()
    np.testing.assert_allclose(reference.read(position, 3200), Resampler(RATE, RATE).push(pcm) * 32767, atol=1.01)
    assert not reference.read(position + 3200, 320).any()
    assert reference.read(position + 3190, 20)[:10].any()


def test_what_came_ahead_is_heard_after_what_came_before_and_what_came_late_leaves_a_gap() -> None:
    reference = Reference(RATE)
    loud = np.ones(320, np.float32)
    position = round(BEGAN_S * RATE)
    for _ in range(5):  # a socket's lead
        reference.push(loud, BEGAN_S)
    assert reference.read(position + 100, 1400).all()
    assert not reference.read(position + 1600, 320).any()
    reference.push(loud, BEGAN_S + 0.2)
    assert not reference.read(position + 1600, 1500).any()
    assert reference.read(position + 3240, 200).all()


def test_the_reference_is_bounded() -> None:
    reference = Reference(RATE)
    for at in range(0, 6 * RATE, 320):
        reference.push(np.ones(320, np.float32), at / RATE)
    assert not reference.read(0, RATE).any()
    assert reference.read((6 - KEPT_S) * RATE, KEPT_S * RATE).all()
    reference.push(np.ones(320, np.float32), 60.0)
    assert not reference.read(5 * RATE, RATE).any()
    assert reference.read(60 * RATE, 320).any()


async def _speak(speaker: Speaker, packets: int) -> None:
    for _ in range(packets):
        await speaker.recv()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_reference_holds_what_left_after_the_fade() -> None:
    now = BEGAN_S

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    speaker = Speaker(now=lambda: now, sleep=sleep)
    await _speak(speaker, 5)
    speaker.write(0, tone(24_000, SPEAKER_RATE))
    await _speak(speaker, 10)
    speaker.pause()
    await _speak(speaker, 5)
    position = round(BEGAN_S * RATE)
    assert not speaker.reference.read(position, 5 * 320).any()
    assert level_db(speaker.reference.read(position + 1700, 3000)) == pytest.approx(level_db(tone(3000) * 32767), abs=1)  # type: ignore[arg-type]
    faded = np.abs(speaker.reference.read(position + 15 * 320, 400).astype(int))
    assert faded[:100].max() > 10_000
    assert faded[300:].max() < 2_500
    assert not speaker.reference.read(position + 16 * 320 + 100, 4 * 320 - 100).any()


# The delay.


@pytest.mark.parametrize("delay_ms", [5, 120, 700, 1400])
def test_the_delay_is_found_within_a_second_and_a_half_of_echo(delay_ms: int) -> None:
    far = np.concatenate([np.zeros(DelayEstimator.SPAN, np.int16), agent_voice(4)])
    mic = echo_of(far, delay_ms, -20)
    began = DelayEstimator.SPAN + RATE // 2 + delay_ms * RATE // 1000
    estimator = DelayEstimator()
    for end in range(DelayEstimator.SPAN, began + 3 * RATE // 2, DelayEstimator.HOP):
        estimator.take(mic[end - DelayEstimator.BLOCK : end], far[end - DelayEstimator.SPAN : end])
    assert estimator.delay_ms == pytest.approx(delay_ms, abs=0.5)


def test_another_voice_gives_no_delay() -> None:
    far, other = (np.resize(recording(name), 20 * RATE) for name in ("order_zh.flac", "order_en.flac"))
    estimator = DelayEstimator()
    for end in range(3 * RATE, 20 * RATE, DelayEstimator.HOP):
        estimator.take(other[end - DelayEstimator.BLOCK : end], far[end - DelayEstimator.SPAN : end])
        estimator.take(np.zeros(DelayEstimator.BLOCK, np.int16), far[end - DelayEstimator.SPAN : end])
    assert estimator.delay_ms is None


def test_coherence_tells_an_image_from_a_stranger() -> None:
    noise = np.random.default_rng(0)
    far, other = (np.asarray(noise.standard_normal(RATE) * 3000, np.int16) for _ in range(2))
    same, strange, half = Coherence(), Coherence(), Coherence()
    for at in range(0, RATE, FRAME):
        piece, stranger = far[at : at + FRAME], other[at : at + FRAME]
        seen = (
            same.push((piece * -0.3).astype(np.int16), piece),
            strange.push(stranger, piece),
            half.push(((piece + stranger) // 2).astype(np.int16), piece),
        )
    assert seen[0] > 0.99
    assert seen[1] < 0.15
    assert seen[2] == pytest.approx(0.5, abs=0.12)


# Cancelling.


def test_while_the_agent_is_silent_the_microphone_is_passed_on_as_it_is() -> None:
    mic = recording("order_zh.flac")[: 3 * RATE + 77]
    canceller, out = cancelled(np.zeros(len(mic), np.int16), mic)
    np.testing.assert_array_equal(out, mic[: len(mic) // FRAME * FRAME])
    assert canceller.delay_ms is None
    assert canceller.echo_share(RATE, 2 * RATE) == 0


def test_it_is_passed_on_again_after_the_echo_has_died_away() -> None:
    far = np.concatenate([agent_voice(3), np.zeros(3 * RATE, np.int16)])
    mic = echo_of(far, 120, -20)
    mic[4 * RATE :] = recording("order_zh.flac")[: 2 * RATE]
    _, out = cancelled(far, mic)
    np.testing.assert_array_equal(out[4 * RATE :], mic[4 * RATE :])
    assert level_db(out[2 * RATE : 3 * RATE]) < level_db(mic[2 * RATE : 3 * RATE]) - 20


def test_a_click_that_follows_one_of_the_agents_is_no_echo_of_it() -> None:
    for seed in range(6):
        noise = np.random.default_rng(seed)
        far, mic = np.zeros((2, 5 * RATE), np.int16)
        click, later = 30 * RATE // 1000, RATE + int(noise.integers(200, 1450)) * RATE // 1000
        far[RATE : RATE + click], mic[later : later + click] = noise.normal(0, 6000, (2, click))
        canceller, out = cancelled(far, mic)
        assert canceller.delay_ms is None
        assert np.array_equal(out, mic)


@pytest.mark.parametrize("chunk", [7, 160, 1000])
def test_any_chunking_gives_the_same_samples(chunk: int) -> None:
    far = agent_voice(4)
    mic = echo_of(far, 650, -10)  # far enough for the far end to be held back on the way
    whole, expected = cancelled(far, mic)
    other, out = cancelled(far, mic, chunk)
    np.testing.assert_array_equal(out, expected)
    assert other.delay_ms == whole.delay_ms
    assert other.echo_share(RATE, 4 * RATE) == whole.echo_share(RATE, 4 * RATE)


@pytest.mark.parametrize("level", [-10, -20, -30])
@pytest.mark.parametrize("delay_ms", [60, 120, 250, 900])
def test_of_a_loop_no_voice_is_left(level: int, delay_ms: int, silero: SileroModel) -> None:
    """Case B05, its loop: once the delay is known the agent's own voice is never anybody's turn."""
    far = agent_voice(9)
    mic = echo_of(far, delay_ms, level)
    canceller, out = cancelled(far, mic)
    known = 3 * RATE
    assert canceller.delay_ms == pytest.approx(delay_ms, abs=3)  # the resampler's delay, the room's
    assert level_db(out[known:]) < level_db(mic[known:]) - 15
    assert canceller.echo_share(len(out) - 2 * RATE, len(out)) > LIKELY_ECHO
    assert len(onsets(silero, mic)) > 0
    assert not [at for at in onsets(silero, out) if at > known]


@pytest.fixture(scope="module")
def silero() -> SileroModel:
    return SileroModel()


def onsets(silero: SileroModel, pcm: Pcm16) -> list[int]:
    return [event.at for event in StreamingVad(VadConfig(), silero).push(pcm) if event.kind == "onset"]


@pytest.mark.parametrize("level", [-10, -20, -30])
def test_the_caller_is_heard_over_the_echo(level: int, silero: SileroModel) -> None:
    """Case B05, its caller: a real voice gets through."""
    far = agent_voice(9)
    caller = np.zeros(9 * RATE, np.int16)
    words = recording("zh_wait.wav")
    words = (words * (3277 / np.sqrt(np.mean(np.square(words, dtype=np.float64))))).clip(-32768, 32767)
    caller[5 * RATE : 5 * RATE + len(words)] = words
    mic = (echo_of(far, 120, level).astype(int) + caller).clip(-32768, 32767).astype(np.int16)
    alone = min(onsets(silero, caller))
    reference = Reference(SPEAKER_RATE)
    canceller, vad = EchoCanceller(reference), StreamingVad(VadConfig(), silero)
    found: list[int] = []
    told = 1.0
    for _, out in listen(canceller, reference, far, mic):
        if canceller.echo_share(alone, alone + RATE // 5):
            told = canceller.echo_share(alone, alone + RATE // 5)
        found += [event.at for event in vad.push(out) if event.kind == "onset"]
    assert [at for at in found if 5 * RATE <= at <= alone + RATE // 4]
    assert told < LIKELY_ECHO


def test_a_real_room() -> None:
    far, mic = recording("echo_far.wav"), recording("echo_mic.wav")
    length = min(len(far), len(mic)) // FRAME * FRAME
    lead = np.zeros(3 * RATE, np.int16)
    canceller, out = cancelled(np.concatenate([lead, far[:length]]), np.concatenate([lead, mic[:length]]))
    heard, left = mic[2 * RATE : 9 * RATE], out[5 * RATE : 12 * RATE]
    assert level_db(heard) - level_db(left) > 25
    assert canceller.delay_ms == pytest.approx(35, abs=5)
    assert canceller.echo_share(len(lead) + 9 * RATE, len(lead) + 10 * RATE) > LIKELY_ECHO


def test_a_real_room_in_which_both_talk() -> None:
    far, mic = recording("doubletalk_far.wav"), recording("doubletalk_mic.wav")
    length = min(len(far), len(mic)) // FRAME * FRAME
    lead = np.zeros(3 * RATE, np.int16)
    canceller, out = cancelled(np.concatenate([lead, far[:length]]), np.concatenate([lead, mic[:length]]))
    out = out[len(lead) :]
    echo, both = slice(2 * RATE, int(3.8 * RATE)), slice(int(4.5 * RATE), 10 * RATE)
    assert level_db(mic[echo]) - level_db(out[echo]) > 10
    assert level_db(mic[both]) - level_db(out[both]) < 3
    assert canceller.echo_share(len(lead) + 9 * RATE, len(lead) + 10 * RATE) < 0.5


def test_a_hole_in_the_microphones_time_is_found() -> None:
    far = agent_voice(12)
    mic = echo_of(far, 100, -10)
    reference = Reference(SPEAKER_RATE)
    canceller = EchoCanceller(reference)
    out = []
    for number, (piece, _) in enumerate(listen(EchoCanceller(Reference(SPEAKER_RATE)), reference, far, mic)):
        if not 200 <= number < 225:  # half a second never comes
            out.append(canceller.push(piece, BEGAN_S + (number + 1) * 0.02))
    left, heard = np.concatenate(out)[-3 * RATE :], mic[-3 * RATE :]
    assert level_db(heard) - level_db(left) > 15


def test_two_calls_share_nothing() -> None:
    far = agent_voice(4)
    mic = echo_of(far, 60, -10)
    _, alone = cancelled(far, mic)
    references = [Reference(SPEAKER_RATE), Reference(SPEAKER_RATE)]
    one, other = (EchoCanceller(reference) for reference in references)
    silent = np.zeros_like(far)
    pairs = zip(listen(one, references[0], far, mic), listen(other, references[1], silent, mic), strict=True)
    heard = [(out, passed) for (_, out), (_, passed) in pairs]
    np.testing.assert_array_equal(np.concatenate([out for out, _ in heard]), alone)
    np.testing.assert_array_equal(np.concatenate([passed for _, passed in heard]), mic)


def test_other_audio_is_refused() -> None:
    canceller = EchoCanceller(Reference(SPEAKER_RATE))
    with pytest.raises(ValueError, match=r"expected int16\[T\], got float32\[10\]"):
        canceller.push(np.zeros(10, np.float32), 0.0)  # type: ignore[arg-type]


def test_a_caller_without_an_echo_is_heard_unchanged_while_the_agent_speaks() -> None:
    far = agent_voice(4.0)
    caller = np.roll(agent_voice(4.0)[::-1], 3000)
    canceller, heard = cancelled(far, caller)
    assert canceller.delay_ms is None
    assert np.array_equal(heard, caller)
    assert canceller.echo_share(RATE, 3 * RATE) == 0

"""The codec stage on the shipped weights: streaming, rows, sample counts, and its latent space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from voice_agent.engine.protocols import Codec
from voice_agent.tea.codec import LATENCY_SAMPLES, MEL_FLOOR, SAMPLES_PER_FRAME, LatentSpace, TeaCodec

WEIGHTS = Path(__file__).parents[1] / "models/tea-omni/weights/codec.safetensors"
FRAMES = 21


@pytest.fixture(scope="module")
def codec() -> TeaCodec:
    torch.set_num_threads(1)
    return TeaCodec.load(WEIGHTS, slots=4)


def random_codes(rows: int, frames: int = FRAMES, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 1024, (rows, frames, 12), generator=torch.Generator().manual_seed(seed))


def speak(codec: TeaCodec, codes: torch.Tensor, chunk: int, slot: int = 0) -> npt.NDArray[np.float32]:
    codec.start(slot)
    parts = [codec.step([slot], part[None])[0] for part in codes.split(chunk)]
    parts.append(codec.finish(slot))
    codec.free(slot)
    return np.concatenate(parts)


def test_it_is_a_codec(codec: TeaCodec) -> None:
    assert isinstance(codec, Codec)
    assert (codec.sample_rate, codec.samples_per_frame, codec.codebooks) == (24_000, 1200, 12)
    assert 0 <= codec.latency_samples < 2 * codec.samples_per_frame


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_streaming_equals_offline(codec: TeaCodec, chunk: int) -> None:
    codes = random_codes(1)[0]
    offline = speak(codec, codes, FRAMES)
    streamed = speak(codec, codes, chunk)
    assert offline.std() > 1e-3
    np.testing.assert_allclose(streamed, offline, rtol=0, atol=1e-5)


def test_sample_counts_follow_the_protocol(codec: TeaCodec) -> None:
    codec.start(0)
    total = 0
    for n, part in enumerate(random_codes(1).split(1, dim=1), 1):
        pcm = codec.step([0], part)[0]
        assert pcm.dtype == np.float32
        total += len(pcm)
        assert total == max(0, n * SAMPLES_PER_FRAME - LATENCY_SAMPLES)
    assert total + len(codec.finish(0)) == FRAMES * SAMPLES_PER_FRAME
    codec.free(0)


@pytest.mark.parametrize("frames", [0, 1])
def test_finish_after_fewer_frames_than_the_look_ahead(codec: TeaCodec, frames: int) -> None:
    assert len(speak(codec, random_codes(1, frames)[0], 1)) == frames * SAMPLES_PER_FRAME


def test_rows_do_not_affect_each_other(codec: TeaCodec) -> None:
    codes = random_codes(3)
    alone = [speak(codec, row, 3) for row in codes]
    slots = [2, 0, 3]
    for slot in slots:
        codec.start(slot)
    together = [codec.step(slots, part) for part in codes.split(3, dim=1)]
    for row, slot in enumerate(slots):
        pcm = np.concatenate([*(chunks[row] for chunks in together), codec.finish(slot)])
        codec.free(slot)
        np.testing.assert_allclose(pcm, alone[row], rtol=0, atol=1e-5)


def test_rows_join_and_leave_between_steps(codec: TeaCodec) -> None:
    codes = random_codes(2)
    expected = speak(codec, codes[1], 1)
    codec.start(0)
    codec.step([0], codes[:1, :5])
    codec.start(1)
    first = codec.step([0, 1], codes[:, :4])[1]
    codec.free(0)
    rest = codec.step([1], codes[1:, 4:])[0]
    pcm = np.concatenate([first, rest, codec.finish(1)])
    codec.free(1)
    np.testing.assert_allclose(pcm, expected, rtol=0, atol=1e-5)


def test_a_freed_slot_starts_afresh(codec: TeaCodec) -> None:
    codes = random_codes(1)[0]
    expected = speak(codec, codes, 2)
    codec.start(0)
    codec.step([0], random_codes(1, seed=1))
    codec.free(0)
    np.testing.assert_array_equal(speak(codec, codes, 2), expected)


def test_silence_is_quiet(codec: TeaCodec) -> None:
    space = LatentSpace.load(WEIGHTS)
    pcm = speak(codec, space.quantise(space.silence.repeat(20, 1)), 5)
    assert np.abs(pcm).max() < 0.01


def test_misuse_is_refused(codec: TeaCodec) -> None:
    with pytest.raises(ValueError, match="started row"):
        codec.step([1], random_codes(1))
    codec.start(1)
    with pytest.raises(ValueError, match="free slot"):
        codec.start(1)
    with pytest.raises(ValueError, match="expected codes int64"):
        codec.step([1], random_codes(1)[..., :7])
    with pytest.raises(ValueError, match="from 0 to 1023"):
        codec.step([1], random_codes(1) + 1000)
    codec.finish(1)
    with pytest.raises(ValueError, match="takes frames"):
        codec.step([1], random_codes(1))
    codec.free(1)
    with pytest.raises(ValueError, match="at least 1 slot"):
        TeaCodec.load(WEIGHTS, slots=0)


def test_every_codebook_brings_codes_nearer() -> None:
    space = LatentSpace.load(WEIGHTS)
    mel = torch.randn(40, 80, generator=torch.Generator().manual_seed(0)).cumsum(0) * 0.2
    latents = space.encode(mel)
    codes = space.quantise(latents)
    left, errors = latents, []
    for q, book in enumerate(space.codebooks):
        left = left - book[codes[:, q]]
        errors.append(float(left.square().mean()))
    assert errors == sorted(errors, reverse=True)
    torch.testing.assert_close(latents - space.lookup(codes), left, rtol=0, atol=1e-4)


def test_a_latent_is_a_projection_of_its_mel() -> None:
    space = LatentSpace.load(WEIGHTS)
    latents = space.encode(torch.full((10, 80), MEL_FLOOR - 1))
    assert latents.shape == (2, 64)
    torch.testing.assert_close(space.encode(torch.full((8, 80), MEL_FLOOR)), latents)
    torch.testing.assert_close(space.basis.T @ space.basis, torch.eye(64), rtol=0, atol=1e-4)

"""code2wav in a stream: the same samples as the whole at once, however the frames come."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

from tests import tiny_qwen
from voice_agent.qwen.cache import SlotCache, WindowCache, WindowStep
from voice_agent.qwen.codec import QwenCodec

FRAMES = 30  # more than three windows of the tiny model's transformer


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def code2wav() -> Qwen3OmniMoeCode2Wav:
    return tiny_qwen.network().code2wav


@pytest.fixture(scope="module")
def codes() -> torch.Tensor:
    return torch.randint(0, 1100, (3, FRAMES, 4), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def offline(code2wav: Qwen3OmniMoeCode2Wav, codes: torch.Tensor) -> np.ndarray:
    with torch.inference_mode():
        wave = code2wav(codes.transpose(1, 2))[:, 0].numpy()
    assert wave.shape == (3, 1920 * FRAMES - 555)
    assert 0.05 < np.abs(wave).max() < 1
    return wave


def at_random(seed: int) -> list[int]:
    """Sizes of 1 to 9 frames that make up the whole."""
    chance, sizes = random.Random(seed), []
    while left := FRAMES - sum(sizes):
        sizes.append(min(left, chance.randint(1, 9)))
    return sizes


@pytest.mark.parametrize(
    "sizes", [[1] * 30, [2] * 15, [3] * 10, [7, 7, 7, 7, 2], [25, 5], [FRAMES], *map(at_random, range(4))]
)
def test_any_chunking_gives_the_offline_samples(
    code2wav: Qwen3OmniMoeCode2Wav, codes: torch.Tensor, offline: np.ndarray, sizes: list[int]
) -> None:
    codec = QwenCodec(code2wav, 1)
    codec.start(0)
    chunks = [codec.step([0], part.unsqueeze(0))[0] for part in codes[0].split(sizes)]
    assert [len(chunk) for chunk in chunks] == [1920 * sizes[0] - 555, *(1920 * size for size in sizes[1:])]
    chunks.append(codec.finish(0))
    pcm = np.concatenate(chunks)
    assert pcm.dtype == np.float32
    assert np.abs(pcm - offline[0]).max() < 1e-5


def test_rows_that_join_and_leave_do_not_touch_one_another(
    code2wav: Qwen3OmniMoeCode2Wav, codes: torch.Tensor, offline: np.ndarray
) -> None:
    codec = QwenCodec(code2wav, 2)
    chance = random.Random(3)
    waiting = [0, 1, 2, 0, 1, 2]
    rows: dict[int, tuple[int, int, list[np.ndarray]]] = {}
    whole = aborts = 0
    while waiting or rows:
        free = [slot for slot in range(2) if slot not in rows]
        if waiting and free:
            codec.start(free[0])
            rows[free[0]] = (waiting.pop(), 0, [])
        count = chance.choice([1, 1, 2, 4])
        taken = [s for s, (_, at, _) in rows.items() if at + count <= FRAMES and chance.random() < 0.7]
        if taken:
            batch = torch.stack([codes[rows[s][0], rows[s][1] : rows[s][1] + count] for s in taken])
            for slot, pcm in zip(taken, codec.step(taken, batch), strict=True):
                which, at, made = rows[slot]
                rows[slot] = (which, at + count, [*made, pcm])
        for slot, (which, at, made) in list(rows.items()):
            aborted = at > 0 and chance.random() < 0.02
            if at == FRAMES or aborted:
                pcm = np.concatenate(made)
                assert np.abs(pcm - offline[which, : len(pcm)]).max() < 1e-5
                whole += at == FRAMES
                aborts += at < FRAMES
                codec.free(slot)
                del rows[slot]
    assert whole >= 2
    assert aborts >= 1


def test_what_it_says_of_itself(code2wav: Qwen3OmniMoeCode2Wav) -> None:
    codec = QwenCodec(code2wav, 1)
    assert (codec.sample_rate, codec.samples_per_frame, codec.latency_samples, codec.codebooks) == (
        24_000,
        1920,
        555,
        4,
    )


def test_bad_codes_and_slots_are_refused(code2wav: Qwen3OmniMoeCode2Wav) -> None:
    codec = QwenCodec(code2wav, 1)
    with pytest.raises(ValueError, match="expected a started slot, got 0"):
        codec.step([0], torch.zeros(1, 1, 4, dtype=torch.long))
    codec.start(0)
    with pytest.raises(ValueError, match="expected a free slot, got 0"):
        codec.start(0)
    with pytest.raises(ValueError, match="expected 4 codes a frame, got 16"):
        codec.step([0], torch.zeros(1, 1, 16, dtype=torch.long))
    with pytest.raises(ValueError, match="expected codes from 0 to 1099, got 0 to 1100"):
        codec.step([0], torch.tensor([[[0, 0, 0, 1100]]]))


def test_a_window_holds_the_positions_before_the_query() -> None:
    cache = WindowCache(
        layers=1, rows=2, heads=1, window=4, head_dim=1, dtype=torch.float32, device=torch.device("cpu")
    )
    step = WindowStep(cache, torch.tensor([1]), torch.tensor([[2, 3]]))
    assert step.positions.tolist() == [[2, 3]]
    # Keys stand at positions -1 to 3.
    assert step.mask[0, 0].int().tolist() == [[0, 1, 1, 1, 0], [0, 1, 1, 1, 1]]


def test_a_cache_step_shows_a_row_its_own_past_alone() -> None:
    cache = SlotCache(layers=1, rows=3, heads=1, length=4, head_dim=1, dtype=torch.float32, device=torch.device("cpu"))
    new = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1)
    step = cache.step([2, 0], [0, 2], 1)
    keys, values = step.update(new, -new, 0)
    assert keys[:, 0, :, 0].tolist() == [[1, 0, 0], [0, 0, 2]]
    assert values[:, 0, :, 0].tolist() == [[-1, 0, 0], [0, 0, -2]]
    assert step.mask[:, 0].int().tolist() == [[[1, 0, 0]], [[1, 1, 1]]]
    with pytest.raises(ValueError, match="expected at most 4 positions a row, got 5"):
        cache.step([0], [4], 1)

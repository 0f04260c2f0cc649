from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from voice_agent.engine.protocols import CodecFrame, Language, Talker, TextToken
from voice_agent.tea.codec import LatentSpace
from voice_agent.tea.talker import LEAD_SECONDS, TeaTalker, save
from voice_agent.tea.talker_net import (
    LANGUAGES,
    LEFT,
    RIGHT,
    ResidualQuantiser,
    TalkerConfig,
    TalkerNet,
    language_of,
    placement,
)
from voice_agent.tea.thinker import TeaThinker

WEIGHTS = Path(__file__).parents[1] / "models" / "tea-omni" / "weights" / "talker.safetensors"
PHONES = (
    "pad",
    "sil/edge",
    "sil/.",
    "sil/,",
    *(f"{'en' if letter in 'aeiou' else 'zh'}/{letter}" for letter in "abdefgiklmnoprstuvz"),
)


def random_net() -> TalkerNet:
    torch.manual_seed(3)
    config = TalkerConfig(PHONES, 24, 16, width=32, blocks=3, window_width=12, pronouncer_width=20, phone_slots=6)
    return TalkerNet(config, torch.randn(4, 32, 16))


@pytest.fixture(params=["random", "shipped"])
def talker(request: pytest.FixtureRequest) -> TeaTalker:
    if request.param == "shipped":
        return TeaTalker.load(WEIGHTS, 4)
    return TeaTalker(random_net(), 4)


def reply(talker: TeaTalker, length: int, seed: int) -> list[TextToken]:
    generator = torch.Generator().manual_seed(seed)
    size = talker.net.config.hidden_size
    return [TextToken(i, f"t{i}", torch.randn(size, generator=generator)) for i in range(length)]


def drain(talker: TeaTalker, slot: int) -> list[CodecFrame]:
    frames = []
    while talker.ready(slot) and (frame := talker.step([slot])[0]) is not None:
        frames.append(frame)
    return frames


def speak(talker: TeaTalker, slot: int, tokens: Sequence[TextToken], chunks: Sequence[int]) -> list[CodecFrame]:
    """Push chunks of these sizes, making every frame that is ready in between."""
    talker.start(slot, "en")
    frames, first = [], 0
    for size in chunks:
        talker.push(slot, tokens[first : first + size])
        first += size
        frames += drain(talker, slot)
    talker.finish(slot)
    frames += drain(talker, slot)
    talker.free(slot)
    return frames


def assert_same(latents: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to 1e-5 of the range that the latents take."""
    assert latents.shape == expected.shape
    assert float((latents - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


class Recorder:
    """Keeps the latents that a talker quantises."""

    def __init__(self, talker: TeaTalker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.latents: list[torch.Tensor] = []
        quantise = talker.quantise

        def codes(latents: torch.Tensor) -> torch.Tensor:
            self.latents.append(latents.clone())
            return quantise(latents)

        monkeypatch.setattr(talker, "quantise", codes)

    def take(self) -> torch.Tensor:
        taken, self.latents = torch.cat(self.latents), []
        return taken


def test_it_is_a_talker(talker: TeaTalker) -> None:
    assert isinstance(talker, Talker)
    assert talker.frame_rate == 20.0


@pytest.mark.parametrize("chunks", [[1] * 12, [5, 1, 6], [2, 10], [11, 1]])
def test_frames_do_not_depend_on_how_the_text_arrives(
    talker: TeaTalker, chunks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = reply(talker, 12, seed=1)
    recorder = Recorder(talker, monkeypatch)
    whole = speak(talker, 0, tokens, [12])
    expected = recorder.take()
    streamed = speak(talker, 1, tokens, chunks)
    assert torch.equal(recorder.take(), expected)
    assert [f.position for f in streamed] == [f.position for f in whole]
    assert torch.equal(torch.stack([f.codes for f in streamed]), torch.stack([f.codes for f in whole]))


def test_streamed_latents_equal_one_pass_of_the_network(talker: TeaTalker, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = reply(talker, 9, seed=5)
    recorder = Recorder(talker, monkeypatch)
    talker.start(2, "en")
    talker.push(2, tokens)
    talker.finish(2)
    row = talker._row(2)
    frames = drain(talker, 2)
    padded = torch.tensor([[0] * LEFT + row.phones + [0] * RIGHT])
    own = [LANGUAGES.index(language_of(talker.net.config.phones[phone]) or "en") for phone in row.phones]
    languages = [1] * LEFT + own + [1] * RIGHT
    under, timing = placement(np.array(row.ends), range(len(frames)), talker.frame_rate)
    with torch.inference_mode():
        content, _, _ = talker.net.encoder(padded, torch.tensor([languages]))
        offline = talker.net.frames(content[0][torch.from_numpy(under)][None], torch.from_numpy(timing)[None])
    assert_same(recorder.take(), offline[0])


def test_rows_do_not_depend_on_their_batch(talker: TeaTalker, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [reply(talker, length, seed=length) for length in (4, 9, 6)]
    recorder = Recorder(talker, monkeypatch)
    alone = []
    for tokens in replies:
        speak(talker, 0, tokens, [len(tokens)])
        alone.append(recorder.take())
    for slot, tokens in enumerate(replies):
        talker.start(slot, "en")
        talker.push(slot, tokens)
        talker.finish(slot)
    together: list[list[torch.Tensor]] = [[], [], []]
    active = [0, 1, 2]
    while active:
        frames = talker.step(active)
        active = [slot for slot, frame in zip(active, frames, strict=True) if frame is not None]
        for slot, latent in zip(active, recorder.take() if active else (), strict=True):
            together[slot].append(latent)
    for slot, expected in enumerate(alone):
        assert_same(torch.stack(together[slot]), expected)


def test_positions_visit_every_spoken_token_in_order(talker: TeaTalker) -> None:
    tokens = reply(talker, 10, seed=2)
    talker.start(0, "en")
    talker.push(0, tokens)
    talker.finish(0)
    spoken = sorted(set(talker._row(0).tokens))
    seconds = talker._row(0).ends[-1]
    positions = [frame.position for frame in drain(talker, 0)]
    assert positions == sorted(positions)
    assert len(positions) == pytest.approx(seconds * talker.frame_rate, abs=1)
    assert set(positions) <= set(spoken)


def test_a_row_waits_for_text_and_ends_after_it(talker: TeaTalker) -> None:
    tokens = reply(talker, 8, seed=4)
    talker.start(0, "en")
    assert not talker.ready(0)
    talker.push(0, tokens[:1])
    assert not talker.ready(0)
    with pytest.raises(ValueError, match="waits for text"):
        talker.step([0])
    talker.push(0, tokens[1:])
    talker.finish(0)
    assert talker.ready(0)
    drain(talker, 0)
    assert talker.step([0]) == [None]


def test_an_empty_reply_is_silence(talker: TeaTalker) -> None:
    talker.start(0, "zh")
    talker.finish(0)
    assert 1 <= len(drain(talker, 0)) <= 3
    assert LEAD_SECONDS < 0.05


def test_a_freed_slot_is_as_new(talker: TeaTalker) -> None:
    tokens = reply(talker, 7, seed=6)
    expected = speak(talker, 0, tokens, [7])
    talker.start(0, "en")
    talker.push(0, reply(talker, 30, seed=7))
    talker.step([0])
    talker.free(0)
    again = speak(talker, 0, tokens, [7])
    assert torch.equal(torch.stack([f.codes for f in again]), torch.stack([f.codes for f in expected]))
    assert not talker._past[0].any()


def test_misuse_is_refused(talker: TeaTalker) -> None:
    with pytest.raises(ValueError, match="which is free"):
        talker.push(1, [])
    talker.start(1, "zh")
    with pytest.raises(ValueError, match="in use"):
        talker.start(1, "zh")
    with pytest.raises(ValueError, match="expected hidden states"):
        talker.push(1, [TextToken(0, "a", torch.zeros(3))])
    with pytest.raises(ValueError, match="expected no voice"):
        talker.start(0, "zh", voice="en")
    talker.finish(1)
    with pytest.raises(ValueError, match="after the end"):
        talker.push(1, reply(talker, 1, seed=0))


def test_a_reply_is_spoken_as_fast_as_asked_and_its_edges_as_ever(talker: TeaTalker) -> None:
    tokens = reply(talker, 9, seed=2)
    ends = []
    for slot, speed in enumerate((1.0, 1.25)):
        talker.start(slot, "en", speed=speed)
        talker.push(slot, tokens)
        talker.finish(slot)
        ends.append(np.array(talker._row(slot).ends))
        assert len(drain(talker, slot)) == math.ceil(ends[-1][-1] * talker.frame_rate)
    usual, faster = (np.diff(each) for each in ends)
    assert np.allclose(np.clip(usual[:-2] / 1.25, 0.0125, None), faster[:-2])
    assert ends[0][0] == ends[1][0] == LEAD_SECONDS
    for speed in (0.4, 1.6):
        with pytest.raises(ValueError, match="expected a speed"):
            talker.start(3, "en", speed=speed)


def test_saved_weights_speak_the_same(tmp_path: Path) -> None:
    net = random_net()
    save(net, tmp_path / "talker.safetensors", "0" * 64)
    loaded = TeaTalker.load(tmp_path / "talker.safetensors", 1)
    assert loaded.net.config == net.config
    for name, tensor in net.state_dict().items():
        torch.testing.assert_close(loaded.net.state_dict()[name], tensor, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("language", "text", "phones"),
    [
        (
            "zh",
            "好的，少冰珍珠奶茶一杯。",
            "h ao3 d e5 sil/, sh ao3 b ing1 zh en1 zh u1 n ai3 ch a2 ^ i4 b ei1 sil/.",
        ),
        (
            "en",
            "Hello, what would you like to drink?",
            "h ᵊ l O2 sil/, w ʌ t w ʊ d j u l I2 k t ə d ɹ ɪ2 ŋ k sil/?",
        ),
        (
            "zh",
            "一共18.5元，取餐号0027。",
            "^ i2 g ong4 sh iii2 b a1 d ian2 ^ u3 ^ van2 sil/, q v3 c an1 h ao4 l ing2 l ing2 ^ er4 q i1 sil/.",
        ),
        (
            "zh",
            "您的latte好了，VIP会员。",
            "n in2 d e5 en/l en/ɑ2 en/t en/A h ao3 l e5 sil/, en/v en/i2 en/I en/p en/i2 h uei4 ^ van2 sil/.",
        ),
        ("en", "Your 珍珠奶茶 is ready.", "j ʊ ɹ zh/zh zh/en1 zh/zh zh/u1 zh/n zh/ai3 zh/ch zh/a2 ɪ z ɹ ɛ2 d i sil/."),
    ],
)
def test_the_shipped_talker_reads_the_shipped_thinker(language: Language, text: str, phones: str) -> None:
    talker = TeaTalker.load(WEIGHTS, 1)
    talker.start(0, language)
    talker.push(0, TeaThinker.load(WEIGHTS.with_name("thinker.safetensors"), 1).hidden_of_reply(language, text))
    talker.finish(0)
    names = [talker.net.config.phones[phone].removeprefix(f"{language}/") for phone in talker._row(0).phones]
    assert names == ["sil/edge", *phones.split(), "sil/edge"]


def test_the_shipped_talker_writes_the_shipped_codecs_codes() -> None:
    codec = LatentSpace.load(WEIGHTS.with_name("codec.safetensors"))
    assert torch.equal(TeaTalker.load(WEIGHTS, 1).net.codebooks, codec.codebooks)


def test_codes_take_the_nearest_of_each_codebook() -> None:
    codebooks = torch.randn(4, 32, 16)
    latents = torch.randn(5, 16)
    codes = ResidualQuantiser(codebooks)(latents)
    residual = latents
    for book, chosen in zip(codebooks, codes.t(), strict=True):
        nearest = torch.cdist(residual, book).argmin(-1)
        assert torch.equal(nearest, chosen)
        residual = residual - book[nearest]

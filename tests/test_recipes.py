"""The recipes of codec and talker on a tiny corpus of noise: from nothing, from the shipped weights, and going on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from voice_agent.tea.codec import (
    INPUT_CHANNELS,
    INPUT_KERNEL,
    OUTPUT_KERNEL,
    PQMF_TAPS,
    STAGES,
    SUBBANDS,
    Decoder,
    LatentSpace,
)
from voice_agent.tea.talker import TeaTalker
from voice_agent.tea.talker_net import TalkerConfig
from voice_agent.tea.thinker import TeaThinker
from voice_agent.weights import sha256_of

RECIPES = Path(__file__).parents[1] / "models" / "tea-omni"
WEIGHTS = RECIPES / "weights"
UTTERANCES, HELD_OUT, MEL_FRAMES = 14, 2, 200
ZH = [("sil", 3), ("h", 20), ("ao3", 57), ("d", 20), ("e5", 60), ("sil", 40)]
EN = [("sil", 0.2, -1), ("s", 0.4, 0), ("ɛ2", 0.6, 0), ("v", 0.4, 1), ("ə", 0.3, 1), ("n", 0.2, 1), ("sil", 0.4, 2)]


@pytest.fixture(scope="module")
def recipe() -> Iterator[SimpleNamespace]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(RECIPES))
        import acoustic
        import distil_vocoder
        import fit_latents
        import train_codec
        import train_talker
        import training

        torch.set_num_threads(1)
        yield SimpleNamespace(
            acoustic=acoustic,
            distil=distil_vocoder,
            latents=fit_latents,
            codec=train_codec,
            talker=train_talker,
            training=training,
        )


def write_meta(folder: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / "meta.jsonl").write_text(text, encoding="utf-8")


def vocoder(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights in the layout of the Mandarin teacher's vocoder."""

    def layer(outputs: int, kernel: int, inputs: int, transposed: bool = False) -> np.ndarray:
        shape = (outputs, kernel, 1, inputs) if transposed else (outputs, 1, kernel, inputs)
        return (random.normal(size=shape) / (kernel * inputs) ** 0.5).astype(np.float32)

    layers, inputs = [layer(INPUT_CHANNELS, INPUT_KERNEL, 80)], INPUT_CHANNELS
    for stage in STAGES:
        layers.append(layer(stage.channels, 2 * stage.rate, inputs, transposed=True))
        layers += [layer(stage.channels, kernel, stage.channels) for _ in range(4) for kernel in (1, 3, 1)]
        inputs = stage.channels
    layers += [layer(SUBBANDS, OUTPUT_KERNEL, inputs), np.ones((1, 1, 1, 1), np.float32), layer(1, PQMF_TAPS, SUBBANDS)]
    named = {f"{i:02d}.weight": weight for i, weight in enumerate(layers)}
    return named | {f"{i:02d}.bias": np.zeros(weight.shape[0], np.float32) for i, weight in enumerate(layers)}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Speech that is noise, with phones that the shipped talker knows."""
    random = np.random.default_rng(0)
    for folder in ("zh/mel", "en/wav", "codec"):
        (tmp_path / folder).mkdir(parents=True)
    zh, en = [], []
    for i in range(UTTERANCES):
        np.save(tmp_path / f"zh/mel/{i}.npy", random.normal(size=(MEL_FRAMES, 80)).astype(np.float32))
        soundfile.write(tmp_path / f"en/wav/{i}.wav", random.uniform(-0.3, 0.3, MEL_FRAMES * 300), 24_000)
        tokens = [{"text": c} for c in "好的。"]
        phones = [[name, frames * 0.0125] for name, frames in ZH]
        owners = {"phones": phones, "phone_token": [0, 0, 0, 1, 1, 2], "tokens": tokens}
        zh.append({"wav": f"wav/{i}.wav", "mel": f"mel/{i}.npy", "text": "好的。", **owners})
        en.append({"wav": f"wav/{i}.wav", "text": "Say van.", "tokens": ["Say", "van", "."], "phones": EN})
    write_meta(tmp_path / "zh", zh)
    write_meta(tmp_path / "en", en)
    np.savez(tmp_path / "codec" / "vocoder.npz", **vocoder(random))
    return tmp_path


def test_a_mixture_is_its_parts_joined_where_words_begin(recipe: SimpleNamespace, cache: Path) -> None:
    recipe.latents.main(["--cache", str(cache), "--warm", str(WEIGHTS)])
    corpus = recipe.talker.Corpus(cache, None, HELD_OUT)
    (e,) = corpus.mixtures["zh"]
    guest = corpus.test["en"][0]
    assert e.item.phones == ("sil/edge", "zh/h", "zh/ao3", "en/s", "en/ɛ2", "zh/d", "zh/e5", "sil/.", "sil/edge")
    assert e.language.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0]
    hosts = [h for h in corpus.train["zh"] if len(h.phones) < len(e.phones)]
    cut, inserted = 80, round(float(guest.item.seconds[1:3].sum()) / 0.0125)
    mel = e.mel.reshape(-1, 80)
    (host,) = [h for h in hosts if torch.equal(h.mel.reshape(-1, 80)[:cut], mel[:cut])]
    left = len(mel) - cut - inserted
    assert torch.equal(mel[cut + inserted :], host.mel.reshape(-1, 80)[cut : cut + left])
    assert any(
        torch.equal(mel[cut : cut + inserted], g.mel.reshape(-1, 80)[12 : 12 + inserted]) for g in corpus.train["en"]
    )


def checkpoint(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def test_a_codec_from_nothing_goes_on_where_it_was_stopped(
    recipe: SimpleNamespace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe.latents, "CODEBOOKS", 2)
    monkeypatch.setattr(recipe.latents, "ENTRIES", 16)
    common = ["--cache", str(cache), "--held-out", str(HELD_OUT)]
    recipe.latents.main(common)
    recipe.distil.main([*common, "--excerpts", "5"])
    recipe.codec.main([*common, "--minutes", "0.001", "--batch", "2"])
    first = checkpoint(cache / "codec" / "train.pt")
    assert first["step"] >= 1
    recipe.codec.main([*common, "--minutes", "0.001", "--batch", "2"])
    assert checkpoint(cache / "codec" / "train.pt")["step"] == first["step"]
    minutes = first["seconds"] / 60 + 0.001
    recipe.codec.main([*common, "--minutes", str(minutes), "--batch", "2"])
    assert checkpoint(cache / "codec" / "train.pt")["step"] > first["step"]
    recipe.codec.main(["--cache", str(cache), "--export", str(cache / "codec.safetensors")])
    space = load_file(cache / "codec" / "space.safetensors")
    torch.testing.assert_close(Decoder.load(cache / "codec.safetensors").space.basis, space["space.basis"])


def test_a_codec_from_shipped_weights_starts_with_them(recipe: SimpleNamespace, cache: Path) -> None:
    common = ["--cache", str(cache), "--held-out", str(HELD_OUT)]
    recipe.latents.main([*common, "--warm", str(WEIGHTS)])
    recipe.codec.main([*common, "--warm", str(WEIGHTS), "--minutes", "0"])
    recipe.codec.main(["--cache", str(cache), "--export", str(cache / "codec.safetensors")])
    shipped, exported = load_file(WEIGHTS / "codec.safetensors"), load_file(cache / "codec.safetensors")
    assert shipped.keys() == exported.keys()
    assert all(torch.equal(shipped[name], exported[name]) for name in shipped)
    recipe.codec.main([*common, "--warm", str(WEIGHTS), "--minutes", "0.001", "--batch", "2"])
    assert checkpoint(cache / "codec" / "train.pt")["step"] >= 1


def test_every_other_utterance_of_a_codec_is_what_the_talker_makes_of_it(recipe: SimpleNamespace, cache: Path) -> None:
    recipe.latents.main(["--cache", str(cache), "--held-out", str(HELD_OUT), "--warm", str(WEIGHTS)])
    space = LatentSpace.load(cache / "codec" / "space.safetensors")
    lines = {language: recipe.codec.read_meta(cache / language) for language in ("zh", "en")}
    teacher = recipe.codec.TeacherVocoder(cache / "codec" / "vocoder.npz")
    copy = recipe.codec.Copy(WEIGHTS / "talker.safetensors")
    with torch.inference_mode():
        own = recipe.codec.Excerpts(cache, lines, space, teacher, 0)
        through = recipe.codec.Excerpts(cache, lines, space, teacher, 0, copy)
        for language in ("zh", "en"):
            assert torch.equal(own.utterance(language, 0)[0], through.utterance(language, 0)[0])
            codes, target = through.utterance(language, 1)
            assert codes.shape == own.utterance(language, 1)[0].shape
            assert not torch.equal(codes, own.utterance(language, 1)[0])
            assert torch.equal(target, own.utterance(language, 1)[1])
            mel = recipe.codec.normalised_mel(cache / language, lines[language][1], space)
            line = lines[language][1]
            assert torch.equal(codes, copy.codes(cache / language, line, language, mel))
            strange = [["sil" if name == "sil" else "qq", *rest] for name, *rest in line["phones"]]
            assert copy.codes(cache / language, {**line, "phones": strange}, language, mel) is None


def test_a_codec_of_other_latents_is_refused(recipe: SimpleNamespace, cache: Path) -> None:
    common = ["--cache", str(cache), "--held-out", str(HELD_OUT)]
    recipe.latents.main([*common, "--warm", str(WEIGHTS)])
    path = cache / "codec" / "space.safetensors"
    space = load_file(path)
    save_file(space | {"space.basis": space["space.basis"].flip(1).contiguous()}, path)
    with pytest.raises(ValueError, match="basis"):
        recipe.codec.main([*common, "--warm", str(WEIGHTS), "--minutes", "0"])


def test_too_little_speech_for_the_codebooks_is_refused(recipe: SimpleNamespace, cache: Path) -> None:
    with pytest.raises(ValueError, match="at least 1024 codec frames"):
        recipe.latents.main(["--cache", str(cache), "--held-out", str(UTTERANCES - 2)])


def test_the_projection_can_be_taken_out_and_put_in_again(recipe: SimpleNamespace) -> None:
    shipped = {name: value.float() for name, value in load_file(WEIGHTS / "talker.safetensors").items()}
    space = recipe.acoustic.LatentSpace.load(WEIGHTS / "codec.safetensors")
    config, state = recipe.acoustic.load_shipped(WEIGHTS)
    assert config.latent_size == 320
    assert state["frames.out.weight"].shape == (320, 256)
    again = recipe.acoustic.folded(state, space, recipe.acoustic.SHARPENING)
    assert again.keys() == recipe.acoustic.acoustic_part(shipped).keys()
    for name, value in again.items():
        torch.testing.assert_close(value, shipped[name], rtol=1e-4, atol=1e-4)


def test_a_talker_from_shipped_weights_starts_with_them_and_goes_on(recipe: SimpleNamespace, cache: Path) -> None:
    recipe.latents.main(["--cache", str(cache), "--warm", str(WEIGHTS)])
    common = ["--cache", str(cache), "--held-out", str(HELD_OUT), "--batch", "2", "--warm", str(WEIGHTS)]
    recipe.talker.main([*common, "--minutes", "0"])
    state = checkpoint(cache / "talker" / "talker.pt")
    config, acoustic = recipe.acoustic.load_shipped(WEIGHTS)
    assert TalkerConfig.from_json(state["config"]) == config
    for name, value in acoustic.items():
        torch.testing.assert_close(state["average"][name], value)
    recipe.talker.main([*common, "--minutes", "0.001"])
    first = checkpoint(cache / "talker" / "talker.pt")
    assert first["step"] >= 1
    assert not torch.equal(first["net"]["frames.out.weight"], acoustic["frames.out.weight"])
    recipe.talker.main([*common, "--minutes", str(first["seconds"] / 60 + 0.001)])
    assert checkpoint(cache / "talker" / "talker.pt")["step"] > first["step"]


def test_a_talker_from_nothing_knows_the_sounds_that_it_heard(recipe: SimpleNamespace, cache: Path) -> None:
    recipe.latents.main(["--cache", str(cache), "--warm", str(WEIGHTS)])
    recipe.talker.main(["--cache", str(cache), "--held-out", "2", "--batch", "2", "--minutes", "0.001"])
    state = checkpoint(cache / "talker" / "talker.pt")
    phones = TalkerConfig.from_json(state["config"]).phones
    heard = {f"zh/{name}" for name, _ in ZH if name != "sil"} | {f"en/{name}" for name, *_ in EN if name != "sil"}
    assert {name for name in phones if "/" in name and not name.startswith("sil")} == heard
    assert state["step"] >= 1


def test_a_corpus_leaves_out_what_the_weights_cannot_say(recipe: SimpleNamespace, cache: Path) -> None:
    recipe.latents.main(["--cache", str(cache), "--warm", str(WEIGHTS)])
    config, _ = recipe.acoustic.load_shipped(WEIGHTS)
    without = [name for name in config.phones if name != "zh/ao3"]
    corpus = recipe.talker.Corpus(cache, without, HELD_OUT)
    assert corpus.left_out == UTTERANCES
    assert [len(corpus.train[language]) for language in ("zh", "en")] == [0, UTTERANCES - HELD_OUT]
    with pytest.raises(ValueError, match="at least 40 zh utterances, got 12"):
        recipe.talker.main(["--cache", str(cache), "--held-out", "2", "--batch", "20", "--minutes", "0"])


def test_a_pronouncer_is_fitted_to_the_shipped_acoustic_part(
    recipe: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("espeakng_loader", reason="the train extra is not installed")
    pytest.importorskip("phonemizer", reason="the train extra is not installed")
    import train_pronouncer

    monkeypatch.setattr(train_pronouncer, "TEST_TURNS", 4)
    out = tmp_path / "talker.safetensors"
    options = ["--cache", str(tmp_path), "--warm", str(WEIGHTS), "--out", str(out), "--turns", "4", "--steps", "2"]
    train_pronouncer.main(options)
    shipped, fitted = load_file(WEIGHTS / "talker.safetensors"), load_file(out)
    for name, value in recipe.acoustic.acoustic_part(shipped).items():
        torch.testing.assert_close(fitted[name], value, rtol=2e-3, atol=1e-3)
    assert not torch.equal(fitted["pronouncer.out.weight"], shipped["pronouncer.out.weight"])
    with safe_open(out, framework="pt") as file:
        assert file.metadata()["thinker_sha256"] == sha256_of(WEIGHTS / "thinker.safetensors")


def test_muon_steps_as_torchs_own(recipe: SimpleNamespace) -> None:
    """Which always computes in bfloat16, so that each of its steps is off by up to some hundredths."""
    torch.manual_seed(0)
    for shape in ((24, 40), (40, 24)):
        ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
        pair = (
            recipe.training.Muon([ours], 0.02),
            torch.optim.Muon([theirs], 0.02, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        )
        for _ in range(3):
            ours.grad = torch.randn(shape)
            theirs.grad = ours.grad.clone()
            for optimizer in pair:
                optimizer.step()
        moved = (theirs - 1).detach()
        assert moved.norm() > 0.1
        assert (ours - theirs).norm() < 0.03 * moved.norm()


def test_given_texts_are_read_sound_by_sound(recipe: SimpleNamespace) -> None:
    """Sentences that the pronouncer was not fitted on: the sounds that it reads off the thinker's hidden states."""
    pytest.importorskip("espeakng_loader", reason="the train extra is not installed")
    pytest.importorskip("phonemizer", reason="the train extra is not installed")
    import train_pronouncer

    talker = TeaTalker.load(WEIGHTS / "talker.safetensors", 1)
    thinker = TeaThinker.load(WEIGHTS / "thinker.safetensors", 1)
    lexicon = train_pronouncer.Lexicon(talker.net.config.phones)
    lines = [json.loads(line) for line in (RECIPES / "eval_sentences.jsonl").read_text("utf-8").splitlines()]
    for language in ("zh", "en"):
        right = []
        for text in (line["text"] for line in lines if line["language"] == language):
            tokens = thinker.hidden_of_reply(language, text)
            following = [*(token.hidden for token in tokens[1:]), torch.zeros(thinker.hidden_size)]
            wanted = lexicon.phones([thinker.vocabulary.tokens[token.id] for token in tokens], language)
            for token, after, phones in zip(tokens, following, wanted, strict=True):
                right.append(talker.net.pronouncer.phones(token.hidden, after) == phones)
        assert len(right) > 700
        assert sum(right) / len(right) >= 0.99

"""Fine-tunes the codec's decoder end to end, from the weights that `distil_vocoder.py` fitted.

    python models/tea-omni/train_codec.py CODEC --zh ZH --en EN --minutes 60
    python models/tea-omni/train_codec.py CODEC --export models/tea-omni/weights/codec.safetensors
    python models/tea-omni/train_codec.py CODEC --plot models/tea-omni/card/codec.png

Input: quantised latents of random excerpts, half of them English. Target: for Mandarin what the teacher's vocoder makes
of the unquantised mel, for English the recording. Loss: multi-resolution STFT (arXiv:1910.11480). An average of the
weights over steps is what is exported.

A run goes on from CODEC/train.pt, which is written every 5 minutes; `--export` works on it at any time. Uses a GPU if
there is one. Every 20 steps a line goes to CODEC/curve.json.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from fit_latents import HELD_OUT, en_audio, en_mel, read_meta, zh_mel
from safetensors.torch import load_file, save_file
from teacher_vocoder import TeacherVocoder

from voice_agent.tea.codec import (
    LATENCY_SAMPLES,
    SAMPLES_PER_FRAME,
    Decoder,
    LatentSpace,
)  # fmt: skip

CONTEXT, KEPT = 9, 12
"""Codec frames of an excerpt: those that only fill the decoder's state, and those that count."""

RATE, AVERAGE, CHECKPOINT_S, LOG_STEPS = 2e-4, 0.99, 300, 20
_RESOLUTIONS = ((256, 64), (512, 128), (1024, 256), (2048, 512))


def stft_loss(pcm: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Spectral convergence and mean log magnitude difference, over four resolutions; float32[B, S]."""
    total = pcm.new_zeros(())
    for size, hop in _RESOLUTIONS:
        window = torch.hann_window(size, device=pcm.device)
        one, two = (
            torch.stft(x, size, hop, window=window, center=False, return_complex=True).abs().clamp(min=2e-3)
            for x in (pcm, target)
        )
        total = total + (one - two).norm() / two.norm() + (one.log() - two.log()).abs().mean()
    return total / len(_RESOLUTIONS)


class Excerpts:
    """Random excerpts of both languages. The teacher's vocoder is run once an utterance."""

    def __init__(
        self, folders: dict[str, Path], space: LatentSpace, teacher: TeacherVocoder, limit: int, seed: int
    ) -> None:
        self._folders, self._space, self._teacher = folders, space, teacher
        self._lines = {language: read_meta(folder)[HELD_OUT:][:limit] for language, folder in folders.items()}
        self._rng = random.Random(seed)
        self._ready: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def utterance(self, language: str, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes int64[N, 8] and target int16[1200 N]."""
        key = (language, index)
        if key not in self._ready:
            folder, line, space = self._folders[language], self._lines[language][index], self._space
            mel = zh_mel(folder, line) if language == "zh" else en_mel(folder, line, space)
            codes = space.quantise(space.encode(mel))
            pcm = self._teacher(mel[None])[0][0] if language == "zh" else en_audio(folder, line)
            pcm = torch.nn.functional.pad(pcm, (0, SAMPLES_PER_FRAME))[: len(codes) * SAMPLES_PER_FRAME]
            self._ready[key] = codes, (pcm.clamp(-1, 1) * 32767).short()
        return self._ready[key]

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes int64[count, CONTEXT + KEPT + ahead, 8], -1 where silence is; target float32[count, 1200 KEPT]."""
        ahead = -(-LATENCY_SAMPLES // SAMPLES_PER_FRAME)
        codes, targets = [], []
        for i in range(count):
            language = "zh" if i % 2 == 0 else "en"
            own, pcm = self.utterance(language, self._rng.randrange(len(self._lines[language])))
            start = self._rng.randrange(0, max(1, len(own) - KEPT + 1))
            padded = torch.nn.functional.pad(own, (0, 0, CONTEXT, KEPT + ahead), value=-1)
            codes.append(padded[start : start + CONTEXT + KEPT + ahead])
            target = pcm[start * SAMPLES_PER_FRAME : (start + KEPT) * SAMPLES_PER_FRAME]
            targets.append(torch.nn.functional.pad(target, (0, KEPT * SAMPLES_PER_FRAME - len(target))))
        return torch.stack(codes), torch.stack(targets).float() / 32767


def decode(decoder: Decoder, codes: torch.Tensor) -> torch.Tensor:
    """The samples that count: float32[B, 1200 KEPT]."""
    space = decoder.space
    latents = torch.where(codes[..., :1] >= 0, space.lookup(codes.clamp(min=0)), space.silence)
    with torch.no_grad():
        _, state = decoder(latents[:, :CONTEXT], decoder.empty_state(len(codes)))
    pcm, _ = decoder(latents[:, CONTEXT:], state)
    return pcm[:, LATENCY_SAMPLES : LATENCY_SAMPLES + KEPT * SAMPLES_PER_FRAME]


def train(options: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    space = LatentSpace.load(options.codec / "space.safetensors")
    space_tensors = {name: value.clone() for name, value in space.state_dict().items()}
    decoder = Decoder(space)
    decoder.load_state_dict(load_file(options.codec / "distilled.safetensors"))
    decoder.vocoder.synthesis.requires_grad_(False)
    decoder.to(device)
    trained = [p for p in decoder.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=RATE, betas=(0.8, 0.99))
    average = {name: value.detach().clone() for name, value in decoder.state_dict().items()}
    checkpoint, curve_path = options.codec / "train.pt", options.codec / "curve.json"
    done, curve = 0, []
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        decoder.load_state_dict(saved["decoder"])
        decoder.space.load_state_dict(space_tensors)  # the codebooks may have been fitted anew since
        optimiser.load_state_dict(saved["optimiser"])
        average, done = saved["average"], saved["step"]
        curve = [entry for entry in json.loads(curve_path.read_text()) if entry["step"] <= done]
    excerpts = Excerpts({"zh": options.zh, "en": options.en}, LatentSpace.load(options.codec / "space.safetensors"),
                        TeacherVocoder(options.codec / "vocoder.npz"), limit=options.utterances, seed=done)  # fmt: skip
    began = saved_at = time.monotonic()
    total, logged = 0.0, 0

    def save() -> None:
        state: dict[str, Any] = {
            "decoder": decoder.state_dict(),
            "optimiser": optimiser.state_dict(),
            "average": average,
            "step": done,
        }
        torch.save(state, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        curve_path.write_text(json.dumps(curve))

    while (elapsed := time.monotonic() - began) < options.minutes * 60:
        with torch.inference_mode():
            codes, target = excerpts.draw(options.batch)
        codes, target = codes.clone().to(device), target.clone().to(device)
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1, (done + 1) / 50) * max(0.05, 1 - elapsed / (options.minutes * 60))
        loss = stft_loss(decode(decoder, codes), target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 2.0)
        optimiser.step()
        done, logged = done + 1, logged + 1
        with torch.no_grad():
            for name, value in decoder.state_dict().items():
                average[name].lerp_(value, 1 - AVERAGE)
        total += loss.item()
        if done % LOG_STEPS == 0:
            curve.append({"step": done, "seconds": round(elapsed), "stft": round(total / logged, 4)})
            print(curve[-1], flush=True)
            total, logged = 0.0, 0
        if time.monotonic() - saved_at > CHECKPOINT_S:
            save()
            saved_at = time.monotonic()
    save()


def export(codec: Path, target: Path) -> None:
    """Write the averaged weights of the last checkpoint (or the distilled ones, before training) as fp16.

    The projection stays fp32, so that latents are the same everywhere; the codebooks are those of `space.safetensors`.
    """
    checkpoint = codec / "train.pt"
    if checkpoint.exists():
        tensors = torch.load(checkpoint, map_location="cpu", weights_only=True)["average"]
    else:
        tensors = load_file(codec / "distilled.safetensors")
    tensors |= load_file(codec / "space.safetensors")
    exact = ("space.center", "space.basis", "space.silence", "space.mel_mean", "space.mel_scale")
    save_file({name: (t if name in exact else t.half()).contiguous() for name, t in tensors.items()}, target)


def plot(codec: Path, target: Path) -> None:
    """Draw the loss over steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curve = json.loads((codec / "curve.json").read_text())
    figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    axes.plot([entry["step"] for entry in curve], [entry["stft"] for entry in curve], marker=".")
    axes.set(xlabel="step", ylabel="multi-resolution STFT loss", title="codec decoder, fine-tuning")
    figure.savefig(target, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codec", type=Path)
    parser.add_argument("--zh", type=Path)
    parser.add_argument("--en", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--utterances", type=int, default=2000, help="of each language, at most")
    parser.add_argument("--export", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.export:
        export(options.codec, options.export)
    elif options.plot:
        plot(options.codec, options.plot)
    elif not (options.zh and options.en):
        parser.error("training needs --zh and --en")
    else:
        train(options)


if __name__ == "__main__":
    main()

"""Fine-tunes the codec's decoder end to end, from the weights that `distil_vocoder.py` fitted or from shipped ones.

    python models/tea-omni/train_codec.py --minutes 60
    python models/tea-omni/train_codec.py --minutes 60 --warm models/tea-omni/weights
    python models/tea-omni/train_codec.py --minutes 60 --warm models/tea-omni/weights --through talker.safetensors
    python models/tea-omni/train_codec.py --export models/tea-omni/weights/codec.safetensors
    python models/tea-omni/train_codec.py --plot models/tea-omni/card/codec.png

Input: quantised latents of random excerpts, half of them English. Target: for Mandarin what the teacher's vocoder makes
of the unquantised mel, for English the recording. With `--through` the latents of every other utterance are not the
speech's own, but those that this talker makes of its phones at its pace: smoother ones, as the decoder will be given.
Loss: multi-resolution STFT (arXiv:1910.11480). An average of the weights over steps is what is exported.

Reads CACHE/codec/{space.safetensors,vocoder.npz} and the teachers' speech. Goes on from CACHE/codec/train.pt; `--warm`
counts where there is no such checkpoint. `--export` works on it at any time. Uses a GPU if there is one.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from fit_latents import HELD_OUT
from safetensors.torch import load_file, save_file
from speech import CACHE, Line, audio, normalised_mel, read_meta
from talker_data import item
from teacher_vocoder import TeacherVocoder
from train_talker import collate, example, under_frames
from training import Run, plot, points, read_checkpoint, read_curve

from voice_agent.tea.codec import LATENCY_SAMPLES, SAMPLES_PER_FRAME, Decoder, LatentSpace
from voice_agent.tea.talker import TeaTalker

CONTEXT, KEPT = 9, 12
"""Codec frames of an excerpt: those that only fill the decoder's state, and those that count."""

RATE, AVERAGE, WARM_UP_STEPS, CLIP, LOG_STEPS = 2e-4, 0.99, 50, 2.0, 20
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


class Copy:
    """A talker that says what a teacher said: the same phones for the same times."""

    def __init__(self, talker: Path) -> None:
        self._talker = TeaTalker.load(talker, 1)
        self._ids = {name: index for index, name in enumerate(self._talker.net.config.phones)}

    def codes(self, folder: Path, line: Line, language: str, mel: torch.Tensor) -> torch.Tensor | None:
        """int64[N, 8] of the whole frames; None if a phone of it is unknown."""
        said = item(line, folder, language)
        if not set(said.phones) <= self._ids.keys():
            return None
        batch = collate([example(said, mel.numpy(), self._ids)])
        content, _, _ = self._talker.net.encoder(batch.phones, batch.language)
        return self._talker.quantise(self._talker.net.frames(under_frames(content, batch.under), batch.timing)[0])


class Excerpts:
    """Random excerpts of both languages. The teacher's vocoder, and `through`, are run once an utterance."""

    def __init__(
        self,
        cache: Path,
        lines: dict[str, list[Line]],
        space: LatentSpace,
        teacher: TeacherVocoder,
        seed: int,
        through: Copy | None = None,
    ) -> None:
        self._cache, self._lines, self._space, self._teacher = cache, lines, space, teacher
        self._through = through
        self._rng = random.Random(seed)
        self._ready: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def utterance(self, language: str, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes int64[N, 8] and target int16[1200 N]; of every other utterance the codes of `through`."""
        key = (language, index)
        if key not in self._ready:
            folder, line, space = self._cache / language, self._lines[language][index], self._space
            mel = normalised_mel(folder, line, space)
            codes = space.quantise(space.encode(mel))
            copied = self._through.codes(folder, line, language, mel) if self._through and index % 2 else None
            if copied is not None:
                codes = torch.cat([copied, codes[len(copied) :]])
            pcm = self._teacher(mel[None])[0][0] if language == "zh" else audio(folder, line)
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


def started(warm: Path | None, folder: Path, space: LatentSpace) -> Decoder:
    """The decoder of the weights in `warm`, or the distilled one. Raises ValueError if it is of other latents."""
    path = warm / "codec.safetensors" if warm else folder / "distilled.safetensors"
    decoder = Decoder.load(path)
    if not torch.equal(decoder.space.basis, space.basis):
        raise ValueError(
            f"expected {folder / 'space.safetensors'} with the basis of {path}, got another: fit_latents.py"
        )
    return decoder


def train(options: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = options.cache / "codec"
    space = LatentSpace.load(folder / "space.safetensors")
    checkpoint = folder / "train.pt"
    state = read_checkpoint(checkpoint, device)
    decoder = Decoder(space) if state else started(options.warm, folder, space)
    decoder.requires_grad_(True).train().to(device)
    decoder.vocoder.synthesis.requires_grad_(False)
    trained = [p for p in decoder.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=RATE, betas=(0.8, 0.99))
    run = Run(decoder, [optimizer], checkpoint, options.minutes)
    if state:
        own = {f"space.{name}": value for name, value in space.state_dict().items()}
        run.resume(state | {part: state[part] | own for part in ("net", "average")})  # codebooks may be others since
    lines = {name: read_meta(options.cache / name)[options.held_out :][: options.utterances] for name in ("zh", "en")}
    through = Copy(options.through) if options.through else None
    excerpts = Excerpts(options.cache, lines, space, TeacherVocoder(folder / "vocoder.npz"), run.step, through)
    for over in run.steps():
        with torch.inference_mode():
            codes, target = excerpts.draw(options.batch)
        loss = stft_loss(decode(decoder, codes.clone().to(device)), target.clone().to(device))
        rate = options.rate * RATE * min(1, (run.step + 1) / WARM_UP_STEPS) * max(0.05, 1 - over)
        run.learn(loss, rate, CLIP, AVERAGE)
        if run.note({"stft": loss}, LOG_STEPS):
            print(run.curve[-1], flush=True)
    print(f"{run.step} steps in {run.seconds / 60:.1f} minutes", flush=True)


def export(codec: Path, target: Path) -> None:
    """Write the averaged weights of the last checkpoint as fp16.

    The projection stays fp32, so that latents are the same everywhere; the codebooks are those of `space.safetensors`.
    """
    state = read_checkpoint(codec / "train.pt", "cpu")
    if state is None:
        raise FileNotFoundError(f"expected the checkpoint {codec / 'train.pt'}: train first")
    tensors: dict[str, torch.Tensor] = state["average"] | load_file(codec / "space.safetensors")
    exact = ("space.center", "space.basis", "space.silence", "space.mel_mean", "space.mel_scale")
    save_file({name: (t if name in exact else t.half()).contiguous() for name, t in tensors.items()}, target)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--minutes", type=float, default=60, help="of training in all, earlier starts counted in")
    parser.add_argument("--warm", type=Path, help="folder with weights to start from where there is no checkpoint")
    parser.add_argument("--rate", type=float, default=1.0, help="factor of the learning rate")
    parser.add_argument(
        "--through", type=Path, help="weights of a talker, whose copy half of the speech is replaced by"
    )
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--utterances", type=int, default=2000, help="of each language, at most")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="utterances of each language")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--export", type=Path, help="write the checkpoint's weights to this file instead of training")
    other.add_argument("--plot", type=Path, help="draw the loss into this picture instead of training")
    options = parser.parse_args(arguments)
    if options.export:
        export(options.cache / "codec", options.export)
    elif options.plot:
        curve = points(read_curve(options.cache / "codec"), "stft")
        plot({"codec decoder, multi-resolution STFT loss": {"training": curve}}, options.plot)
    else:
        train(options)


if __name__ == "__main__":
    main()

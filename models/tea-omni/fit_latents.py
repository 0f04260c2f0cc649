"""Fits the codec's latent space and writes every utterance's latents.

    python models/tea-omni/fit_latents.py WHAT CODEC --zh ZH --en EN

WHAT is `fit` (the space: CODEC/space.safetensors), `codebooks` (the RVQ anew; latents stay what they are) or `write`
({ZH,EN}/latents/*.npy, float32[T, D]). CODEC holds `vocoder.npz` (`teacher_zh.py --vocoder`), ZH and EN the speech of
the teachers. The space is a principal component analysis of 4 mel frames, half of the weight for each language; the
codebooks are k-means of what the earlier ones left (latents in mel units, so that distance is mel error). English audio
has no mel of its own: its log mel is normalised by the affine map, a channel, that takes the log mel of the Mandarin
teacher's audio to the mel that the audio was made from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import torch
from mel import log_mel
from safetensors.torch import save_file
from teacher_vocoder import TeacherVocoder

from voice_agent.tea.codec import MEL_FLOOR, MEL_FRAMES, SAMPLE_RATE, LatentSpace

SIZE, CODEBOOKS, ENTRIES = 64, 8, 1024
SAMPLE = 40_000
"""Codec frames of each language for the codebooks, at most."""

HELD_OUT = 40
"""The first utterances of each language are never trained on."""


def read_meta(folder: Path) -> list[dict[str, str]]:
    """The lines of `folder`/meta.jsonl."""
    return [json.loads(line) for line in (folder / "meta.jsonl").read_text().splitlines()]


def zh_mel(folder: Path, line: dict[str, str]) -> torch.Tensor:
    """Normalised mel float32[T, 80]."""
    return torch.tensor(np.load(folder / line["mel"]))


def en_audio(folder: Path, line: dict[str, str]) -> torch.Tensor:
    """float32[S] @ 24 kHz. Raises ValueError for another rate."""
    pcm, rate = soundfile.read(folder / line["wav"], dtype="float32")
    if rate != SAMPLE_RATE:
        raise ValueError(f"expected {SAMPLE_RATE} Hz, got {rate} Hz in {line['wav']}")
    return torch.tensor(pcm)


def en_mel(folder: Path, line: dict[str, str], space: LatentSpace) -> torch.Tensor:
    """Normalised mel float32[T, 80]."""
    return (log_mel(en_audio(folder, line)) - space.mel_mean) / space.mel_scale


def fit_normalisation(space: LatentSpace, teacher: TeacherVocoder, mels: list[torch.Tensor]) -> None:
    """Match mean and spread of every channel, over the frames that are not silent."""
    heard = torch.cat([log_mel(teacher(mel[None])[0][0])[8 : len(mel) - 8] for mel in mels])
    meant = torch.cat([mel[8:-8] for mel in mels])
    loud = heard > heard.quantile(0.15, dim=0)
    for channel in range(heard.shape[1]):
        x, y = heard[loud[:, channel], channel], meant[loud[:, channel], channel]
        scale = x.std() / y.std()
        space.mel_scale[channel] = scale
        space.mel_mean[channel] = x.mean() - scale * y.mean()


def frames(mels: list[torch.Tensor]) -> torch.Tensor:
    """float32[N, 320]: groups of 4 mel frames."""
    groups = [m[: len(m) // MEL_FRAMES * MEL_FRAMES].clamp(min=MEL_FLOOR).reshape(-1, MEL_FRAMES * 80) for m in mels]
    return torch.cat(groups)


def fit_basis(space: LatentSpace, zh: torch.Tensor, en: torch.Tensor) -> None:
    """Principal components, half of the weight for each language; and the latent of silence."""
    space.center.copy_((zh.mean(0) + en.mean(0)) / 2)
    covariance = (torch.cov((zh - space.center).T) + torch.cov((en - space.center).T)) / 2
    space.basis.copy_(torch.linalg.eigh(covariance)[1].flip(1)[:, : space.basis.shape[1]])
    energy = zh.mean(1)
    quiet = zh[energy < energy.quantile(0.02)].median(0).values
    space.silence.copy_((quiet - space.center) @ space.basis)


def k_means(points: torch.Tensor, entries: int, rounds: int, generator: torch.Generator) -> torch.Tensor:
    """Lloyd's algorithm: float32[N, D] to float32[entries, D]; an entry that nothing is near to starts anew."""
    book = points[torch.randperm(len(points), generator=generator)[:entries]].clone()
    for _ in range(rounds):
        nearest = nearest_entries(points, book)
        counts = torch.bincount(nearest, minlength=entries).float()
        sums = torch.zeros_like(book).index_add_(0, nearest, points)
        fresh = points[torch.randint(len(points), (entries,), generator=generator)]
        book = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], fresh)
    return book


def nearest_entries(points: torch.Tensor, book: torch.Tensor) -> torch.Tensor:
    """int64[N], in blocks that bound memory."""
    square = book.square().sum(1)
    return torch.cat([(square - 2 * block @ book.T).argmin(1) for block in points.split(8192)])


def fit_codebooks(space: LatentSpace, latents: torch.Tensor, rounds: int = 12) -> None:
    generator = torch.Generator().manual_seed(0)
    left = latents
    for index in range(len(space.codebooks)):
        book = k_means(left, space.codebooks.shape[1], rounds, generator).half().float()
        space.codebooks[index].copy_(book)
        left = left - book[nearest_entries(left, book)]
        print(f"codebook {index}: error {float(left.square().sum(1).mean() / 320):.4f} a mel value", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fit", "codebooks", "write"])
    parser.add_argument("codec", type=Path)
    parser.add_argument("--zh", type=Path, required=True)
    parser.add_argument("--en", type=Path, required=True)
    options = parser.parse_args()
    zh_lines, en_lines = read_meta(options.zh), read_meta(options.en)
    path = options.codec / "space.safetensors"
    space = LatentSpace(SIZE, CODEBOOKS, ENTRIES) if options.what == "fit" else LatentSpace.load(path)
    zh_mels = [zh_mel(options.zh, line) for line in zh_lines]
    if options.what == "fit":
        fit_normalisation(space, TeacherVocoder(options.codec / "vocoder.npz"), zh_mels[HELD_OUT : HELD_OUT + 80])
    en_mels = [en_mel(options.en, line, space) for line in en_lines]
    if options.what == "write":
        for folder, lines, mels in ((options.zh, zh_lines, zh_mels), (options.en, en_lines, en_mels)):
            write_latents(folder, lines, mels, space)
        return
    zh, en = frames(zh_mels[HELD_OUT:]), frames(en_mels[HELD_OUT:])
    if options.what == "fit":
        fit_basis(space, zh, en)
    sample = [x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:SAMPLE]] for x in (zh, en)]
    copies = max(1, round(len(sample[0]) / len(sample[1])))
    latents = (torch.cat([sample[0], sample[1].repeat(copies, 1)]) - space.center) @ space.basis
    fit_codebooks(space, latents)
    save_file({f"space.{name}": value.contiguous() for name, value in space.state_dict().items()}, path)
    for language, mels in (("zh", zh_mels[:HELD_OUT]), ("en", en_mels[:HELD_OUT])):
        report(language, space, frames(mels))


def report(language: str, space: LatentSpace, stacked: torch.Tensor) -> None:
    exact = (stacked - space.center) @ space.basis
    quantised = space.lookup(space.quantise(exact))
    projection, all_in = ((z @ space.basis.T + space.center - stacked).square().mean() for z in (exact, quantised))
    print(f"{language}, held out: squared error a mel value: projection {projection:.4f}, with RVQ {all_in:.4f}")


def write_latents(folder: Path, lines: list[dict[str, str]], mels: list[torch.Tensor], space: LatentSpace) -> None:
    """Writes latents that are not there yet; the last frame is filled up with the last mel frame."""
    (folder / "latents").mkdir(exist_ok=True)
    for line, mel in zip(lines, mels, strict=True):
        target = folder / "latents" / f"{Path(line['wav']).stem}.npy"
        if not target.exists():
            missing = -len(mel) % MEL_FRAMES
            latents: npt.NDArray[np.float32] = space.encode(torch.cat([mel, mel[-1:].repeat(missing, 1)])).numpy()
            np.save(target, latents)


if __name__ == "__main__":
    with torch.inference_mode():
        main()

"""Fits the space that talker and codec share, CACHE/codec/space.safetensors: the latents of mel frames and their codes.

    python models/tea-omni/fit_latents.py                                 basis and codebooks, from the teachers' speech
    python models/tea-omni/fit_latents.py --codebooks                     the codebooks anew; latents stay what they are
    python models/tea-omni/fit_latents.py --warm models/tea-omni/weights  nothing is fitted: the space of these weights

Latents are principal components of 4 mel frames, half of the weight for each language; the codebooks are k-means of
what the earlier ones left (latents in mel units, so that distance is mel error). English audio has no mel of its own:
its log mel is normalised by the affine map, a channel, that takes the log mel of the Mandarin teacher's audio to the
mel that the audio was made from. CACHE/codec holds `vocoder.npz` (`teacher_zh.py --vocoder`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from mel import log_mel
from safetensors.torch import save_file
from speech import CACHE, normalised_mel, read_meta
from teacher_vocoder import TeacherVocoder

from voice_agent.tea.codec import MEL_FLOOR, MEL_FRAMES, LatentSpace

SIZE, CODEBOOKS, ENTRIES = 64, 12, 1024
SAMPLE = 40_000
"""Codec frames of each language for the codebooks, at most."""

NORMALISED = 80
"""Utterances that the normalisation of English is fitted on, at most."""

HELD_OUT = 40
"""The first utterances of each language are never trained on."""


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
    """Lloyd's algorithm: float32[N, D] to float32[entries, D]; an entry that nothing is near to starts anew.

    Raises ValueError for fewer points than entries.
    """
    if len(points) < entries:
        raise ValueError(f"expected at least {entries} codec frames of speech, got {len(points)}")
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


def fit(cache: Path, held_out: int, codebooks_alone: bool) -> LatentSpace:
    zh_lines, en_lines = read_meta(cache / "zh"), read_meta(cache / "en")
    path = cache / "codec" / "space.safetensors"
    space = LatentSpace(SIZE, CODEBOOKS, ENTRIES)
    if codebooks_alone:
        space.load_state_dict(LatentSpace.load(path).state_dict() | {"codebooks": space.codebooks})
    zh_mels = [normalised_mel(cache / "zh", line, space) for line in zh_lines]
    if not codebooks_alone:
        teacher = TeacherVocoder(cache / "codec" / "vocoder.npz")
        fit_normalisation(space, teacher, zh_mels[held_out : held_out + NORMALISED])
    en_mels = [normalised_mel(cache / "en", line, space) for line in en_lines]
    zh, en = frames(zh_mels[held_out:]), frames(en_mels[held_out:])
    if not codebooks_alone:
        fit_basis(space, zh, en)
    sample = [x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:SAMPLE]] for x in (zh, en)]
    copies = max(1, round(len(sample[0]) / len(sample[1])))
    latents = (torch.cat([sample[0], sample[1].repeat(copies, 1)]) - space.center) @ space.basis
    fit_codebooks(space, latents)
    for language, mels in (("zh", zh_mels[:held_out]), ("en", en_mels[:held_out])):
        report(language, space, frames(mels))
    return space


def report(language: str, space: LatentSpace, stacked: torch.Tensor) -> None:
    exact = (stacked - space.center) @ space.basis
    quantised = space.lookup(space.quantise(exact))
    projection, all_in = ((z @ space.basis.T + space.center - stacked).square().mean() for z in (exact, quantised))
    print(f"{language}, held out: squared error a mel value: projection {projection:.4f}, with RVQ {all_in:.4f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--codebooks", action="store_true", help="fit the codebooks alone")
    way.add_argument("--warm", type=Path, help="folder with weights whose space is taken")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="utterances of each language")
    options = parser.parse_args(arguments)
    with torch.inference_mode():
        if options.warm:
            space = LatentSpace.load(options.warm / "codec.safetensors")
        else:
            space = fit(options.cache, options.held_out, options.codebooks)
    path = options.cache / "codec" / "space.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({f"space.{name}": value.contiguous() for name, value in space.state_dict().items()}, path)


if __name__ == "__main__":
    main()

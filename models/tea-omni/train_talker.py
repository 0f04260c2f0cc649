"""Trains the talker's acoustic part: phones with times to mel frames of the codec's frames, and durations.

    python models/tea-omni/train_talker.py --minutes 40
    python models/tea-omni/train_talker.py --minutes 40 --warm models/tea-omni/weights
    python models/tea-omni/train_talker.py --plot models/tea-omni/card/talker.png

A teacher speaks a text much the same every time, so plain regression learns it. What is regressed are the 4 x 80 mel
values of a codec frame; `train_pronouncer.py`, which writes the talker's weights, folds the codec's linear projection
into the last layer, which then gives latents.

Part of the utterances have a few words of the other teacher put into them, so that the talker can change languages, and
with them voices, within a sentence.

Reads CACHE/codec/space.safetensors and the teachers' speech. Goes on from CACHE/talker/talker.pt; `--warm` counts where
there is no such checkpoint. Utterances with a sound that the weights do not know are left out. Uses a GPU if there is
one.
"""

from __future__ import annotations

import argparse
import bisect
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from acoustic import MEL_SIZE, load_acoustic, load_shipped
from speech import CACHE, normalised_mel, read_meta
from talker_data import SHORTEST_SECONDS, Item, item, phone_inventory
from torch import Tensor, nn
from training import Muon, Points, Run, mixed_precision, plot, points, read_checkpoint, read_curve

from voice_agent.tea.codec import MEL_CHANNELS, MEL_FLOOR, MEL_FRAMES, LatentSpace
from voice_agent.tea.talker_net import LANGUAGES, LEFT, PAD, RIGHT, TalkerConfig, TalkerNet, language_of, placement

FRAME_RATE = 20.0
HELD_OUT = 20  # utterances a language, the first ones
DURATION_WEIGHT = 0.2
CONTRAST_WEIGHT = 0.5
LEARNING_RATE, MUON_SCALE = 1e-3, 2.0
WARM_UP_STEPS = 200
AVERAGE_KEEP = 0.997  # a step, of the running average of the weights, which is what is evaluated and shipped
ALIKE = 16  # part of a language's utterances, by length, that a batch is drawn from
MIXED_PART, MIXED_WORDS = 0.15, 4  # of the utterances have so many words of the other language at most
MEL_SECONDS = 1 / FRAME_RATE / MEL_FRAMES
CLIP, LOG_STEPS, EVALUATION_STEPS = 1.0, 50, 200


@dataclass(frozen=True)
class Example:
    """An item ready for a batch. `phones` and the `language` of each: int64[N], `mel`: float32[T, 320],
    `under`: int64[T, WINDOW], `timing`: float32[T, WINDOW, 5].
    """

    item: Item
    phones: Tensor
    language: Tensor
    log_seconds: Tensor
    under: Tensor
    timing: Tensor
    mel: Tensor


def example(item: Item, mel: npt.NDArray[np.float32], ids: dict[str, int]) -> Example:
    """`mel`: float32[4 T, 80] of the audio from its first sample on; a last frame that is not whole is left out."""
    frames = len(mel) // MEL_FRAMES
    under, timing = placement(np.cumsum(item.seconds), range(frames), FRAME_RATE)
    return Example(
        item,
        torch.tensor([ids[phone] for phone in item.phones]),
        torch.tensor([LANGUAGES.index(language_of(phone) or item.language) for phone in item.phones]),
        torch.from_numpy(np.log(item.seconds)).float(),
        torch.from_numpy(under),
        torch.from_numpy(timing),
        torch.from_numpy(np.ascontiguousarray(mel[: frames * MEL_FRAMES]).reshape(frames, MEL_SIZE)).float(),
    )


def mixed(host: Example, guest: Example, ids: dict[str, int], rng: random.Random) -> Example:
    """`host` with some words of `guest`, cut and joined at the mel frames that are nearest to where words begin."""
    place = rng.choice(host.item.words[1:])
    first = rng.randrange(len(guest.item.words) - 1)
    last = rng.randrange(first + 1, min(len(guest.item.words), first + MIXED_WORDS + 1))
    begin, end = guest.item.words[first], guest.item.words[last]
    before, cut = _part(host, 0, place)
    inside, _ = _part(guest, begin, end)
    after, _ = _part(host, place, len(host.phones))
    item = replace(
        host.item,
        text=f"{host.item.text} + {guest.item.text}",
        phones=(*host.item.phones[:place], *guest.item.phones[begin:end], *host.item.phones[place:]),
        seconds=np.concatenate([before, inside, after]),
        words=(),
    )
    mel = torch.cat([_mel(host)[:cut], _mel(guest)[slice(*_frames(guest, begin, end))], _mel(host)[cut:]])
    return example(item, mel.numpy(), ids)


def _mel(e: Example) -> Tensor:
    """float32[4 T, 80]"""
    return e.mel.reshape(-1, MEL_CHANNELS)


def _frames(e: Example, begin: int, end: int) -> tuple[int, int]:
    """The mel frames from the beginning of a phone to that of another."""
    begins = np.concatenate([np.zeros(1), np.cumsum(e.item.seconds)]) / MEL_SECONDS
    return round(begins[begin]), round(begins[end])


def _part(e: Example, begin: int, end: int) -> tuple[npt.NDArray[np.float64], int]:
    """Seconds of some phones, the last one's such that all last whole mel frames; and the frame that they end at."""
    first, last = _frames(e, begin, end)
    seconds = e.item.seconds[begin:end].copy()
    seconds[-1] = max(SHORTEST_SECONDS / 2, seconds[-1] + (last - first) * MEL_SECONDS - seconds.sum())
    return seconds, last


@dataclass(frozen=True)
class Batch:
    """Examples padded to the longest. Masks are 1 where there is something to learn."""

    phones: Tensor
    language: Tensor
    log_seconds: Tensor
    phone_mask: Tensor
    under: Tensor
    timing: Tensor
    mel: Tensor
    frame_mask: Tensor

    def to(self, device: str) -> Batch:
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


def collate(examples: Sequence[Example]) -> Batch:
    rows, phones = len(examples), max(len(e.phones) for e in examples)
    frames = max(len(e.mel) for e in examples)
    window, timing = examples[0].under.shape[1], examples[0].timing.shape[2]
    batch = Batch(
        torch.full((rows, LEFT + phones + RIGHT), PAD),
        torch.tensor([[LANGUAGES.index(e.item.language)] for e in examples]).repeat(1, LEFT + phones + RIGHT),
        torch.zeros(rows, phones),
        torch.zeros(rows, phones),
        torch.zeros(rows, frames, window, dtype=torch.long),
        torch.zeros(rows, frames, window, timing),
        torch.zeros(rows, frames, MEL_SIZE),
        torch.zeros(rows, frames, 1),
    )
    for row, e in enumerate(examples):
        n, t = len(e.phones), len(e.mel)
        batch.phones[row, LEFT : LEFT + n], batch.language[row, LEFT : LEFT + n] = e.phones, e.language
        batch.log_seconds[row, :n] = e.log_seconds
        batch.phone_mask[row, 1 : n - 1] = 1  # the edges' lengths are the teachers' margins
        batch.under[row, :t], batch.timing[row, :t], batch.mel[row, :t] = e.under, e.timing, e.mel
        batch.frame_mask[row, :t] = 1
    return batch


def under_frames(content: Tensor, under: Tensor) -> Tensor:
    """The features of the phones under each sub-frame: float32[B, N, C], int64[B, T, W] to float32[B, T, W, C]."""
    rows, frames, window = under.shape
    index = under.reshape(rows, frames * window, 1).expand(-1, -1, content.shape[-1])
    return content.gather(1, index).reshape(rows, frames, window, -1)


def losses(net: TalkerNet, batch: Batch) -> dict[str, Tensor]:
    """Mean absolute error of the mel, of the steps between its bands, and of the logarithm of the durations."""
    content, log_seconds, _ = net.encoder(batch.phones, batch.language)
    mel = net.frames(under_frames(content, batch.under), batch.timing)
    count = batch.frame_mask.sum()
    error = (mel - batch.mel) * batch.frame_mask
    spectra = error.unflatten(-1, (MEL_FRAMES, MEL_CHANNELS))
    duration = ((log_seconds - batch.log_seconds).abs() * batch.phone_mask).sum() / batch.phone_mask.sum()
    # Neighbouring bands differ by the harmonics and formants that make speech clear: they count once more.
    contrast = (spectra[..., 1:] - spectra[..., :-1]).abs().sum() / (count * MEL_FRAMES * (MEL_CHANNELS - 1))
    return {"mel": error.abs().sum() / (count * MEL_SIZE), "contrast": contrast, "duration": duration}


class Corpus:
    """Both teachers' utterances with their mels, of each language the first `limit` at most.

    `speech`: where they lie, if not in `cache`.

    `phones` is the inventory, or None to make it of the sounds that there are. `left_out` utterances have others.
    """

    def __init__(
        self,
        cache: Path,
        phones: Sequence[str] | None,
        held_out: int,
        limit: int | None = None,
        speech: Path | None = None,
    ) -> None:
        space = LatentSpace.load(cache / "codec" / "space.safetensors")
        cache = speech or cache
        lines = {language: read_meta(cache / language)[:limit] for language in LANGUAGES}
        items = {
            language: [item(line, cache / language, language) for line in lines[language]] for language in LANGUAGES
        }
        self.phones = tuple(phones or phone_inventory(each for group in items.values() for each in group))
        ids = {name: index for index, name in enumerate(self.phones)}
        self.train: dict[str, list[Example]] = {language: [] for language in LANGUAGES}
        self.test: dict[str, list[Example]] = {language: [] for language in LANGUAGES}
        self.mixtures: dict[str, list[Example]] = {}
        self.left_out = 0
        for language in LANGUAGES:
            for number, (line, each) in enumerate(zip(lines[language], items[language], strict=True)):
                if not set(each.phones) <= ids.keys():
                    self.left_out += 1
                    continue
                mel = normalised_mel(cache / language, line, space).clamp(min=MEL_FLOOR).numpy()
                target = self.test if number < held_out else self.train
                target[language].append(example(each, mel, ids))
        rng = random.Random(0)
        long = {language: [e for e in self.train[language] if len(e.item.words) > 1] for language in LANGUAGES}
        for host, guest in (LANGUAGES, LANGUAGES[::-1]):
            chosen = rng.sample(long[host], int(MIXED_PART * len(long[host]))) if long[guest] else []
            self.mixtures[host] = [mixed(e, rng.choice(long[guest]), ids, rng) for e in chosen]
        self._pools = {
            language: sorted([*self.train[language], *self.mixtures[language]], key=lambda e: len(e.mel))
            for language in LANGUAGES
        }

    def draw(self, size: int, rng: random.Random) -> Batch:
        """As many utterances of one language as of the other, of like lengths."""
        about = len(rng.choice(self._pools[rng.choice(LANGUAGES)]).mel)
        chosen = []
        for language in LANGUAGES:
            pool = self._pools[language]
            many = min(len(pool), max(size, len(pool) // ALIKE))
            middle = bisect.bisect(pool, about, key=lambda e: len(e.mel))
            first = min(max(0, middle - many // 2), len(pool) - many)
            chosen += rng.sample(pool[first : first + many], size // 2)
        return collate(chosen)


def evaluate(net: TalkerNet, corpus: Corpus, device: str) -> dict[str, float]:
    """Losses of the utterances that were held out."""
    report: dict[str, float] = {}
    with torch.inference_mode():
        for language, examples in corpus.test.items():
            for name, value in losses(net, collate(examples).to(device)).items():
                report[f"{language}_{name}"] = round(value.item(), 4)
    return report


def optimizers(net: TalkerNet) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between hidden layers, AdamW for the rest of the acoustic part."""
    frames = net.frames
    linear = [frames.window, frames.timing, net.encoder.content, net.encoder.duration[0]]
    linear += [layer for block in frames.blocks for layer in block.children() if isinstance(layer, nn.Linear)]
    matrices = [layer.weight for layer in linear]
    names = {id(matrix) for matrix in matrices}
    rest = [p for p in (*net.encoder.parameters(), *frames.parameters()) if id(p) not in names]
    return [
        Muon([{"params": matrices, "scale": MUON_SCALE}]),
        torch.optim.AdamW(rest, LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = options.cache / "talker"
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "talker.pt"
    state = read_checkpoint(checkpoint, device)
    warm = load_shipped(options.warm) if options.warm and not state else None
    known = TalkerConfig.from_json(state["config"]) if state else warm[0] if warm else None
    corpus = Corpus(options.cache, known.phones if known else None, options.held_out)
    for language, examples in corpus.train.items():
        print(f"{language}: {len(examples)} utterances", flush=True)
        if len(examples) < 2 * options.batch:
            raise ValueError(f"expected at least {2 * options.batch} {language} utterances, got {len(examples)}")
    print(f"{corpus.left_out} utterances left out", flush=True)
    # The pronouncer, which the hidden states go into, is trained later.
    config = known or TalkerConfig(corpus.phones, hidden_size=1, latent_size=MEL_SIZE)
    net = TalkerNet(config, torch.zeros(0, 0, MEL_SIZE))
    if warm:
        load_acoustic(net, warm[1])
    net.to(device).train()
    run = Run(net, optimizers(net), checkpoint, options.minutes)
    run.extra = {"config": config.to_json()}
    if state:
        run.resume(state)
    rng = random.Random(run.step)
    for over in run.steps():
        with mixed_precision(device):
            parts = losses(net, corpus.draw(options.batch, rng).to(device))
        loss = parts["mel"] + CONTRAST_WEIGHT * parts["contrast"] + DURATION_WEIGHT * parts["duration"]
        rate = options.rate * LEARNING_RATE * min(1.0, (run.step + 1) / WARM_UP_STEPS) * max(0.02, 1 - over)
        run.learn(loss, rate, CLIP, min(AVERAGE_KEEP, (run.step + 1) / (run.step + 11)))
        if run.note({f"train_{name}": value for name, value in parts.items()}, LOG_STEPS):
            if run.step % EVALUATION_STEPS == 0:
                run.curve[-1] |= evaluate(run.average, corpus, device)
            print(run.curve[-1], flush=True)
    print(f"{run.step} steps in {run.seconds / 60:.1f} minutes; held out:", evaluate(run.average, corpus, device))


def panels(folder: Path) -> dict[str, dict[str, Points]]:
    """The curves of `train_talker.py` and `train_pronouncer.py` for the model card."""
    curve = read_curve(folder)
    titles = {"mel": "mel, mean absolute error", "duration": "log duration, mean absolute error"}
    drawn = {
        title: {"training": points(curve, f"train_{part}")}
        | {f"held out, {language}": points(curve, f"{language}_{part}") for language in LANGUAGES}
        for part, title in titles.items()
    }
    pronouncer = json.loads((folder / "pronouncer.json").read_text())["curve"]
    return drawn | {"pronouncer, cross-entropy a phone": {"training": points(pronouncer, "loss")}}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--minutes", type=float, default=40.0, help="of training in all, earlier starts counted in")
    parser.add_argument("--warm", type=Path, help="folder with weights to start from where there is no checkpoint")
    parser.add_argument("--rate", type=float, default=1.0, help="factor of the learning rate")
    parser.add_argument("--batch", type=int, default=16, help="utterances a step, half of each language")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="utterances of each language")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="draw the learning curves into this picture instead of training")
    options = parser.parse_args(arguments)
    if options.plot:
        plot(panels(options.cache / "talker"), options.plot)
    else:
        train(options)


if __name__ == "__main__":
    main()

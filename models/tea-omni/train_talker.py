"""Train the talker's acoustic part: phones with times to mel frames of the codec's frames, and durations.

    python models/tea-omni/train_talker.py --minutes 40

The teachers are deterministic, so plain regression learns them. What is regressed are the 4 x 80 mel values of a
codec frame; `export_talker.py` folds the codec's linear projection into the last layer, which then gives latents.
Resumable: the run's state is written to `--out` every few minutes and read again at the next start. Utterances
that the teachers have added since are taken in whenever the data is read again.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from fit_latents import en_mel, zh_mel  # noqa: E402
from talker_data import Item, load, phone_inventory  # noqa: E402

from voice_agent.tea.codec import MEL_CHANNELS, MEL_FLOOR, MEL_FRAMES, LatentSpace  # noqa: E402
from voice_agent.tea.talker_net import (  # noqa: E402
    LANGUAGES,
    LEFT,
    PAD,
    RIGHT,
    TalkerConfig,
    TalkerNet,
    placement,
)  # fmt: skip

FRAME_RATE = 20.0
MEL_SIZE = MEL_FRAMES * MEL_CHANNELS
HELD_OUT = 20  # utterances a language, the first ones
DURATION_WEIGHT = 0.2
SMOOTH_WEIGHT = 0.5
LEARNING_RATE = 1e-3
WARM_UP_STEPS = 200
AVERAGE_KEEP = 0.997  # a step, of the running average of the weights, which is what is evaluated and shipped


@dataclass(frozen=True)
class Example:
    """An item ready for a batch. `mel`: float32[T, 320], `under`: int64[T, WINDOW], `timing`: float32[T, WINDOW, 5]."""

    item: Item
    phones: Tensor
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
        torch.from_numpy(np.log(item.seconds)).float(),
        torch.from_numpy(under),
        torch.from_numpy(timing),
        torch.from_numpy(np.ascontiguousarray(mel[: frames * MEL_FRAMES]).reshape(frames, MEL_SIZE)).float(),
    )


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


def collate(examples: Sequence[Example]) -> Batch:
    rows, phones = len(examples), max(len(e.phones) for e in examples)
    frames = max(len(e.mel) for e in examples)
    window, timing = examples[0].under.shape[1], examples[0].timing.shape[2]
    batch = Batch(
        torch.full((rows, LEFT + phones + RIGHT), PAD),
        torch.tensor([LANGUAGES.index(e.item.language) for e in examples]),
        torch.zeros(rows, phones),
        torch.zeros(rows, phones),
        torch.zeros(rows, frames, window, dtype=torch.long),
        torch.zeros(rows, frames, window, timing),
        torch.zeros(rows, frames, MEL_SIZE),
        torch.zeros(rows, frames, 1),
    )
    for row, e in enumerate(examples):
        n, t = len(e.phones), len(e.mel)
        batch.phones[row, LEFT : LEFT + n] = e.phones
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
    """Both teachers' utterances with their mels; `read` takes in what has been added."""

    def __init__(self, cache: Path, phones: list[str] | None) -> None:
        self.cache, self.names = cache, phones
        self.taken = dict.fromkeys(LANGUAGES, 0)
        self.train: dict[str, list[Example]] = {language: [] for language in LANGUAGES}
        self.test: dict[str, list[Example]] = {language: [] for language in LANGUAGES}

    def read(self, limit: int | None = None) -> None:
        """Take in utterances that are new; of each language the first `limit` at most."""
        space = LatentSpace.load(self.cache / "codec" / "space.safetensors")
        items = {language: list(islice(load(self.cache / language, language), limit)) for language in LANGUAGES}
        if self.names is None:
            self.names = phone_inventory([item for group in items.values() for item in group])
        ids = {name: index for index, name in enumerate(self.names)}
        for language, group in items.items():
            for number, item in enumerate(group[self.taken[language] :], self.taken[language]):
                if not set(item.phones) <= ids.keys():
                    continue  # a sound that came up after the inventory was fixed
                mel = self._mel(item, space)
                target = self.test if number < HELD_OUT else self.train
                target[language].append(example(item, mel, ids))
            self.taken[language] = len(group)

    def _mel(self, item: Item, space: LatentSpace) -> npt.NDArray[np.float32]:
        folder = self.cache / item.language
        if item.language == "zh":
            mel = zh_mel(folder, {"mel": item.name.replace("wav", "mel", 1).replace(".wav", ".npy")})
        else:
            mel = en_mel(folder, {"wav": item.name}, space)
        return mel.clamp(min=MEL_FLOOR).numpy()


def batches(corpus: Corpus, size: int, rng: random.Random) -> Batch:
    """As many utterances of one language as of the other, of like lengths."""
    chosen = []
    for language in LANGUAGES:
        pool = sorted(rng.sample(corpus.train[language], size * 2), key=lambda e: len(e.mel))
        first = rng.choice([0, size // 2, size, size * 3 // 2])
        chosen += pool[first : first + size // 2]
    return collate(chosen)


def evaluate(net: TalkerNet, corpus: Corpus) -> dict[str, float]:
    report: dict[str, float] = {}
    with torch.inference_mode():
        for language, examples in corpus.test.items():
            for name, value in losses(net, collate(examples)).items():
                report[f"{language}_{name}"] = round(value.item(), 4)
    return report


def update(average: TalkerNet, net: TalkerNet, keep: float) -> None:
    """Move the average towards the network."""
    with torch.no_grad():
        for mean, value in zip(average.parameters(), net.parameters(), strict=True):
            mean.lerp_(value, 1 - keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/tea-omni").expanduser())
    parser.add_argument("--out", type=Path, default=Path("~/.cache/tea-omni/talker").expanduser())
    parser.add_argument("--minutes", type=float, default=40.0, help="of training in all, earlier runs counted in")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden-size", type=int, default=256, help="of the thinker; the pronouncer is trained later")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--read-again", type=float, default=10.0, help="minutes after which the data is read again")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint = args.out / "talker.pt"

    state: dict[str, Any] | None = torch.load(checkpoint, weights_only=False) if checkpoint.exists() else None
    corpus = Corpus(args.cache, state["phones"] if state else None)
    corpus.read()
    assert corpus.names is not None
    torch.manual_seed(0)
    config = TalkerConfig(tuple(corpus.names), args.hidden_size, MEL_SIZE)
    net = TalkerNet(config, torch.zeros(0, 0, MEL_SIZE)).to(device).train()
    average = copy.deepcopy(net).eval()
    acoustic = [*net.encoder.parameters(), *net.frames.parameters()]
    optimizer = torch.optim.AdamW(acoustic, LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    step, spent, curve = 0, 0.0, []
    if state:
        net.load_state_dict(state["net"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent, curve = state["step"], state["seconds"], state["curve"]
    rng = random.Random(step)
    budget = args.minutes * 60
    began = last = time.monotonic() - spent
    saved = reread = time.monotonic()
    print({k: len(v) for k, v in corpus.train.items()}, sum(p.numel() for p in acoustic), flush=True)

    def save() -> None:
        value = {
            "net": net.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict(),
            "config": config.to_json(), "phones": corpus.names,
            "step": step, "seconds": last - began, "curve": curve,
        }  # fmt: skip
        torch.save(value, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        (args.out / "curve.json").write_text(json.dumps(curve) + "\n")

    running: dict[str, list[float]] = {}
    while (last := time.monotonic()) - began < budget:
        done = (last - began) / budget
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / WARM_UP_STEPS) * max(0.02, 1 - done)
        batch = batches(corpus, args.batch, rng)
        parts = losses(net, Batch(*(getattr(batch, name).to(device) for name in Batch.__dataclass_fields__)))
        loss = parts["mel"] + SMOOTH_WEIGHT * parts["contrast"] + DURATION_WEIGHT * parts["duration"]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(acoustic, 1.0)
        optimizer.step()
        step += 1
        update(average, net, min(AVERAGE_KEEP, step / (step + 10)))
        for name, value in parts.items():
            running.setdefault(name, []).append(value.item())
        if step % 50 == 0:
            entry: dict[str, float] = {"step": step, "seconds": round(last - began, 1)}
            entry |= {f"train_{name}": round(sum(values) / len(values), 4) for name, values in running.items()}
            if step % 200 == 0:
                entry |= evaluate(average, corpus)
            running = {}
            curve.append(entry)
            print(entry, flush=True)
        if last - saved > 240:
            save()
            saved = last
        if last - reread > args.read_again * 60:
            corpus.read()
            reread = last
    save()


if __name__ == "__main__":
    main()

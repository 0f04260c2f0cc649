"""Fit tea-omni's end-of-turn head on a finished thinker.

    python models/tea-omni/train_endpoint.py --minutes 15 --work ~/.cache/tea-omni/endpoint

The thinker stays as it is; it and its vocabulary are read from `--weights`, and the head must be fitted anew whenever
its lowest layers change. Utterances are generated as it goes, in a process of their own. Goes on from the checkpoint
in `--work`, unless that was fitted on another thinker, or else from a head that is given with `--warm`. The head is
written into `--work`, calibrated: on the development set, a probability of one half is where as large a part of the
complete turns is missed as of the others is believed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import evaluate_endpoint
import torch
import torch.nn.functional as F
from dialogues import endings
from safetensors.torch import load_file
from speech import WEIGHTS
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from train_thinker import Average
from training import Muon, mixed_precision

from voice_agent.engine.protocols import Language
from voice_agent.tea.decoder import Decoder
from voice_agent.tea.endpoint import TurnEnd, lower_digest, lower_states
from voice_agent.tea.thinker import TeaThinker
from voice_agent.tea.tokenizer import Vocabulary

MANDARIN = 0.5  # of the dialogues
BATCH_TOKENS = 1500
BUFFER = 1024
DEVELOPMENT = Path(__file__).parent / "dialogues" / "dev_end_of_turn.jsonl"
RATES = (4e-3, 2e-3)
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def batches(rng: random.Random, words: Vocabulary) -> Iterator[Batch]:
    """(ids[B, T], flat positions of what is judged, whether the turn is complete there, weights), of like lengths."""
    source = samples(rng, words)
    while True:
        pool = sorted((next(source) for _ in range(BUFFER)), key=lambda s: len(s.before) + len(s.said))
        groups: list[list[endings.Cuts]] = [[]]
        for sample in pool:
            if (len(groups[-1]) + 1) * (len(sample.before) + len(sample.said)) > BATCH_TOKENS:
                groups.append([])
            groups[-1].append(sample)
        rng.shuffle(groups)
        yield from (batch(group, words) for group in groups)


def samples(rng: random.Random, words: Vocabulary) -> Iterator[endings.Cuts]:
    while True:
        language: Language = "zh" if rng.random() < MANDARIN else "en"
        yield from endings.examples(rng, language, words)


def batch(group: list[endings.Cuts], words: Vocabulary) -> Batch:
    length = max(len(s.before) + len(s.said) for s in group)
    ids = torch.full((len(group), length), words.ids["<pad>"])
    positions: list[int] = []
    complete: list[float] = []
    weights: list[float] = []
    for row, sample in enumerate(group):
        tokens = words.encode([*sample.before, *sample.said])
        ids[row, : len(tokens)] = torch.tensor(tokens)
        for i, weight in enumerate(sample.weights):
            if weight:
                positions.append(row * length + len(sample.before) + i)
                complete.append(sample.complete[i])
                weights.append(weight)
    return ids, torch.tensor(positions), torch.tensor(complete), torch.tensor(weights)


class Utterances(IterableDataset[Batch]):
    """Batches, made in a process of their own while the head is fitted."""

    def __init__(self, seed: int, words: Vocabulary) -> None:
        self.seed, self.words = seed, words

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        return batches(random.Random(self.seed), self.words)


def balance(logits: Sequence[float], complete: Sequence[bool]) -> float:
    """The logit at which misses and false alarms are equally frequent; the middle, where that is a range."""
    whole, cut = sum(complete), len(complete) - sum(complete)

    def difference(at: float) -> float:
        missed = sum(logit < at for logit, good in zip(logits, complete, strict=True) if good)
        believed = sum(logit >= at for logit, good in zip(logits, complete, strict=True) if not good)
        return abs(missed / whole - believed / cut)

    ordered = sorted(logits)
    between = [(low + high) / 2 for low, high in pairwise(ordered)]
    least = min(map(difference, between))
    best = [at for at in between if difference(at) <= least + 1e-9]
    return best[len(best) // 2]


def calibrate(head: TurnEnd, decoder: Decoder, words: Vocabulary) -> None:
    """Move the bias of the score by what the development set asks for."""
    rows = evaluate_endpoint.read(DEVELOPMENT)
    thinker = TeaThinker(decoder, words, 1, head)
    scores, _ = evaluate_endpoint.judge(thinker, rows)
    with torch.no_grad():
        head.score.bias -= balance([math.log(p / (1 - p)) for p in scores], [row["complete"] for row in rows])


def optimizers_of(head: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the block, AdamW for the rest."""
    named = list(head.named_parameters())
    matrices = [p for name, p in named if name.startswith("block") and name.endswith("weight") and p.dim() == 2]
    rest = [p for _, p in named if not any(p is matrix for matrix in matrices)]
    return [
        Muon(matrices),
        torch.optim.AdamW(rest, lr=1.0, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15, help="of training, all starts together")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder with the thinker")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/tea-omni/endpoint")
    parser.add_argument("--warm", type=Path, help="file of a head to start from when there is no checkpoint")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    thinker = TeaThinker.load(options.weights / "thinker.safetensors", 1)
    decoder, words = thinker.decoder, thinker.vocabulary
    head = TurnEnd(decoder.config)
    for name, parameter in head.named_parameters():
        if name.endswith(("out.weight", "down.weight", "mix")):
            nn.init.zeros_(parameter)
    if options.warm:
        head.load_state_dict({name: value.float() for name, value in load_file(options.warm).items()})
    optimizers = optimizers_of(head)
    average = Average(head)
    checkpoint = options.work / "checkpoint.pt"
    step, spent, curve = 0, 0.0, []
    if checkpoint.exists():
        state: dict[str, Any] = torch.load(checkpoint)
        if state["fitted_on"] == lower_digest(decoder):
            head.load_state_dict(state["head"])
            for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            average.values, step, spent, curve = state["average"], state["step"], state["spent"], state["curve"]
    start = saved_at = time.time()

    def save() -> None:
        state = {"head": head.state_dict(), "average": average.values}
        state |= {"optimizers": [optimizer.state_dict() for optimizer in optimizers]}
        state |= {"step": step, "spent": spent + (time.time() - start) / 60, "curve": curve}
        torch.save(state | {"fitted_on": lower_digest(decoder)}, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").rename(checkpoint)
        (options.work / "curve.json").write_text(json.dumps(curve))
        averaged = TurnEnd(decoder.config)
        averaged.load_state_dict(average.values)
        calibrate(averaged, decoder, words)
        averaged.save(options.work / "endpoint.safetensors", decoder)
        print("saved", step, flush=True)

    losses: list[float] = []
    loader = DataLoader(Utterances(options.seed, words), batch_size=None, num_workers=1, prefetch_factor=8)
    for ids, positions, complete, weights in loader:
        elapsed = spent + (time.time() - start) / 60
        if elapsed >= options.minutes:
            break
        for optimizer, rate in zip(optimizers, RATES, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 50, 0.02 + 1.5 * (1 - elapsed / options.minutes))
        with mixed_precision("cpu"):
            with torch.no_grad():
                states = lower_states(decoder, ids)
            logits = head(states, positions).float()
        each = F.binary_cross_entropy_with_logits(logits, complete, reduction="none")
        loss = (each * weights).sum() / weights.sum()
        head.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        average.update(head, min(0.995, step / (step + 10)))
        losses.append(loss.item())
        if step % 50 == 0:
            minutes = round(spent + (time.time() - start) / 60, 2)
            curve.append({"step": step, "minutes": minutes, "loss": round(sum(losses) / len(losses), 4)})
            print(curve[-1], flush=True)
            losses = []
        if time.time() - saved_at > 60:
            saved_at = time.time()
            save()
    save()


if __name__ == "__main__":
    main()

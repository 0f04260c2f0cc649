"""Train tea-omni's thinker on generated dialogues.

    python models/tea-omni/train_thinker.py --minutes 90 --work ~/.cache/tea-omni/thinker

Resumes from the newest checkpoint in `--work`, or else from the shipped weights if `--warm` is given; weights of fewer
layers are grown. Dialogues are generated as it goes, never twice the same, in a process of their own. The network
trains on all cores, or on a GPU when there is one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from dialogues import make, vocabulary
from pypinyin import Style, lazy_pinyin
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from training import Muon, mixed_precision

from voice_agent.engine.protocols import Language
from voice_agent.tea.decoder import Block, Decoder, DecoderConfig, rotations
from voice_agent.tea.tokenizer import Vocabulary

LINE_WEIGHT, CHOICE_WEIGHT, CALL_WEIGHT = 8.0, 4.0, 3.0  # a reply token has 1
REPLIES = 0.2  # of the turns with calls go on to their reply, which is learned sooner
EASY = 0.3  # of the turns that are learned first (no call, or one without fields) are kept
MANDARIN = 0.65  # of the dialogues; a character says less than a word
BATCH_TOKENS = 4000
BUFFER = 2048


class SoundingDecoder(nn.Module):
    """The decoder while it is trained: a character's embedding is its own plus those of its initial and final.

    So that what sounds alike starts out alike. `merged` gives the plain decoder with the sums as its table.
    """

    def __init__(self, config: DecoderConfig, tokens: tuple[str, ...]) -> None:
        super().__init__()
        self.decoder = Decoder(config)
        initials, self.initial_of = _table([_sound(t, Style.INITIALS) for t in tokens])
        finals, self.final_of = _table([_sound(t, Style.FINALS) for t in tokens])
        self.initials = nn.Embedding(initials, config.width, padding_idx=0)
        self.finals = nn.Embedding(finals, config.width, padding_idx=0)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            if name.endswith(("out.weight", "down.weight", "mix")):
                nn.init.zeros_(parameter)
        for table in (self.initials, self.finals):
            table.weight.data[0] = 0

    def embed(self, ids: Tensor) -> Tensor:
        initials = self.initials(self.initial_of.to(ids.device)[ids])
        finals = self.finals(self.final_of.to(ids.device)[ids])
        embedded: Tensor = self.decoder.embedding(ids) + initials + finals
        return embedded

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Logits at the flat positions `targets` of int64[B, T]; the last layer is computed for these alone."""
        x = self.embed(ids)
        cosine, sine = rotations(torch.arange(ids.shape[1], device=ids.device), self.decoder.config)
        device = ids.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        cosine, sine = cosine.to(dtype), sine.to(dtype)
        future = torch.full((ids.shape[1],) * 2, -1e4, dtype=dtype, device=ids.device).triu(1)
        before = x.new_zeros(ids.shape[0], self.decoder.config.recent, self.decoder.config.width)
        last = len(self.decoder.blocks) - 1
        for index, block in enumerate(self.decoder.blocks):
            assert isinstance(block, Block)
            query, key, value, _ = block.project(x, before, cosine, sine)
            # The backward pass of the fused kernel is several times slower than this on a CPU.
            scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5 + future
            attended = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
            if index == last:
                x, attended = x.flatten(0, 1)[targets], attended.flatten(0, 1)[targets]
            x = block.finish(x, attended)
        logits: Tensor = self.decoder.head(self.decoder.norm(x))
        return logits

    def merged(self) -> dict[str, Tensor]:
        state = {k: v.detach().clone() for k, v in self.decoder.state_dict().items()}
        state["embedding.weight"] = self.embed(torch.arange(len(self.initial_of))).detach()
        return state


def _sound(token: str, style: Style) -> str:
    if len(token) != 1 or not "一" <= token <= "鿿":
        return ""
    return lazy_pinyin(token, style=style, strict=False)[0] or "-"


def _table(sounds: list[str]) -> tuple[int, Tensor]:
    known = {"": 0}
    rows = [known.setdefault(sound, len(known)) for sound in sounds]
    return len(known), torch.tensor(rows)


def samples(rng: random.Random, words: Vocabulary) -> Iterator[tuple[list[int], list[float]]]:
    """Token ids of a turn, and the weight of predicting each of them (0: it is only read)."""
    while True:
        language: Language = "zh" if rng.random() < MANDARIN else "en"
        for s in make.dialogue(rng, language, words):
            if len(s.calls) < 3 and rng.random() > EASY:
                continue
            prompt = [t if rng.random() > 0.01 else "<unk>" for t in s.prompt]
            prompt = [x for t in prompt for x in _spelled(rng, t)]
            tokens, weights = prompt + s.calls, [0.0] * len(prompt) + [_weight(t) for t in s.calls]
            if not s.results or s.rare or rng.random() < REPLIES:
                tokens = tokens + s.results + s.reply
                weights = weights + [0.0] * len(s.results) + [1.0] * len(s.reply)
            yield words.encode(tokens), weights


def _weight(token: str) -> float:
    """What is hardest to learn counts most: which line is meant, then which choice of which drink."""
    if token[0] == "L":
        return LINE_WEIGHT
    return CHOICE_WEIGHT if token[0] in "=+-" else CALL_WEIGHT


def _spelled(rng: random.Random, token: str) -> list[str]:
    """Now and then a word in letters, so that a word never seen means what it looks like."""
    if token.isascii() and token.isalpha() and token.islower() and len(token) > 1 and rng.random() < 0.02:
        return ["^", *("_" + letter for letter in token)]
    return [token]


def batches(rng: random.Random, words: Vocabulary) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """(ids[B, T], flat target positions, next ids there, their weights), of about equal lengths."""
    source = samples(rng, words)
    pad = words.ids["<pad>"]
    while True:
        pool = sorted((next(source) for _ in range(BUFFER)), key=lambda s: len(s[0]))
        groups: list[list[tuple[list[int], list[float]]]] = [[]]
        for sample in pool:
            if (len(groups[-1]) + 1) * len(sample[0]) > BATCH_TOKENS:
                groups.append([])
            groups[-1].append(sample)
        rng.shuffle(groups)
        for group in groups:
            length = max(len(ids) for ids, _ in group) - 1
            x = torch.full((len(group), length), pad)
            positions, following, weights = [], [], []
            for row, (ids, weight) in enumerate(group):
                x[row, : len(ids) - 1] = torch.tensor(ids[:-1])
                for i in range(1, len(ids)):
                    if weight[i]:
                        positions.append(row * length + i - 1)
                        following.append(ids[i])
                        weights.append(weight[i])
            yield x, torch.tensor(positions), torch.tensor(following), torch.tensor(weights)


class Dialogues(IterableDataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """Batches, made in a process of their own while the network trains."""

    def __init__(self, seed: int, words: Vocabulary) -> None:
        self.seed, self.words = seed, words

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        torch.set_num_threads(1)
        return batches(random.Random(self.seed), self.words)


def grown(state: dict[str, Tensor], config: DecoderConfig) -> dict[str, Tensor]:
    """Weights of a network with fewer layers, for `config`: above those that the talker hears, a new layer before each.

    A new layer's outputs are zero, so the network gives what it gave before (as in "Net2Net", Chen et al., 2016).
    """
    old = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("blocks."))
    added = config.layers - old
    if not 0 <= added <= old - config.tapped:
        raise ValueError(
            f"expected {old} to {2 * old - config.tapped} layers for weights with {old}, got {config.layers}"
        )
    place = {i: i + min(added, max(0, i + 1 - config.tapped)) for i in range(old)}
    moved = {k: v for k, v in state.items() if not k.startswith("blocks.")}
    for key, value in state.items():
        if key.startswith("blocks."):
            _, index, rest = key.split(".", 2)
            moved[f"blocks.{place[int(index)]}.{rest}"] = value
    fresh = Decoder(config).state_dict()
    for key, value in fresh.items():
        if key not in moved:
            moved[key] = torch.zeros_like(value) if key.endswith(("out.weight", "down.weight", "mix")) else value
    return moved


class Average:
    """Running average of the weights; what is evaluated and shipped."""

    def __init__(self, model: nn.Module) -> None:
        self.values = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self, model: nn.Module, keep: float) -> None:
        with torch.no_grad():
            for key, value in model.state_dict().items():
                self.values[key].lerp_(value, 1 - keep)


def freeze_below(model: SoundingDecoder) -> None:
    """Keep what gives the hidden states that the talker hears: the embeddings and the layers up to the tapped one."""
    kept = [model.decoder.embedding, model.initials, model.finals]
    for part in [*kept, *model.decoder.blocks[: model.decoder.config.tapped]]:
        part.requires_grad_(False)


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the rest."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    matrices = [p for n, p in named if "blocks" in n and n.endswith("weight") and p.dim() == 2]
    rest = [p for n, p in named if not any(p is matrix for matrix in matrices)]
    return [
        Muon(matrices),
        torch.optim.AdamW(rest, lr=1.0, betas=(0.9, 0.98), weight_decay=0.0),
    ]


RATES = (3.0e-3, 2.0e-3)


def export(model: SoundingDecoder, average: Average, words: Vocabulary, folder: Path) -> None:
    """The averaged weights as float16, and the vocabulary beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {k: v.detach().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(average.values)
    state = {k: v.to(torch.float16).contiguous() for k, v in model.merged().items()}
    model.load_state_dict(kept)
    config = model.decoder.config
    meta = {k: str(v) for k, v in vars(config).items()}
    path = folder / "thinker.safetensors"
    save_file(state, path, metadata=meta)
    path.chmod(0o644)
    words.save(folder / "thinker.json")


def plot(curve: list[dict[str, float]], path: Path) -> None:
    """Loss over steps, for call tokens and for reply tokens."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for key, label in (("calls", "tool calls"), ("reply", "reply")):
        axes.plot([point["step"] for point in curve], [point[key] for point in curve], label=label)
    axes.set(xlabel="step", ylabel="cross-entropy per token", yscale="log", title="tea-omni thinker, training loss")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="of training, all starts together")
    parser.add_argument("--decay-minutes", type=float, default=0, help="anneal the rate to zero over the last minutes")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/tea-omni/thinker")
    parser.add_argument("--warm", type=Path, help="folder with weights to start from when there is no checkpoint")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--save-minutes", type=float, default=5)
    parser.add_argument("--rate", type=float, default=1.0, help="factor of the learning rates")
    parser.add_argument("--upper", action="store_true", help="train only the layers above those the talker hears")
    parser.add_argument("--compile", action="store_true", help="a fifth faster, where there is a C++ compiler")
    parser.add_argument("--plot", type=Path, help="only draw the loss curve of `--work` into this picture")
    options = parser.parse_args()
    if options.plot:
        plot(json.loads((options.work / "curve.json").read_text()), options.plot)
        return
    options.work.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    path = options.work / "thinker.json"
    if not path.exists():
        # Weights fit the vocabulary that they were trained with.
        (Vocabulary.load(options.warm / path.name) if options.warm else vocabulary.build()).save(path)
    words = Vocabulary.load(path)
    model = SoundingDecoder(DecoderConfig(len(words), words.outputs), words.tokens).to(device)
    if options.upper:
        freeze_below(model)
    opts = optimizers(model)
    checkpoint = options.work / "checkpoint.pt"
    step, spent, curve = 0, 0.0, []
    average = Average(model)
    if checkpoint.exists():
        state: dict[str, Any] = torch.load(checkpoint, map_location=device)
        if state.get("upper", False) == options.upper:
            model.load_state_dict(state["model"])
            for opt, saved in zip(opts, state["optimizers"], strict=True):
                opt.load_state_dict(saved)
        else:
            model.load_state_dict(state["average"])
        average.values = state["average"]
        step, spent, curve = state["step"], state["spent"], state["curve"]
    elif options.warm:
        shipped = load_file(options.warm / "thinker.safetensors")
        model.decoder.load_state_dict(grown({k: v.float() for k, v in shipped.items()}, model.decoder.config))
        for table in (model.initials, model.finals):
            nn.init.zeros_(table.weight)
        average = Average(model)
    print(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters from step", step, flush=True)
    network = torch.compile(model, dynamic=True) if options.compile else model
    start = saved_at = time.time()
    losses: list[tuple[float, float]] = []

    def save() -> None:
        state = {"model": model.state_dict(), "average": average.values, "step": step, "curve": curve}
        state |= {"spent": spent + (time.time() - start) / 60, "upper": options.upper}
        state |= {"optimizers": [opt.state_dict() for opt in opts]}
        torch.save(state, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").rename(checkpoint)
        (options.work / "curve.json").write_text(json.dumps(curve))
        export(model, average, words, options.work)
        print("saved", step, flush=True)

    loader = DataLoader(Dialogues(options.seed, words), batch_size=None, num_workers=1, prefetch_factor=8)
    for x, positions, following, weights in loader:
        elapsed = spent + (time.time() - start) / 60
        if elapsed >= options.minutes:
            break
        rate = options.rate * min(1.0, (step + 1) / 150)
        if options.decay_minutes:
            rate *= min(1.0, max(0.0, (options.minutes - elapsed) / options.decay_minutes))
        for opt, base in zip(opts, RATES, strict=True):
            for group in opt.param_groups:
                group["lr"] = base * rate
        with mixed_precision(device):
            logits = network(x.to(device), positions.to(device))
        each = F.cross_entropy(logits.float(), following.to(device), reduction="none")
        weights = weights.to(device)
        loss = (each * weights).sum() / weights.sum()
        for opt in opts:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
        average.update(model, min(0.998, (step + 1) / (step + 10)))
        step += 1
        calls = weights > 1
        losses.append((each[calls].mean().item(), each[~calls].mean().item()))
        if step % 100 == 0:
            mean = [sum(v) / len(losses) for v in zip(*losses, strict=True)]
            now = spent + (time.time() - start) / 60
            curve.append(
                {"step": step, "minutes": round(now, 2), "calls": round(mean[0], 4), "reply": round(mean[1], 4)}
            )
            print(curve[-1], flush=True)
            losses = []
        if time.time() - saved_at > options.save_minutes * 60:
            saved_at = time.time()
            save()
    save()


if __name__ == "__main__":
    main()

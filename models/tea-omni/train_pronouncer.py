"""Train the talker's pronouncer on a thinker's hidden states, and write the talker's weights.

    python models/tea-omni/train_pronouncer.py

Takes minutes; to be run again whenever the thinker changes. Every reply token is labelled with its phones by a
lexicon (espeak-ng for English, pypinyin with tone sandhi for Mandarin), and the pronouncer learns to read them off
the hidden states. Replies are those of the thinker's own dialogues, some of them with other words put in, and words
in random order, so that a word's phones are known in any company. The acoustic part comes from `train_talker.py`;
the codec's projection is folded into its last layer here.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from dialogues import make  # noqa: E402
from phones import PAUSES, EnglishLexicon, mandarin_phones  # noqa: E402

from voice_agent.engine.protocols import Language  # noqa: E402
from voice_agent.tea.codec import MEL_CHANNELS, MEL_FRAMES, LatentSpace  # noqa: E402
from voice_agent.tea.decoder import Decoder  # noqa: E402
from voice_agent.tea.talker import save  # noqa: E402
from voice_agent.tea.talker_net import PAD, TalkerConfig, TalkerNet  # noqa: E402
from voice_agent.tea.thinker import TeaThinker  # noqa: E402
from voice_agent.tea.tokenizer import PUNCTUATION, Vocabulary  # noqa: E402
from voice_agent.weights import sha256_of  # noqa: E402

BATCH_TURNS, BATCH_TOKENS = 32, 512
LEARNING_RATE = 3e-3
SHARPENED_BANDS = 9  # the neighbourhood that a band is compared with
SALAD_PART, SWAPPED_PART = 0.3, 0.3
SEED_OF_TEST = 987


@dataclass(frozen=True)
class Spoken:
    """Token ids of a whole turn; the reply is its last `len(phones)` tokens, and these are their phones."""

    ids: list[int]
    phones: list[list[int]]
    language: Language


class Lexicon:
    """Phone ids for the tokens of a reply."""

    def __init__(self, phones: tuple[str, ...]) -> None:
        self._ids = {name: index for index, name in enumerate(phones)}
        self._english = EnglishLexicon()

    def phones(self, tokens: list[str], language: Language) -> list[list[int]]:
        """One list a token. Raises ValueError for a sound that the talker has never heard in any form."""
        if language == "zh":
            spoken = mandarin_phones("".join(PUNCTUATION.get(token, token) for token in tokens))
        else:
            spoken = [self._english.phones(token) if token[0].isalpha() else [] for token in tokens]
        result = []
        for token, names in zip(tokens, spoken, strict=True):
            pause = PAUSES.get(token)
            result.append([self._ids[pause]] if pause else [self._nearest(f"{language}/{n}") for n in names])
        return result

    def _nearest(self, name: str) -> int:
        """The phone itself, or else one that differs in tone or stress alone."""
        for suffix in ("", "2", "1", "3", "4", "5"):
            variant = name if not suffix else name.rstrip("12345") + suffix
            if variant in self._ids:
                return self._ids[variant]
        if name.rstrip("12345") in self._ids:
            return self._ids[name.rstrip("12345")]
        raise ValueError(f"expected a sound of the talker's inventory, got {name!r}")


class Source:
    """Turns to learn from, without end."""

    def __init__(self, rng: random.Random, vocabulary: Vocabulary, lexicon: Lexicon) -> None:
        self.rng, self.vocabulary, self.lexicon = rng, vocabulary, lexicon
        self.words: dict[Language, list[str]] = {
            language: [vocabulary.tokens[i] for i in ids if vocabulary.tokens[i][0].isalpha()]
            for language, ids in vocabulary.reply.items()
        }

    def __iter__(self) -> Iterator[Spoken]:
        while True:
            language: Language = "zh" if self.rng.random() < 0.5 else "en"
            for sample in make.dialogue(self.rng, language, self.vocabulary):
                reply = sample.reply[:-1]
                kind = self.rng.random()
                if kind < SALAD_PART:
                    reply = self._salad(language)
                elif kind < SALAD_PART + SWAPPED_PART:
                    reply = [self._swapped(token, language) for token in reply]
                tokens = [*sample.prompt, *sample.calls, *sample.results, *reply]
                phones = self.lexicon.phones(reply, language)
                yield Spoken(self.vocabulary.encode(tokens), phones, language)

    def _swapped(self, token: str, language: Language) -> str:
        """Now and then another word of the language instead of this one."""
        if not token[0].isalpha() or self.rng.random() < 0.7:
            return token
        return self.rng.choice(self.words[language])

    def _salad(self, language: Language) -> list[str]:
        words = self.rng.choices(self.words[language], k=self.rng.randint(3, 12))
        return [*words[:2], ",", *words[2:], self.rng.choice([".", "?", "!"])]


@dataclass(frozen=True)
class Tokens:
    """Reply tokens of many turns: hidden states float32[N, H], those of the tokens after them, and the phones
    int64[N, slots] filled up with `PAD`. `english`: bool[N]."""

    here: Tensor
    following: Tensor
    phones: Tensor
    english: Tensor


def tokens_of(decoder: Decoder, turns: Sequence[Spoken], slots: int) -> Tokens:
    """What the thinker's network makes of these turns, a batch at a time."""
    here, following, phones, english = [], [], [], []
    ordered = sorted(turns, key=lambda turn: len(turn.ids))
    for first in range(0, len(ordered), BATCH_TURNS):
        batch = ordered[first : first + BATCH_TURNS]
        ids = torch.zeros(len(batch), len(batch[-1].ids), dtype=torch.long)
        for row, turn in enumerate(batch):
            ids[row, : len(turn.ids)] = torch.tensor(turn.ids)
        _, hidden = decoder(ids)
        for row, turn in enumerate(batch):
            states = hidden[row, len(turn.ids) - len(turn.phones) : len(turn.ids)]
            here.append(states)
            following.append(torch.cat([states[1:], torch.zeros(1, states.shape[1])]))
            phones += [list(p[:slots]) + [PAD] * (slots - len(p)) for p in turn.phones]
            english += [turn.language == "en"] * len(turn.phones)
    return Tokens(torch.cat(here), torch.cat(following), torch.tensor(phones), torch.tensor(english))


def accuracy(net: TalkerNet, test: Tokens) -> dict[str, float]:
    """Part of the tokens whose phones are all right."""
    logits = net.pronouncer(test.here, test.following)
    # After the first `PAD` nothing is read.
    wrong = (logits.argmax(-1) != test.phones) & counted(test.phones)
    right = ~wrong.any(-1)
    return {
        language: round(right[test.english == (language == "en")].float().mean().item(), 4) for language in ("zh", "en")
    }


def counted(phones: Tensor) -> Tensor:
    """bool[N, slots]: the slots that are read, up to and with the first `PAD`."""
    return torch.cat([torch.ones(len(phones), 1, dtype=torch.bool), phones[:, :-1] != PAD], 1)


def sharpening(strength: float) -> Tensor:
    """float32[320, 320] over the mel of a frame: adds `strength` times what each band has over its neighbourhood.

    Regression gives the mean of what may be, whose spectrum is flatter than speech; this undoes part of that.
    """
    bands = torch.arange(MEL_CHANNELS)
    near = ((bands[:, None] - bands).abs() <= SHARPENED_BANDS // 2).float()
    one = torch.eye(MEL_CHANNELS) * (1 + strength) - near / near.sum(1, keepdim=True) * strength
    return torch.block_diag(*[one] * MEL_FRAMES)


def with_projection(state: dict[str, Tensor], config: TalkerConfig, space: LatentSpace, strength: float) -> TalkerNet:
    """The acoustic network with latents of the sharpened mel as its output, and the codec's codebooks."""
    net = TalkerNet(config, space.codebooks.clone())
    folded = dict(state)
    sharpen = sharpening(strength)
    folded["frames.out.weight"] = space.basis.T @ sharpen @ state["frames.out.weight"]
    folded["frames.out.bias"] = (sharpen @ state["frames.out.bias"] - space.center) @ space.basis
    folded = {name: value for name, value in folded.items() if not name.startswith(("pronouncer.", "codebooks"))}
    missing, unexpected = net.load_state_dict(folded, strict=False)
    assert not unexpected, unexpected
    assert all(name.startswith(("pronouncer.", "codebooks")) for name in missing), missing
    return net


def main() -> None:
    cache, weights = Path("~/.cache/tea-omni").expanduser(), HERE / "weights"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thinker", type=Path, default=weights / "thinker.safetensors")
    parser.add_argument("--space", type=Path, default=weights / "codec.safetensors", help="the codec's weights")
    parser.add_argument("--acoustic", type=Path, default=cache / "talker" / "talker.pt")
    parser.add_argument("--out", type=Path, default=weights / "talker.safetensors")
    parser.add_argument("--report", type=Path, default=cache / "talker" / "pronouncer.json")
    parser.add_argument("--turns", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--sharpening", type=float, default=0.3, help="of the spectrum, see `sharpening`")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    thinker = TeaThinker.load(args.thinker, 1)
    acoustic = torch.load(args.acoustic, weights_only=False)
    space = LatentSpace.load(args.space)
    config = TalkerConfig.from_json(acoustic["config"])
    config = replace(config, hidden_size=thinker.hidden_size, latent_size=space.basis.shape[1])
    net = with_projection(acoustic["average"], config, space, args.sharpening)
    lexicon = Lexicon(config.phones)
    net.requires_grad_(False)
    net.pronouncer.requires_grad_(True)

    def gather(seed: int, count: int) -> Tokens:
        turns = islice(Source(random.Random(seed), thinker.vocabulary, lexicon), count)
        with torch.no_grad():
            return tokens_of(thinker.decoder, list(turns), config.phone_slots)

    began = time.monotonic()
    test, train = gather(SEED_OF_TEST, 200), gather(1, args.turns)
    print(f"{len(train.here)} tokens after {time.monotonic() - began:.0f} s", flush=True)
    parameters = list(net.pronouncer.parameters())
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATE, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    curve = []
    for step in range(1, args.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * max(0.02, 1 - step / args.steps)
        chosen = torch.randint(len(train.here), (BATCH_TOKENS,), generator=generator)
        wanted = train.phones[chosen]
        logits = net.pronouncer(train.here[chosen], train.following[chosen])
        heard = counted(wanted)
        loss = F.cross_entropy(logits[heard], wanted[heard])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            curve.append({"step": step, "loss": round(loss.item(), 5)})
        if step % 200 == 0:
            with torch.no_grad():
                curve[-1] |= accuracy(net, test)
            print(curve[-1], flush=True)
    with torch.no_grad():
        final = accuracy(net, test)
    print("tokens right, held out:", final)
    args.report.write_text(json.dumps({"tokens_right": final, "curve": curve}) + "\n")
    save(net, args.out, sha256_of(args.thinker))


if __name__ == "__main__":
    main()

"""Trains the talker's pronouncer on a thinker's hidden states, and writes the talker's weights.

    python models/tea-omni/train_pronouncer.py
    python models/tea-omni/train_pronouncer.py --warm models/tea-omni/weights

Takes minutes; to be run again whenever the thinker changes below its third layer. Every reply token is labelled with
its phones by a lexicon (espeak-ng for English, pypinyin with tone sandhi for Mandarin), and the pronouncer learns to
read them off the hidden states. It learns from two kinds of text:
- replies of the thinker's own dialogues, some of them with other words put in, and words of replies in random order;
- texts as an agent is given them, after a greeting: general sentences, and all words that can be said, of both
  languages, in random order, so that a word's phones are known in any company. Letters have their names.

The acoustic part is that of CACHE/talker/talker.pt (`train_talker.py`), or with `--warm` that of shipped weights; the
codec's projection is folded into its last layer here. Writes `--out`, and the curve to CACHE/talker/pronouncer.json.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from acoustic import SHARPENING, acoustic_part, folded, load_acoustic, load_shipped
from dialogues import general, make
from phones import PAUSES, EnglishLexicon, mandarin_phones
from speech import CACHE, WEIGHTS
from torch import Tensor
from torch.nn import functional as F
from training import Muon, read_checkpoint

from voice_agent.engine.protocols import Language
from voice_agent.tea.codec import LatentSpace
from voice_agent.tea.decoder import Decoder
from voice_agent.tea.talker import save
from voice_agent.tea.talker_net import PAD, TalkerConfig, TalkerNet
from voice_agent.tea.thinker import TeaThinker
from voice_agent.tea.tokenizer import PUNCTUATION, SAID
from voice_agent.weights import sha256_of

BATCH_TURNS, BATCH_TOKENS = 32, 256
LEARNING_RATE = 3e-3
GIVEN_PART, SALAD_PART, SWAPPED_PART = 0.75, 0.25, 0.25  # of all; of replies
WIDE_PART, MIXED_PART = 0.7, 0.3  # of given texts those in random order; of these those in both languages
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SEED_OF_TEST, TEST_TURNS = 987, 600


@dataclass(frozen=True)
class Spoken:
    """Token ids of a whole turn; the reply is its last `len(phones)` tokens, and these are their phones."""

    ids: list[int]
    phones: list[list[int]]
    kind: str


def _is_mandarin(token: str) -> bool:
    return len(token) == 1 and "㐀" <= token <= "鿿"


class Lexicon:
    """Phone ids for the tokens of a reply."""

    def __init__(self, phones: tuple[str, ...]) -> None:
        self._ids = {name: index for index, name in enumerate(phones)}
        self._english = EnglishLexicon()

    def phones(self, tokens: list[str], language: Language) -> list[list[int]]:
        """One list a token. Raises ValueError for a sound that the talker has never heard in any form."""
        mandarin = mandarin_phones("".join(token if _is_mandarin(token) else "," for token in tokens))
        result = []
        for token, names in zip(tokens, mandarin, strict=True):
            mark = PUNCTUATION.get(token, token) if language == "zh" else token
            if pause := PAUSES.get(mark):
                result.append([self._ids[pause]])
            elif _is_mandarin(token):
                result.append([self._nearest(f"zh/{name}") for name in names])
            else:
                result.append([self._nearest(f"en/{name}") for name in self._of_english(token)])
        return result

    def _of_english(self, token: str) -> list[str]:
        if token[0] == "_":
            return ["A2"] if token == "_a" else self._english.phones(token[1])
        word = token.removeprefix(SAID)
        return self._english.phones(word) if word[0].isalpha() else []

    def knows(self, token: str) -> bool:
        """Whether it can be said."""
        try:
            return bool(self.phones([token], "zh")[0])
        except ValueError:
            return False

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

    def __init__(self, rng: random.Random, thinker: TeaThinker, lexicon: Lexicon) -> None:
        vocabulary = thinker.vocabulary
        self.rng, self.thinker, self.vocabulary, self.lexicon = rng, thinker, vocabulary, lexicon
        self.replied: dict[Language, list[str]] = {
            language: [vocabulary.tokens[i] for i in ids if vocabulary.tokens[i][0].isalpha()]
            for language, ids in vocabulary.reply.items()
        }
        english = [t for t in vocabulary.tokens if t.removeprefix(SAID).replace("'", "").isalpha() and t.isascii()]
        self.said: dict[Language, list[str]] = {
            "zh": [t for t in vocabulary.tokens if _is_mandarin(t) and lexicon.knows(t)],
            "en": [t for t in (*english, *(f"_{letter}" for letter in LETTERS)) if lexicon.knows(t)],
        }
        self.known = {*self.said["zh"], *self.said["en"], *PUNCTUATION}

    def __iter__(self) -> Iterator[Spoken]:
        while True:
            language: Language = "zh" if self.rng.random() < 0.5 else "en"
            if self.rng.random() < GIVEN_PART:
                yield self._given(language)
            else:
                yield from self._replies(language)

    def _replies(self, language: Language) -> Iterator[Spoken]:
        for sample in make.dialogue(self.rng, language, self.vocabulary):
            reply = sample.reply[:-1]
            kind = self.rng.random()
            if kind < SALAD_PART:
                reply = self._salad(self.replied[language])
            elif kind < SALAD_PART + SWAPPED_PART:
                reply = [self._swapped(token, language) for token in reply]
            yield self._spoken([*sample.prompt, *sample.calls, *sample.results], reply, language, language)

    def _given(self, language: Language) -> Spoken:
        if self.rng.random() < WIDE_PART:
            text = self._salad(self.said[language], self.said["en" if language == "zh" else "zh"])
        else:
            said = self.vocabulary.said_tokens(self.rng.choice(general.spoken(language)), language)
            text = [token for token, _ in said if token in self.known]
        return self._spoken(self.thinker.before_given(language), text, language, f"{language}, given")

    def _spoken(self, before: list[str], text: list[str], language: Language, kind: str) -> Spoken:
        return Spoken(self.vocabulary.encode([*before, *text]), self.lexicon.phones(text, language), kind)

    def _swapped(self, token: str, language: Language) -> str:
        """Now and then another word of the language instead of this one."""
        if not token[0].isalpha() or self.rng.random() < 0.7:
            return token
        return self.rng.choice(self.replied[language])

    def _salad(self, words: list[str], guests: list[str] | None = None) -> list[str]:
        chosen = self.rng.choices(words, k=self.rng.randint(3, 24 if guests else 12))
        if guests and self.rng.random() < MIXED_PART:
            place = self.rng.randrange(len(chosen))
            chosen[place:place] = self.rng.choices(guests, k=self.rng.randint(1, 4))
        return [*chosen[:2], ",", *chosen[2:], self.rng.choice([".", "?", "!"])]


@dataclass(frozen=True)
class Tokens:
    """Reply tokens of many turns: hidden states float32[N, H], those of the tokens after them, and the phones
    int64[N, slots] filled up with `PAD`; and the kind of text that each is from."""

    here: Tensor
    following: Tensor
    phones: Tensor
    kinds: list[str]


def tokens_of(decoder: Decoder, turns: Sequence[Spoken], slots: int) -> Tokens:
    """What the thinker's network makes of these turns, a batch at a time."""
    here, following, phones = [], [], []
    kinds: list[str] = []
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
            phones += [[*p, *[PAD] * (slots - len(p))] for p in turn.phones]
            kinds += [turn.kind] * len(turn.phones)
    return Tokens(torch.cat(here), torch.cat(following), torch.tensor(phones), kinds)


def accuracy(net: TalkerNet, test: Tokens) -> dict[str, float]:
    """Part of the tokens whose phones are all right."""
    logits = net.pronouncer(test.here, test.following)
    # After the first `PAD` nothing is read.
    wrong = (logits.argmax(-1) != test.phones) & counted(test.phones)
    right = ~wrong.any(-1)
    by_kind: dict[str, list[bool]] = {}
    for kind, each in zip(test.kinds, right.tolist(), strict=True):
        by_kind.setdefault(kind, []).append(each)
    return {kind: round(sum(each) / len(each), 4) for kind, each in sorted(by_kind.items())}


def counted(phones: Tensor) -> Tensor:
    """bool[N, slots]: the slots that are read, up to and with the first `PAD`."""
    return torch.cat([torch.ones(len(phones), 1, dtype=torch.bool), phones[:, :-1] != PAD], 1)


def acoustic(cache: Path, warm: Path | None) -> tuple[TalkerConfig, dict[str, Tensor]]:
    """Configuration and weights whose output is mel. Raises FileNotFoundError if nothing was trained."""
    if warm:
        return load_shipped(warm)
    path = cache / "talker" / "talker.pt"
    state = read_checkpoint(path, "cpu")
    if state is None:
        raise FileNotFoundError(f"expected the checkpoint {path}: run train_talker.py, or give --warm")
    return TalkerConfig.from_json(state["config"]), acoustic_part(state["average"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--warm", type=Path, help="folder with weights whose talker gives the acoustic part")
    parser.add_argument("--thinker", type=Path, default=WEIGHTS / "thinker.safetensors")
    parser.add_argument("--codec", type=Path, default=WEIGHTS / "codec.safetensors")
    parser.add_argument("--out", type=Path, default=WEIGHTS / "talker.safetensors")
    parser.add_argument("--turns", type=int, default=24000)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--sharpening", type=float, default=SHARPENING, help="of the spectrum, see acoustic.py")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    thinker = TeaThinker.load(args.thinker, 1)
    space = LatentSpace.load(args.codec)
    config, state = acoustic(args.cache, args.warm)
    config = replace(config, hidden_size=thinker.hidden_size, latent_size=space.basis.shape[1])
    net = TalkerNet(config, space.codebooks.clone())
    load_acoustic(net, folded(state, space, args.sharpening))
    lexicon = Lexicon(config.phones)
    net.requires_grad_(False)
    net.pronouncer.requires_grad_(True)

    def gather(seed: int, count: int) -> Tokens:
        turns = islice(Source(random.Random(seed), thinker, lexicon), count)
        with torch.no_grad():
            return tokens_of(thinker.decoder, list(turns), config.phone_slots)

    began = time.monotonic()
    test, train = gather(SEED_OF_TEST, TEST_TURNS), gather(1, args.turns)
    print(f"{len(train.here)} tokens after {time.monotonic() - began:.0f} s", flush=True)
    matrices = [net.pronouncer.here.weight, net.pronouncer.next.weight, net.pronouncer.mix.weight]
    rest = [p for p in net.pronouncer.parameters() if all(p is not matrix for matrix in matrices)]
    # AdamW alone leaves more of the rarer characters unlearnt in as many steps.
    optimizers = [
        Muon(matrices, LEARNING_RATE),
        torch.optim.AdamW(rest, LEARNING_RATE, weight_decay=0.01),
    ]
    generator = torch.Generator().manual_seed(0)
    curve = []
    for step in range(1, args.steps + 1):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = LEARNING_RATE * max(0.02, 1 - step / args.steps)
        chosen = torch.randint(len(train.here), (BATCH_TOKENS,), generator=generator)
        wanted = train.phones[chosen]
        logits = net.pronouncer(train.here[chosen], train.following[chosen])
        heard = counted(wanted)
        loss = F.cross_entropy(logits[heard], wanted[heard])
        net.pronouncer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 50 == 0:
            curve.append({"step": step, "loss": round(loss.item(), 5)})
        if step % 500 == 0:
            with torch.no_grad():
                curve[-1] |= accuracy(net, test)
            print(curve[-1], flush=True)
    with torch.no_grad():
        final = accuracy(net, test)
    print("tokens right, held out:", final)
    report = args.cache / "talker" / "pronouncer.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps({"tokens_right": final, "curve": curve}) + "\n")
    save(net, args.out, sha256_of(args.thinker))


if __name__ == "__main__":
    main()

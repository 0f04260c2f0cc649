"""Where the voice loses clarity, rung by rung, on utterances of the teachers that were held out of training.

    python models/tea-omni/evaluate_talker.py --out talker.json

`teacher`: its own audio; `codec`: that audio's latents, quantised; `true durations`: the talker's latents with the
teacher's phones and durations; `own durations`: with the teacher's phones alone. The last rung, through the
pronouncer, is `evaluate_voice.py`. Error rates as there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import torch
from evaluate_voice import UNITS, Ears, edits
from speech import CACHE, WEIGHTS
from talker_data import Item
from train_talker import FRAME_RATE, HELD_OUT, Corpus, Example, collate, example, under_frames

from voice_agent.tea.codec import SAMPLE_RATE, LatentSpace, TeaCodec
from voice_agent.tea.talker import LONGEST_SECONDS, SHORTEST_SECONDS, TeaTalker

Pcm = npt.NDArray[np.float32]


class Rungs:
    """The ways to speak an example."""

    def __init__(self, cache: Path, talker: TeaTalker, codec: TeaCodec, space: LatentSpace) -> None:
        self.cache, self.talker, self.codec, self.space = cache, talker, codec, space
        self.ids = {name: index for index, name in enumerate(talker.net.config.phones)}

    def teacher(self, e: Example) -> Pcm:
        pcm, _ = soundfile.read(self.cache / e.item.language / e.item.wav, dtype="float32")
        return np.asarray(pcm, np.float32)

    def codec_alone(self, e: Example) -> Pcm:
        return self._decode(self.space.encode(e.mel.unflatten(-1, (-1, 80)).flatten(0, 1)))

    def true_durations(self, e: Example) -> Pcm:
        batch = collate([e])
        content, _, _ = self.talker.net.encoder(batch.phones, batch.language)
        return self._decode(self.talker.net.frames(under_frames(content, batch.under), batch.timing)[0])

    def own_durations(self, e: Example) -> Pcm:
        batch = collate([e])
        _, log_seconds, _ = self.talker.net.encoder(batch.phones, batch.language)
        seconds = log_seconds[0].exp().clamp(SHORTEST_SECONDS, LONGEST_SECONDS).double().numpy()
        seconds[[0, -1]] = e.item.seconds[[0, -1]]
        frames = int(np.ceil(seconds.sum() * FRAME_RATE))
        item: Item = replace(e.item, seconds=seconds)
        return self.true_durations(example(item, np.zeros((4 * frames, 80), np.float32), self.ids))

    def _decode(self, latents: torch.Tensor) -> Pcm:
        codes = self.talker.quantise(latents)
        self.codec.start(0)
        pcm = [*self.codec.step([0], codes[None]), self.codec.finish(0)]
        self.codec.free(0)
        return np.concatenate(pcm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--each", type=int, default=HELD_OUT, help="utterances of each language")
    parser.add_argument("--rungs", nargs="*", default=["teacher", "codec", "true durations", "own durations"])
    parser.add_argument("--wavs", type=Path, help="folder to keep the audio in")
    parser.add_argument("--out", type=Path, default=Path("talker.json"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    talker = TeaTalker.load(args.weights / "talker.safetensors", 1)
    codec = TeaCodec.load(args.weights / "codec.safetensors", 1)
    rungs = Rungs(args.cache, talker, codec, LatentSpace.load(args.weights / "codec.safetensors"))
    ways: dict[str, Callable[[Example], Pcm]] = {
        "teacher": rungs.teacher,
        "codec": rungs.codec_alone,
        "true durations": rungs.true_durations,
        "own durations": rungs.own_durations,
    }
    corpus = Corpus(args.cache, talker.net.config.phones, HELD_OUT, limit=HELD_OUT)
    ears = Ears(args.threads)
    report: dict[str, float] = {}
    for rung in args.rungs:
        for language, units in UNITS.items():
            wrong = total = 0
            for index, e in enumerate(corpus.test[language][: args.each]):
                with torch.inference_mode():
                    pcm = ways[rung](e)
                if args.wavs:
                    args.wavs.mkdir(parents=True, exist_ok=True)
                    soundfile.write(
                        args.wavs / f"{rung.replace(' ', '_')}_{language}_{index:02d}.wav", pcm, SAMPLE_RATE
                    )
                heard = ears.hear(pcm, SAMPLE_RATE, language)
                wrong += edits(units(e.item.text), units(heard))
                total += len(units(e.item.text))
                print(f"{rung} | {e.item.text} | {heard}", flush=True)
            report[f"{rung}, {language}"] = round(wrong / total, 4)
    print(json.dumps(report))
    args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How well the voice is understood: CER of zh and WER of en replies by Whisper base, through thinker, talker and codec.

    python models/tea-omni/evaluate_voice.py --out voice.json

Over `eval_sentences.jsonl`, none of which the talker was trained on. Each sentence's hidden states come from the
thinker; `--shuffle` gives the talker those of another sentence, position by position, to show that it speaks what
the hidden states say. Whisper hears the usual 30 s window with beam 5, the language set and no prompt; numbers are
compared as words and Mandarin in simplified script. The real-time factor is of talker and codec on one core.

Of sentences with the length that their teacher gave them (`reply_sentences.jsonl`: 500 replies of the dialogues'
generator) it also tells how many are `broken`: babble, skips and loops.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import torch
from speech import WEIGHTS

from voice_agent import weights
from voice_agent.engine.protocols import Language, TextToken
from voice_agent.tea.codec import TeaCodec
from voice_agent.tea.numbers import english
from voice_agent.tea.talker import TeaTalker
from voice_agent.tea.thinker import TeaThinker

WHISPER_RATE = 16_000
AUDIBLE = 0.01
_SPELLINGS = {
    "ok": "okay", "canceled": "cancelled", "cannot": "can not", "can't": "can not", "%": " percent",
    "it's": "it is", "that's": "that is", "i'm": "i am", "you're": "you are", "i'll": "i will",
}  # fmt: skip


def zh_units(text: str) -> list[str]:
    """Characters, in simplified script, numbers in words; 两 counts as 二 and 元 as 块."""
    import cn2an
    from opencc import OpenCC

    text = re.sub(r"(?<=\d),(?=\d{3})", "", OpenCC("t2s").convert(text))
    text = re.sub(r"\d+\.?\d*%?", lambda found: _zh_number(cn2an, found.group()), text)
    return list(re.sub("[^\u4e00-\u9fff]", "", text).replace("两", "二").replace("元", "块"))


def _zh_number(cn2an: Any, digits: str) -> str:
    try:
        return str(cn2an.an2cn(digits.rstrip("%.")))
    except ValueError:
        return digits


def en_units(text: str) -> list[str]:
    """Lower-case words, numbers in words."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower().replace("’", "'").replace("-", " "))
    text = re.sub(r"(\d+)\.(\d)(?!\d)", r"\1 point \2", text)
    text = re.sub(r"\d+", lambda found: f" {english(int(found.group()) % 10000)} ", text)
    for old, new in _SPELLINGS.items():
        text = re.sub(rf"(?<![a-z]){re.escape(old)}(?![a-z])", new, text)
    return re.findall(r"[a-z']+", text)


UNITS: dict[Language, Callable[[str], list[str]]] = {"zh": zh_units, "en": en_units}
"""What is compared of a text, a language."""


def edits(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance."""
    row = list(range(len(heard) + 1))
    for i, wanted in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (wanted != got))
    return row[-1]


class Ears:
    """Whisper base over 30 s windows."""

    def __init__(self, threads: int) -> None:
        from faster_whisper import WhisperModel

        folder = str(weights.whisper())
        self._model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads)

    def hear(self, pcm: npt.NDArray[np.float32], rate: int, language: Language) -> str:
        """float32[T] to text."""
        audio = soxr.resample(pcm, rate, WHISPER_RATE).astype(np.float32)
        segments, _ = self._model.transcribe(
            audio, language=language, beam_size=5, condition_on_previous_text=False, without_timestamps=True
        )
        return "".join(segment.text for segment in segments)


@dataclass
class Voice:
    """Talker and codec, one row. `seconds` of computing and `spoken` seconds of audio add up."""

    talker: TeaTalker
    codec: TeaCodec
    seconds: float = 0.0
    spoken: float = 0.0

    def say(self, tokens: Sequence[TextToken], language: Language) -> npt.NDArray[np.float32]:
        """Tokens one at a time, frames as soon as they are ready: float32[T] @ the codec's rate."""
        began = time.perf_counter()
        self.talker.start(0, language)
        self.codec.start(0)
        chunks: list[npt.NDArray[np.float32]] = []
        for token in tokens:
            self.talker.push(0, [token])
            self._speak(chunks)
        self.talker.finish(0)
        self._speak(chunks)
        chunks.append(self.codec.finish(0))
        self.talker.free(0)
        self.codec.free(0)
        pcm = np.concatenate(chunks)
        self.seconds += time.perf_counter() - began
        self.spoken += len(pcm) / self.codec.sample_rate
        return pcm

    def _speak(self, chunks: list[npt.NDArray[np.float32]]) -> None:
        while self.talker.ready(0):
            frame = self.talker.step([0])[0]
            if frame is None:
                return
            chunks += self.codec.step([0], frame.codes[None, None])


def swapped(tokens: Sequence[TextToken], other: Sequence[TextToken]) -> list[TextToken]:
    """These tokens with the hidden states of another reply."""
    return [TextToken(t.id, t.text, other[i % len(other)].hidden) for i, t in enumerate(tokens)]


def error_rate(results: Sequence[dict[str, Any]]) -> float:
    """Edits over reference units, all sentences together."""
    return round(sum(r["edits"] for r in results) / max(1, sum(r["units"] for r in results)), 4)


def audible_seconds(pcm: npt.NDArray[np.float32], rate: int) -> float:
    """From the first sound to the last."""
    loud = np.flatnonzero(np.abs(pcm) > AUDIBLE)
    return float(loud[-1] + 1 - loud[0]) / rate if len(loud) else 0.0


def is_broken(result: Mapping[str, Any]) -> bool:
    """Babble, skips and loops: half of a reply is misheard, or it is a quarter longer or shorter than the teacher's."""
    longer = result["seconds"] / result["meant_seconds"] - 1
    return result["edits"] >= 0.5 * result["units"] or abs(longer) > 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--thinker", type=Path, help="other weights of the thinker")
    parser.add_argument("--codec", type=Path, help="other weights of the codec")
    parser.add_argument("--talker", type=Path, help="other weights of the talker")
    parser.add_argument("--sentences", type=Path, default=WEIGHTS.with_name("eval_sentences.jsonl"))
    parser.add_argument("--each", type=int, default=1000, help="sentences of each language at most")
    parser.add_argument("--shuffle", action="store_true", help="hidden states of another sentence")
    parser.add_argument("--wavs", type=Path, help="folder to keep the audio in")
    parser.add_argument("--out", type=Path, default=Path("voice.json"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    thinker = TeaThinker.load(args.thinker or args.weights / "thinker.safetensors", 1)
    talker = TeaTalker.load(args.talker or args.weights / "talker.safetensors", 1)
    voice = Voice(talker, TeaCodec.load(args.codec or args.weights / "codec.safetensors", 1))
    ears = Ears(args.threads)
    lines = [json.loads(line) for line in args.sentences.read_text(encoding="utf-8").splitlines()]
    results: list[dict[str, Any]] = []
    for language, units in UNITS.items():
        chosen = [line for line in lines if line["language"] == language][: args.each]
        tokens = [thinker.hidden_of_reply(language, line["text"]) for line in chosen]
        for index, line in enumerate(chosen):
            spoken = swapped(tokens[index], tokens[index - 1]) if args.shuffle else tokens[index]
            pcm = voice.say(spoken, language)
            if args.wavs:
                args.wavs.mkdir(parents=True, exist_ok=True)
                soundfile.write(args.wavs / f"{language}_{index:03d}.wav", pcm, voice.codec.sample_rate)
            heard = ears.hear(pcm, voice.codec.sample_rate, language)
            reference = units(line["text"])
            distance = edits(reference, units(heard))
            result = {"language": language, "text": line["text"], "heard": heard, "written": line["written"]}
            result |= {"edits": distance, "units": len(reference)}
            if "seconds" in line:
                result |= {"seconds": round(audible_seconds(pcm, voice.codec.sample_rate), 3)}
                result |= {"meant_seconds": line["seconds"]}
            results.append(result)
            print(f"{distance:3d}/{len(reference):3d} {line['text']} | {heard}", flush=True)
    by = {language: [r for r in results if r["language"] == language] for language in ("zh", "en")}
    by_hand = {language: [r for r in group if r["written"] == "by hand"] for language, group in by.items()}
    summary = {
        "shuffled": args.shuffle,
        "sentences": len(results),
        "zh_cer": error_rate(by["zh"]),
        "en_wer": error_rate(by["en"]),
        "zh_cer_by_hand": error_rate(by_hand["zh"]),
        "en_wer_by_hand": error_rate(by_hand["en"]),
        "rtf_talker_codec": round(voice.seconds / voice.spoken, 4),
    }
    timed = [each for each in results if "seconds" in each]
    if timed:
        summary["broken"] = sum(map(is_broken, timed))
    print(json.dumps(summary))
    args.out.write_text(json.dumps({**summary, "results": results}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()

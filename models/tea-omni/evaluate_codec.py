"""How much of the teachers' speech the codec keeps: CER and WER by Whisper base, DNSMOS, spectral distance, speed.

    python models/tea-omni/evaluate_codec.py CODEC --zh ZH --en EN [--weights FILE] [--count 40] [--out FILE]

For the first `count` utterances of each language, which nothing was trained on: the teacher's audio; the teacher's
vocoder on the true mel ("vocoder"), on the mel after RVQ ("quantised"); and the shipped streaming decoder on the codes
("codec"). Whisper: 30 s window, beam 5, language set, no prompt; numbers as words, simplified script.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cn2an
import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import torch
from faster_whisper import WhisperModel
from fit_latents import en_mel, read_meta, zh_mel
from opencc import OpenCC
from speechmos import dnsmos
from teacher_vocoder import TeacherVocoder

from voice_agent import weights
from voice_agent.tea.codec import MEL_FRAMES, SAMPLE_RATE, Decoder, TeaCodec

Pcm = npt.NDArray[np.float32]
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
_SMALL = [*_UNITS.split(), "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def english_number(n: int) -> str:
    """0 to 9999 in words."""
    if n < 20:
        return _SMALL[n]
    if n < 100:
        return _TENS[n // 10 - 2] + (" " + _SMALL[n % 10] if n % 10 else "")
    head, size, rest = (n // 1000, "thousand", n % 1000) if n >= 1000 else (n // 100, "hundred", n % 100)
    return f"{english_number(head)} {size}" + (" " + english_number(rest) if rest else "")


def words(text: str, language: str) -> list[str]:
    """What is compared: characters in Chinese, words in English, numbers spelt out."""
    if language == "zh":
        simple = OpenCC("t2s").convert(text)
        spelt = re.sub(r"\d+(\.\d+)?", lambda m: cn2an.an2cn(m.group(), "low"), simple.replace(",", ""))
        return list(re.sub(r"[^\u4e00-\u9fff]", "", spelt).replace("两", "二"))
    lower = re.sub(r"(\d),(\d{3})", r"\1\2", text.lower())
    lower = re.sub(r"[$¥](\d+)", r"\1 yuan", lower).replace("%", " percent").replace("'", "")
    spelt = re.sub(r"\d{1,4}", lambda m: f" {english_number(int(m.group()))} ", lower)
    return [w for w in re.sub(r"[^a-z]", " ", spelt).split() if w != "and"]


def edits(one: Sequence[str], other: Sequence[str]) -> int:
    """Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def spectral_distance(pcm: Pcm, reference: Pcm) -> float:
    """Mean over three resolutions of spectral convergence + mean log magnitude difference (silence floored)."""
    total = 0.0
    for size in (512, 1024, 2048):
        one, two = (
            torch.stft(torch.tensor(x), size, size // 4, window=torch.hann_window(size), return_complex=True)
            .abs()
            .clamp(min=1e-3)
            for x in (pcm, reference)
        )
        total += float((one - two).norm() / two.norm() + (one.log() - two.log()).abs().mean())
    return total / 3


def speak(codec: TeaCodec, codes: torch.Tensor, frames_a_step: int = 2) -> tuple[Pcm, float]:
    """The streamed audio of codes int64[N, Q], and the CPU seconds it took."""
    began = time.process_time()
    codec.start(0)
    chunks = [codec.step([0], part[None])[0] for part in codes.split(frames_a_step)]
    chunks.append(codec.finish(0))
    codec.free(0)
    return np.concatenate(chunks), time.process_time() - began


def measure(recogniser: WhisperModel, pcm: Pcm, text: str, language: str) -> tuple[int, int, float, str]:
    """(errors, length, DNSMOS overall, transcript)."""
    heard = soxr.resample(pcm, SAMPLE_RATE, 16_000).astype(np.float32)
    segments, _ = recogniser.transcribe(heard, language=language, beam_size=5, condition_on_previous_text=False)
    transcript = "".join(segment.text for segment in segments)
    reference = words(text, language)
    mos = dnsmos.run(np.clip(heard, -1, 1), 16_000)["ovrl_mos"]
    return edits(reference, words(transcript, language)), len(reference), float(mos), transcript


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codec", type=Path)
    parser.add_argument("--zh", type=Path, required=True)
    parser.add_argument("--en", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=Path("models/tea-omni/weights/codec.safetensors"))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--systems", default="teacher,vocoder,quantised,codec")
    parser.add_argument("--languages", default="zh,en")
    parser.add_argument("--no-recognition", action="store_true", help="spectral distance and speed alone")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--save", type=Path, help="write the audio to this folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    decoder = Decoder.load(options.weights)
    space, codec = decoder.space, TeaCodec(decoder, 1)
    teacher = TeacherVocoder(options.codec / "vocoder.npz")
    recogniser = (
        None if options.no_recognition else WhisperModel(str(weights.whisper()), compute_type="int8", cpu_threads=1)
    )
    figures: dict[str, Any] = {}
    for language in options.languages.split(","):
        folder = {"zh": options.zh, "en": options.en}[language]
        sums: dict[str, list[float]] = {}
        for line in read_meta(folder)[: options.count]:
            mel = zh_mel(folder, line) if language == "zh" else en_mel(folder, line, space)
            mel = mel[: len(mel) // MEL_FRAMES * MEL_FRAMES]
            codes = space.quantise(space.encode(mel))
            audio = {
                "teacher": soundfile.read(folder / line["wav"], dtype="float32")[0],
                "vocoder": teacher(mel[None])[0][0].numpy(),
            }
            audio["quantised"] = teacher(space.mel(space.lookup(codes))[None])[0][0].numpy()
            audio["codec"], seconds = speak(codec, codes)
            for system in options.systems.split(","):
                pcm = audio[system]
                errors, length, mos, heard = (
                    measure(recogniser, pcm, line["text"], language) if recogniser else (0, 0, 0.0, "")
                )
                distance = spectral_distance(pcm[: len(audio["vocoder"])], audio["vocoder"][: len(pcm)])
                row = [errors, length, mos, distance, 1, seconds if system == "codec" else 0.0, len(pcm) / SAMPLE_RATE]
                sums[system] = [a + b for a, b in zip(sums.get(system, [0.0] * len(row)), row, strict=True)]
                if options.save:
                    options.save.mkdir(parents=True, exist_ok=True)
                    soundfile.write(
                        options.save / f"{Path(line['wav']).stem}_{language}_{system}.wav", pcm, SAMPLE_RATE
                    )
                if system == "codec" and errors:
                    print(f"  {line['text']} | {heard.strip()}", flush=True)
        for system, (errors, length, mos, distance, n, cpu, audio_s) in sums.items():
            figures[f"{language} {system}"] = {
                "error_rate": round(errors / length, 4) if length else None, "dnsmos": round(mos / n, 3),
                "spectral_distance": round(distance / n, 3), "utterances": int(n), "rtf": round(cpu / audio_s, 4),
            }  # fmt: skip
            print(language, system, figures[f"{language} {system}"], flush=True)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    with torch.inference_mode():
        main()

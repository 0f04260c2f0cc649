"""Recognition errors: what a recogniser makes of what was said."""

from __future__ import annotations

import functools
import json
import random
import re
from pathlib import Path
from typing import Any

from pypinyin import Style, lazy_pinyin

from .words import load

_WORDS = load("noise")
HEARD_ZH = _WORDS["heard_zh"]
# Of a recogniser that heard generated utterances: hear_callers.py.
COUNTED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("heard.json").read_text(encoding="utf-8"))[
    "zh"
]
SELDOM = 2  # is added to what was heard right: a stretch that was read once is not always heard wrong
FILLERS_ZH = ["嗯，", "那个，", "呃", "就是", "啊，", "那个", "嗯", "额，", "这个，", "诶，", "哎，", "然后"]
DROPPED_ZH = ["的", "我", "要", "给", "帮", "请", "一下", "了", "吧", "再", "就", "来", "那"]
HEARD_EN = _WORDS["heard_en"]
FILLERS_EN = ["um, ", "uh, ", "well, ", "so, ", "okay, ", "like ", "yeah, ", "erm, ", "hmm, ", "oh, ", "so um "]
DROPPED_EN = {"a", "the", "with", "of", "and", "to", "please", "i", "can", "get"}
HAN = re.compile(r"[一-鿿]")


@functools.cache
def common_characters() -> list[str]:
    """The 3,755 characters of GB 2312's first level."""
    pairs = (bytes([row, column]) for row in range(0xB0, 0xD8) for column in range(0xA1, 0xFF))
    return [pair.decode("gb2312") for pair in pairs if pair not in {bytes([0xD7, c]) for c in range(0xFA, 0xFF)}]


def near(syllable: str) -> str:
    """A syllable without what recognisers confuse: zh z, ch c, sh s, l n, ing in, eng en, ang an."""
    syllable = syllable.replace("zh", "z").replace("ch", "c").replace("sh", "s")
    if syllable.startswith("l"):
        syllable = "n" + syllable[1:]
    return syllable[:-1] if syllable.endswith("ng") else syllable


@functools.cache
def _sounds() -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, str]]:
    exact: dict[str, list[str]] = {}
    alike: dict[str, list[str]] = {}
    sound: dict[str, str] = {}
    for character in common_characters():
        syllable = lazy_pinyin(character, style=Style.NORMAL)[0]
        sound[character] = syllable
        exact.setdefault(syllable, []).append(character)
        alike.setdefault(near(syllable), []).append(character)
    return exact, alike, sound


def homophone(rng: random.Random, character: str) -> str:
    exact, alike, sound = _sounds()
    syllable = sound.get(character)
    if syllable is None or character in "一二两三四五六七八九十":
        return character
    return rng.choice(exact[syllable] if rng.random() < 0.75 else alike[near(syllable)])


def misheard(rng: random.Random, text: str, most: int = 3) -> str:
    """The text with stretches heard as a recogniser heard them, about as often as it did; `most` at the most."""
    known = [said for said in COUNTED if said in text]
    for said in rng.sample(known, len(known)):
        counts, right = COUNTED[said]["as"], COUNTED[said]["unchanged"]
        wrong = sum(counts.values())
        if most and said in text and rng.random() < wrong / (wrong + right + SELDOM):
            text = text.replace(said, rng.choices(list(counts), list(counts.values()))[0], 1)
            most -= 1
    return text


def zh(rng: random.Random, text: str) -> str:
    """A Mandarin utterance as it is recognised."""
    if rng.random() < 0.5:
        return (misheard(rng, text) if rng.random() < 0.4 else text) + rng.choice(["", "", "。"])
    if rng.random() < 0.45:
        keys = [k for k in HEARD_ZH if k in text]
        for key in rng.sample(keys, min(len(keys), rng.choice([1, 1, 2]))):
            text = text.replace(key, rng.choice(HEARD_ZH[key]), 1)
    rate = rng.choice([0, 0, 0, 0.04, 0.08, 0.12])
    if rate:
        text = "".join(homophone(rng, c) if HAN.match(c) and rng.random() < rate else c for c in text)
    if rng.random() < 0.2:
        dropped = rng.choice(DROPPED_ZH)
        if text.replace(dropped, "", 1).strip("，。"):
            text = text.replace(dropped, "", 1)
    text = text.replace("，", rng.choice(["，", "，", ",", " ", "", "", "。", "、"]))
    if rng.random() < 0.15:
        text = rng.choice(FILLERS_ZH) + text
    if rng.random() < 0.08 and len(text) > 4:
        cut = rng.randint(1, len(text) - 1)
        text = text[:cut] + rng.choice(["，嗯，", "，那个，", "呃", "嗯", "，", "…", "的话", "啊"]) + text[cut:]
    if rng.random() < 0.04 and len(text) > 4:
        text = text[: rng.randint(1, 3)] + text
    return text + rng.choice(["", "", "。", "。", "！", "?"])


def en(rng: random.Random, text: str) -> str:
    """An English utterance as it is recognised."""
    if rng.random() < 0.5:
        return text
    words = text.split(" ")
    rate = rng.choice([0, 0, 0.1, 0.2])
    out = []
    for word in words:
        core = word.strip(",.?!").lower()
        if core in HEARD_EN and rng.random() < rate:
            word = word.lower().replace(core, rng.choice(HEARD_EN[core]))
        elif core in DROPPED_EN and rng.random() < rate * 0.4:
            continue
        elif len(core) > 3 and rng.random() < rate * 0.12:
            at = rng.randrange(len(word))
            word = word[:at] + rng.choice(["", word[at] * 2, rng.choice("aeiounrslt")]) + word[at + 1 :]
        out.append(word)
    text = " ".join(out) or text
    if rng.random() < 0.4:
        text = text.replace(",", rng.choice(["", "", "."]))
    elif rng.random() < 0.15:
        return text.lower().replace(",", "").replace(".", "")
    if rng.random() < 0.15:
        text = rng.choice(FILLERS_EN) + text
    if rng.random() < 0.06 and len(out) > 3:
        cut = rng.randint(1, len(out) - 1)
        text = " ".join([*out[:cut], rng.choice(["uh", "um", "like", "you know", "uhm"]), *out[cut:]])
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
    return text + rng.choice(["", "", ".", ".", "?"])

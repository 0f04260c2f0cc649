"""How texts that the agent is given are spoken: amounts, counts and codes, and sentences in two languages.

    python models/tea-omni/evaluate_given.py --out given.json

The amounts are those of the field reports: each is spoken alone and in a sentence, three times, and is right if Whisper
base (see `evaluate_voice.py`) hears the same numerals. Of a mixed sentence (`mixed_sentences.jsonl`) the Mandarin parts
are compared; what is heard between them is not, nor is it counted against them. `gap_ms`: the longest silence inside.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from evaluate_voice import Ears, Voice, error_rate, zh_units
from opencc import OpenCC
from speech import WEIGHTS

from voice_agent.tea.codec import TeaCodec
from voice_agent.tea.reading import read_aloud
from voice_agent.tea.talker import TeaTalker
from voice_agent.tea.thinker import TeaThinker

AMOUNTS = (
    "18块", "3.5元", "¥1000", "500元", "105元", "2杯", "2元", "12杯", "22杯", "200毫升", "12.5元", "1.5升", "50%糖",
    "取餐号0027", "3号桌", "10:30", "2-3分钟", "13800138000",
)  # fmt: skip
REPEATS = 3
NUMERALS = re.compile("[零一二三四五六七八九十百千万点]")
QUIET = 10 ** (-45 / 20)
HOP_S = 0.02


def numerals(text: str) -> str:
    """What a text says of numbers, in words; 两 counts as 二, and 10.30, which sounds the same, as 10:30."""
    text = re.sub(r"(?<!\d)(\d{1,2})\.([1-5]\d)(?!\d)", r"\1:\2", OpenCC("t2s").convert(text))
    words = read_aloud(text, "zh").replace("两", "二").replace("幺", "一")
    return "".join(NUMERALS.findall(words))


def around(parts: Sequence[Sequence[str]], heard: Sequence[str]) -> int:
    """The least edits that turn `heard` into these parts in order, where between two parts anything may be heard."""
    row = list(range(len(heard) + 1))
    for number, part in enumerate(parts):
        if number:
            for j in range(1, len(row)):
                row[j] = min(row[j], row[j - 1])
        for wanted in part:
            above, row = row, [row[0] + 1]
            for j, got in enumerate(heard, 1):
                row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (wanted != got)))
    return row[-1]


def longest_gap_ms(pcm: npt.NDArray[np.float32], rate: int) -> int:
    """Of the silences between the first and the last sound."""
    hop = int(HOP_S * rate)
    hops = np.sqrt(np.square(pcm[: len(pcm) // hop * hop].reshape(-1, hop)).mean(1))
    loud = np.flatnonzero(hops > QUIET)
    return round(1000 * HOP_S * (int(np.diff(loud).max(initial=1)) - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--mixed", type=Path, default=WEIGHTS.with_name("mixed_sentences.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("given.json"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    thinker = TeaThinker.load(args.weights / "thinker.safetensors", 1)
    voice = Voice(
        TeaTalker.load(args.weights / "talker.safetensors", 1), TeaCodec.load(args.weights / "codec.safetensors", 1)
    )
    ears = Ears(args.threads)

    def spoken(text: str) -> npt.NDArray[np.float32]:
        return voice.say(thinker.hidden_of_reply("zh", text), "zh")

    def hear(pcm: npt.NDArray[np.float32]) -> str:
        return ears.hear(pcm, voice.codec.sample_rate, "zh")

    amounts: list[dict[str, Any]] = []
    for amount in AMOUNTS:
        for text in (amount, f"好的，{amount}。"):
            heard = [hear(spoken(text)) for _ in range(REPEATS)]
            right = sum(numerals(each) == numerals(text) for each in heard)
            amounts.append({"text": text, "heard": sorted(set(heard)), "right": right})
            print(f"{right}/{REPEATS} {text} | {' | '.join(sorted(set(heard)))}", flush=True)
    mixed: list[dict[str, Any]] = []
    for line in args.mixed.read_text(encoding="utf-8").splitlines():
        first, inside, last = json.loads(line)["parts"]
        pcm = spoken(f"{first} {inside} {last}")
        heard_text = hear(pcm)
        wanted = [zh_units(first), zh_units(last)]
        result = {
            "text": f"{first} {inside} {last}", "heard": heard_text, "edits": around(wanted, zh_units(heard_text)),
            "units": sum(map(len, wanted)), "gap_ms": longest_gap_ms(pcm, voice.codec.sample_rate),
        }  # fmt: skip
        mixed.append(result)
        print(f"{result['edits']}/{result['units']} {result['gap_ms']} ms {result['text']} | {heard_text}", flush=True)
    summary = {
        "amounts_right": sum(each["right"] for each in amounts),
        "amounts": REPEATS * len(amounts),
        "mixed_zh_cer": error_rate(mixed),
        "mixed_longest_gap_ms": max(each["gap_ms"] for each in mixed),
    }
    print(json.dumps(summary))
    told = {**summary, "each_amount": amounts, "each_mixed": mixed}
    args.out.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()

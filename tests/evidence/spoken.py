"""Sixty of the hand-written dialogues, spoken by callers through WebRTC and ASR: how many final carts are exact.

The callers' audio is made by `models/tea-omni/callers.py dialogues FOLDER …`; CALLERS names the folder. One called
callers-NAME is reported as spoken-NAME.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.evidence.tools import ROOT, quantiles, shown
from voice_agent.calling import own_server, place_call
from voice_agent.evaluate import lines_of, read_dialogues, same

TRIALS = 60


def _turns(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The manifest's turns by dialogue."""
    manifest = folder / "manifest.jsonl"
    if not manifest.is_file():
        raise FileNotFoundError(f"{folder}: expected the callers' audio; make it with models/tea-omni/callers.py")
    turns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in manifest.read_text("utf-8").splitlines():
        entry = json.loads(line)
        turns[entry["id"]].append(entry)
    return turns


async def run(seed: int, trials: int) -> dict[str, Any]:
    folder = Path(os.path.expanduser(os.environ.get("CALLERS", "~/.cache/tea-omni/callers")))  # noqa: ASYNC240
    turns = _turns(folder)
    hand = {d.model_extra["id"]: d for d in read_dialogues(ROOT / "tests/dialogues/hand_150.jsonl") if d.model_extra}
    exact: Counter[str] = Counter()
    total: Counter[str] = Counter()
    times, each = [], []
    async with own_server() as url:
        for name in shown(sorted(turns)[:trials], "dialogue"):
            spoken = sorted(turns[name], key=lambda entry: entry["turn"])
            wavs = [folder / entry["wav"] for entry in spoken]
            report = await place_call(url, wavs, pause_s=0.3)
            cart = lines_of(report.cart) or lines_of(report.placed)
            ok = same(cart, hand[name].cart)
            exact[hand[name].lang] += ok
            total[hand[name].lang] += 1
            times += [turn.v2v_ms for turn in report.turns if turn.v2v_ms is not None]
            each.append(
                {
                    "id": name,
                    "voice": spoken[0]["voice"],
                    "ok": ok,
                    "said": [entry["text"] for entry in spoken],
                    "heard": [turn.transcript for turn in report.turns],
                    "replies": [turn.reply or turn.failed for turn in report.turns],
                    "cart": [line.model_dump() for line in cart],
                }
            )
    rate = exact.total() / total.total()
    return {
        "name": folder.name.replace("callers", "spoken", 1),
        "exact": f"{exact.total()}/{total.total()}",
        "rate": round(rate, 3),
        **{language: f"{exact[language]}/{total[language]}" for language in sorted(total)},
        "v2v_ms": quantiles(times),
        "passed": rate >= 0.70,
        "each": each,
    }

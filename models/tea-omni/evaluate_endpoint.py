"""How well the end-of-turn head tells complete turns from unfinished ones.

    python models/tea-omni/evaluate_endpoint.py models/tea-omni/dialogues/dev_end_of_turn.jsonl

One JSON object a line of FILE: `lang`, `text`, `complete`, and where it matters what came before: `user`, `agent`.
`--failures` prints what is on the wrong side of one half.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from speech import WEIGHTS

from voice_agent.engine.protocols import Message, ThinkRequest
from voice_agent.tea.thinker import TeaThinker

THRESHOLD = 0.5


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def request_of(row: dict[str, Any]) -> ThinkRequest:
    before = (Message("user", row["user"]), Message("assistant", row["agent"])) if "agent" in row else ()
    return ThinkRequest((*before, Message("user", row["text"])), row["lang"])


def judge(thinker: TeaThinker, rows: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """The probability that each is complete, and the milliseconds of a core that it took, with one thread."""
    scores, took_ms = [], []
    for row in rows:
        request = request_of(row)
        begin = time.thread_time()
        scores.append(thinker.turn_end(request))
        took_ms.append(1000 * (time.thread_time() - begin))
    return scores, took_ms


def figures(complete: Sequence[bool], scores: Sequence[float]) -> dict[str, float]:
    """AUC (a complete one above an unfinished one; a tie is half), and recall and false alarms at one half."""
    good = [score for score, whole in zip(scores, complete, strict=True) if whole]
    bad = [score for score, whole in zip(scores, complete, strict=True) if not whole]
    above = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    return {
        "complete": len(good),
        "unfinished": len(bad),
        "auc": round(above / (len(good) * len(bad)), 4),
        "recall": round(sum(g >= THRESHOLD for g in good) / len(good), 4),
        "false_alarms": round(sum(b >= THRESHOLD for b in bad) / len(bad), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--endpoint", type=Path, help="another head than the one among the weights")
    parser.add_argument("--failures", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    endpoint = options.endpoint or options.weights / "endpoint.safetensors"
    thinker = TeaThinker.load(options.weights / "thinker.safetensors", 1, endpoint)
    rows = read(options.file)
    scores, took_ms = judge(thinker, rows)
    if options.failures:
        for row, score in zip(rows, scores, strict=True):
            if (score >= THRESHOLD) != row["complete"]:
                print(f"{score:.3f}", json.dumps(row, ensure_ascii=False))
    for language in sorted({row["lang"] for row in rows}):
        of = [(row["complete"], score) for row, score in zip(rows, scores, strict=True) if row["lang"] == language]
        print(json.dumps({"lang": language, **figures(*zip(*of, strict=True))}))
    print(json.dumps({**figures([row["complete"] for row in rows], scores), "core_ms_p50": statistics.median(took_ms)}))


if __name__ == "__main__":
    main()

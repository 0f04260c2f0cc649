"""How many dialogues end with exactly the right cart, text in.

    python models/tea-omni/evaluate_thinker.py models/tea-omni/dialogues/dev.jsonl --weights models/tea-omni/weights

Runs the thinker with the ordering demo's own tools; prints a line a dialogue and last `{"dialogues": N, "exact": M}`.
`--timing` adds milliseconds of prefill and of a step. With `--generated N` instead of a file: how many turns of N
generated dialogues in each language, misheard as in training, get exactly the calls that were planned.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from dialogues import make
from dialogues.simulate import Shop
from speech import WEIGHTS

from demos.ordering.menu import default_menu
from voice_agent.engine.protocols import Language, Message, ThinkRequest
from voice_agent.tea.grammar import FIELDS
from voice_agent.tea.thinker import TeaThinker

TOOLS: dict[str, Any] = {
    name: {"parameters": {"properties": {field.rstrip("!"): {} for field in fields}}} for name, fields in FIELDS.items()
}
KEYS = ("drink", "size", "ice", "sugar")


def cups(lines: Sequence[dict[str, Any]]) -> Counter[Any]:
    """The cups of a cart, however they are spread over lines."""
    counter: Counter[Any] = Counter()
    for line in lines:
        counter[(*(line[k] for k in KEYS), tuple(sorted(line["toppings"])))] += line["quantity"]
    return counter


class Caller:
    """One text call: `say` runs a turn, with the tools, and keeps the dialogue."""

    def __init__(self, thinker: TeaThinker, language: Language) -> None:
        self.thinker, self.language = thinker, language
        self.shop = Shop(random.Random(0), default_menu())
        self.messages: list[Message] = []
        self.calls: list[Any] = []
        self.first_ms: list[float] = []
        self.step_ms: list[float] = []

    def say(self, text: str) -> str:
        self.messages.append(Message("user", text))
        self.thinker.start(0, ThinkRequest(tuple(self.messages), self.language, tools=TOOLS))
        reply, first, self.calls = "", True, []
        while True:
            begin = time.perf_counter()
            thought = self.thinker.step([0])[0]
            (self.first_ms if first else self.step_ms).append(1000 * (time.perf_counter() - begin))
            first = False
            if thought.calls:
                self.messages.append(Message("assistant", tool_calls=thought.calls))
                results = [(call, self.shop.run(call.name, dict(call.arguments))) for call in thought.calls]
                self.calls = [(call.name, dict(call.arguments), result["error"]) for call, result in results]
                self.messages += [Message("tool", call_id=c.call_id, result=r) for c, r in results]
                self.thinker.resume(0, results)
            if thought.token:
                reply += thought.token.text
            if thought.done:
                break
        self.thinker.free(0)
        self.messages.append(Message("assistant", reply))
        return reply

    @property
    def cart(self) -> list[dict[str, Any]]:
        """The open cart, or the order placed last if it is empty."""
        if not self.shop.lines and self.shop.cart.orders:
            return list(self.shop.cart.orders[-1].cart["lines"])
        return self.shop.lines


@torch.inference_mode()
def generated(thinker: TeaThinker, dialogues: int) -> dict[str, int]:
    """Turns of generated dialogues, and those whose calls the network would write token by token as planned."""
    rng, words = random.Random(99), thinker.vocabulary
    told = Counter[str]()
    languages: tuple[Language, ...] = ("zh", "en")
    for language in languages:
        for _ in range(dialogues):
            for turn in make.dialogue(rng, language, words):
                planned = words.encode(turn.calls)
                logits, _ = thinker.decoder(torch.tensor([words.encode(turn.prompt) + planned]))
                told[f"turns_{language}"] += 1
                told[f"exact_{language}"] += logits[0, -len(planned) - 1 : -1].argmax(-1).tolist() == planned
    return dict(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--generated", type=int, metavar="N", help="instead of a file")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--random", action="store_true", help="random weights instead")
    parser.add_argument("--failures", action="store_true", help="print the turns of the dialogues that went wrong")
    parser.add_argument("--timing", action="store_true")
    options = parser.parse_args()
    if (options.file is None) == (options.generated is None):
        parser.error("expected either a file or --generated N")
    torch.set_num_threads(1)
    thinker = TeaThinker.load(options.weights / "thinker.safetensors", 1)
    if options.random:
        thinker = TeaThinker.untrained(thinker.vocabulary, 1)
    if options.generated is not None:
        print(json.dumps(generated(thinker, options.generated)))
        return
    exact = total = 0
    kinds: Counter[str] = Counter()
    callers = []
    for line in options.file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        caller = Caller(thinker, entry["lang"])
        callers.append(caller)
        trace = []
        for turn in entry["turns"]:
            reply = caller.say(turn)
            trace.append((turn, caller.calls, reply))
        ok = cups(caller.cart) == cups(entry["cart"])
        exact, total = exact + ok, total + 1
        kinds[entry["lang"]] += ok
        if not options.failures:
            print(json.dumps({"id": entry.get("id"), "ok": ok, "cart": caller.cart}, ensure_ascii=False))
        elif not ok:
            print(entry.get("id"), *(f"\n    {u} -> {c} -> {r}" for u, c, r in trace))
    if options.timing:
        first = [x for c in callers for x in c.first_ms]
        steps = [x for c in callers for x in c.step_ms]
        print(json.dumps({"prefill_ms_p50": statistics.median(first), "step_ms_p50": statistics.median(steps)}))
    print(json.dumps({"dialogues": total, "exact": exact, **{f"exact_{k}": v for k, v in kinds.items()}}))


if __name__ == "__main__":
    main()

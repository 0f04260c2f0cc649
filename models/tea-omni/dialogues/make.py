# ruff: noqa: E501
"""Whole dialogues, turn by turn, as the thinker will meet them."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pypinyin.phrases_dict import phrases_dict

from voice_agent.engine.protocols import Language, Message, ThinkRequest, ToolCall
from voice_agent.tea.grammar import RUN, SAY, CallGrammar, call_tokens
from voice_agent.tea.template import Context, prompt_tokens, read, result_tokens
from voice_agent.tea.tokenizer import Vocabulary

from . import en, noise, zh
from .replies import compose
from .scenarios import plan_turn
from .scene import Plan, Scene
from .simulate import Shop

WORDS = {"zh": zh, "en": en}
END = "<end>"
VOWEL = re.compile(r"\b([Aa]) (?=[aeio])")
FAILED: dict[str, Any] = {"ok": False, "error": "failed", "changed": []}
TIMED_OUT: dict[str, Any] = {"ok": False, "error": "tool_timeout", "message": "it took too long"}
ASIDES = 0.06
"""Of the turns that add a drink, in which something is said of what it is for."""
LOST = 0.04
"""Of the turns that add two drinks or more, in which the shop loses one: in silence, too late, or because it is out."""
_PHRASES = [p for p in phrases_dict if 2 <= len(p) <= 5]
CHATTER_EN: list[str] = en.SAY.chatter


@dataclass(frozen=True)
class Sample:
    """One turn in tokens: the prompt; the calls with `<run>`, or `<say>`; the results with `<say>`; the reply with `<end>`.

    `rare`: its reply is one that few turns have.
    """

    language: Language
    prompt: list[str]
    calls: list[str]
    results: list[str]
    reply: list[str]
    text: str
    rare: bool = False


def chatter(rng: random.Random, language: Language) -> str:
    """Words that have nothing to do with ordering, or with each other."""
    if language == "zh":
        return "".join(rng.choice(_PHRASES) for _ in range(rng.randint(1, 4)))
    return " ".join(rng.choice(CHATTER_EN) for _ in range(rng.randint(3, 10)))


def dialogue(rng: random.Random, language: Language, vocabulary: Vocabulary) -> Iterator[Sample]:
    """Up to six turns of one call."""
    scene = Scene(rng, WORDS[language], Shop(rng))
    messages: list[Message] = []
    for turn in range(rng.choice([1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6])):
        if turn and len(scene.lines) > 6:
            return
        if rng.random() < 0.012:
            plan = Plan(chatter(rng, language), reply="chat")
        elif rng.random() < 0.006:
            plan = Plan(
                rng.choice(["", "嗯", "。", "呃呃"] if language == "zh" else ["", "uh", ".", "mm"]), reply="unclear"
            )
        else:
            plan = plan_turn(scene)
        if rng.random() < ASIDES and any(name == "add" for name, _ in plan.calls):
            plan.said += rng.choice(scene.words.SAY.aside)
        if language == "en" and rng.random() < 0.85:
            plan.said = VOWEL.sub(r"\1n ", plan.said)
        said = getattr(noise, language)(rng, plan.said)
        messages.append(Message("user", said))
        context = read(ThinkRequest(tuple(messages), language))
        prompt = prompt_tokens(context, vocabulary)
        calls = tuple(ToolCall(f"{turn}.{i}", name, args) for i, (name, args) in enumerate(plan.calls))
        failed = rng.random() < 0.004
        lost = _lost(rng, calls)
        results: list[tuple[ToolCall, dict[str, Any]]] = []
        for c in calls:
            if failed:
                result = FAILED | {"cart": scene.shop.cart.view()}
            elif c == lost:
                result = _without(rng, scene.shop, c)
            else:
                result = scene.shop.run(c.name, dict(c.arguments))
            results.append((c, result))
        if scene.shop.cart.view()["total"] > 9999:
            return
        reply = compose(scene, plan, [((c.name, dict(c.arguments)), r) for c, r in results])
        written = _written(plan, scene, context, CallGrammar(vocabulary.menu))
        after = result_tokens(results, vocabulary.menu) if calls else []
        said_to_end = [*vocabulary.text_tokens(reply, 200), END]
        yield Sample(language, prompt, written, after, said_to_end, reply, rare=lost is not None)
        _advance(scene, plan, results)
        heard = reply if rng.random() < 0.9 else reply[: rng.randint(0, len(reply))]
        messages.append(Message("assistant", tool_calls=calls))
        messages += [Message("tool", call_id=c.call_id, result=r) for c, r in results]
        messages.append(Message("assistant", heard))


def _lost(rng: random.Random, calls: Sequence[ToolCall]) -> ToolCall | None:
    """The drink that the shop loses now and then, of several that are added."""
    added = [c for c in calls if c.name == "add"]
    return rng.choice(added) if len(added) > 1 and rng.random() < LOST else None


def _without(rng: random.Random, shop: Shop, call: ToolCall) -> dict[str, Any]:
    """The result of an `add` that did not come: it says nothing, or too late, or that there are no more."""
    kind = rng.random()
    if kind < 0.4:
        return TIMED_OUT
    told: dict[str, Any] = {"cart": shop.cart.view(), "changed": []}
    if kind < 0.8:
        return {"ok": True, "error": None, **told}
    return {"ok": False, "error": "sold_out", "item": call.arguments["drink"], **told}


def _written(plan: Plan, scene: Scene, context: Context, grammar: CallGrammar) -> list[str]:
    """The tokens of the calls: a line by its drink if the caller names it so, else by its number."""
    if not plan.calls:
        return [SAY]
    named = mentioned(plan.said, scene.words)
    drinks = {line["drink"] for line in context.lines}
    for word, held in scene.words.SAY.generic.items():
        if word in plan.said and len(drinks & set(held)) == 1 and not named & drinks & set(held):
            named |= drinks & set(held)
    state = grammar.start(context.grammar_lines())
    tokens: list[str] = []
    for name, arguments in plan.calls:
        drink = state.lines[arguments["line"] - 1].drink if "line" in arguments else ""
        single = sum(line.drink == drink for line in state.lines) == 1
        written = call_tokens(name, arguments, drink if drink in named and single else None)
        for token in written:
            grammar.advance(state, token)
        state = grammar.start(grammar.after(state))
        tokens += written
    return [*tokens, RUN]


def mentioned(text: str, words: ModuleType) -> set[str]:
    """The drinks that a text names: always the longest name that fits."""
    found: set[str] = set()
    text = text.lower()
    for name, drink in _called(words):
        if name in text:
            found.add(drink)
            text = text.replace(name, "/")
    return found


@functools.cache
def _called(words: ModuleType) -> list[tuple[str, str]]:
    """What drinks are called, and a part of the name with what must follow it; the longest first."""
    known = {name.lower(): drink for drink, names in words.SAY.names.items() for name in names}
    for drink, part in words.SAY.part.items():
        known |= dict.fromkeys([part + "那", part + "的"] if words is zh else [part + " one"], drink)
    return sorted(known.items(), key=lambda pair: -len(pair[0]))


def _advance(scene: Scene, plan: Plan, results: list[tuple[ToolCall, dict[str, Any]]]) -> None:
    pending = plan.pending
    for call, result in results:
        if result["error"] == "sold_out" and len(results) == 1:
            arguments = dict(call.arguments)
            pending = ("sold", arguments) if call.name == "add" and result["item"] == arguments["drink"] else None
            if call.name == "replace" and plan.pending and plan.pending[0] == "resold":
                pending = plan.pending
        if pending is not None and pending[0] == "resold" and not result["error"]:
            pending = None
        if not result["error"] and call.name in ("add", "change", "replace"):
            scene.touched = frozenset(result["changed"])
        elif not result["error"] and call.name in ("remove", "clear", "place"):
            scene.touched = frozenset(result["changed"]) if call.name == "none" else frozenset()
        if call.name == "place" and not result["error"]:
            scene.order_number = result["order_number"]
        elif not result["error"] and scene.lines:
            scene.order_number = None
    if pending and pending[0] == "that" and results and results[0][1].get("item", {}).get("sold_out"):
        pending = None
    if pending and pending[0] == "quantity" and results and results[0][1]["error"] != "quantity_unclear":
        pending = None
    scene.pending = pending

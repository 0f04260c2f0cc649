"""The thinker: stepping with a cache, slots, and what it may write."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from demos.ordering.agent import agent
from demos.ordering.cart import Cart, Refused, final_cart, same
from voice_agent.engine.protocols import Language, Message, TextToken, ThinkRequest, Thought, ToolCall
from voice_agent.tea.decoder import Decoder, DecoderConfig
from voice_agent.tea.grammar import SAY
from voice_agent.tea.template import prompt_tokens, read
from voice_agent.tea.thinker import TeaThinker, check

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "models/tea-omni"))

from train_thinker import grown  # noqa: E402

WEIGHTS = ROOT / "models/tea-omni/weights/thinker.safetensors"
TOOLS = agent.schemas()
ZH = "我要一杯少冰的珍珠奶茶"
EN = "One pearl milk tea with less ice please"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def thinker() -> TeaThinker:
    return TeaThinker.load(WEIGHTS, slots=4)


def ask(text: str, language: Language = "zh", before: tuple[Message, ...] = ()) -> ThinkRequest:
    return ThinkRequest((*before, Message("user", text)), language, tools=TOOLS)


def run_call(cart: Cart, call: ToolCall) -> dict[str, Any]:
    """The result of a call on a cart, as the contract has it."""
    result: dict[str, Any] = {"ok": True, "error": None, "changed": []}
    try:
        if call.name == "place":
            order = cart.place("test")
            return result | {"cart": dict(order.cart), "order_number": order.number}
        if call.name == "look_up":
            item = call.arguments.get("item")
            result |= {"item": cart.look_up(item)} if item else {"favourites": cart.favourites()}
        elif call.name != "read_back":
            result["changed"] = getattr(cart, call.name)(**call.arguments)
    except Refused as refused:
        result |= {"ok": False, "error": refused.code, **refused.details}
    return result | {"cart": cart.view()}


def turn(
    thinker: TeaThinker, request: ThinkRequest, cart: Cart, slot: int = 0
) -> tuple[tuple[ToolCall, ...], list[TextToken]]:
    """A whole turn: its calls and its reply."""
    thinker.start(slot, request)
    calls: tuple[ToolCall, ...] = ()
    tokens: list[TextToken] = []
    while True:
        (thought,) = thinker.step([slot])
        if thought.calls:
            calls = thought.calls
            thinker.resume(slot, [(call, run_call(cart, call)) for call in calls])
        if thought.token:
            tokens.append(thought.token)
        if thought.done:
            thinker.free(slot)
            return calls, tokens


@pytest.mark.parametrize(("text", "language"), [(ZH, "zh"), (EN, "en")])
def test_stepping_equals_the_whole_at_once(thinker: TeaThinker, text: str, language: Language) -> None:
    """Cached stepping gives the logits and hidden states of one pass over everything, to 1e-5 (float32 of order 1)."""
    decoder, seen = thinker.decoder, []
    ids: list[int] = []
    inner_decode, inner_prefill = thinker._decode, thinker._prefill

    def decode(slots: Any, rows: Any) -> Any:
        ids.extend(row.waiting[0] for row in rows)
        out = inner_decode(slots, rows)
        seen.append((len(ids), out[0][0], out[1][0]))
        return out

    def prefill(slot: int, row: Any) -> Any:
        ids.extend(row.waiting)
        out = inner_prefill(slot, row)
        seen.append((len(ids), *out))
        return out

    thinker._decode, thinker._prefill = decode, prefill  # type: ignore[method-assign]
    try:
        turn(thinker, ask(text, language), Cart())
    finally:
        del thinker._decode, thinker._prefill
    with torch.inference_mode():
        logits, hidden = decoder(torch.tensor([ids]))
    for place, step_logits, step_hidden in seen:
        scale = max(1.0, logits[0, place - 1].abs().max().item())
        assert (step_logits - logits[0, place - 1]).abs().max() / scale <= 1e-5
        scale = max(1.0, hidden[0, place - 1].abs().max().item())
        assert (step_hidden - hidden[0, place - 1]).abs().max() / scale <= 1e-5


def test_a_row_does_not_depend_on_its_mates(thinker: TeaThinker) -> None:
    requests = [ask(ZH), ask(EN, "en"), ask("你好"), ask("我要三杯乌龙茶，两杯去冰，一杯热的")]
    alone = [turn(thinker, request, Cart()) for request in requests]
    carts = [Cart() for _ in requests]
    got: list[tuple[list[ToolCall], list[TextToken]]] = [([], []) for _ in requests]
    waiting = list(range(len(requests)))
    running: list[int] = []
    while running or waiting:
        if waiting:  # rows join one step after the other
            slot = waiting.pop(0)
            thinker.start(slot, requests[slot])
            running.append(slot)
        for slot, thought in zip(list(running), thinker.step(running), strict=True):
            if thought.calls:
                got[slot][0].extend(thought.calls)
                thinker.resume(slot, [(c, run_call(carts[slot], c)) for c in thought.calls])
            if thought.token:
                got[slot][1].append(thought.token)
            if thought.done:
                thinker.free(slot)
                running.remove(slot)
    for (calls, tokens), (calls_alone, tokens_alone) in zip(got, alone, strict=True):
        assert tuple(calls) == calls_alone
        assert [t.text for t in tokens] == [t.text for t in tokens_alone]
        for token, token_alone in zip(tokens, tokens_alone, strict=True):
            scale = token_alone.hidden.abs().max()
            assert (token.hidden - token_alone.hidden).abs().max() / scale <= 1e-5


def test_a_freed_slot_is_as_new(thinker: TeaThinker) -> None:
    fresh = turn(thinker, ask(ZH), Cart(), slot=1)
    thinker.start(1, ask("全部取消，我要十杯拿铁，谢谢你"))
    for _ in range(3):
        thinker.step([1])
    thinker.free(1)
    again = turn(thinker, ask(ZH), Cart(), slot=1)
    assert again[0] == fresh[0]
    assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(again[1], fresh[1], strict=True))


def test_hidden_of_a_given_reply(thinker: TeaThinker) -> None:
    tokens = thinker.hidden_of_reply("zh", "好的，珍珠奶茶一杯，十八块。")
    assert "".join(t.text for t in tokens) == "好的，珍珠奶茶一杯，十八块。"
    assert tokens[0].hidden.shape == (thinker.hidden_size,)
    assert tokens[0].hidden.dtype == torch.float32
    words = thinker.hidden_of_reply("en", "Sure, two lattes.")
    assert [t.text for t in words] == ["Sure", ",", " two", " lattes", "."]


def test_the_prompt_is_bounded(thinker: TeaThinker) -> None:
    cart = Cart()
    for _ in range(40):
        cart.add("latte", 30, "large", "hot", "half_sugar", ["pearls", "pudding", "milk_foam"])
    call = ToolCall("a", "add", {"drink": "latte"})
    result = {"ok": True, "error": None, "cart": cart.view(), "changed": [40]}
    before: tuple[Message, ...] = ()
    for _ in range(50):
        before += (Message("user", ZH * 50), Message("assistant", tool_calls=(call,)))
        before += (Message("tool", call_id="a", result=result), Message("assistant", "好的" * 500))
    request = ask(ZH * 50, before=before)
    assert len(prompt_tokens(read(request), thinker.vocabulary)) < 450
    thinker.start(0, request)
    thinker.step([0])
    thinker.free(0)


def test_it_remembers_the_cart_and_what_was_touched() -> None:
    cart = Cart()
    cart.add("latte")
    one, two = ToolCall("x_1", "add", {"drink": "latte"}), ToolCall("y_1", "look_up", {"item": "cocoa"})
    first = {"ok": True, "error": None, "cart": cart.view(), "changed": [1]}
    second = {"ok": True, "error": None, "cart": cart.view(), "changed": [], "item": cart.look_up("cocoa")}
    messages = (
        Message("user", "一杯拿铁"),
        Message("assistant", tool_calls=(one,)),
        Message("tool", call_id="x_1", result=first),
        Message("assistant", "好的"),
        Message("user", "可可多少钱"),
        Message("assistant", tool_calls=(two,)),
        Message("tool", call_id="y_1", result=second),
        Message("assistant", "热可可十八块"),
        Message("user", "那杯要大杯"),
    )
    context = read(ThinkRequest(messages, "zh"))
    assert [line["drink"] for line in context.lines] == ["latte"]
    assert context.touched == {1}
    assert context.previous == "可可多少钱"
    assert context.heard == "热可可十八块"


def test_a_dialogue_without_a_user_is_refused(thinker: TeaThinker) -> None:
    with pytest.raises(ValueError, match="expected a dialogue that ends with the user's message"):
        thinker.start(0, ThinkRequest((), "zh", tools=TOOLS))


def test_misuse_is_refused(thinker: TeaThinker) -> None:
    with pytest.raises(ValueError, match="free"):
        thinker.step([2])
    thinker.start(2, ask(ZH))
    with pytest.raises(ValueError, match="in use"):
        thinker.start(2, ask(ZH))
    with pytest.raises(ValueError, match="expected results"):
        thinker.resume(2, [])
    thinker.free(2)


def test_other_tools_are_refused() -> None:
    check(TOOLS)
    with pytest.raises(ValueError, match=r"got book_table\(when\); Qwen3-Omni takes any tools"):
        check({"book_table": {"parameters": {"properties": {"when": {}}}}})
    with pytest.raises(ValueError, match=r"got add\(name\)"):
        check({"add": {"parameters": {"properties": {"name": {}}}}})


@pytest.mark.parametrize("seed", [0, 1])
def test_random_weights_write_valid_calls_and_wrong_carts(thinker: TeaThinker, seed: int) -> None:
    """Nothing but the weights makes calls: without them next to no cart is right, yet every call is valid."""
    untrained = TeaThinker.untrained(thinker.vocabulary, 1, seed)
    lines = (ROOT / "tests/dialogues/hand_150.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines][seed::3]
    exact = 0
    for entry in entries:
        cart, messages = Cart(), ()
        for text in entry["turns"]:
            messages = (*messages, Message("user", text))
            untrained.start(0, ThinkRequest(messages, entry["lang"], tools=TOOLS))
            calls = _calls_only(untrained)
            untrained.free(0)
            results = [(call, run_call(cart, call)) for call in calls]
            for _, result in results:
                assert result["error"] in (None, "quantity_unclear", "empty_cart", "no_such_line", "bad_option")
            messages = (*messages, Message("assistant", tool_calls=calls))
            messages += tuple(Message("tool", call_id=c.call_id, result=r) for c, r in results)
        exact += same(final_cart(cart), entry["cart"])
    assert exact / len(entries) < 0.05


def _calls_only(thinker: TeaThinker) -> tuple[ToolCall, ...]:
    """The calls of the row in slot 0, without its reply."""
    while True:
        (thought,) = thinker.step([0])
        row = thinker._rows[0]
        assert row is not None
        if thought.calls or row.replying:
            return thought.calls


def test_a_reply_has_no_tokens_of_calls(thinker: TeaThinker) -> None:
    untrained = TeaThinker.untrained(thinker.vocabulary, 1, seed=5)
    untrained.start(0, ask(ZH))
    row = untrained._rows[0]
    assert row is not None
    row.waiting += thinker.vocabulary.encode([SAY])
    row.replying = True
    thought = Thought()
    while not thought.done:
        (thought,) = untrained.step([0])
        if thought.token:
            assert thought.token.id in thinker.vocabulary.reply["zh"]


def test_a_grown_network_gives_what_it_gave_before() -> None:
    small = DecoderConfig(40, 20, width=24, layers=3, heads=2, inner=48)
    decoder = Decoder(small)
    large = Decoder(replace(small, layers=4))
    large.load_state_dict(grown(decoder.state_dict(), large.config))
    ids = torch.randint(0, 40, (2, 9))
    torch.testing.assert_close(large(ids), decoder(ids), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="expected 3 to 4 layers for weights with 3, got 5"):
        grown(decoder.state_dict(), replace(small, layers=5))

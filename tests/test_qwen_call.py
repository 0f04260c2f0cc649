"""A call with Qwen3-Omni: what reaches the model, a call from end to end, and what is left after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import tiny_qwen
from tests.call_fakes import Bench, Till, in_call, run
from tests.fakes import FakeModel, FakeThinker, KeepingThinker
from tests.test_qwen import expected
from tests.test_qwen_thinker import Count
from voice_agent import runtime
from voice_agent.agent import Agent, Call
from voice_agent.config import Config
from voice_agent.engine.protocols import ThinkRequest
from voice_agent.qwen.thinker import QwenThinker
from voice_agent.session import Session


@pytest.mark.parametrize("listen", [True, False])
def test_recordings_reach_the_thinker_and_the_dialogue_where_it_listens(listen: bool) -> None:
    thinker = FakeThinker()

    async def work() -> None:
        async with in_call(Bench(FakeModel(thinker), ["hello", "again"], qwen={"listen": listen})) as bench:
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: thinker.requests)
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(25)
            await bench.until(lambda: "output_audio_buffer.stopped" in bench.kinds())
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: len(thinker.requests) == 2)
            first, reply, second = thinker.requests[1].messages
            assert [first.text, reply.text, second.text] == ["hello", "one two three four ", "again"]
            assert reply.audio is None
            if not listen:
                assert first.audio is None
                assert second.audio is None
                return
            assert first.audio is not None
            assert second.audio is not None
            assert first.audio is not second.audio
            voiced_ms = [
                np.count_nonzero(message.audio) // 16 for message in (first, second) if message.audio is not None
            ]
            assert voiced_ms == [800, 600]
            assert np.array_equal(first.audio, thinker.requests[0].messages[-1].audio)

    run(work)


@pytest.mark.parametrize("words", [4, 200], ids=["between turns", "in mid reply"])
def test_a_call_that_ends_is_forgotten_by_its_thinker(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    thinker = KeepingThinker(reply="word " * words)
    monkeypatch.setattr(thinker.gate, "wait", lambda: time.sleep(0.02))

    async def work() -> None:
        async with in_call(Bench(FakeModel(thinker), ["Hello."])) as bench:
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            if words == 4:
                await bench.play(25)
                await bench.until(lambda: bench.session.turn is None)
            assert bool(thinker.rows) == (words == 200)
            assert thinker.held == {"conv_call1"}
            bench.session.close("the test is over")
            await bench.until(lambda: not thinker.held)

    run(work)


# ---- a call from end to end, on a folder that holds a tiny Qwen3-Omni ----


def book(call: Call[Till], city: str, seats: int) -> dict[str, Any]:
    """Book seats."""
    call.state.sold.append(f"{seats} to {city}")
    return {"ok": True, "city": city}


CALL = '<tool_call>\n{"name": "book", "arguments": {"city": "Rome", "seats": 2}}\n</tool_call>'
RESULT = '<|im_start|>user\n<tool_response>\n{"ok": true, "city": "Rome"}\n</tool_response><|im_end|>\n'
ENGLISH_CHARACTERS_A_SECOND = 13


class Beginning:
    """A thinker's own choices, after those that a test wrote: random weights call no tool."""

    def __init__(self, thinker: QwenThinker, text: str) -> None:
        self._own = thinker._chooser
        self._ids = [*thinker.template.tokenizer.encode(text), thinker.template.im_end_token_id]
        self.noise = self._own.noise

    def choose(self, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self._ids.pop(0)]) if self._ids else self._own.choose(logits, noise)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("qwen")
    tiny_qwen.save(tiny_qwen.network(), made)
    return made


class Watch:
    """What a call asked its thinker, how many positions that read, and what the caller was sent, by epoch."""

    def __init__(self, bench: Bench, thinker: QwenThinker) -> None:
        self.thinker, self.requests = thinker, list[ThinkRequest]()
        self.sent: dict[int, list[np.ndarray]] = {}
        self.count = Count(thinker)
        start, write = thinker.start, bench.speaker.write

        def watched_start(slot: int, request: ThinkRequest) -> None:
            self.requests.append(request)
            start(slot, request)

        def watched_write(epoch: int, pcm: np.ndarray) -> None:
            self.sent.setdefault(epoch, []).append(pcm)
            write(epoch, pcm)

        thinker.start, bench.speaker.write = watched_start, watched_write  # type: ignore[method-assign]

    @property
    def held(self) -> list[int]:
        """What the one row that holds something holds."""
        (row,) = (row for row in self.thinker._rows if row.keys)
        return row.keys


@asynccontextmanager
async def call_on(
    folder: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch, **qwen: Any
) -> AsyncIterator[tuple[Bench, Watch]]:
    """A call of the runtime that serves `Agent(model=folder)`, but for what hears words in sound."""
    monkeypatch.setattr(runtime, "Recognizer", lambda config: None)
    monkeypatch.setattr(runtime, "SileroModel", lambda: None)
    options = {"greedy": True, "device": "cpu", "dtype": "float32", "max_length": 1024, **qwen}
    agent = Agent("Be brief.", tools=[book], state=Till, model=str(folder))
    async with runtime.open_runtime(agent, Config.model_validate({"qwen": options})) as opened:
        thinker = opened.engine.thinker.model
        assert isinstance(thinker, QwenThinker)
        bench = Bench(FakeModel(), texts)
        opened.asr, opened.open_ears = bench.asr, bench.runtime.open_ears  # type: ignore[assignment, method-assign]
        bench.session = Session("call1", opened, bench.speaker, bench.events.append)
        async with in_call(bench):
            yield bench, Watch(bench, thinker)
        await bench.until(lambda: opened.engine.view()["thinker"]["dialogues"] == 0)
        assert all(view["slots_in_use"] == view["waiting"] == 0 for view in opened.engine.view().values())


async def speak(bench: Bench) -> None:
    await bench.say(800)
    await bench.hush()


async def write(bench: Bench) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": bench.asr.texts.pop(0)}]}
    bench.session.receive({"type": "conversation.item.create", "item": item})
    bench.session.receive({"type": "response.create"})


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`:UserWarning")
@pytest.mark.parametrize(("ask", "listen"), [(write, False), (speak, False), (speak, True)])
def test_a_call_books_answers_is_cut_in_on_and_goes_on_from_what_was_heard(
    ask: Callable[[Bench], Awaitable[None]], listen: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reply is what `generate()` gives, and no position of the dialogue is read a second time."""
    texts, options = ["two seats to Rome please", "no wait I mean Oslo"], {"max_reply": 150, "max_frames": 60}
    network = tiny_qwen.network().double()
    fresh = tiny_qwen.model(network, listen=listen)

    async def work() -> None:
        async with call_on(folder, list(texts), monkeypatch, listen=listen, **options) as (bench, watch):
            thinker, session = watch.thinker, bench.session
            thinker._chooser = Beginning(thinker, CALL)  # type: ignore[assignment]
            await ask(bench)
            await bench.until(lambda: bench.speaker.queued_ms >= 1000 and not thinker.rows_in_use)

            # The tool was called as the template spells it, and what it gave was read.
            assert bench.last("agent.tool.called")["arguments"] == {"city": "Rome", "seats": 2}
            assert session.call.state.sold == ["2 to Rome"]
            assert [message.role for message in bench.said] == ["user", "assistant", "tool"]
            assert (bench.said[0].text, bench.said[0].audio is not None) == (texts[0], listen)
            called = replace(watch.requests[0], messages=tuple(bench.said))
            prompt = thinker.template.render(called, listen=listen)
            assert f"{CALL}<|im_end|>\n{RESULT}" in thinker.template.tokenizer.decode(prompt.ids)
            assert session.turn is not None
            said = session.turn.saying
            assert watch.held[: len(prompt.keys)] == prompt.keys
            assert watch.count.read == len(watch.held)

            # It says what `generate()` says to that.
            whole = expected(network, fresh, called, max_reply=len(said) + 1, max_frames=60)
            assert said == thinker.template.tokenizer.decode(whole.ids[: len(said)])
            assert session.turn.reply is not None
            lead = session.turn.reply.lead
            pcm = np.concatenate(watch.sent[session.epoch])
            assert len(pcm) >= 24_000
            assert np.abs(pcm - whole.pcm[lead : lead + len(pcm)]).max() < 1e-4

            # Cut in on after 1.2 s, it has said what was heard in that time, and no more.
            await bench.play(60)
            await bench.say(1000)
            await bench.until(lambda: "output_audio_buffer.cleared" in bench.kinds())
            assert bench.last("conversation.item.truncated")["audio_end_ms"] == 1200
            heard = bench.said[-1].text
            assert said.startswith(heard)
            assert len(heard.replace(" ", "")) == pytest.approx(1.2 * ENGLISH_CHARACTERS_A_SECOND, abs=1)
            assert len(heard) < len(said)

            # The next turn reads what is new: the end of the reply's line, and what the caller said.
            before = watch.count.read
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400 and not thinker.rows_in_use)
            request = watch.requests[-1]
            assert [message.text for message in request.messages] == [texts[0], "", "", heard, texts[1]]
            assert watch.count.read - before == len(watch.held) - len(prompt.keys) - len(heard)
            assert session.turn is not None
            again = session.turn.saying
            assert watch.held[: -len(again)] == thinker.template.render(request, listen=listen).keys
            whole = expected(network, fresh, request, max_reply=len(again) + 1, max_frames=60)
            assert again == thinker.template.tokenizer.decode(whole.ids[: len(again)])

    asyncio.run(asyncio.wait_for(work(), 60))

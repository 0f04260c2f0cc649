"""The code of the documents, run from their own text to the effect that they tell.

The agent of the READMEs is served in `test_documents_shell`, the JavaScript of the SDK's guide in `test_sdk`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests import bench_signals, tiny_qwen
from tests.call_fakes import FRAME, UNCLEAR, Bench, in_call, run
from tests.fakes import FakeModel, FakeThinker
from tests.test_bench_compare import run as compared_run
from tests.test_documents import ROOT, blocks
from tests.test_qwen_call import Beginning
from voice_agent import Agent, runtime
from voice_agent.bench import quality
from voice_agent.bench.figures import measure
from voice_agent.bench.results import CallResult, Results
from voice_agent.cli import app
from voice_agent.config import load_config
from voice_agent.engine.protocols import Language, ToolCall
from voice_agent.loading import load_agent
from voice_agent.models import QWEN
from voice_agent.session import Session

RUN = {
    "README.md": ["python"],
    "README.zh.md": ["python"],
    "docs/bench.md": ["python"],
    "docs/qwen.md": ["python"],
    "docs/turns.md": ["python", "python"],
    "web/sdk/README.md": ["js", "js"],
}
"""The blocks that a test runs, here or in `test_readme` and `test_sdk`."""

ENDING = ("plan", "bench compare", "bench fdb", "bench list")
"""The commands that end by themselves within seconds; they are run here, all others in `test_documents_shell`."""


def code_of(document: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text("utf-8"), re.S | re.M)
    assert found
    return found


def run_block(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "block", "exec"), names)
    return names


def test_every_block_is_run_by_a_test() -> None:
    """A new one is run before it is added to `RUN`."""
    there: dict[str, list[str]] = {}
    for language in ("python", "js"):
        for parameter in blocks(language):
            there.setdefault(str(parameter.values[0].relative_to(ROOT)), []).append(language)  # type: ignore[attr-defined]
    assert there == RUN


# ---- Python


def test_the_figures_of_a_saved_call_are_read_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bench-out/calls"
    folder.mkdir(parents=True)
    bench_signals.call(4, [("respond", [(0.5, 1.5)])], heard=[(2.1, 3.0)]).save(folder / "order-zh-000")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_block(*code_of("docs/bench.md", "python"))
    assert float(printed.getvalue()) == pytest.approx(600, abs=2)


class Order:
    """What a call has placed; tools may run on a copy."""

    def __init__(self, placed: tuple[str, ...] = ()) -> None:
        self.placed = placed

    def fork(self) -> Order:
        return Order(self.placed)

    def place(self, call_id: str) -> dict[str, Any]:
        self.placed = (*self.placed, call_id)
        return {"ok": True, "say": "placed it all now"}


@pytest.mark.parametrize("to_the_end", [True, False])
def test_the_tool_that_cannot_be_undone_counts_once_it_was_heard(to_the_end: bool) -> None:
    place = run_block(code_of("docs/turns.md", "python")[0])["place"]

    async def work() -> None:
        bench = Bench(FakeModel(FakeThinker(calls=[ToolCall("c1", "place", {})])), ["that is all", "wait"])
        bench.runtime.agent = Agent("You take orders.", [place], state=Order)
        bench.session.call = bench.runtime.agent.open_call("call1", "en")
        async with in_call(bench):
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(18)
            assert bench.session.call.state.placed == ()
            if to_the_end:
                await bench.play(10)
                await bench.until(lambda: bench.session.turn is None)
                assert bench.session.call.state.placed == ("call1",)
                return
            await bench.say(1200)
            await bench.hush()
            await bench.until(lambda: len(bench.model.thinker.requests) > 1)
            assert bench.session.call.state.placed == ()

    run(work)


async def silence(bench: Bench, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        for _ in range(5):
            bench.session.feed(np.zeros(FRAME, np.int16))
        await asyncio.sleep(0.001)


async def hear_out(bench: Bench) -> None:
    await bench.until(lambda: bench.session.turn is not None and bench.session.turn.all_written)
    while bench.session.turn is not None:
        await bench.play(1)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_lines_are_said_in_their_time(language: Language) -> None:
    agent = run_block(code_of("docs/turns.md", "python")[1])["agent"]

    async def work() -> None:
        bench = Bench(FakeModel(), [UNCLEAR])
        bench.asr.language, bench.runtime.agent = language, agent
        bench.session = Session("call1", bench.runtime, bench.speaker, bench.events.append)
        bench.session.call.language = language
        async with in_call(bench):
            bench.session.receive({"type": "response.create"})
            await hear_out(bench)
            await bench.say(600)
            await bench.hush()
            await hear_out(bench)
            for _ in range(3):
                await silence(bench, 19.9)
                assert bench.session.turn is None
                await silence(bench, 0.5)
                await hear_out(bench)
            await bench.until(bench.session._closed.is_set)
            lines = agent.lines
            expected = (lines.greeting, lines.unclear, lines.still_there, lines.still_there, lines.goodbye)
            asked = [request.say for request in bench.model.thinker.requests]
            assert asked == [line[language] for line in expected]

    run(work)


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`:UserWarning")
def test_the_agent_that_sells_tickets_books_and_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings of the page, on a tiny model of random weights, whose first words are given."""
    (code,), (settings,) = code_of("docs/qwen.md", "python"), code_of("docs/qwen.md", "yaml")
    assert QWEN in code
    tiny_qwen.save(tiny_qwen.network(), tmp_path / "model")
    (tmp_path / "tickets.py").write_text(code.replace(QWEN, str(tmp_path / "model")), "utf-8")
    (tmp_path / "qwen.yaml").write_text(settings, "utf-8")
    monkeypatch.setattr(runtime, "Recognizer", lambda config: None)
    monkeypatch.setattr(runtime, "SileroModel", lambda: None)
    called = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
    calls = called % ("search", '{"city": "Rome"}') + called % ("book", '{"train": "09:34", "seats": 2}')

    async def work() -> None:
        agent = load_agent(tmp_path / "tickets.py")
        async with runtime.open_runtime(agent, load_config(tmp_path / "qwen.yaml")) as opened:
            thinker: Any = opened.engine.thinker.model
            thinker._chooser = Beginning(thinker, calls)
            bench = Bench(FakeModel(), ["two seats to Rome please"])
            opened.asr, opened.open_ears = bench.asr, bench.runtime.open_ears  # type: ignore[assignment, method-assign]
            bench.session = Session("call1", opened, bench.speaker, bench.events.append)
            async with in_call(bench):
                await bench.say(800)
                await bench.hush()
                await bench.until(lambda: bench.speaker.queued_ms >= 400)
                tools = [event for event in bench.events if event["type"] == "agent.tool.called"]
                assert [event["result"] for event in tools] == [
                    {"trains": ["08:04", "09:34"]},
                    {"ok": True, "train": "09:34", "seats": 2},
                ]
                assert [message.role for message in bench.said] == ["user", "assistant", "tool", "tool"]

    asyncio.run(asyncio.wait_for(work(), 60))


# ---- the command line


def commands(document: str) -> list[list[str]]:
    """The arguments of each `voice-agent` in the blocks of a document."""
    lines = [line for code in code_of(document, "bash") for line in code.replace("\\\n", " ").splitlines()]
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in found if words and words[0] == "voice-agent"]


def said_by(document: str, command: str, exit_code: int = 0) -> list[Result]:
    """What the document's commands of this name print."""
    found = [words for words in commands(document) if " ".join(words).startswith(command)]
    assert found
    results = [CliRunner(env={"COLUMNS": "200"}).invoke(app, words) for words in found]
    assert [result.exit_code for result in results] == [exit_code] * len(found), results[0].output
    return results


def test_the_plans_of_both_models_are_printed() -> None:
    told = dict(zip((QWEN, "tea-omni"), said_by("docs/engine.md", "plan"), strict=True))
    assert f"{QWEN} on H200" in told[QWEN].output
    assert re.search(r"thinker +59\.09 GiB", told[QWEN].output)
    assert "tea-omni on one core of this machine" in told["tea-omni"].output


def test_two_runs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, results in (("before", compared_run(1)), ("after", compared_run(2, slower=1.2))):
        (tmp_path / name).mkdir()
        results.save(tmp_path / name / "results.json")
    monkeypatch.chdir(tmp_path)
    (told,) = said_by("docs/bench.md", "bench compare", exit_code=1)
    assert [line.split()[1] for line in told.output.splitlines() if line.endswith("worse ")] == ["v2v_ms", "v2v_ms"]


def test_a_run_is_read_by_the_rules_of_full_duplex_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench-out/calls").mkdir(parents=True)
    recording = bench_signals.call(6, [("respond", [(0.5, 1.5)])], heard=[(2.25, 4.0)])
    recording.save(tmp_path / "bench-out/calls/order-zh-000")
    call = CallResult("order-zh", "calls/order-zh-000", asdict(measure(recording)))
    Results({}, (call,)).save(tmp_path / "bench-out/results.json")
    monkeypatch.setattr(quality, "whisper", lambda: lambda pcm: "one pearl milk tea")
    monkeypatch.chdir(tmp_path)
    (told,) = said_by("docs/bench.md", "bench fdb")
    assert told.output.splitlines()[-1].split() == ["turn", "1.000", "0.750", "s", "1"]


def test_every_scenario_is_listed() -> None:
    (told,) = said_by("docs/bench.md", "bench list")
    listed = [line.split()[0] for line in told.output.splitlines()[1:]]
    library = ROOT / "voice_agent/bench/library"
    assert sorted(listed) == sorted(path.stem for path in library.glob("*.yaml"))


@pytest.mark.parametrize("readme", ["README.md", "README.zh.md"])
def test_the_models_are_listed(readme: str) -> None:
    (command,) = re.findall(r"`voice-agent (models)`", (ROOT / readme).read_text("utf-8"))
    told = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command])
    assert told.exit_code == 0, told.output
    rows = {(*words[:2], *words[-1:]) for words in map(str.split, told.output.splitlines())}
    assert {("tea-omni", part, "yes") for part in ("thinker", "talker", "codec", "endpoint")} <= rows

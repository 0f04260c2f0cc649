"""The bench over the whole path: real calls to an agent with known delays, and to ones that cheat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.media_fakes import free_port
from voice_agent.bench.calibrate import calibrate
from voice_agent.bench.caller import Job
from voice_agent.bench.caller import place as place_call
from voice_agent.bench.link import Target
from voice_agent.bench.priority import urgent
from voice_agent.bench.report import markdown_table, write_report
from voice_agent.bench.results import CallResult, Results
from voice_agent.bench.runner import CallerProcess, about, evaluate, jobs, run_calls
from voice_agent.bench.scenario import Scenario
from voice_agent.bench.synthetic import Behaviour, create_app

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def ahead_of_others() -> Iterator[None]:
    """Where it is allowed: caller and agent share this loop, and what they measure is each other."""
    with urgent():
        yield


@asynccontextmanager
async def synthetic(**behaviour: Any) -> AsyncIterator[str]:
    """The address of a synthetic agent in this event loop."""
    port = free_port()
    app = create_app(Behaviour(**behaviour))
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="warning", lifespan="on"))
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


def _no_signals() -> Any:
    import contextlib

    return contextlib.nullcontext()


def tone(ms: int = 500, **more: Any) -> dict[str, Any]:
    return {"say": {"tone_hz": 300, "ms": ms}, **more}


# Calls that begin together hold each other up until all are connected.
ASK = tone(start={"after": "call_start", "delay_ms": 2000, "timeout_ms": 3000})
CUT = tone(400, expect="stop", start={"after": "agent_speech_start", "delay_ms": 500, "timeout_ms": 3000})
THINK = {
    "say": [{"tone_hz": 300, "ms": 400}, {"pause_ms": 600}, {"tone_hz": 300, "ms": 400}],
    "start": {"after": "call_start", "delay_ms": 2000, "timeout_ms": 3000},
}


async def call(url: str, folder: Path, *turns: dict[str, Any], kind: str = "webrtc", **more: Any) -> CallResult:
    scenario = Scenario.model_validate({"name": "test", "turns": list(turns), **more})
    job = Job(target=Target(url=url, kind=kind), scenario=scenario, folder=folder, save=folder / "calls" / "one")
    await place_call(job)
    return evaluate(job)


async def test_known_delays_and_cuts_come_out_as_they_were(tmp_path: Path) -> None:
    result = await calibrate(tmp_path, calls=1, pairs=3)
    assert (result["v2v_ms"]["n"], result["yield_ms"]["n"]) == (6, 3)
    assert abs(result["v2v_ms"]["error_p50"]) <= 15
    assert abs(result["yield_ms"]["error_p50"]) <= 15
    assert {trial["set_ms"] for trial in result["trials"] if trial["figure"] == "v2v_ms"} == {
        100, 250, 400, 700, 1100, 1500,
    }  # fmt: skip


async def test_each_way_to_cheat_is_shown_by_a_figure(tmp_path: Path) -> None:
    honest = {"delays_ms": [400], "reply_ms": 1500, "eot_ms": 240}
    agents: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
        "honest": (honest, [ASK, CUT]),
        "silence": ({**honest, "delays_ms": [300], "leading_silence_ms": 500}, [ASK]),
        "ack": ({**honest, "delays_ms": [300], "ack_ms": 700}, [ASK]),
        "burst": ({**honest, "reply_ms": 2500, "burst": True, "stop_ms": None}, [ASK, CUT]),
        "eager": ({**honest, "delays_ms": [150], "eot_ms": 60}, [THINK]),
        "stale": ({**honest, "reply_ms": 2500, "stale_ms": 200}, [ASK, CUT]),
    }

    async def one(name: str) -> dict[str, Any]:
        behaviour, turns = agents[name]
        async with synthetic(**behaviour) as url:
            return (await call(url, tmp_path / name, *turns)).figures

    # Two calls at a time: callers and agents share this one event loop.
    names = list(agents)
    pairs = [await asyncio.gather(one(a), one(b)) for a, b in zip(names[::2], names[1::2], strict=True)]
    found = dict(zip(names, [figures for pair in pairs for figures in pair], strict=True))
    first = {name: figures["turns"][0] for name, figures in found.items()}
    ask, cut = found["honest"]["turns"]
    assert ask["v2v_ms"] == pytest.approx(400, abs=150)
    assert ask["leading_silence_ms"] < 100
    assert ask["answer_ms"] == ask["v2v_ms"]
    assert cut["stopped"] is True
    assert cut["stale_ms"] < 120  # packets that a busy loop takes later than the event
    assert found["honest"]["stream"]["burst_ms"] < 300
    # It says that it speaks 300 ms after the caller; it is heard half a second later.
    assert first["silence"]["v2v_ms"] == pytest.approx(800, abs=150)
    assert first["silence"]["leading_silence_ms"] == pytest.approx(500, abs=100)
    # The tone is early, the answer is not.
    assert first["ack"]["answer_ms"] - first["ack"]["v2v_ms"] == pytest.approx(700, abs=60)
    # All of the reply has arrived when the caller cuts in, and is heard to its end.
    assert found["burst"]["stream"]["burst_ms"] > 3 * max(300, found["honest"]["stream"]["burst_ms"])
    assert found["burst"]["turns"][1]["yield_playout_ms"] > 1500
    assert (first["eager"]["pauses"], first["eager"]["taken_over"]) == (1, 1)
    assert found["stale"]["turns"][1]["stale_ms"] == pytest.approx(200, abs=70)


async def test_a_run_by_processes_has_recordings_results_and_a_report(tmp_path: Path) -> None:
    scenario = Scenario.model_validate({"name": "ask", "about": "A <question>.", "turns": [ASK], "trials": 2})
    async with synthetic(delays_ms=[300], reply_ms=700, eot_ms=240) as url:
        target = Target(url=url, kind="offer")
        work = jobs(target, [(scenario, tmp_path)], tmp_path, None, 1)
        done: list[str] = []
        calls = await run_calls(work, lambda call: done.append(call.recording), parallel=2)
    results = Results(about(target, [scenario], 1), tuple(calls))
    assert sorted(done) == ["calls/ask-000", "calls/ask-001"]
    assert results.values()["v2v_ms"] == pytest.approx([300, 300], abs=150)
    assert all(check.passed for call in calls for check in call.checks)
    assert "| V2V: last sound sent → first heard |" in markdown_table(results)
    html = write_report(results, tmp_path).read_text("utf-8")
    assert html.count("data:audio/ogg;base64,") == 2
    assert "A &lt;question&gt;." in html
    assert "http" not in html.replace(url, "")


async def test_bad_networks_and_clocks_are_between_the_caller_and_the_agent(tmp_path: Path) -> None:
    async with synthetic(delays_ms=[300], reply_ms=1200, eot_ms=240) as url:
        clean, slow = await asyncio.gather(
            call(url, tmp_path / "clean", ASK),
            call(url, tmp_path / "slow", ASK, network={"delay_ms": 120, "jitter_ms": 10, "loss_pct": 4}),
        )
    added = slow.figures["turns"][0]["v2v_ms"] - clean.figures["turns"][0]["v2v_ms"]
    assert added == pytest.approx(240, abs=90)
    assert clean.figures["stream"]["lost"] == 0
    assert slow.figures["stream"]["lost"] > 0


@pytest.mark.parametrize("kind", ["pcm", "realtime"])
async def test_websockets_are_measured_like_calls(tmp_path: Path, kind: str) -> None:
    async with synthetic(delays_ms=[300], reply_ms=1500, eot_ms=240, stop_ms=150, burst=kind == "realtime") as url:
        result = await call(url, tmp_path, ASK, CUT, kind=kind)
    ask, cut = result.figures["turns"]
    assert ask["v2v_ms"] == pytest.approx(300, abs=150)
    # A reply that came in one piece is dropped when the server tells that it hears the caller, before it is cut.
    assert cut["stopped"] is True
    assert cut["yield_playout_ms"] < 400
    assert (result.figures["stream"]["burst_ms"] > 800) == (kind == "realtime")
    assert result.figures["stream"]["drift_ppm"] is None


async def test_a_server_that_is_not_there_is_a_failed_call(tmp_path: Path) -> None:
    job = Job(
        target=Target(url=f"http://127.0.0.1:{free_port()}"),
        scenario=Scenario.model_validate({"name": "none", "turns": [ASK]}),
        folder=tmp_path,
        save=tmp_path / "calls" / "none",
    )
    async with CallerProcess() as process:
        failed = await process.place(job)
    assert "no call" in failed
    assert [check.got for check in evaluate(job).checks] == [failed, "the call was over"]


async def test_a_call_that_leaves_no_recording_is_one_error(tmp_path: Path) -> None:
    job = Job(
        target=Target(url=f"http://127.0.0.1:{free_port()}"),
        scenario=Scenario.model_validate({"name": "none", "turns": [{"say": "none.wav"}]}),
        folder=tmp_path,
        save=tmp_path / "calls" / "none",
    )
    with pytest.raises(ConnectionError, match=r"^none: expected none\.wav at"):
        await run_calls([job])

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes import FakeModel, KeepingThinker
from tests.media_fakes import running_server
from tests.test_engine import REQUEST, Listener
from voice_agent.engine.reply import Engine
from voice_agent.engine.stage import Histogram
from voice_agent.metrics import make_registry

CALLS = {"active": 2, "limit": 4, "ended": {"hung up": 3}, "each": []}
LAG = {"p50_ms": 0.5, "p99_ms": 2.0, "max_ms": 8.0}


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample's value by its name and the values of its labels, in the order of their names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(engine: dict[str, Any]) -> dict[tuple[str, tuple[str, ...]], float]:
    figures = {"calls": CALLS, "loop_lag": LAG, "engine": engine}
    return samples(generate_latest(make_registry(lambda: figures)).decode())


def test_the_stages_steps_and_aborts_are_told() -> None:
    model = FakeModel()
    engine = Engine(model)

    async def work() -> None:
        listener = Listener()
        engine.reply(REQUEST, listener)
        await listener.done.wait()
        model.talker.gate.event.clear()
        dropped = engine.reply(REQUEST, Listener())
        while engine.codec.slots_in_use == 0 or engine.talker.slots_in_use == 0:
            await asyncio.sleep(0.001)
        receipts = dropped.abort()
        model.talker.gate.event.set()
        await receipts

    asyncio.run(asyncio.wait_for(work(), 20))
    views = engine.view()
    engine.close()
    told = scrape(views)
    for stage, view in views.items():
        steps = view["steps"]
        assert told["voice_agent_stage_steps_total", (stage,)] == steps > 0
        assert told["voice_agent_stage_step_seconds_count", (stage,)] == steps
        assert told["voice_agent_stage_step_seconds_bucket", ("+Inf", stage)] == steps
        assert told["voice_agent_stage_step_seconds_sum", (stage,)] == pytest.approx(view["busy_s"])
        assert told["voice_agent_stage_batch_rows_bucket", ("1", stage)] == steps, "each step served one reply"
        assert told["voice_agent_stage_busy_seconds_total", (stage,)] == view["busy_s"] > 0
        assert told["voice_agent_stage_slots", (stage,)] == 4
        assert told["voice_agent_stage_slots_in_use", (stage,)] == told["voice_agent_stage_queue", (stage,)] == 0
        assert told["voice_agent_stage_failures_total", (stage,)] == 0
    assert told["voice_agent_stage_units_total", ("codec",)] == 8, "two frames for each of four words"
    assert told["voice_agent_stage_aborts_total", ("codec",)] == 1
    assert told["voice_agent_stage_abort_seconds_count", ("codec",)] == 1
    assert not any(name == "voice_agent_stage_restarts_total" for name, _ in told), "none of them is a process"


def test_calls_and_the_event_loop_are_told() -> None:
    told = scrape({})
    assert told["voice_agent_calls", ()] == 2
    assert told["voice_agent_calls_limit", ()] == 4
    assert told["voice_agent_calls_ended_total", ("hung up",)] == 3
    assert told["voice_agent_loop_lag_seconds", ("0.99",)] == 0.002


def test_a_process_that_was_started_again_is_told() -> None:
    engine = Engine(FakeModel())
    views = engine.view()
    engine.close()
    told = scrape({**views, "codec": {**views["codec"], "restarts": 2}})
    assert told["voice_agent_stage_restarts_total", ("codec",)] == 2
    assert ("voice_agent_stage_restarts_total", ("thinker",)) not in told


def test_the_dialogues_that_a_thinker_holds_are_told() -> None:
    engine = Engine(FakeModel(KeepingThinker()))

    async def work() -> None:
        listener = Listener()
        engine.reply(replace(REQUEST, conversation="a"), listener)
        await listener.done.wait()

    asyncio.run(asyncio.wait_for(work(), 20))
    told = scrape(engine.view())
    engine.close()
    assert told["voice_agent_stage_dialogues", ("thinker",)] == 1
    assert ("voice_agent_stage_dialogues", ("talker",)) not in told


def test_a_histogram_counts_a_value_at_the_bound_that_holds_it() -> None:
    histogram = Histogram(1, 2, 4)
    for value in (1, 1.5, 2, 4, 5):
        histogram.add(value)
    assert histogram.view() == {"bounds": [1, 2, 4], "counts": [1, 2, 1, 1], "sum": 13.5}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_route_asks_for_the_servers_key_where_there_is_one() -> None:
    async with running_server() as server, httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert samples(answer.text)["voice_agent_calls", ()] == 0
    async with (
        running_server(api_key="right-key") as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as client,
    ):
        key = {"Authorization": "Bearer right-key"}
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=key)).status_code == 200
        made = (await client.post("/v1/realtime/client_secrets", headers=key, json={})).json()
        secret = {"Authorization": f"Bearer {made['value']}"}
        assert (await client.get("/metrics", headers=secret)).status_code == 403

"""A new connection takes the place of a call: its state and dialogue go on, once, and only where there is a call."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.call_fakes import Bench, in_call, run
from tests.fakes import FakeModel
from tests.media_fakes import eventually, offer, running_server
from voice_agent.client import CallClient
from voice_agent.media import calls as module
from voice_agent.media.speaker import Speaker
from voice_agent.session import Session

pytestmark = pytest.mark.anyio

SDP = {"Content-Type": "application/sdp"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_session_goes_on_with_the_state_and_the_dialogue_of_another() -> None:
    async def work() -> None:
        async with in_call(Bench(FakeModel(), ["hello there"])) as bench:
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(11)  # 220 ms: two words of 100 ms are over
            bench.session.call.state.sold.append("tea")
            before = bench.session
        after = Session("call2", bench.runtime, bench.speaker, lambda event: None)
        after.recall(before.memory())
        assert after.call.id == "call2"
        assert after.call.state.sold == ["tea"]
        assert [message.text for message in after.conversation.messages] == ["hello there", "one two "]

    run(work)


BREAKS = ("still being said", "being recognised", "being thought about", "about to be heard")


@pytest.mark.parametrize("were", BREAKS)
def test_words_that_had_no_answer_when_the_connection_broke_are_answered_once(were: str) -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), ["one oolong tea"])
        running = asyncio.ensure_future(bench.session.run())
        await asyncio.sleep(0)
        gate, hold = bench.model.thinker.gate.event, asyncio.Event()
        bench.session.receive({"type": "session.update", "session": {"instructions": "be brief"}})
        if were == "being recognised":
            bench.asr.hold = hold
        if were == "being thought about":
            gate.clear()
        await bench.say(800)
        await bench.hush(60 if were == "still being said" else 900)
        await bench.until(lambda: were == "still being said" or bench.session.turn is not None)
        if were == "being thought about":
            await bench.until(lambda: bench.model.thinker.requests)
        if were == "about to be heard":
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
        bench.session.close("the connection failed")
        asyncio.get_running_loop().call_later(0.02, gate.set)
        await running
        assert not bench.said, "nothing was heard of an answer"
        memory, asked = bench.session.memory(), len(bench.model.thinker.requests)

        hold.set()
        bench.events, bench.speaker = [], Speaker(now=lambda: 0.0, sleep=lambda s: asyncio.sleep(0))
        bench.session = Session("call2", bench.runtime, bench.speaker, bench.events.append)
        bench.session.recall(memory)
        async with in_call(bench):
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(25)
            await bench.until(lambda: bench.session.turn is None)
            await bench.hush(1500)
            assert [message.text for message in bench.said] == ["one oolong tea", "one two three four "]
            [request] = bench.model.thinker.requests[asked:]
            assert request.instructions == "be brief", "the settings go on too"
            assert bench.kinds("response.created") == ["response.created"]
            items = map(bench.session.conversation.item, bench.session.conversation._order)
            words = [part.transcript for item in items for part in item.content]
            assert [text for text in words if text] == ["one oolong tea", "one two three four "]

    run(work)


def test_a_client_that_asks_for_each_answer_is_not_answered_unasked_after_a_break() -> None:
    async def work() -> None:
        bench = Bench(FakeModel(), ["one oolong tea"])
        running = asyncio.ensure_future(bench.session.run())
        await asyncio.sleep(0)
        detection = {"type": "server_vad", "create_response": False}
        bench.session.receive(
            {"type": "session.update", "session": {"audio": {"input": {"turn_detection": detection}}}}
        )
        await bench.say(800)
        await bench.hush(900)
        await bench.until(lambda: bench.session.unanswered)
        bench.session.close("the connection failed")
        await running
        memory = bench.session.memory()
        bench.events = []
        bench.session = Session("call2", bench.runtime, bench.speaker, bench.events.append)
        bench.session.recall(memory)
        async with in_call(bench):
            await bench.hush(300)
            assert bench.session.turn is None
            bench.session.receive({"type": "response.create"})
            await bench.until(lambda: bench.model.thinker.requests)
            assert [message.text for message in bench.model.thinker.requests[0].messages] == ["one oolong tea"]

    run(work)


async def place(url: str, replaces: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        sdp = await offer()
        query = {"replaces": replaces}
        return await client.post(f"{url}/v1/realtime/calls", content=sdp, headers=SDP, params=query)


def taking_over(url: str, replaces: str) -> CallClient:
    call = CallClient(url)
    call._url += f"?replaces={replaces}"
    return call


async def test_a_running_call_is_ended_and_its_place_taken() -> None:
    async with running_server(max_calls=1, connect_s=1.0) as server, CallClient(server.url) as call:
        assert (await place(server.url, call.call_id)).status_code == 201
        await eventually(lambda: server.sessions[0].closed == "taken over")
        assert server.calls.ended["taken over"] == 1


async def test_a_call_that_ended_lately_can_be_taken_over_more_than_once() -> None:
    async with running_server(connect_s=0.5) as server:
        async with CallClient(server.url) as call:
            server.calls._calls[call.call_id].end("the connection failed")
            await eventually(lambda: server.calls.active == 0)
        # The first attempt never becomes a connection; the caller tries again.
        assert (await place(server.url, call.call_id)).status_code == 201
        assert (await place(server.url, call.call_id)).status_code == 201


async def test_only_one_call_goes_on_with_what_another_left() -> None:
    async with running_server() as server:
        async with CallClient(server.url) as call:
            server.calls._calls[call.call_id].end("the connection failed")
            await eventually(lambda: server.calls.active == 0)
        old = call.call_id
        async with taking_over(server.url, old) as first:
            await first.wait_for("session.created")
            # Not knowing that it had succeeded, the caller tries again with the id that it has.
            async with taking_over(server.url, old) as second:
                await second.wait_for("session.created")
                assert server.calls.ended["taken over"] == 1
                assert server.calls.active == 1
                server.calls.end(second.call_id, module.CLIENT_ENDED)
        assert (await place(server.url, old)).status_code == 404


async def test_of_two_that_take_a_place_at_once_one_gets_it() -> None:
    async with running_server() as server:
        async with CallClient(server.url) as call:
            server.calls._calls[call.call_id].end("the connection failed")
            await eventually(lambda: server.calls.active == 0)
        inherited = [server.calls._hand_over(call.call_id, f"call_{number}") for number in range(2)]
        assert inherited == [[], None]


async def test_what_was_never_there_or_was_hung_up_or_is_old_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server(connect_s=0.5) as server:
        refused = await place(server.url, "call_of_nobody")
        assert refused.status_code == 404
        assert "no such call to take over" in refused.json()["error"]["message"]
        async with CallClient(server.url) as call:
            server.calls.end(call.call_id, module.CLIENT_ENDED)
            await eventually(lambda: server.calls.active == 0)
        assert (await place(server.url, call.call_id)).status_code == 404
        monkeypatch.setattr(module, "MEMORY_S", 0.05)
        async with CallClient(server.url) as call:
            server.calls._calls[call.call_id].end("the connection failed")
            await eventually(lambda: server.calls.active == 0)
        await asyncio.sleep(0.1)
        assert (await place(server.url, call.call_id)).status_code == 404


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORIES", 2)
    async with running_server() as server:
        for _ in range(3):
            async with CallClient(server.url) as call:
                server.calls._calls[call.call_id].end("the connection failed")
                await eventually(lambda: server.calls.active == 0)
        assert len(server.calls._memories) == 2
        assert call.call_id in server.calls._memories

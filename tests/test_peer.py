"""The ways a call can end, each of which must free everything it held."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time

import httpx
import pytest

from tests.media_fakes import (
    ENDINGS,
    FakeSession,
    end_one_call,
    eventually,
    footprint,
    free_port,
    offer,
    running_server,
    vanish,
)
from voice_agent.client import CallClient
from voice_agent.media.peer import Outbox

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_client_that_hangs_up_ends_its_session() -> None:
    async with running_server() as server:
        async with CallClient(server.url) as call:
            await call.wait_for("session.created")
        await eventually(lambda: server.calls.active == 0, 1.0)
        assert server.sessions[0].closed == "the client ended the call"
        assert server.sessions[0].finished


async def test_a_client_that_closes_its_connection_without_a_request_ends_its_session() -> None:
    """A closed tab: no DELETE, only what the peer connection itself says."""
    async with running_server() as server, CallClient(server.url) as call:
        await call.wait_for("session.created")
        await call._pc.close()
        await eventually(lambda: server.calls.active == 0, 1.5)
        assert server.sessions[0].finished


async def test_a_killed_client_is_noticed() -> None:
    async with running_server(silence_s=1.5) as server, CallClient(server.url) as call:
        await call.wait_for("session.created")
        call.send({"type": "response.create", "seconds": 60.0})
        vanish(call)
        began = time.monotonic()
        await eventually(lambda: server.calls.active == 0, 6.0)
        assert time.monotonic() - began < 3.5
        assert server.sessions[0].closed == "the peer vanished"


async def test_a_session_that_ends_or_fails_ends_the_call() -> None:
    async with running_server() as server:
        async with CallClient(server.url) as call:
            await call.wait_for("session.created")
            server.sessions[0].close("said goodbye")
            async with asyncio.timeout(2):
                await call.ended.wait()
        async with CallClient(server.url) as call:
            call.send({"type": "fail"})
            error = await call.wait_for("error")
            assert error.data["error"]["code"] == "session_failed"
            assert "asked to fail" not in str(error.data)
            async with asyncio.timeout(2):
                await call.ended.wait()
        await eventually(lambda: server.calls.active == 0)
        assert server.calls.ended == {"the session ended": 1, "the session failed": 1}


@pytest.mark.parametrize("method", ["feed", "receive"])
async def test_a_session_that_fails_on_its_input_ends_the_call(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FakeSession, given: object) -> None:
        raise RuntimeError("no")

    async with running_server() as server:
        monkeypatch.setattr(FakeSession, method, fail)
        async with CallClient(server.url) as call:
            call.send({"type": "session.update", "session": {}})
            assert (await call.wait_for("error")).data["error"]["code"] == "session_failed"
            async with asyncio.timeout(2):
                await call.ended.wait()
        await eventually(lambda: server.calls.active == 0)
        assert server.calls.ended == {"the session failed": 1}


async def test_events_that_are_none_are_answered_with_errors() -> None:
    async with running_server() as server, CallClient(server.url) as call:
        for text in ("nonsense", "[1]", '{"type": 3}', '{"type": "x", "y": "' + "z" * 70_000 + '"}'):
            call._channel.send(text)
        codes = [(await call.wait_for("error")).data["error"]["code"] for _ in range(4)]
        assert codes == ["invalid_event"] * 3 + ["event_too_large"]
        assert server.sessions[0].received == []


async def test_a_large_event_crosses_in_pieces() -> None:
    async with running_server() as server, CallClient(server.url) as call:
        call.send({"type": "session.update", "session": {"text": "茶" * 15_000}})
        updated = await call.wait_for("session.updated")
        assert updated.data["session"]["text"] == "茶" * 15_000


class FakeChannel:
    def __init__(self) -> None:
        self.readyState = "open"
        self.bufferedAmount = 0
        self.sent: list[str] = []

    def send(self, text: str) -> None:
        self.sent.append(text)


def test_events_wait_for_the_channel_within_bounds() -> None:
    overflows: list[int] = []
    outbox = Outbox(100, lambda: overflows.append(1))
    for number in range(20):
        outbox.send({"n": number})
    channel = FakeChannel()
    outbox.open(channel)  # type: ignore[arg-type]
    assert channel.sent[-1] == '{"n":19}'
    assert 10 <= len(channel.sent) <= 12  # the oldest went first
    channel.bufferedAmount = 99
    outbox.send({"n": 20})
    assert overflows == [1]
    channel.bufferedAmount = 0
    outbox.send({"n": "茶"})
    assert channel.sent[-1] == '{"n":"茶"}'
    channel.readyState = "closed"
    outbox.send({"n": 21})
    outbox.close()
    outbox.send({"n": 22})
    assert channel.sent[-1] == '{"n":"茶"}'


async def test_twenty_calls_ended_in_every_way_leave_nothing_behind() -> None:
    async with running_server(max_calls=4, silence_s=1.0, connect_s=1.0, slot_wait_s=5.0) as server:
        await end_one_call(server.url, "hang up")  # what is made once, at the first call
        await eventually(lambda: server.calls.active == 0)
        await asyncio.sleep(0.1)
        before = footprint()
        for _ in range(3):
            await asyncio.gather(*(end_one_call(server.url, way) for way in ENDINGS))
        await eventually(lambda: server.calls.active == 0)
        await eventually(lambda: all(now <= then for now, then in zip(footprint(), before, strict=True)), 3.0)
        assert sum(server.calls.ended.values()) == 1 + 3 * len(ENDINGS) - 3  # a refused offer is no call
        assert all(session.finished for session in server.sessions)


async def test_a_relay_that_cannot_be_reached_delays_little_and_leaves_nothing() -> None:
    relay = {"urls": "turn:127.0.0.1:9", "username": "u", "credential": "c"}
    async with running_server(ice_servers=(relay, {"urls": "stun:127.0.0.1:9"})) as server:
        before = footprint()
        for _ in range(2):
            async with CallClient(server.url) as call:
                assert call.answer_s < 2.0
        await eventually(lambda: server.calls.active == 0)
        await eventually(lambda: footprint()[1] <= before[1] + 1, 3.0)


async def test_a_stun_server_that_never_answers_delays_an_answer_little() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        stun = {"urls": f"stun:127.0.0.1:{silent.getsockname()[1]}"}
        async with running_server(ice_servers=(stun,)) as server, CallClient(server.url) as call:
            assert call.answer_s < 2.0


SERVER = """
import asyncio, sys
from tests.media_fakes import FakeSession
from voice_agent.server import Server, ServerConfig, create_app
config = ServerConfig(port=int(sys.argv[1]), host_candidates=("127.0.0.1",))
server = Server(create_app(config, FakeSession, {}), config)
asyncio.run(server.run_until_stopped())
"""


async def test_sigterm_ends_calls_politely_and_exits_with_0() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(sys.executable, "-W", "error", "-c", SERVER, str(port))
    try:
        await _wait_until_up(url)
        async with CallClient(url) as call, httpx.AsyncClient(trust_env=False, verify=False) as client:
            await call.wait_for("session.created")
            sdp = await offer()
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.1)
            began = time.monotonic()
            headers = {"Content-Type": "application/sdp"}
            refused = await client.post(f"{url}/v1/realtime/calls", content=sdp, headers=headers)
            assert refused.status_code == 503
            assert time.monotonic() - began < 0.5
            assert (await call.wait_for("error")).data["error"]["code"] == "call_ended"
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _wait_until_up(url: str) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False, verify=False) as client:
        while True:
            try:
                await client.get(f"{url}/healthz")
                return
            except httpx.ConnectError:
                await asyncio.sleep(0.1)

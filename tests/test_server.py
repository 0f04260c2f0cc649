"""The HTTP side over real sockets: what it takes, what it refuses, and how calls and the server end."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.media_fakes import Running, eventually, offer, running_server
from voice_agent import wire
from voice_agent.client import CallClient, CallRefused
from voice_agent.media.aiortc_patches import lan_addresses
from voice_agent.server import ServerConfig

pytestmark = pytest.mark.anyio

SDP = {"Content-Type": "application/sdp"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def http(server: Running, **settings: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=10, verify=False, **settings)


def message(response: httpx.Response) -> str:
    text = str(response.json()["error"]["message"])
    assert "Traceback" not in response.text
    return text


async def test_an_offer_is_answered_with_all_candidates_and_a_location() -> None:
    async with running_server(connect_s=2.0) as server, http(server) as client:
        response = await client.post("/v1/realtime/calls", content=await offer(), headers=SDP)
        assert response.status_code == 201
        assert response.headers["content-type"].startswith("application/sdp")
        location = response.headers["Location"]
        assert location.startswith("/v1/realtime/calls/call_")
        assert "127.0.0.1" in response.text
        assert "a=end-of-candidates" in response.text
        codecs = [line for line in response.text.splitlines() if line.startswith("a=rtpmap")]
        assert [line.split(" ")[1] for line in codecs] == ["opus/48000/2"]
        assert server.calls.active == 1
        assert (await client.delete(location)).status_code == 204
        await eventually(lambda: server.calls.active == 0)
        assert (await client.delete(location)).status_code == 204, "ending an ended call is no error"
        unknown = await client.delete("/v1/realtime/calls/call_0")
        assert (unknown.status_code, message(unknown)) == (404, "no such call; it may have ended")


async def test_loopback_and_this_machines_addresses_are_offered_by_default() -> None:
    async with running_server(host_candidates=()) as server, http(server) as client:
        response = await client.post("/v1/realtime/calls", content=await offer(), headers=SDP)
        offered = {line.split()[4] for line in response.text.splitlines() if line.startswith("a=candidate")}
        assert offered == {"127.0.0.1", *lan_addresses()}
        await client.delete(response.headers["Location"])


async def test_refusals_say_what_was_expected() -> None:
    async with running_server() as server, http(server) as client:
        sdp = await offer()

        async def post(content: Any, headers: dict[str, str] = SDP, **more: Any) -> httpx.Response:
            return await client.post("/v1/realtime/calls", content=content, headers=headers, **more)

        wrong = await post(sdp, {"Content-Type": "application/json"})
        assert (wrong.status_code, message(wrong)) == (
            415,
            "expected application/sdp or multipart/form-data, got application/json",
        )
        assert (await post("hello")).status_code == 400
        assert (await post(b"\xff\xfe")).status_code == 400
        assert (await post(sdp.replace("opus/48000/2", "speex/8000"))).status_code == 422
        assert (await post("v=0\r\n" + "a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n" * 100_000)).status_code == 413
        assert (await post("v=0\r\n" + "a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n" * 300)).status_code == 400

        async def pieces():  # type: ignore[no-untyped-def]
            for _ in range(70):
                yield b"x" * 1000

        assert (await post(pieces())).status_code == 413
        no_sdp = await client.post("/v1/realtime/calls", files={"session": (None, "{}")})
        assert (no_sdp.status_code, message(no_sdp)) == (400, "expected the form field sdp, got ['session']")
        bad = await client.post("/v1/realtime/calls", files={"sdp": (None, sdp), "session": (None, "[]")})
        assert (bad.status_code, message(bad)[:22]) == (400, "expected a JSON object")
        wrong = await client.post("/v1/realtime/calls", files={"sdp": (None, sdp), "session": (None, '{"tools": 3}')})
        assert (wrong.status_code, message(wrong)) == (400, "tools: Input should be a valid list, got 3")
        broken = await post(b"--x\r\nnonsense", {"Content-Type": "multipart/form-data; boundary=x"})
        assert broken.status_code == 400
        assert (await client.get("/v1/realtime/calls")).status_code == 405
        assert message(await client.get("/v1/nothing")) == "no such route: GET /v1/nothing"
        assert server.calls.active == 0
        assert server.sessions == []


async def test_hidden_addresses_do_not_hold_the_answer_back() -> None:
    async with running_server() as server, http(server) as client:
        lines = (await offer()).split("\r\n")
        hidden = [
            "a=candidate:1 1 udp 2122260223 0b7a2f9e-1.local 50000 typ host" if "a=candidate" in line else line
            for line in lines
        ]
        began = time.monotonic()
        response = await client.post("/v1/realtime/calls", content="\r\n".join(hidden), headers=SDP)
        assert response.status_code == 201
        assert time.monotonic() - began < 2


async def exchange(server: Running, head: bytes, wait_s: float = 5.0) -> bytes:
    """Send raw bytes, and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    try:
        writer.write(head)
        async with asyncio.timeout(wait_s):
            return await reader.read()
    finally:
        writer.close()


def head(length: int) -> bytes:
    lines = f"POST /v1/realtime/calls HTTP/1.1|Host: x|Content-Type: application/sdp|Content-Length: {length}||"
    return lines.replace("|", "\r\n").encode()


async def test_a_huge_declared_body_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_agent.media.guard.UnreadRefusal.linger_s", 0.2)
    async with running_server() as server:
        answer = await exchange(server, head(2_147_483_648))
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"expected a body of at most 65536 bytes, got 2147483648" in answer


async def test_slow_bodies_and_slow_heads_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_agent.media.guard.UnreadRefusal.linger_s", 0.2)
    monkeypatch.setattr("voice_agent.media.slow_clients.HEAD_LIMIT_S", 0.3)
    async with running_server(body_s=0.3) as server:
        answers = await asyncio.gather(
            exchange(server, head(900) + b"v"),
            exchange(server, b"POST /v1/realtime/calls HTTP/1.1\r\nHost:"),
            exchange(server, b""),
        )
        assert answers[0].startswith(b"HTTP/1.1 408")
        assert answers[1:] == [b"", b""]
        many = b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % i for i in range(10_000)) + b"\r\n"
        assert (await exchange(server, many)).startswith(b"HTTP/1.1 400")


async def test_pages_may_call_from_allowed_origins_alone() -> None:
    async with running_server(allowed_origins=("https://shop.example",)) as server, http(server) as client:
        own = server.url
        for origin in ("https://shop.example", own):
            flight = await client.options(
                "/v1/realtime/calls", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
            )
            assert flight.status_code == 204
            assert flight.headers["access-control-allow-origin"] == origin
            assert flight.headers["access-control-allow-headers"] == "Authorization, Content-Type, X-OpenAI-Agents-SDK"
            assert "access-control-allow-credentials" not in flight.headers
            response = await client.get("/v1/agent", headers={"Origin": origin})
            assert response.headers["access-control-allow-origin"] == origin
            assert "Location" in response.headers["access-control-expose-headers"]
        for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
            flight = await client.options("/v1/realtime/calls", headers={"Origin": origin})
            assert "access-control-allow-origin" not in flight.headers
            response = await client.post("/v1/realtime/calls", content=await offer(), headers=SDP | {"Origin": origin})
            assert response.status_code == 403
            assert "access-control-allow-origin" not in response.headers
        rebound = await client.get("/v1/agent", headers={"Origin": "http://evil.example:80", "Host": "evil.example:80"})
        assert rebound.status_code == 403
        odd = await client.get("/v1/agent", headers={"Origin": "http://[::", "Host": "[::"})
        assert odd.status_code == 403
        assert server.calls.active == 0


async def test_with_a_key_every_way_in_asks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with running_server(api_key="right-key", connect_s=1.0) as server, http(server) as client:
        ways = [("POST", "/v1/realtime/calls"), ("DELETE", "/v1/realtime/calls/x"), ("GET", "/v1/agent")]
        ways += [("GET", "/v1/calls/stats"), ("GET", "/v1/nothing")]
        for method, path in ways:
            for key in ("", "Bearer wrong-key", "right-key"):
                headers = {"Authorization": key, "X-Forwarded-For": "127.0.0.1"} if key else {}
                response = await client.request(method, path, headers=headers)
                assert response.status_code == 401, (method, path, key)
                assert response.headers["www-authenticate"] == "Bearer"
        assert (await client.options("/v1/realtime/calls", headers={"Origin": server.url})).status_code == 204
        headers = SDP | {"Authorization": "Bearer right-key"}
        assert (await client.post("/v1/realtime/calls", content=await offer(), headers=headers)).status_code == 201
        assert (await client.get("/healthz")).status_code == 200
        assert "right-key" not in caplog.text
        assert "right-key" not in repr(server.server._settings)


async def test_the_page_the_agent_and_the_figures_are_served(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>call</title>")
    (tmp_path / "app.js").write_text("1")
    async with running_server(tmp_path) as server, http(server) as client:
        assert "<title>call" in (await client.get("/")).text
        assert (await client.get("/app.js")).text == "1"
        assert (await client.get("/../media_fakes.py")).status_code == 404
        assert (await client.get("/v1/agent")).json() == {"name": "fake"}
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        stats = (await client.get("/v1/calls/stats")).json()
        assert stats["calls"] == {"active": 0, "limit": 4, "ended": {}, "each": []}
        assert stats["process"]["descriptors"] > stats["process"]["sockets"] > 0
        assert set(stats["loop_lag"]) == {"p50_ms", "p99_ms", "max_ms"}


RELAY = {"urls": "turn:turn.test:3478?transport=tcp", "username": "u", "credential": "c"}


async def test_the_schemas_of_all_events_are_published() -> None:
    async with running_server() as server, http(server) as client:
        response = await client.get("/v1/realtime/schema")
        assert response.status_code == 200
        assert response.json() == wire.schemas()


async def test_the_page_is_told_of_the_ice_servers() -> None:
    async with running_server(ice_servers=({"urls": "stun:stun.test"}, RELAY)) as server, http(server) as client:
        told = (await client.get("/v1/agent")).json()
        assert told == {"name": "fake", "ice_servers": [{"urls": "stun:stun.test"}, RELAY]}


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"url": "stun:stun.test"}, "expected urls, username and credential, got"),
        ({}, "expected urls such as turn:turn.shop.example:3478, got ''"),
        ({"urls": "stun.test:3478"}, "got 'stun.test:3478'"),
        ({"urls": "turn:turn.test"}, "expected username and credential for turn:turn.test, got"),
    ],
)
def test_ice_servers_that_no_browser_takes_are_refused_at_start(server: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match="ice_servers: ") as caught:
        ServerConfig(ice_servers=(server,))
    assert told in str(caught.value)
    assert ServerConfig(ice_servers=(RELAY,)).peer().ice_servers[0].credential == "c"


async def test_a_caller_too_many_is_refused_at_once_and_slots_come_back() -> None:
    async with running_server(max_calls=1, connect_s=1.0, slot_wait_s=0.5) as server, http(server) as client:
        for _ in range(3):
            async with CallClient(server.url):
                began = time.monotonic()
                with pytest.raises(CallRefused, match="all 1 calls are taken"):
                    async with CallClient(server.url):
                        pass
                assert time.monotonic() - began < 1.0
        sdp = await offer()
        abandoned = await client.post("/v1/realtime/calls", content=sdp, headers=SDP)
        assert abandoned.status_code == 201
        full = await client.post("/v1/realtime/calls", content=sdp, headers=SDP)
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        await eventually(lambda: server.calls.active == 0)
        assert server.calls.ended["never connected"] == 1
        assert (
            await client.post("/v1/realtime/calls", content=sdp.replace("opus", "o"), headers=SDP)
        ).status_code == 422
        async with CallClient(server.url):
            pass


async def test_a_session_configuration_comes_with_the_offer() -> None:
    async with running_server() as server, CallClient(server.url, session={"language": "zh"}) as call:
        assert (await call.wait_for("session.updated")).data["session"] == {"language": "zh"}


async def test_stopping_refuses_new_calls_ends_the_others_and_closes() -> None:
    async with running_server(stop_linger_s=0.5) as server, http(server) as client, CallClient(server.url) as call:
        call.send({"type": "response.create", "seconds": 5.0})
        await call.wait_for("session.created")
        server.server.stop()
        await asyncio.sleep(0.05)
        began = time.monotonic()
        refused = await client.post("/v1/realtime/calls", content=await offer(), headers=SDP)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert time.monotonic() - began < 0.3
        assert (await client.get("/healthz")).status_code == 503
        async with asyncio.timeout(5):
            await call.ended.wait()
        kinds = [event.data async for event in call.events()]
        assert kinds[-1]["error"]["code"] == "call_ended"
        assert server.sessions[0].finished
        assert server.sessions[0].closed == "server stopped"
    assert server.calls.active == 0


async def test_errors_name_no_internals() -> None:
    async with running_server() as server, http(server) as client:
        for body in (b"v=0\r\nm=audio", b"v=0\r\n" + b"\x00" * 100, b"v=0\r\na=group:BUNDLE\r\nm=audio 9 X 0\r\n"):
            response = await client.post("/v1/realtime/calls", content=body, headers=SDP)
            assert response.status_code in (400, 422)
            assert json.loads(response.text)["error"]["type"] == "invalid_request_error"
            assert "aiortc" not in response.text

"""Calls over WebSockets through real sockets: OpenAI's Python client, bare PCM, keys, bounds and back-pressure."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import importlib.util
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import websockets

from tests.call_fakes import LoudCodec, agent_server
from tests.fakes import FakeModel, FakeThinker
from tests.media_fakes import Running, eventually, offer, running_server
from voice_agent import server as server_module
from voice_agent.client import CallClient
from voice_agent.engine.protocols import ToolCall
from voice_agent.media.access import ClientSecrets, RateLimit, SecretsFull
from voice_agent.media.peer import PeerConfig
from voice_agent.media.socket import LEAD_MS, SocketSpeaker
from voice_agent.media.speaker import FRAME, RATE

pytestmark = pytest.mark.anyio

SDP = {"Content-Type": "application/sdp"}
HALF = '{"type": "session.update", "session": {"tool_choice": "\\ud83d"}}'
"""Half of a character, as a script writes it that cuts a text in the middle of an emoji."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def connect(server: Running, path: str, key: str = "", **options: Any) -> websockets.connect:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = server.url.replace("http", "ws", 1) + path
    return websockets.connect(url, additional_headers=headers, proxy=None, compression=None, **options)


def http(server: Running, key: str = "") -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False, verify=False, timeout=10)


def spoken(ms: int, rate: int = RATE) -> bytes:
    return np.full(rate * ms // 1000, 1000, "<i2").tobytes()


def silent(ms: int, rate: int = RATE) -> bytes:
    return bytes(2 * rate * ms // 1000)


async def test_openais_python_client_hears_is_interrupted_and_calls_a_tool() -> None:
    words = FakeModel(FakeThinker(reply="word " * 40))
    async with agent_server(words, ["hello", "stop", "again"], api_key="k") as (server, bench):
        base = server.url.replace("http", "ws", 1) + "/v1"
        client = openai.AsyncOpenAI(api_key="k", websocket_base_url=base, base_url=f"{server.url}/v1")
        async with asyncio.timeout(20), client.realtime.connect(model="any") as call:
            events = call.__aiter__()
            heard = bytearray()

            async def until(kind: str) -> Any:
                while (event := await anext(events)).type != kind:
                    assert event.type != "error", event
                    if event.type == "response.output_audio.delta":
                        heard.extend(base64.b64decode(event.delta))
                return event

            async def say(pcm: bytes) -> None:
                await call.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())

            await until("session.created")
            tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
            await call.session.update(session={"type": "realtime", "tools": [tool]})  # type: ignore[typeddict-item,list-item]
            assert (await until("session.updated")).session.tools[0].name == "weather"

            await say(spoken(600) + silent(700))
            assert (await until("conversation.item.input_audio_transcription.completed")).transcript == "hello"
            first = await until("response.output_audio.delta")
            await asyncio.sleep(0.3)
            await say(spoken(1000))
            await until("input_audio_buffer.speech_started")
            done = await until("response.done")
            assert (done.response.status, done.response.status_details.reason) == ("cancelled", "turn_detected")
            assert done.response.id == first.response_id
            cut = await until("conversation.item.truncated")
            assert cut.audio_end_ms <= len(heard) / 48 + 20
            assert 200 < cut.audio_end_ms < 1500
            assert np.frombuffer(heard, "<i2").max() > 0

            bench.model.thinker.calls = (ToolCall("c1", "weather", {}),)
            await say(silent(700))
            item = (await until("response.output_item.done")).item
            assert (item.type, item.call_id, item.status) == ("function_call", "c1", "completed")
            await until("response.done")
            output = {"type": "function_call_output", "call_id": "c1", "output": '{"say": "sun"}'}
            await call.conversation.item.create(item=output)  # type: ignore[arg-type]
            await call.response.create()
            assert (await until("response.output_audio_transcript.done")).transcript == "sun "
            assert (await until("response.done")).response.status == "completed"
        await client.close()
        await eventually(lambda: server.calls.active == 0)
        assert server.calls.ended == {"the client closed the call": 1}


async def test_openais_client_makes_client_secrets_that_place_calls() -> None:
    async with agent_server(FakeModel(), ["hello"], api_key="k") as (server, _):
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1") as client:
            secret = await client.realtime.client_secrets.create(
                expires_after={"anchor": "created_at", "seconds": 60},
                session={"type": "realtime", "instructions": "be brief"},
            )
        assert secret.value.startswith("ek_")
        assert 55 < secret.expires_at - time.time() <= 60
        assert secret.session.instructions == "be brief"
        async with connect(server, "/v1/realtime", secret.value) as call:
            created, *_, updated = [json.loads(await call.recv()) for _ in range(3)]
            assert created["session"]["instructions"] == "sell things"
            assert (updated["type"], updated["session"]["instructions"]) == ("session.updated", "be brief")
        names = ["realtime", f"openai-insecure-api-key.{secret.value}"]
        async with connect(server, "/v1/realtime", subprotocols=names) as call:
            assert call.subprotocol == "realtime"
        headers = {"Authorization": f"Bearer {secret.value}"}
        async with CallClient(server.url, headers) as call:
            assert (await call.wait_for("session.updated")).data["session"]["instructions"] == "be brief"
        async with http(server, secret.value) as client_http:
            again = await client_http.post("/v1/realtime/client_secrets", json={})
            assert again.status_code == 403
            assert (await client_http.get("/v1/calls/stats")).status_code == 403


async def test_client_secrets_are_asked_for_in_the_right_way() -> None:
    async with running_server(api_key="k") as server, http(server, "k") as client:
        made = await client.post("/v1/realtime/client_secrets")
        assert set(made.json()) == {"value", "expires_at", "session"}
        for body, told in (
            ({"expires_after": {"seconds": 5}}, "expires_after.seconds: Input should be greater than or equal to 10"),
            ({"session": {"type": "transcription"}}, "session.type: Input should be 'realtime'"),
            ({"sesion": {}}, "sesion: Extra inputs"),
            ([], "the body: Input should be"),
        ):
            answer = await client.post("/v1/realtime/client_secrets", json=body)
            assert answer.status_code == 400
            assert told in answer.json()["error"]["message"]
        assert (await client.post("/v1/realtime/client_secrets", content=b"{")).status_code == 400


async def test_sockets_are_opened_by_the_same_rules_as_calls() -> None:
    async with running_server(api_key="k", max_calls=1, slot_wait_s=0.1) as server:

        async def status(path: str, **options: Any) -> int:
            with pytest.raises(websockets.InvalidStatus) as caught:
                async with connect(server, path, **options):
                    pass
            assert json.loads(caught.value.response.body)["error"]["message"]
            return int(caught.value.response.status_code)

        for path in ("/v1/realtime", "/v1/pcm"):
            assert await status(path) == 401
            assert await status(path, key="wrong") == 401
            assert await status(path, key="ek_unknown") == 401
            assert await status(path, key="k", origin="https://evil.example") == 403
        assert await status("/v1/nothing", key="k") == 404
        assert await status("/v1/realtime?call_id=x", key="k") == 400
        assert await status("/v1/pcm?rate=11025", key="k") == 400
        async with connect(server, "/v1/pcm", key="k", origin=server.url):
            assert await status("/v1/realtime", key="k") == 503
        await eventually(lambda: server.calls.active == 0)


async def test_calls_are_placed_at_a_limited_rate() -> None:
    async with running_server(calls_per_minute=2) as server, http(server) as client:
        async with connect(server, "/v1/pcm"):
            pass
        await client.post("/v1/whip", content=await offer(), headers=SDP)
        for path in ("/v1/realtime/calls", "/v1/whip"):
            headers = SDP | {"X-Forwarded-For": "192.0.2.1"}
            refused = await client.post(path, content=await offer(), headers=headers)
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["Retry-After"]) <= 30
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with connect(server, "/v1/realtime"):
                pass
        assert caught.value.response.status_code == 429
        assert (await client.post("/v1/realtime/client_secrets", json={})).status_code == 429
        assert (await client.get("/v1/agent")).status_code == 200
    async with running_server(calls_per_minute=2, api_key="k") as server, http(server) as client:
        for _ in range(4):
            made = await client.post("/v1/realtime/client_secrets", json={}, headers={"Authorization": "Bearer k"})
            assert made.status_code == 200


async def test_a_whip_client_places_and_ends_a_call() -> None:
    relay = {"urls": "turn:127.0.0.1:9", "username": "u", "credential": "c"}
    async with running_server(ice_servers=(relay,)) as server, http(server) as client:
        placed = await client.post("/v1/whip", content=await offer(), headers=SDP)
        assert placed.status_code == 201
        assert placed.headers["ETag"].strip('"')
        assert placed.headers["Link"] == (
            '<turn:127.0.0.1:9>; rel="ice-server"; username="u"; credential="c"; credential-type="password"'
        )
        assert placed.headers["Location"].startswith("/v1/whip/call_")
        assert (await client.delete(placed.headers["Location"])).status_code == 204
        await eventually(lambda: server.calls.active == 0)
        assert (await client.post("/v1/whip", content="{}", headers={})).status_code == 415
        call_id = (await client.post("/v1/whip", content=await offer(), headers=SDP)).headers["Location"][9:]
        assert (await client.post(f"/v1/realtime/calls/{call_id}/hangup")).status_code == 200


async def test_bare_pcm_both_ways_with_clear_and_transcripts() -> None:
    async with agent_server(FakeModel(FakeThinker(reply="word " * 40)), ["hello", "stop"]) as (server, _):
        async with asyncio.timeout(20), connect(server, "/v1/pcm") as call:
            texts: list[dict[str, Any]] = []
            audio = bytearray()

            async def read() -> None:
                async for message in call:
                    if isinstance(message, bytes):
                        audio.extend(message)
                    else:
                        texts.append(json.loads(message))

            reading = asyncio.ensure_future(read())
            await call.send("hello?")
            await call.send(b"odd")
            for at in range(0, 1300, 20):
                await call.send(spoken(20, 16_000) if at < 600 else silent(20, 16_000))
            await eventually(lambda: len(audio) > 2 * 16_000 * 0.3)
            await call.send(spoken(1000, 16_000))
            await eventually(lambda: {"type": "clear"} in texts)
            heard = len(audio)
            await asyncio.sleep(0.1)
            assert len(audio) == heard, "nothing of the old reply comes after the clear"
            assert [text["type"] for text in texts[:2]] == ["error", "error"]
            assert {"type": "transcript", "role": "user", "text": "hello", "final": True} in texts
            assert {"type": "transcript", "role": "agent", "text": "word " * 40, "final": True} in texts
            assert np.frombuffer(audio, "<i2").max() > 0
            await call.close()
            await reading
        await eventually(lambda: server.calls.active == 0)


SCENARIO = """
name: pcm
sample_rate: 16000
adapter: {type: websocket}
turns:
  - {id: question, audio: {synth: speech, duration_ms: 800}}
  - id: cough
    audio: {synth: noise, duration_ms: 90}
    start: {after: agent_speech_start, delay_ms: 500}
    expect: ignore
  - id: stop
    audio: {synth: speech, duration_ms: 900, seed: 2}
    start: {after: previous_turn_end, delay_ms: 1500}
    expect: stop
assert: {max_barge_in_stop_ms: 700, min_barge_in_success_rate: 1.0, max_false_barge_ins: 0, max_missed_responses: 0}
"""


@pytest.mark.realtime
@pytest.mark.skipif(importlib.util.find_spec("voicebench") is None, reason="needs the package voicebench")
async def test_an_independent_harness_finds_that_it_responds_stops_and_ignores(tmp_path: Path) -> None:
    (tmp_path / "pcm.yaml").write_text(SCENARIO)
    model = FakeModel(FakeThinker(reply="word " * 40), codec=LoudCodec())
    async with agent_server(model, ["question", "stop"]) as (server, _):
        url = server.url.replace("http", "ws", 1) + "/v1/pcm"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "voicebench", "run", "pcm.yaml", "-a", "websocket", "--url", url, "--no-write",
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()


async def test_audio_that_comes_faster_than_real_time_is_held_back_and_none_is_lost() -> None:
    async with agent_server(FakeModel(), ["a long story"]) as (server, bench), connect(server, "/v1/realtime") as call:
        for _ in range(12):
            append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(spoken(1000)).decode()}
            await call.send(json.dumps(append))
        append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(silent(700)).decode()}
        await call.send(json.dumps(append))
        async with asyncio.timeout(10):
            while json.loads(await call.recv())["type"] != "response.created":
                pass
        assert bench.asr.streams[0].pushed >= 12 * 16_000


async def test_messages_that_are_no_events_are_answered_and_the_call_goes_on() -> None:
    async with agent_server(FakeModel(), [""]) as (server, _), connect(server, "/v1/realtime") as call:
        for message in ("{", "[" * 500_000, "[1]", '{"type": 3}', b"\x00\xff", '{"type": "error"}', HALF):
            await call.send(message)
        bad = {"type": "input_audio_buffer.append", "event_id": "mine"}
        for audio in ("###", base64.b64encode(b"odd").decode(), 3):
            await call.send(json.dumps(bad | {"audio": audio}))
        errors: list[dict[str, Any]] = []
        async with asyncio.timeout(10):
            while len(errors) < 10:
                event = json.loads(await call.recv())
                errors += [event["error"]] if event["type"] == "error" else []
        assert [error["code"] for error in errors[:7]] == ["invalid_event"] * 7
        assert [error["event_id"] for error in errors[7:]] == ["mine"] * 3
        await call.send(json.dumps({"type": "session.update", "session": {}}))
        async with asyncio.timeout(5):
            while json.loads(await call.recv())["type"] != "session.updated":
                pass


async def test_a_client_that_sends_or_keeps_too_much_loses_its_call_alone() -> None:
    async with running_server() as server:
        async with connect(server, "/v1/realtime") as call:
            await call.send("x" * (1 << 20) + "x")
            async with asyncio.timeout(5):
                await call.wait_closed()
            assert call.close_code == 1009
        await eventually(lambda: server.calls.active == 0)
        async with connect(server, "/v1/realtime", max_queue=1) as call:
            await call.send(json.dumps({"type": "session.update", "session": {"x": "y" * 500_000}}))
            await eventually(lambda: len(server.sessions) == 2 and len(server.sessions[1].received) == 1)
            for _ in range(40):
                server.sessions[1].send({"type": "x", "text": "y" * 100_000})
            await eventually(lambda: server.calls.ended["the client does not read what it is sent"] == 1)


async def test_a_client_that_reads_nothing_at_all_gives_its_slot_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PeerConfig", functools.partial(PeerConfig, close_s=0.2))
    async with running_server(max_calls=1) as server:
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
            reader.sendall(
                b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            await eventually(lambda: len(server.sessions) == 1)
            while not server.sessions[0].closed:
                server.sessions[0].send({"type": "x", "text": "y" * 500_000})
                await asyncio.sleep(0.01)
            assert server.sessions[0].closed == "the client does not read what it is sent"
            await eventually(lambda: server.calls.active == 0)


async def test_a_session_that_fails_and_a_server_that_stops_end_the_call_with_a_reason() -> None:
    async with running_server() as server:
        for kind, code in (("fail", "session_failed"), ("stop", "call_ended")):
            async with connect(server, "/v1/realtime") as call:
                if kind == "fail":
                    await call.send('{"type": "fail"}')
                else:
                    server.server.stop()
                codes = []
                with contextlib.suppress(websockets.ConnectionClosed):
                    async with asyncio.timeout(5):
                        while True:
                            event = json.loads(await call.recv())
                            codes += [event["error"]["code"]] if event["type"] == "error" else []
                assert codes == [code]
        assert all(session.finished for session in server.sessions)


async def test_a_socket_is_sent_a_little_ahead_of_real_time_and_what_was_played_is_counted() -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    speaker = SocketSpeaker(as_events=True)
    speaker._now, speaker._sleep = lambda: now, sleep
    assert await speaker.speech() is None
    speaker.write(0, np.full(RATE, 0.5, np.float32))
    lead = LEAD_MS // 20
    began = now
    for _ in range(lead):
        assert (await speaker.speech()) is not None
    assert now == began
    assert speaker.sent() == 0
    for number in range(1, 21):
        assert (await speaker.speech()) is not None
        assert speaker.sent() == number * FRAME
    assert now - began == pytest.approx(0.4, abs=0.021)
    assert speaker.flush(1) == 20 * FRAME
    assert speaker.sent() == 0
    assert await speaker.speech() is None


def test_secrets_expire_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ClientSecrets()
    secret = secrets.issue({"type": "realtime"}, 60, now=1000.5)
    assert (secret.expires_at, secret.session) == (1060, {"type": "realtime"})
    assert secret.value not in repr(secret)
    assert secrets.find(secret.value, 1059) is secret
    assert secrets.find(secret.value, 1060) is None
    assert secrets.find("ek_other", 1000) is None
    monkeypatch.setattr("voice_agent.media.access.MAX_SECRETS", 1)
    with pytest.raises(SecretsFull):
        secrets.issue(None, 60, now=1001)
    secrets.issue(None, 60, now=1061)


def test_the_rate_is_limited_for_each_caller_alone_and_recovers() -> None:
    limit = RateLimit(30)
    assert [limit.take("a", 0.0) for _ in range(31)] == [None] * 30 + [2]
    assert limit.take("b", 0.0) is None
    assert limit.take("a", 1.0) == 1
    assert limit.take("a", 2.1) is None
    assert RateLimit(None).take("a", 0.0) is None

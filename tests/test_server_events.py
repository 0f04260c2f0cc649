"""What a server sends: both clients take the events of its schema; the rest stops neither them nor the audio."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.call_fakes import check_published
from tests.generated import generated, mutated
from tests.media_fakes import eventually, running_server
from tests.page_mock.site import ROOT
from voice_agent import wire
from voice_agent.calling import CallReport, TurnReport, _Live
from voice_agent.client import CallClient, voiced

SCHEMA = wire.schemas()["server"]
MEGABYTE = 1_000_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def valid(count: int = 1000) -> list[dict[str, Any]]:
    chance = random.Random(11)
    events = [generated(SCHEMA, chance) for _ in range(count)]
    for event in events:
        event["event_id"] = "event_1"
    return events


def spoilt() -> list[str]:
    """A thousand messages that are not events of the schema, and a megabyte of nonsense."""
    chance = random.Random(12)
    told: list[str] = []
    for event in valid():
        text = json.dumps(mutated(event, chance), ensure_ascii=False)
        told.append(chance.choice([text, text, text, text[: chance.randrange(len(text) + 1)], f"[{text}]"]))
    return [*told, "{" * MEGABYTE, json.dumps("x" * MEGABYTE), "null", "0", '"text"', '{"type": "no.such.event"}']


def test_a_thousand_generated_events_are_those_of_every_type_and_are_valid() -> None:
    events = valid()
    assert {event["type"] for event in events} == set(SCHEMA["discriminator"]["mapping"])
    check_published(events)
    for event in events:
        wire.server.ADAPTER.validate_python(event)


@pytest.mark.anyio
async def test_the_python_client_takes_valid_events_and_passes_over_the_rest() -> None:
    client = CallClient("http://127.0.0.1:1", max_events=10_000)
    live = _Live(TurnReport(""), CallReport("", 0.0))
    events = valid()
    for event in events:
        client._on_message(json.dumps(event))
    assert [event.data for event in client._events] == events
    for event in events:
        live.take(event)
    assert live.done.is_set()
    assert live.turn.transcript
    assert live.report.cart is not None
    client._events.clear()
    for text in spoilt():
        client._on_message(text)
    taken = [event.data for event in client._events]
    assert 100 < len(taken) < 1000
    for event in taken:
        assert isinstance(event["type"], str)
        live.take(event)
    await client._close()


@pytest.mark.anyio
async def test_whatever_a_server_sends_in_a_call_the_audio_goes_on() -> None:
    async with running_server() as server, CallClient(server.url, max_events=10_000) as call:
        await call.wait_for("session.created")
        call.send({"type": "response.create", "seconds": 5.0})
        await eventually(lambda: any(voiced(piece.pcm) for piece in call.received))
        begun = len(call.received)
        channel = server.calls._calls[call.call_id]._outbox._channel
        channel.transport._remote_max_message_size = 2 * MEGABYTE
        for at, text in enumerate(spoilt()):
            channel.send(text)
            # Client and server share a loop here: no more waits than the client's socket holds.
            while at % 10 == 0 and channel.bufferedAmount:
                await asyncio.sleep(0.005)
        server.sessions[0].send({"type": "session.updated", "session": {}})
        await call.wait_for("session.updated")
        await asyncio.sleep(0.3)
        heard = call.received[begun:]
        lost = sum((after.sequence - before.sequence - 1) % (1 << 16) for before, after in itertools.pairwise(heard))
        assert lost <= 5, "no more than a burst of megabytes displaces in the socket of a client on the server's loop"
        voice = [voiced(piece.pcm) for piece in heard]
        assert len(heard) >= 40
        assert all(voice), "the reply goes on"
        assert not call.ended.is_set()


def node(texts: list[str], folder: Path) -> dict[str, Any]:
    program = shutil.which("node")
    assert program, "expected node: apt-get install nodejs npm"
    (folder / "events.json").write_text(json.dumps(texts), "utf-8")
    command = [program, str(ROOT / "tests/server_events.mjs"), str(ROOT / "web/sdk/src"), str(folder / "events.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_the_sdk_takes_valid_events_and_passes_over_the_rest(tmp_path: Path) -> None:
    events = valid()
    seen = node([json.dumps(event) for event in events], tmp_path)
    assert seen["taken"] == [event["type"] for event in events]
    assert (seen["raised"], seen["status"], seen["said"]) == (0, "live", True)
    seen = node(spoilt(), tmp_path)
    assert 100 < len(seen["taken"]) < 1000
    assert all(isinstance(kind, str) for kind in seen["taken"])
    assert (seen["raised"], seen["status"], seen["said"]) == (0, "live", True)

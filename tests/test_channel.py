"""What a client does to its data channel, in real calls to a session on fakes: nothing of it reaches the audio."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.call_fakes import LoudCodec, agent_server
from tests.fakes import FakeModel, FakeThinker
from tests.media_fakes import eventually
from voice_agent.client import CallClient, Piece, voiced

pytestmark = pytest.mark.anyio

MEGABYTE = 1_000_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def talkative() -> FakeModel:
    return FakeModel(FakeThinker(reply="word " * 12), codec=LoudCodec())


async def reply(call: CallClient) -> list[Piece]:
    """Ask for a reply; gives what arrived from then until it was over."""
    begun = len(call.received)
    call.write("hello")
    await call.wait_for("output_audio_buffer.stopped")
    await asyncio.sleep(0.2)
    return call.received[begun:]


def voiced_frames(pieces: list[Piece]) -> int:
    return sum(voiced(piece.pcm) for piece in pieces)


async def test_a_flood_and_a_megabyte_of_nonsense_touch_no_audio() -> None:
    async with agent_server(talkative(), [""]) as (server, _), CallClient(server.url) as call:
        quiet = voiced_frames(await reply(call))
        assert quiet > 20
        begun = len(call.received)
        call.write("hello")
        await call.wait_for("output_audio_buffer.started")
        for number in range(300):
            call._channel.send("{")
            call.send({"type": "conversation.item.retrieve", "event_id": f"e{number}", "item_id": "none"})
        # A client that overlooks how much the server said it takes.
        call._pc.sctp._remote_max_message_size = 2 * MEGABYTE
        call._channel.send("{" * MEGABYTE)
        refused = [(await call.wait_for("error")).data["error"] for _ in range(601)]
        assert {error["event_id"] for error in refused} == {None, *(f"e{number}" for number in range(300))}
        assert refused[-1]["code"] == "event_too_large"
        await asyncio.sleep(1.0)
        flooded = call.received[begun:]
        assert abs(voiced_frames(flooded) - quiet) <= 2, "the whole reply was heard"
        steps = {after.sequence - before.sequence for before, after in itertools.pairwise(flooded)}
        assert steps <= {1, 1 - (1 << 16)}, "no packet was left out"
        assert server.calls.active == 1


async def test_a_channel_that_closes_in_mid_reply_ends_the_call_and_frees_it() -> None:
    model = talkative()
    async with agent_server(model, [""]) as (server, _), CallClient(server.url) as call:
        call.write("hello")
        await call.wait_for("output_audio_buffer.started")
        call.send({"type": "conversation.item.retrieve", "item_id": "none"})
        call._channel.close()
        await eventually(lambda: server.calls.active == 0)
        await eventually(lambda: model.rows_in_use == 0)
        assert server.calls.ended.total() == 1


async def test_what_comes_before_the_session_runs_is_not_lost() -> None:
    async with agent_server(talkative(), [""]) as (server, _), CallClient(server.url) as call:
        call.update({"instructions": "be brief"})
        first = await call.wait_for("session.created")
        assert first.data["type"] == "session.created"
        assert (await call.wait_for("session.updated")).data["session"]["instructions"] == "be brief"

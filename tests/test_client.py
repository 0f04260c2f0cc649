"""A real call over loopback: audio both ways, events, and the recordings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from tests.call_fakes import LoudCodec, agent_server
from tests.fakes import FakeModel, FakeThinker
from tests.media_fakes import eventually, free_port, running_server
from voice_agent import Lines
from voice_agent import client as module
from voice_agent.client import FRAME, RATE, CallClient, CallRefused, Piece, Span, read_wav, voiced, voiced_spans
from voice_agent.engine.protocols import ToolCall

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def tone(hz: float, seconds: float, rate: int, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def strongest_hz(pcm: np.ndarray, rate: int) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(pcm.astype(np.float64)))) * rate / len(pcm))


async def test_a_call_carries_audio_and_events_both_ways(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "said.wav", tone(300, 1.0, 22_050), 22_050)
    async with running_server() as server:
        async with CallClient(server.url) as call:
            created = await call.wait_for("session.created")
            assert created.data["session"]["id"] == call.call_id
            session = server.sessions[0]
            call.send({"type": "response.create", "seconds": 1.0})
            last = await call.play(tmp_path / "said.wav")
            await eventually(lambda: session.speaker.sent() == RATE)
            await asyncio.sleep(0.3)
        heard = np.concatenate(session.heard)
        # A packet each; late ones are concealed together.
        assert {len(piece) % 320 for piece in session.heard} == {0}
        assert np.median([len(piece) for piece in session.heard]) == 320
        assert len(heard) / 16_000 == pytest.approx(call.sent[-1].at - call.sent[0].at, abs=0.15)
        loud = np.flatnonzero(np.abs(heard.astype(int)) > 3000)
        assert (loud[-1] - loud[0]) / 16_000 == pytest.approx(1.0, abs=0.03)
        assert strongest_hz(heard[loud[0] + 1600 : loud[0] + 14_400], 16_000) == pytest.approx(300, abs=2)
        (said,) = voiced_spans(call.sent, sent=True)
        assert said.end - said.start == pytest.approx(1.0, abs=0.06)
        assert last == pytest.approx(said.end, abs=0.05)
        (reply,) = voiced_spans(call.received)
        assert reply.end - reply.start == pytest.approx(1.0, abs=0.08)
        gaps = np.diff([piece.timestamp for piece in call.received])
        assert set(gaps.tolist()) == {960}
        out = call.received_pcm()
        loud = np.flatnonzero(np.abs(out.astype(int)) > 3000)
        assert (loud[-1] - loud[0]) / RATE == pytest.approx(1.0, abs=0.01)
        assert strongest_hz(out[loud[0] + 2400 : loud[0] + 21_600], RATE) == pytest.approx(440, abs=2)
        call.save(tmp_path / "reply.wav")
        call.save_aligned(tmp_path / "both.wav")
        both, rate = soundfile.read(tmp_path / "both.wav")
        assert (rate, both.shape[1]) == (RATE, 2)
        starts = [np.flatnonzero(np.abs(both[:, side]) > 0.1)[0] / RATE for side in (0, 1)]
        assert starts[1] - starts[0] == pytest.approx(reply.start - said.start - 0.02, abs=0.06)
        assert len(soundfile.read(tmp_path / "reply.wav")[0]) == len(out)


async def test_events_end_with_the_call_and_are_bounded() -> None:
    async with running_server() as server, CallClient(server.url, max_events=5) as call:
        await call.wait_for("session.created")
        for _ in range(8):
            call.send({"type": "session.update", "session": {}})
        await eventually(lambda: call.events_dropped == 3)
        server.sessions[0].close("done")
        events = [event async for event in call.events()]
        assert [event.data["type"] for event in events] == ["session.updated"] * 5
        assert [event.at for event in events] == sorted(event.at for event in events)
        with pytest.raises(ConnectionError, match=r"expected an event response\.done, got the end of the call"):
            await call.wait_for("response.done")


async def test_a_cut_reply_stops_within_a_packet() -> None:
    async with running_server() as server, CallClient(server.url) as call:
        call.send({"type": "response.create", "seconds": 5.0})
        await eventually(lambda: len(voiced_spans(call.received)) == 1)
        await asyncio.sleep(0.3)
        call.send({"type": "response.cancel"})
        cleared = await call.wait_for("output_audio_buffer.cleared")
        await asyncio.sleep(0.3)
        (reply,) = voiced_spans(call.received)
        assert reply.end - cleared.at < 0.06
        assert cleared.data["samples"] == pytest.approx((reply.end - reply.start) * RATE, abs=3 * FRAME)


async def test_a_connection_that_never_closes_does_not_hold_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    async with running_server() as server, CallClient(server.url) as call:
        with monkeypatch.context() as patched:
            patched.setattr(call._pc, "close", asyncio.Event().wait)
            async with asyncio.timeout(3):
                await call.hang_up()
        assert call.ended.is_set()


async def test_no_server_and_refusals_are_told_apart() -> None:
    with pytest.raises(httpx.ConnectError):
        async with CallClient(f"http://127.0.0.1:{free_port()}"):
            pass
    async with running_server(api_key="k") as server:
        with pytest.raises(CallRefused, match="401: expected 'Authorization") as caught:
            async with CallClient(server.url):
                pass
        assert caught.value.status == 401
        async with CallClient(server.url, headers={"Authorization": "Bearer k"}):
            pass
        await eventually(lambda: server.calls.active == 0)


def test_voice_is_found_by_level() -> None:
    loud, quiet = np.full(FRAME, 400, np.int16), np.full(FRAME, 100, np.int16)
    assert voiced(loud)
    assert not voiced(quiet)
    assert not voiced(np.zeros(0, np.int16))
    levels = [quiet, loud, loud, *[quiet] * 10, loud, *[quiet] * 30, loud]
    pieces = [Piece(10 + 0.02 * i, pcm, 960 * i, i) for i, pcm in enumerate(levels)]
    spans = voiced_spans(pieces)
    assert [(round(span.start, 2), round(span.end, 2)) for span in spans] == [(10.02, 10.28), (10.88, 10.90)]
    assert voiced_spans(pieces[:3], sent=True) == [Span(pytest.approx(10.0), pytest.approx(10.04))]


def test_sound_files_of_any_rate_become_48_khz_mono(tmp_path: Path) -> None:
    stereo = np.stack([tone(440, 0.5, 16_000), tone(440, 0.5, 16_000)], axis=1)
    soundfile.write(tmp_path / "a.wav", stereo, 16_000)
    pcm = read_wav(tmp_path / "a.wav")
    assert (pcm.dtype, len(pcm)) == (np.float32, 24_000)
    assert strongest_hz(pcm, 48_000) == pytest.approx(440, abs=2)


WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


async def test_a_client_writes_interrupts_mutes_and_runs_tools() -> None:
    model = FakeModel(FakeThinker(calls=[ToolCall("c1", "weather", {"city": "Taipei"})]), codec=LoudCodec())
    asked: list[dict[str, Any]] = []

    def weather(arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(arguments)
        return {"say": "it rains " * 20}

    async with agent_server(model, ["unused"]) as (server, bench), CallClient(server.url) as call:
        call.update({"tools": [WEATHER]})
        call.write("how is the weather")
        serving = asyncio.ensure_future(call.serve_tools({"weather": weather}))
        await eventually(lambda: len(voiced_spans(call.received)) > 0, 10)
        assert asked == [{"city": "Taipei"}]
        serving.cancel()
        call.interrupt()
        await call.wait_for("output_audio_buffer.cleared")
        call.mute()
        await call.play(np.full(24_000, 0.5, np.float32))
        assert not voiced_spans(call.sent)
        assert not bench.asr.streams
        call.mute(False)
        await call.play(np.full(24_000, 0.5, np.float32))
        assert voiced_spans(call.sent)


async def test_a_caller_who_begins_muted_is_greeted_in_the_language_that_was_asked_for() -> None:
    async with agent_server(FakeModel(codec=LoudCodec()), ["unused"]) as (server, bench):
        bench.runtime.agent = replace(bench.agent, lines=Lines(greeting={"zh": "你好", "en": "welcome to the shop"}))
        async with CallClient(server.url) as call:
            call.mute()
            call.update({"agent": {"language": "en"}})
            call.send({"type": "response.create"})
            said = await call.wait_for("response.output_audio_transcript.done")
            assert said.data["transcript"].split() == ["welcome", "to", "the", "shop"]
            await call.wait_for("output_audio_buffer.stopped")
            assert voiced_spans(call.received)
            assert not voiced_spans(call.sent)

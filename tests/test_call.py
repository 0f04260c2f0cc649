"""Real calls in real time, one of each kind: a WebRTC peer, the real recogniser, the shipped model."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import soundfile

from tests.evidence.barge_in import trial
from tests.evidence.tools import ORDER, ORDER_EN
from voice_agent.calling import own_server, place_call
from voice_agent.evaluate import CartLine, lines_of, same

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(200)]

LINE = CartLine(drink="pearl_milk_tea", quantity=1, size="medium", ice="less_ice", sugar="full_sugar", toppings=())


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 180))  # type: ignore[arg-type]


def test_the_story_in_both_languages_and_an_interruption(tmp_path: Path) -> None:
    """One server for all three, as starting it takes longer than the calls."""

    async def work() -> None:
        async with own_server() as url:
            reply = tmp_path / "reply.wav"
            zh = await place_call(url, [ORDER], save=reply)
            assert same(lines_of(zh.cart), [LINE])
            assert zh.turns[0].reply == "好的，少冰珍珠奶茶一杯，十八块。"
            steps = ["eot_delay", "asr", "thinker_first_token", "talker_first_frame", "codec_first_chunk", "first_rtp"]
            assert list(zh.turns[0].latency) == [f"{step}_ms" for step in steps] + ["v2v_ms"]
            pcm, rate = soundfile.read(reply)
            assert rate == 24_000
            assert abs(pcm).max() > 0.05

            en = await place_call(url, [ORDER_EN])
            assert same(lines_of(en.cart), [LINE])
            assert "eighteen yuan" in en.turns[0].reply

            cut = await trial(url, 0.8)
            assert cut["stop_ms"] is not None
            assert cut["stale_frames"] == 0
            assert [receipt["stage"] for receipt in cut["receipts"]] == ["thinker", "talker", "codec"]

    run(work)


def test_the_demo_command_fails_when_the_cart_is_not_the_expected_one(tmp_path: Path) -> None:
    async def work() -> None:
        wrong = [LINE.model_dump() | {"quantity": 2}]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "voice_agent", "call", "--serve", str(ORDER), "--json",
            "--expect-cart", json.dumps(wrong),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        assert process.returncode == 1, err.decode()
        events = [json.loads(line) for line in out.decode().splitlines()]
        report = events[-1]
        assert report["type"] == "report"
        assert report["turns"][0]["answered"] is True
        assert "the cart is not the expected one" in " ".join(err.decode().split())
        kinds = {event["type"] for event in events}
        assert {"conversation.item.input_audio_transcription.delta", "agent.tool.called", "response.done"} <= kinds

    run(work)

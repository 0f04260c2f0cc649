"""OpenAI's JavaScript client, unmodified, in a call to a session on fakes; it needs an `npm install` of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.call_fakes import agent_server
from tests.fakes import FakeModel, FakeThinker
from voice_agent.engine.protocols import ThinkRequest, ToolCall

FOLDER = Path(__file__).parent / "agents_realtime"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules" / "@openai").exists(), reason="needs `npm install` in tests/agents_realtime"
    ),
]


class Caller(FakeThinker):
    """Calls the tool in every turn, by an id of its own."""

    def start(self, slot: int, request: ThinkRequest) -> None:
        self.calls = (ToolCall(f"call_{len(self.requests)}", "weather", {"city": "Taipei"}),)
        super().start(slot, request)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_it_connects_hears_is_interrupted_calls_a_tool_and_keeps_its_history_right() -> None:
    model = FakeModel(Caller())
    async with agent_server(model, ["weather please", "and now"], api_key="k") as (server, _):
        url = server.url.replace("http", "ws", 1) + "/v1/realtime"
        process = await asyncio.create_subprocess_exec(
            "node", str(FOLDER / "client.mjs"), url, "k", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(60):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, err.decode()
        seen = json.loads(out.decode().splitlines()[-1])
        assert seen["errors"] == []
        assert seen["tools"] == [{"city": "Taipei"}] * 2
        assert seen["interrupted"] >= 1
        assert seen["roles"][:4] == ["user", "assistant", "user", "assistant"]
        user, reply, again, _ = seen["texts"][:4]
        assert (user, again) == ("weather please", "and now")
        whole = "it rains " * 20
        assert whole.startswith(reply)
        assert 0 < len(reply) < len(whole), "cut where it was interrupted"

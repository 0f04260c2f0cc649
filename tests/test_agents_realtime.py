"""OpenAI's JavaScript client, unmodified: in Node over a WebSocket, in the browser over WebRTC with the whole agent."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests import npm
from tests.call_fakes import agent_server
from tests.fakes import FakeModel, FakeThinker
from tests.page_mock import voice
from tests.page_mock.browser import chromium, complaints
from tests.page_mock.site import QuietFiles, serve
from tests.page_mock.whole_agent import serve_agent
from voice_agent.engine.protocols import ThinkRequest, ToolCall

ORDERS = npm.ROOT / "demos/ordering"


class Caller(FakeThinker):
    """Calls the tool in every turn, by an id of its own."""

    def start(self, slot: int, request: ThinkRequest) -> None:
        self.calls = (ToolCall(f"call_{len(self.requests)}", "weather", {"city": "Taipei"}),)
        super().start(slot, request)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_in_node_it_hears_is_interrupted_calls_a_tool_and_keeps_its_history_right() -> None:
    modules = npm.installed(npm.OPENAI_CLIENTS)
    model = FakeModel(Caller())
    async with agent_server(model, ["weather please", "and now"], api_key="k") as (server, _):
        url = server.url.replace("http", "ws", 1) + "/v1/realtime"
        script = str(Path(__file__).parent / "agents_realtime.mjs")
        process = await asyncio.create_subprocess_exec(
            "node", script, str(modules), url, "k", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
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


def history(page: Page) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = page.evaluate("session.history")
    return items


def words(item: dict[str, Any]) -> str:
    return "".join(part.get("transcript") or part.get("text") or "" for part in item["content"])


@pytest.mark.browser
@pytest.mark.realtime
def test_in_the_browser_it_orders_with_tools_of_its_own_and_is_interrupted(tmp_path: Path) -> None:
    npm.installed(npm.OPENAI_CLIENTS)
    config = tmp_path / "server.yaml"
    # What `python -m http.server --directory` serves.
    files = functools.partial(QuietFiles, directory=str(npm.OPENAI_CLIENTS))
    with serve(handler=files) as site, chromium() as browser:
        config.write_text(f"server: {{allowed_origins: ['{site}']}}", "utf-8")
        with serve_agent(config) as agent:
            page = browser.new_page()
            page.set_default_timeout(60_000)
            found = complaints(page)
            voice.give_mouth(page)
            page.goto(f"{site}/?server={agent}")
            page.click("#call")
            expect(page.locator("#state")).to_have_text("listening", timeout=60_000)
            page.wait_for_function("document.getElementById('voice').srcObject")
            page.evaluate(
                """() => {
                  window.said = {};
                  session.on("transport_event", ({ type, item_id, delta }) => {
                    if (type !== "response.output_audio_transcript.delta") return;
                    said[item_id] = (said[item_id] ?? "") + delta;
                  });
                }"""
            )
            voice.listen(page)
            voice.say(page, ORDERS / "order_en.wav")
            page.wait_for_function("window.loudest > 0.02")
            ordered = {"drink": "pearl_milk_tea", "quantity": 1, "size": "medium", "ice": "less_ice"}
            [line] = json.loads(page.locator("#cart").inner_text())
            assert ordered.items() <= line.items()

            voice.say(page, ORDERS / "order.wav", wait=False)
            expect(page.locator("#state")).to_have_text("interrupted")
            page.wait_for_function("JSON.parse(document.getElementById('cart').textContent).length === 2")
            page.wait_for_function(
                "session.history.filter(({ role, status }) => role === 'assistant' && status === 'completed').length"
            )
            items = history(page)
            messages = [item for item in items if item["type"] == "message"]
            assert [item["role"] for item in messages] == ["user", "assistant", "user", "assistant"]
            first, cut, second, whole = map(words, messages)
            assert "pearl milk tea" in first.lower().replace(",", "")
            assert "珍珠奶茶" in second
            said = [page.evaluate("id => said[id]", messages[at]["itemId"]) for at in (1, 3)]
            assert messages[1]["status"] == "incomplete"
            assert said[0].startswith(cut), "the words that were heard"
            assert cut != said[0], "and no more"
            assert whole.strip() == said[1].strip()
            calls = [item for item in items if item["type"] == "function_call"]
            assert [call["name"] for call in calls] == ["add", "add"]
            assert all(json.loads(call["output"])["ok"] for call in calls)
            assert found == []

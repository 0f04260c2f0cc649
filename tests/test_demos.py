"""The demos of the SDK and of OpenAI's clients, as their READMEs have them run, with the whole agent."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests import npm
from tests.page_mock.browser import chromium, complaints
from tests.page_mock.site import QuietFiles, serve
from tests.page_mock.whole_agent import serve_agent

pytestmark = [pytest.mark.browser, pytest.mark.realtime]

ORDERED = {"drink": "pearl_milk_tea", "quantity": 1, "size": "medium", "ice": "less_ice"}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """What `python -m http.server --directory demos/webrtc_sdk` serves."""
    npm.installed(npm.WEBRTC_SDK)
    with serve(handler=functools.partial(QuietFiles, directory=str(npm.WEBRTC_SDK))) as address:
        yield address


@pytest.fixture(scope="module")
def agent(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = tmp_path_factory.mktemp("demos") / "server.yaml"
    config.write_text(f"server: {{allowed_origins: ['{site}']}}", "utf-8")
    with serve_agent(config) as address:
        yield address


def run(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=npm.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_without_a_screen_a_recording_is_ordered(agent: str) -> None:
    *told, cart = run("node", "demos/webrtc_sdk/headless.mjs", "demos/ordering/order.wav", agent)
    [line] = json.loads(cart)["lines"]
    assert ORDERED.items() <= line.items()
    assert any(text.startswith("caller: ") and "珍珠奶茶" in text for text in told)
    assert any(text.startswith("agent: ") and "珍珠奶茶" in text for text in told)


def test_openais_python_client_orders_with_tools_of_its_own(agent: str) -> None:
    told = run(sys.executable, "-m", "demos.openai_clients.order", "demos/ordering/order.wav", agent)
    [line] = json.loads("\n".join(told[told.index("{") :]))["lines"]
    assert ORDERED.items() <= line.items()
    assert any(text.startswith("tool: add ") for text in told)
    assert any(text.startswith("agent: ") and "珍珠奶茶" in text for text in told)


def test_the_page_shows_what_is_written_and_answered(agent: str, site: str) -> None:
    with chromium() as browser:
        page = browser.new_page()
        found = complaints(page)
        page.goto(f"{site}/?server={agent}")
        page.click("#call")
        expect(page.locator("#state")).to_have_text("live")
        page.fill("#text", "one oolong tea")
        page.press("#text", "Enter")
        expect(page.locator("#talk")).to_contain_text("you: one oolong tea")
        expect(page.locator("#talk .heard").last).to_contain_text("oolong", timeout=30_000)
        assert found == []

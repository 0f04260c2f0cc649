"""The page in real Chromium places real WebRTC calls: to a scripted session, and to the whole agent."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.page_mock.browser import CHROMIUM, chromium, complaints
from tests.page_mock.scripted_server import ScriptedServer, serve_scripted

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs Debian's Chromium at {CHROMIUM}"),
]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serve_scripted() as server:
        yield server


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB").new_page()
        page.set_default_timeout(15_000)
        yield page


# The loudest that the agent's voice has been in the browser, by the page's own audio element.
LISTEN = """() => {
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(document.getElementById("voice").srcObject).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  window.loudest = 0;
  setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    window.loudest = Math.max(window.loudest, ...samples.map(Math.abs));
  }, 50);
}"""


def test_a_call_carries_voices_and_events_both_ways(page: Page, server: ScriptedServer) -> None:
    found = complaints(page)
    page.goto(server.address)
    page.click("#start")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    page.evaluate(LISTEN)
    page.fill("#message", "one oolong tea")
    page.press("#message", "Enter")
    expect(page.locator("#cart-lines .line")).to_contain_text("Oolong tea")
    expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")
    page.wait_for_function("window.loudest > 0.1")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    expect(page.locator(".caption.agent .heard")).to_have_text("One oolong tea.")
    session = server.sessions[0]
    assert [event["type"] for event in session.received] == ["conversation.item.create", "response.create"]
    assert session.loudest > 1000, "the microphone is heard"
    page.click("#hang-up")
    expect(page.locator("#ending")).to_contain_text("Call ended")
    page.wait_for_function("fetch('/v1/calls/stats').then((r) => r.json()).then((s) => s.calls.active === 0)")
    assert session.closed.is_set()
    assert found == []


def test_server_that_stops_leaves_a_page_to_call_again(page: Page, server: ScriptedServer) -> None:
    page.goto(server.address)
    page.click("#start-typing")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    server.stop()
    expect(page.locator("#ending")).to_contain_text("The barista ended the call")
    expect(page.locator("#start")).to_have_text("Call again")

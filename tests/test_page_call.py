"""The page in real Chromium places real WebRTC calls: to a scripted session, and to the whole agent."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Page, expect

from tests.page_mock.browser import CHROMIUM, chromium, complaints
from tests.page_mock.scripted_server import ScriptedServer, serve_scripted
from tests.page_mock.site import ROOT

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
    kinds = [event["type"] for event in session.received]
    assert [kind for kind in kinds if kind != "agent.playout.report"] == ["conversation.item.create", "response.create"]
    delays = [event["delay_ms"] for event in session.received if event["type"] == "agent.playout.report"]
    assert delays, "the way to the ear was measured"
    assert all(5 < delay < 1000 for delay in delays), delays
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


# Each peer connection that the page makes, the newest last.
PEERS = """window.peers = [];
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...options) {
      super(...options);
      window.peers.push(this);
    }
  };"""


def test_a_broken_connection_comes_back_with_the_cart_and_one_voice(page: Page, server: ScriptedServer) -> None:
    page.add_init_script(PEERS)
    page.goto(server.address)
    page.click("#start")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    page.fill("#message", "one oolong tea")
    page.press("#message", "Enter")
    expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")
    page.evaluate("peers[0].close()")
    expect(page.locator("#activities [aria-current]")).to_have_text("Reconnecting…")
    expect(page.locator(".caption.agent[data-cut]")).to_have_count(1)
    expect(page.locator("#notice")).to_contain_text("so is your order")
    expect(page.locator("#cart-lines .line")).to_contain_text("Oolong tea")
    assert [session.cart["total"] for session in server.sessions] == [12, 12]
    assert server.sessions[0].closed.is_set()
    page.wait_for_function("fetch('/v1/calls/stats').then((r) => r.json()).then((s) => s.calls.active === 1)")
    page.evaluate(LISTEN)
    page.fill("#message", "one oolong tea")
    page.press("#message", "Enter")
    page.wait_for_function("window.loudest > 0.1")
    assert page.evaluate("peers.filter(({ connectionState }) => connectionState === 'connected').length") == 1
    expect(page.locator("#ending")).to_be_hidden()


def test_a_call_that_is_ended_elsewhere_does_not_come_back(page: Page, server: ScriptedServer) -> None:
    placed = []
    page.on("response", lambda response: placed.append(response.headers.get("location")))
    page.goto(server.address)
    page.click("#start-typing")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    place = next(location for location in placed if location)
    assert page.request.delete(f"{server.address}{place}").ok
    expect(page.locator("#ending")).to_contain_text("The barista ended the call")


def test_blocked_sound_is_released_by_a_press(page: Page, server: ScriptedServer) -> None:
    page.add_init_script(
        """const play = HTMLMediaElement.prototype.play;
           HTMLMediaElement.prototype.play = async function () {
             HTMLMediaElement.prototype.play = play;
             throw new DOMException("a gesture is needed", "NotAllowedError");
           };"""
    )
    page.goto(server.address)
    page.click("#start")
    expect(page.locator("#hear")).to_be_visible()
    page.click("#hear")
    expect(page.locator("#hear")).to_be_hidden()


@pytest.fixture(scope="module")
def agent_address() -> Iterator[str]:
    """The whole agent, as `make serve` starts it."""
    command = [str(Path(sys.executable).parent / "voice-agent"), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\w.]+:\d+", line)
        try:
            assert found, f"expected a line with the address, got {line!r} (exit status {process.poll()})"
            yield found[0]
        finally:
            process.terminate()


def microphone(recording: Path, folder: Path) -> str:
    """A file for Chromium's fake microphone: some seconds to get through, the recording, and silence to answer in."""
    pcm, rate = soundfile.read(recording, dtype="int16")
    silence = np.zeros(rate, np.int16)
    file = folder / "microphone.wav"
    soundfile.write(file, np.concatenate([*[silence] * 5, pcm, *[silence] * 90]), rate)
    return f"--use-file-for-fake-audio-capture={file}%noloop"


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("order", "locale", "drink", "ice"),
    [("order.wav", "zh-CN", "珍珠奶茶", "少冰"), ("order_en.wav", "en-GB", "Pearl milk tea", "less ice")],
    ids=["zh", "en"],
)
def test_a_spoken_order_reaches_the_cart_and_is_answered_aloud(
    agent_address: str, tmp_path: Path, order: str, locale: str, drink: str, ice: str
) -> None:
    spoken = microphone(ROOT / "demos/ordering" / order, tmp_path)
    with chromium(spoken) as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 860}, locale=locale).new_page()
        page.set_default_timeout(60_000)
        found = complaints(page)
        page.goto(agent_address)
        page.click("#start")
        page.wait_for_selector("#strip:not([hidden]), #ending:not([hidden])")
        expect(page.locator("#ending")).to_be_hidden()
        page.evaluate(LISTEN)
        line = page.locator("#cart-lines .line")
        expect(line).to_have_count(1, timeout=60_000)
        expect(line).to_contain_text(drink)
        expect(line.locator("[data-chosen]")).to_have_text(ice)
        expect(line).to_contain_text("¥18")
        page.wait_for_function("window.loudest > 0.02")
        expect(page.locator(".caption.agent .unheard")).to_have_text("", timeout=60_000)
        assert page.locator(".caption.agent .heard").inner_text()
        expect(page.locator(".waterfall .step")).to_have_count(8)
        assert found == []

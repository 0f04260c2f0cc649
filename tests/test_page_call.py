"""The page in real Chromium places real WebRTC calls: to a scripted session, and to the whole agent."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pypinyin
import pytest
import soundfile
from playwright.sync_api import Browser, Page, expect

from tests.page_mock import voice
from tests.page_mock.browser import chromium, complaints
from tests.page_mock.scripted_server import ScriptedServer, serve_scripted
from tests.page_mock.site import ROOT
from tests.page_mock.whole_agent import serve_agent
from voice_agent.whisper import Recognizer

pytestmark = pytest.mark.browser


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


def test_a_call_carries_voices_and_events_both_ways(page: Page, server: ScriptedServer) -> None:
    found = complaints(page)
    page.goto(server.address)
    page.click("#start")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    voice.listen(page)
    page.fill("#message", "one oolong tea")
    page.press("#message", "Enter")
    expect(page.locator("#cart-lines .line")).to_contain_text("Oolong tea")
    expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")
    page.wait_for_function("window.loudest > 0.1")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    expect(page.locator(".caption.agent .heard")).to_have_text("One oolong tea.")
    session = server.sessions[0]
    kinds = [event["type"] for event in session.received]
    greeting, asked = ["session.update", "response.create"], ["conversation.item.create", "response.create"]
    assert [kind for kind in kinds if kind != "agent.playout.report"] == [*greeting, *asked]
    expect(page.locator("#notice")).to_be_hidden()
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


# Each peer connection that the page makes, the newest last, with its data channel and the events that came on it.
PEERS = """window.peers = [];
  window.RTCPeerConnection = class extends RTCPeerConnection {
    events = [];
    constructor(...options) {
      super(...options);
      window.peers.push(this);
    }
    createDataChannel(...options) {
      this.channel = super.createDataChannel(...options);
      this.channel.addEventListener("message", ({ data }) => this.events.push(JSON.parse(data)));
      return this.channel;
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
    voice.listen(page)
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


# ---- what browsers refuse


def refused(page: Page, words: str) -> None:
    page.click("#start")
    expect(page.locator("#ending")).to_contain_text(words)
    expect(page.locator("#start-typing")).to_be_visible()


def test_without_permission_for_the_microphone_there_is_a_sentence_and_no_session(server: ScriptedServer) -> None:
    with chromium("--use-fake-ui-for-media-stream=deny") as browser:
        page = browser.new_context(locale="en-GB").new_page()
        page.goto(server.address)
        refused(page, "The microphone is not allowed")
        assert server.sessions == []
        page.click("#start-typing")
        expect(page.locator("#activities [aria-current]")).to_have_text("Listening")


def test_without_a_microphone_there_is_a_sentence_and_no_session(server: ScriptedServer) -> None:
    with chromium(microphone=False) as browser:
        page = browser.new_context(locale="en-GB").new_page()
        page.goto(server.address)
        refused(page, "No microphone found")
        assert server.sessions == []


def test_on_an_insecure_page_there_is_a_sentence_and_no_session(server: ScriptedServer) -> None:
    with chromium("--host-resolver-rules=MAP shop.test 127.0.0.1") as browser:
        page = browser.new_context(locale="en-GB").new_page()
        page.goto(server.address.replace("127.0.0.1", "shop.test"))
        assert page.evaluate("isSecureContext") is False
        refused(page, "No microphone at this address")
        assert server.sessions == []


STRICT = "--autoplay-policy=document-user-activation-required"

# The answer to the offer takes `window.answerAfterMs`; `window.moved` is how long after its first packets the
# agent's voice begins to play, in milliseconds.
LATE_ANSWER = """
  const post = window.fetch;
  window.fetch = async (target, options) => {
    const response = await post(target, options);
    if (options?.method === "POST") await new Promise((resolve) => setTimeout(resolve, window.answerAfterMs));
    return response;
  };
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...options) {
      super(...options);
      this.addEventListener("track", ({ track }) => track.addEventListener("unmute", () => {
        const since = performance.now();
        const voice = document.getElementById("voice");
        const look = () => {
          if (voice.currentTime > 0) window.moved = performance.now() - since;
          else requestAnimationFrame(look);
        };
        look();
      }));
    }
  };"""


def test_sound_plays_after_one_press_however_late_it_comes(server: ScriptedServer) -> None:
    with chromium(STRICT) as browser:
        for delay_ms in (200, 3000, 8000):
            page = browser.new_context(locale="en-GB").new_page()
            page.add_init_script(f"window.answerAfterMs = {delay_ms};{LATE_ANSWER}")
            page.goto(server.address)
            page.click("#start")
            page.wait_for_function("window.moved !== undefined")
            assert page.evaluate("moved") <= 500
            expect(page.locator("#hear")).to_be_hidden()
            page.close()


# The call is placed without a press, and without a microphone, as pages that listen may make sound. The console is
# told when the button is there, and when a caption is struck out.
BY_ITSELF = """
  addEventListener("load", () => {
    const shown = (selector) => document.querySelector(selector)?.checkVisibility();
    const told = new Set();
    const tell = (words, selector) => {
      if (!told.has(words) && shown(selector)) console.log(told.add(words) && words);
    };
    setInterval(() => {
      tell("blocked", "#hear");
      tell("cut", ".caption.agent[data-cut]");
    }, 50);
    document.getElementById("start-typing").click();
  });"""


def test_without_a_press_there_is_a_button_and_nothing_counts_as_heard(server: ScriptedServer) -> None:
    with chromium(STRICT) as browser:
        page = browser.new_context(locale="en-GB").new_page()
        page.add_init_script(BY_ITSELF)
        # What a test asks of a page counts as the user's doing, so nothing is asked before all is over.
        with page.expect_console_message(lambda message: message.text == "blocked"):
            page.goto(server.address)
        [session] = server.sessions
        with page.expect_console_message(lambda message: message.text == "cut"):
            server.call(lambda: session.receive({"type": "response.create"}))
        assert page.evaluate("document.getElementById('voice').currentTime") == 0
        truncated = [event for event in session.received if event["type"] == "conversation.item.truncate"]
        assert [event["audio_end_ms"] for event in truncated] == [0]
        page.click("#hear")
        expect(page.locator("#hear")).to_be_hidden()
        page.wait_for_function("document.getElementById('voice').currentTime > 0")
        server.call(lambda: session.receive({"type": "response.create"}))
        expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")
        assert len([event for event in session.received if event["type"] == "conversation.item.truncate"]) == 1


def test_a_call_that_begins_muted_is_heard_soon_after_it_is_unmuted(page: Page, server: ScriptedServer) -> None:
    found = complaints(page)
    page.goto(server.address)
    page.evaluate(
        """async () => {
          const { VoiceCall } = await import("/sdk/src/index.js");
          window.call = new VoiceCall();
          await call.connect({ muted: true });
        }"""
    )
    page.wait_for_timeout(1500)
    [session] = server.sessions
    assert session.loudest < 100, "nothing of the microphone"
    page.evaluate("call.setMuted(false)")
    page.wait_for_timeout(1000)
    assert session.loudest > 1000
    assert found == []


def test_a_microphone_that_is_taken_away_is_told_and_the_next_call_works(page: Page, server: ScriptedServer) -> None:
    voice.give_mouth(page)
    page.goto(server.address)
    page.click("#start")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    page.evaluate("mouth.destination.stream.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
    expect(page.locator("#notice")).to_contain_text("The microphone went away")
    page.click("#hang-up")
    page.evaluate("mouth.destination = mouth.context = undefined")
    page.click("#start")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    assert len(server.sessions) == 2


# ---- the whole agent


@pytest.fixture(scope="module")
def agent_address() -> Iterator[str]:
    with serve_agent() as address:
        yield address


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer()


def microphone(recording: Path, folder: Path) -> str:
    """A file for Chromium's fake microphone: some seconds to get through, the recording, and silence to answer in."""
    pcm, rate = soundfile.read(recording, dtype="int16")
    silence = np.zeros(rate, np.int16)
    file = folder / "microphone.wav"
    soundfile.write(file, np.concatenate([*[silence] * 5, pcm, *[silence] * 90]), rate)
    return f"--use-file-for-fake-audio-capture={file}%noloop"


def likeness(one: str, other: str) -> float:
    """How alike two texts sound, 0 to 1: Chinese by its pinyin without tones, numbers as they are spoken."""

    def sounds(text: str) -> list[str]:
        spoken = text.lower().replace("18", "十八" if any(letter >= "\u4e00" for letter in text) else "eighteen")
        heard = pypinyin.lazy_pinyin(spoken, errors=lambda rest: re.findall(r"[a-z0-9']+", rest))
        return [sound for sound in heard if sound.strip("'")]

    return difflib.SequenceMatcher(None, sounds(one), sounds(other), autojunk=False).ratio()


def open_call(browser: Browser, address: str, locale: str, *scripts: str) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 860}, locale=locale).new_page()
    page.set_default_timeout(60_000)
    for script in scripts:
        page.add_init_script(script)
    page.goto(address)
    page.click("#start")
    page.wait_for_selector("#strip:not([hidden]), #ending:not([hidden])")
    expect(page.locator("#ending")).to_be_hidden()
    voice.listen(page)
    return page


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("order", "locale", "greeting", "drink", "ice"),
    [
        ("order.wav", "zh-CN", "您好", "珍珠奶茶", "少冰"),
        ("order_en.wav", "en-GB", "Hello", "Pearl milk tea", "less ice"),
    ],
    ids=["zh", "en"],
)
def test_a_spoken_order_reaches_the_cart_and_is_answered_aloud(
    agent_address: str,
    recognizer: Recognizer,
    tmp_path: Path,
    order: str,
    locale: str,
    greeting: str,
    drink: str,
    ice: str,
) -> None:
    spoken = microphone(ROOT / "demos/ordering" / order, tmp_path)
    with chromium(spoken) as browser:
        page = open_call(browser, agent_address, locale)
        found = complaints(page)
        captions = page.locator(".caption.agent")
        expect(captions.first).to_contain_text(greeting)
        page.wait_for_selector(".caption.caller", timeout=60_000)
        page.evaluate("window.heard = []")
        line = page.locator("#cart-lines .line")
        expect(line).to_have_count(1, timeout=60_000)
        expect(line).to_contain_text(drink)
        expect(line.locator("[data-chosen]")).to_have_text(ice)
        expect(line).to_contain_text("¥18")
        # An order that is begun to be answered in the middle, as after a long pause, is answered anew.
        expect(captions.last.locator(".unheard")).to_have_text("", timeout=60_000)
        page.wait_for_timeout(500)
        said = " ".join(page.locator(".caption.agent .heard").all_inner_texts()[1:])
        expect(page.locator(".waterfall .step")).to_have_count(8)
        assert found == []
        pcm = voice.heard(page).astype(np.float32) / 32768
        assert np.abs(pcm).max() > 0.02, "the reply is not silent"
        language: Any = locale[:2]
        understood = recognizer.transcribe(pcm, language, "").text
        assert likeness(said, understood) >= 0.6, f"said {said!r}, understood {understood!r}"


@pytest.mark.realtime
def test_a_caller_cuts_in_and_a_broken_connection_comes_back_with_cart_and_history(agent_address: str) -> None:
    with chromium() as browser:
        page = open_call(browser, agent_address, "en-GB", voice.MOUTH, PEERS)
        captions = page.locator(".caption.agent")
        expect(captions).to_have_count(1)
        voice.say(page, ROOT / "demos/ordering/order_en.wav")
        expect(captions).to_have_count(2)
        expect(captions.first).to_have_attribute("data-cut", "")
        expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")
        voice.say(page, ROOT / "demos/ordering/order.wav", wait=False)
        expect(captions.nth(1).locator(".unheard")).not_to_have_text("")
        expect(captions.nth(1)).to_have_attribute("data-cut", "")
        lines = page.locator("#cart-lines .line")
        expect(lines).to_have_count(2)
        words = page.locator(".caption.caller").first.locator(".heard").inner_text()

        expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")
        took_ms = page.evaluate(
            """async () => {
              const since = performance.now();
              peers[0].close();
              const back = () => peers.length > 1 && peers.at(-1).channel.readyState === "open";
              while (!back()) await new Promise((resolve) => setTimeout(resolve, 20));
              return performance.now() - since;
            }"""
        )
        assert took_ms <= 5000
        expect(page.locator("#notice")).to_contain_text("so is your order")
        expect(lines).to_have_count(2)
        page.wait_for_function("fetch('/v1/calls/stats').then((r) => r.json()).then((s) => s.calls.active === 1)")
        assert page.evaluate("peers.filter(({ connectionState }) => connectionState === 'connected').length") == 1
        page.evaluate("window.loudest = 0")
        voice.listen(page)
        page.wait_for_timeout(700)
        assert page.evaluate("loudest") < 0.02, "the reply before the break is over"
        recalled = page.evaluate(
            """async () => {
              const added = ({ type, item }) => type === "conversation.item.added" && item.role === "user";
              const item_id = peers[0].events.find(added).item.id;
              peers[1].channel.send(JSON.stringify({ type: "conversation.item.retrieve", item_id }));
              const answer = () => peers[1].events.find(({ type }) => type === "conversation.item.retrieved");
              while (!answer()) await new Promise((resolve) => setTimeout(resolve, 20));
              return answer().item.content[0].transcript;
            }"""
        )
        assert recalled == words, "what was said before is remembered"
        page.fill("#message", "make the first one large")
        page.press("#message", "Enter")
        expect(lines.first.locator("[data-chosen]").first).to_have_text("large")
        expect(lines).to_have_count(2)
        page.wait_for_function("window.loudest > 0.02")

"""The page with fake calls in real Chromium: what it shows for recorded events, in both languages and sizes."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.page_mock.browser import complaints
from tests.page_mock.site import recording
from voice_agent import wire

pytestmark = pytest.mark.browser

WIDE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
LOCALES = {"zh": "zh-CN", "en": "en-GB"}


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport=WIDE, locale="en-GB", permissions=["microphone"])
    context.set_default_timeout(10_000)
    yield context
    context.close()


def open_mock(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(f"{address}/mock")
    page.wait_for_function("window.ready")
    return page


def start_call(page: Page, failure: str | None = None) -> None:
    page.evaluate("failure => { window.failNext = failure }", failure)
    page.click("#start")
    page.wait_for_function(f"page.state.call.phase === '{'failed' if failure else 'live'}'")
    page.evaluate("() => new Promise(requestAnimationFrame)")


def until(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The recording up to and with the first event of that type."""
    end = next(index for index, entry in enumerate(events) if entry["event"]["type"] == kind)
    return events[: end + 1]


def play(page: Page, events: list[dict[str, Any]]) -> None:
    page.evaluate("events => play(events)", events)
    page.evaluate("() => new Promise(requestAnimationFrame)")


def cart_update(*lines: dict[str, Any], **more: Any) -> dict[str, Any]:
    total = sum(line["price"] for line in lines)
    cart = {"lines": list(lines), "total": total, "currency": "CNY", **more}
    return {"at": 0, "event": {"type": "agent.cart.updated", "cart": cart}}


def oolong(line: int, quantity: int = 1) -> dict[str, Any]:
    chosen = {"size": "medium", "ice": "regular_ice", "sugar": "full_sugar", "toppings": []}
    return {
        "line": line,
        "drink": "oolong_tea",
        "quantity": quantity,
        **chosen,
        "unit_price": 12,
        "price": 12 * quantity,
    }


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_first_screen_says_what_to_do(browser: Browser, address: str, language: str, size: Any) -> None:
    context = browser.new_context(viewport=size, locale=LOCALES[language])
    page = context.new_page()
    found = complaints(page)
    page.goto(address)
    expect(page.locator("#start")).to_have_text({"zh": "开始点单", "en": "Start ordering"}[language])
    expect(page.locator("#menu")).to_contain_text({"zh": "珍珠奶茶", "en": "Pearl milk tea"}[language])
    expect(page.locator("#menu")).to_contain_text("¥18")
    expect(page.locator("#licence")).to_contain_text({"zh": "非商业", "en": "non-commercial"}[language])
    expect(page.locator("#licence")).to_be_in_viewport()
    expect(page.locator("html")).to_have_attribute("lang", {"zh": "zh-CN", "en": "en"}[language])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    assert found == []
    context.close()


def test_language_switch_is_kept(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    page.click("[data-language=zh]")
    expect(page.locator("#headline")).to_have_text("说一句，就点好。")
    page.reload()
    expect(page.locator("#headline")).to_have_text("说一句，就点好。")


def test_both_languages_have_the_same_messages(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    keys = page.evaluate("import('/i18n.js').then(({MESSAGES: m}) => [Object.keys(m.zh), Object.keys(m.en)])")
    assert keys[0] == keys[1]


@pytest.mark.parametrize("language", ["zh", "en"])
def test_order_is_heard_shown_and_answered(browser: Browser, address: str, language: str) -> None:
    context = browser.new_context(viewport=WIDE, locale=LOCALES[language])
    page = open_mock(context, address)
    found = complaints(page)
    start_call(page)
    events = recording(f"order_{language}")
    play(page, until(events, "conversation.item.input_audio_transcription.delta"))
    expect(page.locator(".caption.caller[data-partial]")).to_contain_text({"zh": "我要", "en": "One pearl"}[language])
    expect(page.locator("#activities [aria-current]")).to_have_text({"zh": "听到您了", "en": "Hearing you"}[language])

    play(page, until(events, "output_audio_buffer.stopped")[:-2])
    line = page.locator("#cart-lines .line")
    expect(line).to_have_count(1)
    expect(line).to_contain_text({"zh": "珍珠奶茶", "en": "Pearl milk tea"}[language])
    expect(line.locator("[data-chosen]")).to_have_text({"zh": "少冰", "en": "less ice"}[language])
    expect(line).to_contain_text("¥18")
    expect(line).to_have_attribute("data-changed", "")
    expect(page.locator("#cart-sum")).to_have_text("¥18")
    expect(page.locator("#activities [aria-current]")).to_have_text({"zh": "在说", "en": "Speaking"}[language])
    agent = page.locator(".caption.agent")
    assert agent.locator(".heard").text_content(), "the words heard so far are black"
    assert agent.locator(".unheard").text_content(), "the words to come are grey"
    expect(page.locator(".turn-total")).to_contain_text("688")

    play(page, until(events, "output_audio_buffer.stopped")[-1:])
    expect(agent.locator(".unheard")).to_have_text("")
    assert found == []
    context.close()


def test_interruption_strikes_out_what_was_never_heard(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    play(page, until(recording("order_en"), "agent.turn.receipts"))
    cut = page.locator(".caption[data-cut]")
    expect(cut).to_have_count(1)
    expect(cut.locator(".heard")).to_have_text("Two oolong teas, half sugar")
    expect(cut.locator(".unheard")).to_have_text(", forty-two yuan in total. Anything else?")
    assert cut.locator(".unheard").evaluate("e => getComputedStyle(e).textDecorationLine") == "line-through"
    expect(page.locator("#activities [aria-current]")).to_have_text("Stopped for you")
    expect(page.locator("#cleanup")).to_contain_text("12 ms")
    assert page.evaluate("page.state.marks.filter((mark) => mark.kind === 'barge_in').length") == 1


def test_a_reply_that_holds_its_breath_is_shown_to_wait_and_goes_on(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    play(page, until(recording("order_en"), "agent.playout.heard"))
    pause = page.locator(".caption.agent .pause")
    expect(pause).to_be_hidden()
    play(page, [{"at": 0, "event": {"type": "agent.turn.paused", "turn_id": "t1"}}])
    expect(pause).to_be_visible()
    expect(page.locator("#activities [aria-current]")).to_have_text("Hearing you")
    assert page.evaluate("page.state.marks.filter((mark) => mark.kind === 'pause').length") == 1
    play(page, [{"at": 0, "event": {"type": "agent.turn.resumed", "turn_id": "t1"}}])
    expect(pause).to_be_hidden()
    expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")


def test_a_server_that_asks_for_a_key_is_given_one(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    form = page.locator("#key-form")
    expect(form).to_be_hidden()
    start_call(page, failure="unauthorized")
    expect(form).to_be_visible()
    page.evaluate("window.failNext = null")
    page.fill("#key", "sesame")
    page.press("#key", "Enter")
    page.wait_for_function("page.state.call.phase === 'live'")
    assert page.evaluate("[fake.targets.at(-1).token, fake.opened.microphone]") == ["sesame", True]
    page.goto(f"{address}/mock#key=from%20the%20link")
    page.reload()
    page.wait_for_function("window.ready")
    start_call(page)
    assert page.evaluate("[fake.targets.at(-1).token, location.hash]") == ["from the link", ""]


def test_changed_lines_are_found_though_positions_move(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    latte = {**oolong(1), "drink": "latte", "price": 20, "unit_price": 20}
    play(page, [cart_update(latte, oolong(2))])
    play(page, [cart_update(oolong(1))])
    assert page.evaluate("page.state.changedLines") == []
    play(page, [cart_update(oolong(1, quantity=3))])
    assert page.evaluate("page.state.changedLines") == [1]


def test_placed_order_stays_on_screen_with_its_number(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    update = cart_update(oolong(1, quantity=2))
    cart = update["event"]["cart"]
    result = {"ok": True, "error": None, "order_number": 27, "cart": {**cart, "placed": True}, "changed": []}
    place = {"type": "agent.tool.called", "turn_id": "t", "name": "place", "arguments": {}, "result": result}
    play(page, [update, {"at": 1, "event": place}, cart_update()])
    expect(page.locator("#cart-receipt")).to_have_text("Order placed · No. 27")
    expect(page.locator("#cart-lines .line")).to_have_count(1)
    play(page, [cart_update(oolong(1))])
    expect(page.locator("#cart-receipt")).to_be_hidden()


def test_noise_without_words_leaves_no_caption(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    kinds = ["speech_started", "speech_stopped", "committed"]
    events = [{"at": 0, "event": {"type": f"input_audio_buffer.{kind}", "item_id": "noise"}} for kind in kinds]
    done = "conversation.item.input_audio_transcription.completed"
    play(page, [*events, {"at": 1, "event": {"type": done, "item_id": "noise", "transcript": ""}}])
    expect(page.locator(".caption")).to_have_count(0)
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")


def test_typing_sends_a_message_and_asks_for_a_reply(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    page.click("#start-typing")
    page.wait_for_function("page.state.call.phase === 'live'")
    assert page.evaluate("fake.opened.microphone") is False
    expect(page.locator("#mute")).to_be_hidden()
    page.fill("#message", "one oolong tea")
    page.press("#message", "Enter")
    expect(page.locator(".caption.caller")).to_contain_text("one oolong tea")
    kinds = page.evaluate("fake.sent.map((event) => event.type)")
    assert kinds == ["session.update", "response.create", "conversation.item.create", "response.create"]
    # The server gives the item an id of its own; the words still stand there once.
    item = {"id": "other", "role": "user", "content": [{"type": "input_text", "text": "one oolong tea"}]}
    play(page, [{"at": 0, "event": {"type": "conversation.item.added", "item": item}}])
    expect(page.locator(".caption.caller")).to_have_count(1)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_agent_is_asked_to_greet_in_the_pages_language(browser: Browser, address: str, language: str) -> None:
    context = browser.new_context(locale=LOCALES[language])
    page = open_mock(context, address)
    start_call(page)
    update, create = page.evaluate("fake.sent")
    for event in (update, create):
        wire.parse(event)
    assert update["session"]["agent"] == {"language": language}
    assert create["type"] == "response.create"
    refusal = {"type": "invalid_request_error", "code": "nothing_to_answer", "message": "no", "param": None}
    play(page, [{"at": 0, "event": {"type": "error", "error": {**refusal, "event_id": "another"}}}])
    expect(page.locator("#notice")).to_be_visible()
    page.click("#notice-dismiss")
    page.evaluate("error => fake.emit({ type: 'error', error })", {**refusal, "event_id": create["event_id"]})
    page.evaluate("fake.lose()")
    page.wait_for_function("page.state.notice?.kind === 'reconnected'")
    assert len(page.evaluate("fake.sent")) == 2, "who was greeted once is not greeted again"
    context.close()


def test_a_greeting_that_the_browser_held_back_is_asked_for_again(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    page.evaluate("page.dispatch({type: 'audio.blocked'})")
    page.click("#hear")
    expect(page.locator("#hear")).to_be_hidden()
    kinds = page.evaluate("fake.sent.map((event) => event.type)")
    assert kinds == ["session.update", "response.create"] * 2


def test_mute_and_hang_up(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    page.click("#mute")
    assert page.evaluate("fake.muted")
    expect(page.locator("#mute")).to_have_attribute("aria-pressed", "true")
    page.click("#hang-up")
    assert page.evaluate("[fake.connected, fake.saidGoodbye]") == [False, True]
    expect(page.locator("#start")).to_have_text("Call again")
    expect(page.locator("#ending")).to_contain_text("Call ended")


def test_server_that_closes_leaves_a_page_to_call_again(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    play(page, recording("order_en"))
    page.evaluate("fake.end()")
    expect(page.locator("#ending")).to_contain_text("The barista ended the call")
    expect(page.locator("#cart-lines .line")).to_have_count(2)
    expect(page.locator("#composer")).to_be_hidden()
    page.click("#start")
    page.wait_for_function("page.state.call.phase === 'live'")
    expect(page.locator(".caption")).to_have_count(0)


def test_events_of_an_earlier_call_are_ignored(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    page.evaluate("window.earlier = fake")
    page.click("#hang-up")
    start_call(page)
    page.evaluate("event => earlier.emit(event)", cart_update(oolong(1))["event"])
    page.evaluate("earlier.end()")
    assert page.evaluate("[page.state.call.phase, page.state.cart.lines.length]") == ["live", 0]


def test_cancel_while_connecting(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    page.evaluate("window.failNext = 'pending'")
    page.click("#start")
    page.click("#cancel")
    expect(page.locator("#start")).to_have_text("Start ordering")


@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_failure_has_its_own_sentence(browser: Browser, address: str, language: str) -> None:
    codes = (
        "insecure_page microphone_denied no_microphone microphone_busy server_unreachable server_full "
        "rate_limited unauthorized server_refused ice_failed connection_lost call_forgotten"
    )
    context = browser.new_context(locale=LOCALES[language])
    page = open_mock(context, address)
    seen = set()
    for code in codes.split():
        start_call(page, failure=code)
        seen.add(page.locator("#ending").inner_text())
        expect(page.locator("#start")).to_have_text({"zh": "再试一次", "en": "Try again"}[language])
    assert len(seen) == len(codes.split())
    context.close()


def test_failed_stage_is_told_kindly_and_recovers(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    failed = {"type": "agent.stage.failed", "stage": "asr", "message": "this reply could not be made"}
    play(page, [{"at": 0, "event": failed}])
    expect(page.locator("#notice")).to_contain_text("Please say that again")
    expect(page.locator("#stages [data-failed]")).to_have_text("Words")
    play(page, until(recording("order_en"), "agent.turn.latency"))
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#stages [data-failed]")).to_have_count(0)


def test_blocked_sound_offers_a_button(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    page.evaluate("page.dispatch({type: 'audio.blocked'})")
    expect(page.locator("#hear")).to_be_visible()


def test_full_server_and_denied_microphone_by_the_real_call(context: BrowserContext, address: str) -> None:
    page = context.new_page()
    page.goto(address)
    page.click("#start")
    expect(page.locator("#ending")).to_contain_text("All lines are busy")
    expect(page.locator("#ending")).to_contain_text("all 4 lines are in use")
    refuse = "() => { navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('no', '%s'); }; }"
    for name, words in {"NotAllowedError": "not allowed", "NotFoundError": "No microphone found"}.items():
        page.evaluate(refuse % name)
        page.click("#start")
        expect(page.locator("#ending")).to_contain_text(words)
    page.evaluate("Object.defineProperty(window, 'isSecureContext', {value: false})")
    page.click("#start")
    expect(page.locator("#ending")).to_contain_text("No microphone at this address")


def test_connection_that_never_comes_about_is_told(context: BrowserContext, address: str) -> None:
    page = context.new_page()
    page.route("**/v1/realtime/calls", lambda route: route.fulfill(status=201, body="v=0"))
    page.add_init_script(
        """RTCPeerConnection.prototype.setRemoteDescription = async function () {
             Object.defineProperty(this, "connectionState", {value: "failed"});
             this.dispatchEvent(new Event("connectionstatechange"));
           };"""
    )
    page.goto(address)
    page.click("#start")
    expect(page.locator("#ending")).to_contain_text("No path for the sound")


def test_everything_has_a_name_and_a_place_in_the_focus_order(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, canvas, [role=region], [role=group]')].filter((e) =>
             !(e.ariaLabel || e.textContent.trim() || e.getAttribute('aria-labelledby') || e.labels?.length)
           ).map((e) => e.outerHTML)"""
    )
    assert nameless == []
    page.locator("#call").focus()
    order = []
    for _ in range(10):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert order == ["microphones", "captions", *["chip"] * 4, "mute", "message", "send", "hang-up"]
    expect(page.locator("#announcer")).to_have_attribute("aria-live", "polite")
    expect(page.get_by_role("heading", level=1)).to_have_text("Order by voice")
    play(page, recording("order_en"))
    expect(page.locator("#announcer")).to_contain_text("make the first one large")


# Walks the page and gives every piece of visible text whose contrast with what lies behind it is below WCAG AA.
TOO_FAINT = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const channel = (value) => (value <= 10.31 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    throw new Error("nothing is behind " + element.outerHTML);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgb(style.color)), light(behind(element))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 600);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) found.push(`${contrast.toFixed(2)} ${element.className} ${element.textContent}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser: Browser, address: str, scheme: Any) -> None:
    context = browser.new_context(viewport=WIDE, locale="en-GB", color_scheme=scheme, reduced_motion="reduce")
    page = open_mock(context, address)
    assert page.evaluate(TOO_FAINT) == []
    start_call(page, failure="microphone_denied")
    assert page.evaluate(TOO_FAINT) == []
    start_call(page)
    play(page, until(recording("order_en"), "agent.turn.receipts"))
    assert page.evaluate(TOO_FAINT) == []
    play(page, recording("order_en"))
    page.click("#hang-up")
    assert page.evaluate(TOO_FAINT) == []
    context.close()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (PHONE, "light")], ids=["wide", "phone"])
def test_the_main_states_break_no_rule_of_accessibility(browser: Browser, address: str, size: Any, scheme: Any) -> None:
    context = browser.new_context(viewport=size, locale="zh-CN", color_scheme=scheme, reduced_motion="reduce")
    page = open_mock(context, address)

    def broken() -> list[str]:
        return [violation["id"] for violation in Axe().run(page).response["violations"]]

    assert broken() == []
    start_call(page, failure="ice_failed")
    assert broken() == []
    start_call(page)
    play(page, until(recording("order_zh"), "agent.turn.receipts"))
    assert broken() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    page.click("#hang-up")
    assert broken() == []
    context.close()


def test_the_way_to_the_ear_is_part_of_the_time_of_an_answer(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    report = {"roundTripMs": 24, "jitterBufferMs": 60, "deviceMs": 18, "concealed": 0}
    page.evaluate("report => page.dispatch({type: 'playout.measured', report})", report)
    play(page, until(recording("order_en"), "agent.turn.latency"))
    expect(page.locator(".waterfall .step")).to_have_count(8)
    expect(page.locator(".turn-total")).to_contain_text(str(688 + 24 + 60 + 18))


def test_the_cart_and_the_words_stay_while_the_connection_comes_back(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    play(page, until(recording("order_en"), "agent.playout.heard"))
    page.fill("#message", "and an oolong tea")
    page.evaluate("fake.failNext('server_unreachable'); fake.lose()")
    expect(page.locator("#activities [aria-current]")).to_have_text("Reconnecting…")
    page.press("#message", "Enter")
    assert page.input_value("#message") == "and an oolong tea", "what could not be sent is not thrown away"
    expect(page.locator("#notice")).to_contain_text("so is your order")
    expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
    expect(page.locator("#cart-lines .line")).to_have_count(1)
    expect(page.locator(".caption.agent[data-cut] .heard")).to_have_text("Sure,")


def test_another_microphone_can_be_chosen(context: BrowserContext, address: str) -> None:
    page = open_mock(context, address)
    start_call(page)
    options = page.locator("#microphones option")
    expect(options).not_to_have_count(0)
    page.select_option("#microphones", index=1)
    page.wait_for_function("fake.opened.deviceId !== undefined")
    assert page.evaluate("fake.opened.deviceId") == options.nth(1).get_attribute("value")
    page.evaluate("fake.failNext('microphone_busy')")
    page.select_option("#microphones", index=0)
    expect(page.locator("#notice")).to_contain_text("The one before is still in use")


@pytest.mark.parametrize("name", ["order_zh", "order_en"])
def test_recordings_tell_one_story_in_order(name: str) -> None:
    events = recording(name)
    assert [entry["at"] for entry in events] == sorted(entry["at"] for entry in events)
    assert events[0]["event"]["type"] == "session.created"

"""The operator's page in real Chromium, with the figures of an engine that worked."""

from __future__ import annotations

import asyncio
import copy
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.fakes import FakeModel
from tests.page_mock.browser import complaints
from tests.test_engine import REQUEST, Listener
from voice_agent.engine.reply import Engine

pytestmark = pytest.mark.browser

SERVER = {
    "calls": {"active": 1, "limit": 4, "ended": {}, "each": []},
    "loop_lag": {"p50_ms": 0.1, "p99_ms": 2.5, "max_ms": 9.0},
    "process": {"rss_mib": 812},
}


def worked() -> dict[str, Any]:
    """What the stats route tells of an engine that has given one reply."""
    engine = Engine(FakeModel())

    async def work() -> None:
        listener = Listener()
        engine.reply(REQUEST, listener)
        await listener.done.wait()

    with ThreadPoolExecutor(1) as elsewhere:  # Playwright has a loop in this thread
        elsewhere.submit(lambda: asyncio.run(asyncio.wait_for(work(), 20))).result()
    told = {**SERVER, "engine": engine.view()}
    engine.close()
    return told


def a_second_later(told: dict[str, Any]) -> dict[str, Any]:
    """The codec worked for half of that second, in ten steps of two replies; three slots are in use."""
    later = copy.deepcopy(told)
    for view in later["engine"].values():
        view["lived_s"] += 1.0
    codec = later["engine"]["codec"]
    codec["busy_s"] += 0.5
    codec["steps"] += 10
    codec["units"] += 80
    codec["batch"]["sum"] += 20
    codec |= {"slots_in_use": 3, "aborts": 2, "wasted": 7}
    codec["abort_s"]["sum"] = 0.004
    return later


def open_page(browser: Browser, address: str, answers: list[dict[str, Any]], locale: str, key: str = "") -> Page:
    page = browser.new_context(viewport={"width": 1180, "height": 760}, locale=locale).new_page()
    page.set_default_timeout(30_000)

    def answer(route: Route) -> None:
        if key and route.request.headers.get("authorization") != f"Bearer {key}":
            route.fulfill(status=401, json={"error": {"message": "expected the key"}})
        else:
            route.fulfill(json=answers[0] if len(answers) == 1 else answers.pop(0))

    page.route("**/v1/calls/stats", answer)
    page.goto(f"{address}/engine/index.html")
    return page


@pytest.mark.parametrize(
    ("locale", "name", "waiting"), [("en-GB", "Codec: sound", "Waiting"), ("zh-CN", "解码（声音）", "排队")]
)
def test_each_stage_tells_what_it_did_in_the_last_second(
    browser: Browser, address: str, locale: str, name: str, waiting: str
) -> None:
    told = worked()
    page = open_page(browser, address, [told, a_second_later(told)], locale)
    found = complaints(page)
    card = page.locator('.stage[data-stage="codec"]')
    expect(card.locator("output")).to_have_text("50 %")
    expect(card.locator("h2")).to_contain_text(name)
    expect(card.locator(".slots .used")).to_have_count(3)
    expect(card.locator(".slots i")).to_have_count(4)
    figures = card.locator("dd").all_inner_texts()
    assert [figures[i] for i in (0, 1, 2, 4, 5)] == ["0", "2", "50 ms", "2", "2 ms"]
    assert [json.loads(figures[i].split()[0]) for i in (3, 6)] == [80, 7]
    expect(card.locator("dt").first).to_have_text(waiting)
    expect(page.locator("#server dd").first).to_have_text("1 / 4")
    assert page.locator(".stage").count() == 3
    assert Axe().run(page).violations_count == 0
    assert not found
    page.context.close()


def test_the_other_language_is_a_click_away(browser: Browser, address: str) -> None:
    page = open_page(browser, address, [worked()], "en-GB")
    expect(page.locator(".stage h2").first).to_contain_text("Thinker")
    page.click('[data-language="zh"]')
    expect(page.locator(".stage h2").first).to_contain_text("思考")
    assert page.evaluate("document.documentElement.lang") == "zh"
    page.context.close()


def test_a_server_with_a_key_is_asked_with_it(browser: Browser, address: str) -> None:
    page = open_page(browser, address, [worked()], "en-GB", key="right-key")
    expect(page.locator("#ask")).to_be_visible()
    page.fill("#key", "wrong-key")
    page.click("#ask button")
    expect(page.locator("#trouble")).to_have_text("That is not the key.")
    page.fill("#key", "right-key")
    page.click("#ask button")
    expect(page.locator(".stage")).to_have_count(3)
    expect(page.locator("#ask")).to_be_hidden()
    page.context.close()


def test_a_server_that_is_away_is_told_of(browser: Browser, address: str) -> None:
    page = open_page(browser, address, [worked()], "en-GB")
    expect(page.locator(".stage")).to_have_count(3)
    page.route("**/v1/calls/stats", lambda route: route.abort())
    expect(page.locator("#trouble")).to_contain_text("does not answer")
    page.unroute_all(behavior="ignoreErrors")
    page.context.close()

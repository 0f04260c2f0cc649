"""A caller whose address changes in mid reply, as by another Wi-Fi: the call goes on by a new connection (case B34)."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.media_fakes import running_server
from tests.networks import needs_namespaces, routed
from tests.page_mock.browser import CHROMIUM, chromium
from tests.page_mock.scripted_server import ScriptedSession
from tests.page_mock.site import ROOT

pytestmark = [needs_namespaces, pytest.mark.browser]


def browser_of(program: Path, url: str) -> AbstractContextManager[Browser]:
    """One that opens the microphone at this address, so that it uses each interface's own address."""
    return chromium(f"--unsafely-treat-insecure-origin-as-secure={url}", program=program)


def test_a_call_goes_on_from_another_address_with_its_cart(tmp_path: Path) -> None:
    with routed(udp=True) as (client, server, _):
        running = running_server(ROOT / "web", ScriptedSession, host=server.address, host_candidates=())
        program = client.program(CHROMIUM, tmp_path)
        with server.holding(running) as held, browser_of(program, held.url) as browser:
            page = browser.new_context(locale="en-GB").new_page()
            page.goto(held.url)
            page.click("#start")
            expect(page.locator("#activities [aria-current]")).to_have_text("Listening")
            for sum_of in ("¥12", "¥24"):
                page.fill("#message", "one oolong tea")
                page.press("#message", "Enter")
                expect(page.locator("#cart-sum")).to_have_text(sum_of)
            expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")

            client.ip("addr", "flush", "dev", "eth0")
            client.ip("addr", "add", "10.214.1.3/24", "dev", "eth0")
            client.ip("route", "add", "default", "via", "10.214.1.1")
            began = time.monotonic()
            expect(page.locator("#notice")).to_contain_text("so is your order")
            took_s = time.monotonic() - began
            print(f"back after {took_s:.1f} s")
            assert took_s <= 5
            expect(page.locator("#cart-sum")).to_have_text("¥24")
            assert [len(session.cart["lines"]) for session in held.sessions] == [2, 2]
            assert held.calls.active == 1
            page.fill("#message", "one oolong tea")
            page.press("#message", "Enter")
            expect(page.locator("#activities [aria-current]")).to_have_text("Speaking")

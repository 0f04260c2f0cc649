"""`python -m tests.page_shots`: the README's pictures, taken in a real call that carries the demo's order."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.sync_api import expect

from tests.evidence.tools import ROOT
from tests.page_mock.browser import chromium
from tests.test_page_call import microphone
from voice_agent.calling import own_server

SHOTS = (
    ("page-wide.png", "order_en.wav", "en-GB", (1280, 860)),
    ("page-phone.png", "order.wav", "zh-CN", (390, 844)),
)


def shoot(address: str) -> None:
    for name, order, locale, (width, height) in SHOTS:
        with tempfile.TemporaryDirectory() as folder:
            spoken = microphone(ROOT / "demos/ordering" / order, Path(folder))
            with chromium(spoken) as browser:
                page = browser.new_context(viewport={"width": width, "height": height}, locale=locale).new_page()
                page.goto(address)
                page.click("#start")
                expect(page.locator("#cart-lines .line")).to_have_count(1, timeout=60_000)
                page.wait_for_timeout(1500)
                page.screenshot(path=ROOT / "docs" / name)
                print(f"docs/{name}")


async def main() -> None:
    async with own_server() as address:
        await asyncio.to_thread(shoot, address)


if __name__ == "__main__":
    asyncio.run(main())

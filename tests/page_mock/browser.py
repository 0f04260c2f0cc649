"""Debian's Chromium for tests: headless, no traffic of its own, a fake microphone, loopback candidates."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--use-fake-ui-for-media-stream",
    "--allow-loopback-in-peer-connection",
)


# A machine that is busy with other tests paints late.
expect.set_options(timeout=15_000)


@contextmanager
def chromium(*more: str, microphone: bool = True, program: Path = CHROMIUM) -> Iterator[Browser]:
    """Chromium with those further command line arguments, closed at the end of the block.

    `microphone`: a made up one; else only what the machine has, which is none where tests run. `program`: starts it.

    Raises FileNotFoundError, so that a run without it fails and says what to install.
    """
    if not CHROMIUM.exists():
        raise FileNotFoundError(f"expected {CHROMIUM}: apt-get install chromium fonts-noto-cjk")
    devices = ["--use-fake-device-for-media-stream"] if microphone else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(program), args=[*ARGUMENTS, *devices, *more])
        try:
            yield browser
        finally:
            browser.close()


def complaints(page: Page) -> list[str]:
    """A list that fills with the page's console warnings, errors and exceptions."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found

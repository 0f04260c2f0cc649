"""What the tests of pages share: a browser and a server of the page's files, one of each for a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def pytest_configure() -> None:
    """Processes that run tests beside each other have one core each."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)
        # COLUMNS is set in them, and a console keeps the width that it found when it was made.
        os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.page_mock.browser import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from tests.page_mock.site import serve

    with serve() as address:
        yield address

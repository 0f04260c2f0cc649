"""Calls where no UDP passes between the two: a relay (coturn) carries the sound, or the caller is told what to do."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiortc import RTCIceServer
from playwright.sync_api import Browser, Page, expect

from tests.media_fakes import Running, running_server
from tests.networks import Host, needs_namespaces, routed
from tests.page_mock.browser import CHROMIUM, chromium
from tests.page_mock.site import ROOT
from voice_agent.client import CallClient, IceFailed

pytestmark = needs_namespaces

CONNECTED_S, FAILED_S, FREED_S = 5.0, 20.0, 45.0


@dataclass(frozen=True)
class Network:
    """`servers`: by the relay that each is told of: `good`, `wrong` (its password is), `none`."""

    client: Host
    relay: str
    servers: dict[str, Running]

    def freed(self, since: float) -> bool:
        """Whether the servers have let go of all calls in time."""
        while any(server.calls.active for server in self.servers.values()):
            if time.monotonic() - since > FREED_S:
                return False
            time.sleep(0.1)
        return True


@contextmanager
def coturn(router: Host, folder: Path) -> Iterator[str]:
    """A relay on the router, for the user `caller` with the password `right`; gives its URL."""
    program = shutil.which("turnserver")
    assert program, "expected turnserver: apt-get install coturn"
    files = ["--pidfile", str(folder / "pid"), "--userdb", str(folder / "users"), "--log-file", "stdout"]
    addresses = ["--listening-ip", router.address, "--relay-ip", router.address, "--no-tls", "--no-dtls", "--no-cli"]
    known = ["--lt-cred-mech", "--realm", "shop.test", "--user", "caller:right"]
    command = [*router.prefix, program, "-n", *files, *addresses, *known]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        async def listening() -> None:
            async with asyncio.timeout(20):
                while True:
                    assert process.poll() is None, f"expected a relay, got its exit with {process.returncode}"
                    with suppress(ConnectionError):
                        _, writer = await asyncio.open_connection(router.address, 3478)
                        writer.close()
                        return
                    await asyncio.sleep(0.05)

        try:
            router.start(listening).result()
            yield f"turn:{router.address}:3478"
        finally:
            process.terminate()


@asynccontextmanager
async def serving(address: str, relay: str) -> AsyncIterator[dict[str, Running]]:
    async with AsyncExitStack() as stack:
        servers = {}
        for name, password in (("good", "right"), ("wrong", "wrong"), ("none", None)):
            told = ({"urls": relay, "username": "caller", "credential": password},) if password else ()
            started = running_server(ROOT / "web", host=address, host_candidates=(), ice_servers=told)
            servers[name] = await stack.enter_async_context(started)
        yield servers


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("relay")
    with (
        routed(udp=False) as (client, server, router),
        coturn(router, folder) as relay,
        server.holding(serving(server.address, relay)) as servers,
    ):
        yield Network(client, relay, servers)


async def seconds_until_heard(url: str, *ice_servers: RTCIceServer) -> float:
    """Place a call whose agent speaks; gives how long it took to connect."""
    async with CallClient(url, ice_servers=ice_servers) as call:
        call.send({"type": "response.create", "seconds": 0.2})
        async with asyncio.timeout(CONNECTED_S):
            while not any(piece.pcm.any() for piece in call.received):
                await asyncio.sleep(0.01)
        return call.connected_s


def test_a_relay_of_either_side_carries_the_call(network: Network) -> None:
    ours = [RTCIceServer(network.relay + way, "caller", "right") for way in ("", "?transport=tcp")]

    async def calls() -> dict[str, float]:
        return {
            "of the server": await seconds_until_heard(network.servers["good"].url),
            "of the caller": await seconds_until_heard(network.servers["none"].url, ours[0]),
            "of the caller, by TCP": await seconds_until_heard(network.servers["none"].url, ours[1]),
            "of both": await seconds_until_heard(network.servers["good"].url, ours[0]),
        }

    took = network.client.start(calls).result(60)
    print(f"connected after { ({name: round(s, 2) for name, s in took.items()}) } s")
    assert max(took.values()) <= CONNECTED_S
    assert network.freed(time.monotonic())


def test_without_a_relay_a_caller_is_told_why_and_what_to_do(network: Network) -> None:
    wrong = RTCIceServer(network.relay, "caller", "wrong")

    async def failure(url: str, *ice_servers: RTCIceServer) -> tuple[str, float]:
        began = time.monotonic()
        with pytest.raises(IceFailed) as caught:
            async with CallClient(url, ice_servers=ice_servers):
                pass
        return str(caught.value), time.monotonic() - began

    async def calls() -> list[tuple[str, float]]:
        none, wrong_url = network.servers["none"].url, network.servers["wrong"].url
        return await asyncio.gather(failure(none), failure(wrong_url), failure(none, wrong))

    silent = [network.servers[name] for name in ("wrong", "none")]
    sessions = [len(server.sessions) for server in silent]
    began = time.monotonic()
    failures = network.client.start(calls).result(60)
    assert max(took for _, took in failures) <= FAILED_S
    for told, _ in failures:
        assert told.startswith("no path for the sound: tried from host 10.214.1.2 to host 10.214.2.2"), told
        assert told.endswith("allow UDP, or give the server or this caller a TURN server"), told
    assert ["check that it runs, and its username" in told for told, _ in failures] == [False, False, True]
    assert network.freed(began)
    assert [len(server.sessions) for server in silent] == sessions, "none was begun, so no model was asked for a slot"


@pytest.fixture
def browser(network: Network, tmp_path: Path) -> Iterator[Browser]:
    """Chromium on the client's side."""
    with chromium(program=network.client.program(CHROMIUM, tmp_path)) as browser:
        yield browser


def call(browser: Browser, server: Running) -> Page:
    page = browser.new_context(locale="en-GB").new_page()
    with page.expect_response("**/v1/agent"):
        page.goto(server.url)
    page.click("#start-typing")
    return page


@pytest.mark.realtime
@pytest.mark.browser
def test_the_page_takes_the_servers_relay_and_says_what_to_do_without_one(browser: Browser, network: Network) -> None:
    good = call(browser, network.servers["good"])
    began = time.monotonic()
    expect(good.locator("#strip")).to_be_visible(timeout=1000 * CONNECTED_S)
    print(f"the page connected after {time.monotonic() - began:.2f} s")
    good.wait_for_function("document.getElementById('voice').currentTime > 0")
    assert good.evaluate("isSecureContext") is False
    good.fill("#message", "one oolong tea")
    good.press("#message", "Enter")
    expect(good.locator(".caption.caller")).to_contain_text("one oolong tea")
    began = time.monotonic()
    pages = [call(browser, network.servers[name]) for name in ("wrong", "none")]
    for page in pages:
        expect(page.locator("#ending")).to_contain_text("No path for the sound", timeout=1000 * FAILED_S)
        assert time.monotonic() - began <= FAILED_S
    assert "answered 401" in pages[0].locator("#ending-cause").inner_text()
    good.click("#hang-up")
    assert network.freed(began)

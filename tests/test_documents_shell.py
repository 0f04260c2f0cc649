"""Every line of the documents' shell blocks, and the README's agent, run in processes of their own to the effect told.

What ends by itself within seconds is run in `test_documents_run`. All others run here as they stand, on the ports
that they name, in a copy of the checkout. As root each story has a network of its own, where every port is free;
without, they run one after the other, and 7860, 8080, 8081 and 8082 have to be free on this machine.

`APPENDED` is all that is added to a line. Nothing is fetched: pip and npm are told to make do with what `make test` has
installed. Two things are therefore not shown: that the packages can be downloaded, and `bench peers` with the peers
themselves, whose environments are gigabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sysconfig
import threading
import venv
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import uvicorn
from playwright.sync_api import expect

from tests import tiny_qwen
from tests.networks import NAMESPACES, Host, free_ports
from tests.page_mock.browser import CHROMIUM, chromium, complaints
from tests.test_documents import DOCUMENTS, ROOT
from tests.test_documents_run import ENDING, code_of
from voice_agent.bench.results import CallResult, Results
from voice_agent.bench.synthetic import Behaviour, create_app
from voice_agent.client import CallClient
from voice_agent.models import QWEN

pytestmark = [pytest.mark.realtime, pytest.mark.browser]

T = TypeVar("T")

ONCE = ("--trials", "1", "--no-calibrate")
APPENDED: dict[str, tuple[str, ...]] = {
    "voice-agent bench run --serve": ("order-zh", *ONCE),
    "voice-agent bench run order-zh barge-in": (*ONCE, "--parallel", "2"),
    "voice-agent bench run mine.yaml": ONCE,
    "voice-agent bench load": ("--callers", "1", "--calls-each", "1", "--hold", "1"),
    "voice-agent bench networks": ("order-zh", "--trials", "1", "--only", "clean"),
    "voice-agent bench peers": ("order-zh", "--servers", "", *ONCE),
    "voice-agent bench calibrate": ("--calls", "1"),
    "npm install": ("--offline", "--no-audit", "--no-fund"),
}
"""The smallest counts that the command line can ask for, by the beginning of the line."""

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""The second, which pip reads as a switch turned off, has it build with what is installed."""

ENDS_S = 120.0
"""What a line may take to end, or to say that it is ready."""

ORDERED = {"drink": "pearl_milk_tea", "quantity": 1, "size": "medium", "ice": "less_ice", "sugar": "full_sugar"}


def lines_of(document: str) -> list[list[str]]:
    """The words of each line, without its comment."""
    text = (ROOT / document).read_text("utf-8")
    found = re.findall(r"^```bash\n(.*?)^```", text, re.S | re.M)
    lines = [shlex.split(line, comments=True) for code in found for line in code.replace("\\\n", " ").splitlines()]
    return [words for words in lines if words]


@dataclass(frozen=True)
class Terminal:
    """Where a story's lines are typed: a folder, the environment of a checkout, a machine; `state`: what is left."""

    folder: Path
    checkout: Path
    machine: Host
    state: Path

    @contextmanager
    def opened(self, words: list[str]) -> Iterator[subprocess.Popen[str]]:
        """The line as a process at the head of a group, of which nothing is left in the end; `log` has its errors."""
        line = " ".join(words)
        more = [word for begin, options in APPENDED.items() if line.startswith(begin) for word in options]
        binaries = self.checkout / ".venv/bin"
        environment = {**os.environ, **OFFLINE, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": str(self.state)}
        environment["PATH"] = f"{binaries}:{environment['PATH']}"
        for name in ("MAKEFLAGS", "MAKELEVEL", "PYTHONPATH", "VIRTUAL_ENV"):
            environment.pop(name, None)
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*self.machine.prefix, *words, *more],
                cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        watchdog = threading.Timer(ENDS_S, kill)
        watchdog.start()
        with process:
            try:
                yield process
            finally:
                watchdog.cancel()
                kill()

    @property
    def log(self) -> Path:
        return self.state / "errors.log"

    def run(self, words: list[str], *codes: int) -> str:
        """What the line prints, once it has ended with one of these exit codes (0)."""
        with self.opened(words) as process:
            assert process.stdout is not None
            told = process.stdout.read()
            process.wait()
        assert process.returncode in (codes or (0,)), f"{words}: {process.returncode}\n{told}{self.log.read_text()}"
        return told

    @contextmanager
    def serving(self, words: list[str], ready: str) -> Iterator[str]:
        """What the line prints until that is `ready` (a pattern); in the end Ctrl-C, which leaves no error."""
        with self.opened(words) as process:
            assert process.stdout is not None
            told = ""
            while not re.search(ready, told):
                line = process.stdout.readline()
                assert line, f"{words}: expected {ready!r}, got {told}{self.log.read_text()}"
                told += line
            yield told
            os.killpg(process.pid, signal.SIGINT)
            process.wait(20)
        # `make` is ended by the signal itself, and says so if what it ran went wrong.
        assert process.returncode == (-signal.SIGINT if words[0] == "make" else 0), words
        assert not re.search(r"^make: .* Error|Traceback", errors := self.log.read_text(), re.M), errors

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run this on the machine, in a loop of its own."""
        return self.machine.start(work).result(ENDS_S)

    def get(self, url: str, **headers: str) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(trust_env=False, verify=False, headers=headers) as http:
                return await http.get(url)

        response = self.do(asked)
        assert response.status_code == 200, response.text
        return response


Story = Callable[..., None]
STORIES: dict[str, tuple[Story, str, tuple[str, ...]]] = {}
"""By name: what is run with the lines of a document that begin with these words."""


def story(document: str, *begins: str) -> Callable[[Story], Story]:
    def named(work: Story) -> Story:
        STORIES[work.__name__] = (work, document, begins)
        return work

    return named


def lines_for(document: str, begins: tuple[str, ...]) -> list[list[str]]:
    lines = lines_of(document)
    return [next(words for words in lines if " ".join(words).startswith(begin)) for begin in begins]


def typed(terminal: Terminal) -> dict[str, Any]:
    """An order in writing at the server on port 8080, whose answer is heard: the event with its cart."""

    async def order() -> dict[str, Any]:
        async with CallClient("http://127.0.0.1:8080") as call:
            call.write("one pearl milk tea with less ice please")
            while not (cart := (await call.wait_for("agent.cart.updated")).data["cart"])["lines"]:
                pass  # the empty one that a call begins with
            while not any(abs(piece.pcm).max() > 1000 for piece in call.received):
                await asyncio.sleep(0.05)
            return cart

    return terminal.do(lambda: asyncio.wait_for(order(), 30))


# ---- the longest first


@story("docs/bench.md", "voice-agent bench calibrate")
def bench_tells_its_own_error(terminal: Terminal, calibrate: list[str]) -> None:
    """Whether it is within 15 ms is `test_bench_call`'s question, which has the machine for itself."""
    told = " ".join(terminal.run(calibrate, 0, 1).split())
    assert re.search(
        r"v2v error p50 \S+ ms, p95 \S+ ms \(n = 12\); yield error .* \(n = 6\): (NOT )?within 15 ms", told
    )


# By port. Made here and not in a story: FastAPI mutes a warning while it reads routes, and threads undo each other's.
OTHERS = {port: create_app(Behaviour(reply_ms=1600, eot_ms=800, delays_ms=(900,))) for port in (8080, 7860)}


@contextmanager
def other_server(terminal: Terminal, port: int, at: str = "") -> Iterator[None]:
    """A server by somebody else, which answers in tones and keeps no cart; its routes lie below the path `at`."""

    async def below(scope: Any, receive: Any, send: Any) -> None:
        if "path" in scope:
            assert scope["path"].startswith(at), scope["path"]
            scope = {**scope, "path": scope["path"].removeprefix(at)}
        await OTHERS[port](scope, receive, send)

    @asynccontextmanager
    async def serving() -> AsyncIterator[None]:
        server = uvicorn.Server(uvicorn.Config(below, "127.0.0.1", port, log_level="warning", lifespan="on"))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        yield
        server.should_exit = True
        await task

    with terminal.machine.holding(serving()):
        yield


def calls_of(terminal: Terminal, folder: str = "bench-out") -> list[CallResult]:
    """The calls of a run; none has failed, and each was answered."""
    calls = list(Results.load(terminal.folder / folder / "results.json").calls)
    assert not [call.recording for call in calls if call.failed]
    return calls


def broken(calls: list[CallResult]) -> set[str]:
    """The assertions that did not hold. Speed is not asked for here, where other work goes on beside."""
    return {check.what for call in calls for check in call.checks if not check.passed and "ms" not in check.what}


@story("docs/bench.md", "voice-agent bench run order-zh barge-in")
def bench_calls_a_server(terminal: Terminal, bench: list[str]) -> None:
    with other_server(terminal, 8080):
        terminal.run(bench, 1)
    calls = calls_of(terminal)
    assert sorted(call.scenario for call in calls) == ["barge-in", "order-zh"]
    assert broken(calls) == {"cart", "cer"}


@story("docs/bench.md", "voice-agent bench run mine.yaml")
def bench_calls_a_server_of_another_kind(terminal: Terminal, bench: list[str]) -> None:
    """With the scenario of the same page."""
    (scenario,) = code_of("docs/bench.md", "yaml")
    (terminal.folder / "mine.yaml").write_text(scenario, "utf-8")
    for name in ("order.wav", "wait.wav"):
        shutil.copy(ROOT / "demos/ordering/order.wav", terminal.folder / name)
    with other_server(terminal, 7860, at="/api"):
        terminal.run(bench, 1)
    calls = calls_of(terminal)
    assert [call.scenario for call in calls] == ["change-of-mind"]
    assert broken(calls) == {"cart", "cer", "reply_has"}


@story("docs/bench.md", "voice-agent bench load")
def bench_finds_how_many_it_holds(terminal: Terminal, load: list[str]) -> None:
    told = terminal.run(load)
    assert "held at 1.5×: 1 of the callers tried" in told
    assert "0 of 1" in told


@story("docs/bench.md", "voice-agent bench run --serve")
def bench_serves_for_itself(terminal: Terminal, bench: list[str]) -> None:
    terminal.run(bench, 0, 1)
    assert broken(calls_of(terminal)) == set()
    assert "order-zh" in (terminal.folder / "bench-out/report.html").read_text("utf-8")


@story("docs/bench.md", "voice-agent bench networks")
def bench_lays_networks_between(terminal: Terminal, networks: list[str]) -> None:
    assert "| clean | 1 | 1 of 1 |" in terminal.run(networks)


@story("docs/bench.md", "voice-agent bench peers")
def bench_puts_this_server_into_a_table(terminal: Terminal, peers: list[str]) -> None:
    told = terminal.run(peers)
    assert "| figure | this server |" in told
    assert "(1 of 1) |" in told
    assert broken(calls_of(terminal, "bench-peers/this-server")) == set()


@story(
    "demos/openai_clients/README.md",
    "make serve",
    "npm install",
    "python3 -m http.server",
    ".venv/bin/pip",
    ".venv/bin/python",
)
def openais_clients_order(
    terminal: Terminal, serve: list[str], install: list[str], files: list[str], pip: list[str], order: list[str]
) -> None:
    """The page is used in `test_agents_realtime`; here, that it is served and may call."""
    terminal.run(install)
    assert "already satisfied: openai>=2" in terminal.run(pip)
    with terminal.serving(serve, r"answers calls at http://127\.0\.0\.1:8080 "), terminal.serving(files, "port 8081"):
        assert "order.js" in terminal.get("http://127.0.0.1:8081").text
        agent = terminal.get("http://127.0.0.1:8080/v1/agent", origin="http://127.0.0.1:8081")
        assert agent.headers["access-control-allow-origin"] == "http://127.0.0.1:8081"
        told = terminal.run(order)
    cart = json.loads(told[told.index("\n{") :])
    assert [ORDERED.items() <= line.items() for line in cart["lines"]] == [True]
    assert re.search(r"^tool: add ", told, re.M)
    assert re.search(r"^agent: .*珍珠奶茶", told, re.M)


@story("demos/webrtc_sdk/README.md", "make serve", "npm install", "python3 -m http.server", "node")
def the_sdk_orders_on_a_page_and_without_a_screen(
    terminal: Terminal, serve: list[str], install: list[str], files: list[str], node: list[str]
) -> None:
    terminal.run(install)
    with terminal.serving(serve, r"answers calls at http://127\.0\.0\.1:8080 "), terminal.serving(files, "port 8082"):
        with chromium(program=terminal.machine.program(CHROMIUM, terminal.state)) as browser:
            page = browser.new_page()
            found = complaints(page)
            page.goto("http://127.0.0.1:8082")
            page.click("#call")
            expect(page.locator("#state")).to_have_text("live")
            page.fill("#text", "one oolong tea")
            page.press("#text", "Enter")
            expect(page.locator("#talk")).to_contain_text("you: one oolong tea")
            expect(page.locator("#talk .heard").last).to_contain_text("oolong", timeout=30_000)
            assert found == []
        *told, cart = terminal.run(node).splitlines()
    assert [ORDERED.items() <= line.items() for line in json.loads(cart)["lines"]] == [True]
    assert any(text.startswith("caller: ") and "珍珠奶茶" in text for text in told)
    assert any(text.startswith("agent: ") and "珍珠奶茶" in text for text in told)


@story("README.md", "make demo")
def the_demo_orders_and_is_heard(terminal: Terminal, demo: list[str]) -> None:
    told = terminal.run(demo)
    assert "add(drink=pearl_milk_tea, ice=less_ice)" in told
    assert (terminal.folder / "reply.wav").stat().st_size > 24_000


@story("README.md", "make serve")
def the_server_shows_its_page(terminal: Terminal, serve: list[str]) -> None:
    with terminal.serving(serve, r"ordering \(tea-omni\) answers calls at http://127\.0\.0\.1:8080 "):
        page = terminal.get("http://127.0.0.1:8080").text
        for file in re.findall(r'(?:src|href)="([\w/.]+)"', page):
            terminal.get(f"http://127.0.0.1:8080/{file}")


@story("docs/deploy.md", "make serve TLS=1")
def a_phone_is_told_where_to_go(terminal: Terminal, serve: list[str]) -> None:
    if terminal.machine.name:
        terminal.machine.ip("addr", "add", "10.214.0.7/24", "dev", "lo")
    with terminal.serving(serve, "SHA-256 .*\n") as told:
        address = re.findall(r"answers calls at (https://[\d.]+:8080) ", told)[0]
        assert address == "https://10.214.0.7:8080" or not terminal.machine.name, "how others reach it"
        assert told.count("█") > 100, "a QR code"
        host = address.removeprefix("https://").removesuffix(":8080")

        async def certificate() -> str:
            return ssl.get_server_certificate((host, 8080))

        shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(terminal.do(certificate))).hexdigest().upper()
        assert shown in told.replace(":", "")
        assert terminal.get(f"{address}/v1/agent").json()["model"] == "tea-omni"
        assert (terminal.state / "voice-agent/key.pem").stat().st_mode & 0o077 == 0


@story("docs/qwen.md", ".venv/bin/pip", ".venv/bin/voice-agent")
def tickets_are_sold_by_another_model(terminal: Terminal, pip: list[str], serve: list[str]) -> None:
    """In an environment where nothing of this project is installed; the model is a tiny one, of random weights."""
    (code,), (settings,) = code_of("docs/qwen.md", "python"), code_of("docs/qwen.md", "yaml")
    fresh = copied(terminal.state / "fresh")
    tiny_qwen.save(tiny_qwen.network(), fresh / "model")
    (fresh / "tickets.py").write_text(code.replace(QWEN, str(fresh / "model")), "utf-8")
    (fresh / "qwen.yaml").write_text(settings, "utf-8")
    terminal = replace(terminal, folder=fresh, checkout=fresh)
    assert not (fresh / ".venv/bin/voice-agent").exists()
    terminal.run(pip)
    with terminal.serving(serve, r"answers calls at http://127\.0\.0\.1:8080 "):
        agent = terminal.get("http://127.0.0.1:8080/v1/agent").json()
        assert (agent["model"], agent["tools"]) == (str(fresh / "model"), ["search", "book"])


@story("web/sdk/README.md", "npm install")
def the_sdk_is_installed(terminal: Terminal, install: list[str]) -> None:
    """What the guide goes on with is run in `test_sdk`."""
    terminal.run(install)
    modules = terminal.folder / "node_modules"
    assert [path.name for path in modules.iterdir() if path.is_dir()] == ["voice-agent-sdk"], "it needs no other"
    assert (modules / "voice-agent-sdk/src/index.js").is_file()


@story("README.md")
def the_readmes_agent_answers(terminal: Terminal) -> None:
    (code,) = code_of("README.md", "python")
    (terminal.folder / "agent.py").write_text(code, "utf-8")
    with terminal.serving(["python", "agent.py"], r"answers calls at http://127\.0\.0\.1:8080 "):
        agent = terminal.get("http://127.0.0.1:8080/v1/agent").json()
        assert (agent["model"], len(agent["tools"])) == ("tea-omni", 8)
        assert typed(terminal)["lines"][0].items() >= ORDERED.items()


# ---- running them


def copied(folder: Path) -> Path:
    """A copy of the checkout with an environment, made as `make` makes it, that finds the packages of this one."""
    left = {path.name for path in ROOT.iterdir() if path.name.startswith(".")} | {
        "bench-out",
        "evidence",
        "tests",
        "tools",
    }

    def ignored(of: str, names: list[str]) -> set[str]:
        return (left if Path(of) == ROOT else {"__pycache__"}) & set(names)

    shutil.copytree(ROOT, folder, symlinks=True, ignore=ignored)
    venv.create(folder / ".venv", symlinks=True)
    site = next((folder / ".venv/lib").glob("python*")) / "site-packages"
    (site / "these.pth").write_text(sysconfig.get_path("purelib"))
    pip = folder / ".venv/bin/pip"
    pip.write_text(f"#!{folder}/.venv/bin/python\nfrom pip._internal.cli.main import main\nraise SystemExit(main())\n")
    pip.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set up by the rule that `make serve` and `make demo` begin with."""
    folder = copied(tmp_path_factory.mktemp("copy") / "checkout")
    Terminal(folder, folder, Host("", "127.0.0.1"), folder.parent).run(["make", ".venv/.installed"])
    assert (folder / ".venv/bin/voice-agent").is_file()
    return folder


@pytest.fixture(scope="module")
def told(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[None]]]:
    """The stories that were chosen, which run beside each other: most of their time is that of speech."""

    def tell(name: str) -> None:
        work, document, begins = STORIES[name]
        state = tmp_path_factory.mktemp(name)
        # Those of the bench can be typed anywhere, and leave their files there.
        folder = state if document == "docs/bench.md" else checkout
        with free_ports() as machine:
            work(Terminal(folder, checkout, machine, state), *lines_for(document, begins))

    chosen = {item.name for item in request.session.items}
    with ThreadPoolExecutor(3 if NAMESPACES else 1) as pool:
        yield {name: pool.submit(tell, name) for name in STORIES if f"{TOLD.__name__}[{name}]" in chosen}


@pytest.mark.parametrize("name", STORIES)
def test_the_lines_do_what_the_document_says(name: str, told: dict[str, Future[None]]) -> None:
    told[name].result()


TOLD = test_the_lines_do_what_the_document_says


def test_every_line_is_run_by_a_test() -> None:
    """Each by one story, or as one of those that end by themselves."""
    for document in {str(path.relative_to(ROOT)) for path in DOCUMENTS} - {"README.zh.md"}:
        run = [begin for _, of, begins in STORIES.values() if of == document for begin in begins]
        run += [f"voice-agent {begin}" for begin in ENDING]
        lines = [" ".join(words) for words in lines_of(document)]
        assert [line for line in lines if not line.startswith(tuple(run))] == []


def test_both_readmes_show_the_same_lines_and_the_same_agent() -> None:
    assert lines_of("README.md") == lines_of("README.zh.md")
    assert code_of("README.md", "python") == code_of("README.zh.md", "python")

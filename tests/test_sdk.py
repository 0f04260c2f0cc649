"""The JavaScript SDK on its fake transport in Chromium, its types and its size; what is generated is up to date."""

from __future__ import annotations

import functools
import gzip
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from tests import npm
from tests.page_mock.scripted_server import serve_scripted
from tests.page_mock.site import ROOT
from tools.sdk import events
from voice_agent import wire

SDK = ROOT / "web/sdk"
TOOLS = npm.SDK_TOOLS


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page with `call` on `server`, its fake transport; `seen` collects the call's states."""
    page = browser.new_page()
    page.goto(address)
    page.evaluate(
        """async () => {
          const [{ VoiceCall }, { FakeTransport }] = await Promise.all(
            [import("/sdk/src/index.js"), import("/sdk/src/fake.js")]);
          window.server = new FakeTransport();
          window.make = (options = {}) => {
            const call = new VoiceCall({ transport: server, ...options });
            window.seen = [];
            call.on("state", ({ status, ...rest }) => seen.push(rest.error ? `${status} ${rest.error.code}` : status));
            return call;
          };
          window.call = make();
          window.sent = () => server.sent.map(({ type }) => type);
          window.settled = () => new Promise((resolve) => setTimeout(resolve, 20));
        }"""
    )
    yield page
    page.close()


pytestmark = pytest.mark.browser


def test_a_call_connects_speaks_and_ends(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          await call.connect({ microphone: true, deviceId: "desk", muted: true });
          const id = call.say("one oolong tea");
          call.hangUp();
          const { opened, muted, sent, saidGoodbye: goodbye } = server;
          return { id, opened, muted, sent, goodbye, seen };
        }"""
    )
    assert told["opened"] == {"microphone": True, "deviceId": "desk"}
    assert told["muted"] is True
    item = told["sent"][0]["item"]
    assert item == {
        "id": told["id"],
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "one oolong tea"}],
    }
    for event in told["sent"]:
        wire.parse(event)
    assert [event["type"] for event in told["sent"]] == ["conversation.item.create", "response.create"]
    assert told["seen"] == ["connecting", "live", "ended"]
    assert told["goodbye"] is True


def test_events_reach_their_listeners_and_stop_when_asked(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const heard = [];
          const stop = call.on("agent.playout.heard", ({ text }) => heard.push(text));
          call.on("event", ({ type }) => heard.push(type));
          call.on("audio", ({ playing }) => heard.push(playing));
          await call.connect();
          await settled();
          server.emit({ type: "agent.playout.heard", text: "Sure" });
          stop();
          server.emit({ type: "agent.playout.heard", text: "Sure, one" });
          call.hangUp();
          server.emit({ type: "agent.playout.heard", text: "late" });
          return heard;
        }"""
    )
    assert told == [True, "agent.playout.heard", "Sure", "agent.playout.heard"]


def test_interrupting_cancels_what_is_made_and_clears_what_sounds(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          await call.connect();
          call.interrupt();
          const idle = sent();
          server.emit({ type: "response.created", response: { id: "r1" } });
          call.interrupt();
          return [idle, sent().slice(idle.length)];
        }"""
    )
    assert told == [["output_audio_buffer.clear"], ["response.cancel", "output_audio_buffer.clear"]]


TOOL_CALL = """
  const item = (name, call_id, args) => ({ type: "response.output_item.done", response_id: "r1",
    item: { type: "function_call", status: "completed", name, call_id, arguments: args } });
  const done = (status) => ({ type: "response.done", response: { id: "r1", status } });
  const tools = {
    weigh: { description: "Weighs.", parameters: { type: "object" },
      run: async ({ grams }) => ({ kilos: grams / 1000 }) },
    fail: { description: "Fails.", parameters: { type: "object" }, run: () => { throw new Error("no scale"); } },
  };
"""


def test_tools_are_announced_run_and_answered_once(page: Page) -> None:
    told = page.evaluate(
        f"""async () => {{
          {TOOL_CALL}
          window.call = make({{ tools }});
          await call.connect();
          server.emit({{ type: "response.created", response: {{ id: "r1" }} }});
          server.emit(item("weigh", "c1", '{{"grams": 500}}'));
          server.emit(item("fail", "c2", "{{}}"));
          server.emit(item("fly", "c3", "{{}}"));
          server.emit(done("completed"));
          await settled();
          return server.sent;
        }}"""
    )
    assert [tool["name"] for tool in told[0]["session"]["tools"]] == ["weigh", "fail"]
    outputs = {event["item"]["call_id"]: json.loads(event["item"]["output"]) for event in told[1:4]}
    assert outputs["c1"] == {"kilos": 0.5}
    assert outputs["c2"] == {"ok": False, "error": "no scale"}
    assert "expected one of weigh, fail, got fly" in outputs["c3"]["error"]
    assert [event["type"] for event in told[4:]] == ["response.create"]
    for event in told:
        wire.parse(event)


def test_a_tool_of_an_interrupted_reply_is_finished_but_nothing_is_said(page: Page) -> None:
    told = page.evaluate(
        f"""async () => {{
          {TOOL_CALL}
          window.call = make({{ tools }});
          await call.connect();
          server.emit(item("weigh", "c1", '{{"grams": 500}}'));
          server.emit(done("cancelled"));
          await settled();
          return sent();
        }}"""
    )
    assert told == ["session.update", "conversation.item.create"]


def test_a_broken_connection_is_replaced_and_takes_the_call_over(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          await call.connect();
          server.failNext("server_unreachable");
          server.lose();
          while (call.state.status !== "live") await settled();
          return { seen, replaces: server.targets.map(({ replaces }) => replaces), id: call.id };
        }"""
    )
    assert told["seen"] == ["connecting", "live", "reconnecting", "reconnecting", "live"]
    assert told["replaces"] == [None, "call_1", "call_1"]
    assert told["id"] == "call_3"


def test_what_was_sent_into_a_broken_connection_counts_as_unheard(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const errors = [];
          call.on("error", ({ error }) => errors.push(error.code));
          await call.connect();
          server.emit({ type: "response.output_item.added", response_id: "r1", item: { type: "message", id: "a1" } });
          server.emit({ type: "output_audio_buffer.started", response_id: "r1" });
          await new Promise((resolve) => setTimeout(resolve, 700));
          server.silent = true;
          while (seen.filter((status) => status === "live").length < 2) await settled();
          const truncations = () => server.sent.filter(({ type }) => type === "conversation.item.truncate");
          const [truncate] = truncations();
          server.emit({ type: "error", error: { code: "item_not_found", event_id: truncate.event_id } });
          server.silent = false;
          server.emit({ type: "output_audio_buffer.stopped", response_id: "r1" });
          server.lose();
          while (seen.filter((status) => status === "live").length < 3) await settled();
          return { truncate, count: truncations().length, errors };
        }"""
    )
    wire.parse(told["truncate"])
    assert (told["truncate"]["type"], told["truncate"]["item_id"]) == ("conversation.item.truncate", "a1")
    assert 0 < told["truncate"]["audio_end_ms"] < 2000, "the two seconds of silence are not among them"
    assert told["count"] == 1, "a reply that was heard to its end is left alone"
    assert told["errors"] == []


def test_what_the_browser_held_back_does_not_count_as_heard(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          server.autoplay = false;
          await call.connect();
          await settled();
          const speak = (id) => {
            server.emit({ type: "response.output_item.added", response_id: id, item: { type: "message", id } });
            server.emit({ type: "output_audio_buffer.started", response_id: id });
            server.emit({ type: "output_audio_buffer.stopped", response_id: id });
          };
          speak("r1");
          await call.play();
          speak("r2");
          return server.sent.filter(({ type }) => type === "conversation.item.truncate");
        }"""
    )
    assert [(event["item_id"], event["audio_end_ms"]) for event in told] == [("r1", 0)]


def test_silence_of_the_network_is_noticed(page: Page) -> None:
    took_ms = page.evaluate(
        """async () => {
          await call.connect();
          const since = performance.now();
          server.silent = true;
          while (seen.filter((status) => status === "live").length < 2) await settled();
          return performance.now() - since;
        }"""
    )
    assert took_ms >= 2000, "shorter gaps repair themselves"
    assert page.evaluate("server.targets.at(-1).replaces") == "call_1"


def test_the_server_is_told_how_late_its_voice_is_heard(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
          const delays = () => server.sent.map(({ delay_ms }) => delay_ms);
          server.report.delayMs = 12;
          await call.connect();
          await pause(600);
          const small = delays();
          server.report.delayMs = 80;
          await pause(600);
          const changed = delays();
          server.emit({ type: "response.output_item.added", response_id: "r1", item: { type: "message", id: "a1" } });
          server.emit({ type: "output_audio_buffer.started", response_id: "r1" });
          server.report.delayMs = 85;
          await pause(2500);
          return { small, changed, speaking: delays().slice(changed.length), sent: server.sent };
        }"""
    )
    assert told["small"] == [], "close to the 0 that the server begins with"
    assert told["changed"] == [80], "once, though nothing is said"
    assert told["speaking"][0] == 85
    assert 2 <= len(told["speaking"]) <= 3, "once a second while the agent speaks"
    for event in told["sent"]:
        wire.parse(event)


def test_the_way_to_the_ear_is_taken_from_the_browsers_statistics(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const { PlayoutMeter, PlayoutReports } = await import("/sdk/src/playout.js");
          const meter = new PlayoutMeter();
          const read = (bufferS, emitted, extra = []) => meter.read(new Map([
            ["in", { type: "inbound-rtp", kind: "audio", packetsReceived: 1, jitterBufferDelay: bufferS,
                     jitterBufferEmittedCount: emitted }],
            ["pair", { type: "candidate-pair", nominated: true, currentRoundTripTime: 0.04 }],
            ...extra]), 0.015).report;
          const first = read(480, 9600);
          const next = read(480 + 48 * 60, 9600 + 48000);
          const stalled = read(480 + 48 * 60, 9600 + 48000);
          const device = read(480 + 48 * 60, 9600 + 48000,
            [["out", { type: "media-playout", totalPlayoutDelay: 480, totalSamplesCount: 24000 }]]);
          return { all: [first, next, stalled, device].map(({ delayMs }) => Math.round(delayMs)),
                   bounded: [new PlayoutReports().next(9000, true, 0), new PlayoutReports().next(-5, true, 0)] };
        }"""
    )
    assert told["all"] == [20 + 50 + 15, 20 + 60 + 15, 20 + 60 + 15, 20 + 60 + 20]
    assert told["bounded"] == [5000, 0]


@pytest.mark.parametrize("code", ["call_forgotten", "unauthorized"])
def test_what_cannot_get_better_ends_the_call(page: Page, code: str) -> None:
    told = page.evaluate(
        """async (code) => {
          await call.connect();
          server.failNext(code);
          server.lose();
          while (call.state.status !== "ended") await settled();
          return { seen, hint: call.state.error.hint };
        }""",
        code,
    )
    assert told["seen"][-1] == f"ended {code}"
    assert len(told["hint"]) > 20


def test_a_server_that_says_goodbye_ends_the_call(page: Page) -> None:
    told = page.evaluate("async () => { await call.connect(); server.end(); await settled(); return call.state; }")
    assert told == {"status": "ended", "by": "server", "error": None}


def test_hanging_up_while_connecting_or_reconnecting_is_final(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          server.neverConnect();
          const connecting = call.connect().catch(({ code }) => code);
          await settled();
          call.hangUp();
          return [await connecting, seen, server.connected];
        }"""
    )
    assert told == ["cancelled", ["connecting", "ended"], False]


def test_a_server_whose_call_found_no_path_is_told_that_it_is_over(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          server.failNext("ice_failed");
          const reason = await call.connect().catch(({ message }) => message);
          return [reason, seen, server.saidGoodbye];
        }"""
    )
    assert told[0].startswith("ice_failed. No path for the sound. Allow UDP")
    assert told[1:] == [["connecting", "ended ice_failed"], True]


def test_a_listener_that_fails_stops_nobody_else(page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    status = page.evaluate(
        """async () => {
          call.on("state", () => { throw new Error("the page's mistake"); });
          await call.connect();
          await settled();
          return call.state.status;
        }"""
    )
    assert status == "live"
    assert errors
    assert all("the page's mistake" in error for error in errors)


def test_microphone_and_page_errors_say_what_to_do(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const { VoiceCall } = await import("/sdk/src/index.js");
          const attempt = async () => {
            const call = new VoiceCall();
            return call.connect().then(() => "live", ({ code, hint }) => [code, hint]);
          };
          const results = [];
          for (const name of ["NotAllowedError", "NotFoundError", "NotReadableError"]) {
            navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("no", name); };
            results.push(await attempt());
          }
          Object.defineProperty(window, "isSecureContext", { value: false });
          results.push(await attempt());
          return results;
        }"""
    )
    assert [code for code, _ in told] == ["microphone_denied", "no_microphone", "microphone_busy", "insecure_page"]
    assert "https" in told[-1][1]


# ---- the guide


GUIDE = re.findall(r"```js\n(.*?)```", (SDK / "README.md").read_text("utf-8"), re.S)
HERE = "http://localhost:8080"
PAGE = f"""<!doctype html>
<script type="importmap">{{"imports": {{"voice-agent-sdk": "/sdk/src/index.js"}}}}</script>
<button></button>
<script type="module">{GUIDE[0]}</script>"""


def test_the_guides_page_says_what_is_wrong_and_shows_both_sides(browser: Browser) -> None:
    """At the address of the guide: a call that is refused, then a real one to a server that speaks by a script."""
    page, told, full = browser.new_page(), list[tuple[str, str]](), True
    page.on("console", lambda message: told.append((message.type, message.text)))

    def until(condition: Callable[[], object]) -> None:
        for _ in range(200):
            if condition():
                return
            page.wait_for_timeout(50)
        pytest.fail(f"the page printed {told}")

    with serve_scripted() as server:

        def answer(route: Route) -> None:
            request = route.request
            if request.url == f"{HERE}/":
                route.fulfill(body=PAGE, content_type="text/html")
            elif request.method == "POST" and full:
                route.fulfill(status=503, json={"error": {"message": "all 4 lines are in use"}})
            else:
                headers = {**request.headers, "origin": server.address}
                route.fulfill(response=route.fetch(url=request.url.replace(HERE, server.address), headers=headers))

        page.route(f"{HERE}/**", answer)
        page.goto(HERE)
        page.click("button")
        until(lambda: ("error", "All lines are taken: call again in a moment.") in told)
        full = False
        page.goto(HERE)
        page.click("button")
        until(lambda: server.sessions and server.sessions[0].loudest > 1000)
        for event in (
            {"type": "conversation.item.input_audio_transcription.completed", "transcript": "an oolong tea"},
            {"type": "response.output_audio_transcript.done", "transcript": "One oolong tea."},
        ):
            server.call(functools.partial(server.sessions[0].send, event))
        until(lambda: ("log", "agent: One oolong tea.") in told)
        assert ("log", "caller: an oolong tea") in told
        page.close()


# ---- the package


def test_what_a_page_loads_is_small() -> None:
    files = [path for path in (SDK / "src").glob("*.js") if path.name != "fake.js"]
    bytes_ = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    print(f"the SDK is {bytes_} bytes, gzipped, with its comments")
    assert bytes_ <= 15_000


def test_every_module_is_loaded_by_the_index() -> None:
    imports = {
        path.name: set(re.findall(r'from "\./(\w+\.js)"', path.read_text())) for path in (SDK / "src").glob("*.js")
    }
    reached, todo = set(), ["index.js"]
    while todo:
        name = todo.pop()
        reached.add(name)
        todo += imports[name] - reached
    assert reached == set(imports) - {"fake.js"}


def test_event_types_are_those_of_the_servers_schemas() -> None:
    assert events.OUTPUT.read_text("utf-8") == events.render(wire.schemas()), "run `make sdk`"


def test_a_schema_that_cannot_be_written_as_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a JSON schema of a kind used by the events"):
        events.type_of({"type": "tuple"}, "Server")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_declarations_and_api_page_are_those_of_the_source(tmp_path: Path) -> None:
    npm.installed(TOOLS)
    run(TOOLS, "npx", "tsc", "-p", ".", "--outDir", str(tmp_path / "types"))
    declared = texts(SDK / "types")
    declared.pop("events.d.ts")
    assert texts(tmp_path / "types") == declared, "run `make sdk`"
    run(TOOLS, "npx", "typedoc", "--out", str(tmp_path / "api"))
    assert texts(tmp_path / "api") == texts(ROOT / "docs/sdk"), "run `make sdk`"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project with the SDK installed from its folder."""
    npm.installed(TOOLS)
    folder = tmp_path_factory.mktemp("project")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    run(folder, "npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", str(SDK))
    return folder


def test_the_readmes_test_runs_without_a_browser(project: Path) -> None:
    (project / "example.js").write_text(GUIDE[1], "utf-8")
    assert run(project, "node", "example.js") == "[ 'output_audio_buffer.clear' ]\n"


TYPED = """
import { CallError, VoiceCall, type CallState } from "voice-agent-sdk";
import { FakeTransport } from "voice-agent-sdk/testing";

const call = new VoiceCall({ transport: new FakeTransport() });
call.on("response.output_audio_transcript.delta", ({ delta }) => delta.toUpperCase());
call.on("agent.turn.latency", ({ v2v_ms }) => v2v_ms.toFixed());
call.on("agent.cart.updated", ({ cart }) => Object.keys(cart));
call.on("agent.state.updated", ({ name, state }) => ({ [name.toUpperCase()]: state }));
call.on("playout", ({ jitterBufferMs }) => jitterBufferMs.toFixed());
call.send({ type: "conversation.item.retrieve", item_id: "item_1" });
const told = (state: CallState): string => (state.status === "ended" ? (state.error?.hint ?? "") : state.status);
call.on("state", (state) => told(state));
call.connect().catch((error: CallError) => error.code === "microphone_denied");

// @ts-expect-error there is no such event
call.on("response.output_audio_transcript.dleta", () => {});
// @ts-expect-error this event has no such field
call.on("agent.turn.latency", ({ v2v }) => v2v);
// @ts-expect-error an item must be named
call.send({ type: "conversation.item.retrieve" });
// @ts-expect-error no such code
new CallError("microphone_gone");
"""


def test_a_typescript_project_is_told_its_mistakes(project: Path) -> None:
    (project / "typed.ts").write_text(TYPED, "utf-8")
    tsc = str(TOOLS / "node_modules/.bin/tsc")
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,dom,dom.iterable"]
    run(project, tsc, *options, "typed.ts")

"""The command line: `voice-agent serve | call | chat | models | plan`."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from voice_agent.bench.commands import app as bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from voice_agent.agent import Agent
    from voice_agent.engine.protocols import Language
    from voice_agent.engine.stages import ThinkerStage

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(bench, name="bench")
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

AgentPath = Annotated[Path | None, typer.Option("--agent", help="File or folder of an agent; the ordering demo.")]
ConfigPath = Annotated[Path | None, typer.Option("--config", help="YAML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def main() -> None:
    """Entry point: an expected error is one sentence on stderr and exit code 2."""
    from voice_agent.weights import WeightsError

    try:
        app()
    except (ValueError, WeightsError, FileNotFoundError, PermissionError, ConnectionError) as error:
        err.print(f"[bold red]error:[/] {error}", soft_wrap=True)
        raise SystemExit(2) from None


@app.command()
def serve(
    agent: AgentPath = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0: any free one.")] = 8080,
    config: ConfigPath = None,
    tls: Annotated[bool, typer.Option("--tls", help="https: makes a certificate unless one is configured.")] = False,
) -> None:
    """Answer calls from browsers and WebRTC clients until interrupted."""
    from voice_agent.loading import load_agent
    from voice_agent.runtime import run_server

    run_server(load_agent(agent), host=host, port=port, config_path=config, tls=tls)


@app.command()
def models(as_json: AsJson = False) -> None:
    """What models there are: source, sha256, size and licence of each file."""
    from voice_agent.qwen.listing import list_qwen
    from voice_agent.weights import list_models

    rows = [*list_models(), *list_qwen()]
    if as_json:
        for row in rows:
            print(json.dumps({**row.__dict__, "path": str(row.path)}, ensure_ascii=False, default=str))
        return
    table = Table("model", "part", "size", "sha256", "licence", "source", "here", box=None)
    for row in rows:
        size = f"{row.bytes / 1e6:.1f} MB" if row.bytes else "–"
        table.add_row(
            row.name, row.part, size, row.sha256[:12], row.licence, row.source, "yes" if row.present else "no"
        )
    out.print(table)


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="tea-omni, Qwen3-Omni by its name on the hub, or a folder with it.")],
    gpu: Annotated[
        str, typer.Option(help="Its name as H100, or GiB,GB/s,TFLOPS; cpu: a core of this machine.")
    ] = "cpu",
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """What a model asks of a device, before anything is loaded: bytes, calls that fit, the stage that is full first."""
    from voice_agent.config import load_config
    from voice_agent.planning import in_bytes, make_plan, told

    made = make_plan(model, gpu, load_config(config))
    if as_json:
        print(json.dumps(made.view()))
        return
    columns = ("stage", "weights", "a call", "a token", "step ms, 1 call", "8 calls", "64 calls", "calls")
    table = Table(*columns, box=None, pad_edge=False)
    for name, view in made.view()["stages"].items():
        sizes = [in_bytes(view[f"{of}_bytes"]) for of in ("weights", "call", "token")]
        table.add_row(name, *sizes, *(f"{ms:.2f}" for ms in view["step_ms"].values()), str(view["calls"]))
        for inner, its in view["inner"].items():
            sizes = [in_bytes(its[f"{of}_bytes"]) for of in ("weights", "call", "token")]
            table.add_row(f"  {inner}", *sizes)
    out.print(f"[bold]{made.model}[/] on {made.device.name}")
    out.print(table)
    for sentence in told(made):
        out.print(sentence)


@asynccontextmanager
async def _thinker(agent: Agent) -> AsyncIterator[ThinkerStage]:
    import torch

    from voice_agent.engine.stages import ThinkerStage
    from voice_agent.models import load_model
    from voice_agent.runtime import check_agent

    torch.set_num_threads(1)
    model = load_model(agent.model, slots=2)
    check_agent(agent, model)
    stage = ThinkerStage(model.thinker)
    try:
        yield stage
    finally:
        stage.close()


@app.command()
def chat(
    agent: AgentPath = None,
    language: Annotated[str, typer.Option("--lang", help="zh or en, for the interactive chat.")] = "zh",
    file: Annotated[Path | None, typer.Option("--file", help="Dialogues to play, one JSON object a line.")] = None,
    as_json: AsJson = False,
) -> None:
    """The same agent by text: interactive, or dialogues from a file with their final carts compared."""
    from voice_agent.loading import load_agent

    if language not in ("zh", "en"):
        raise ValueError(f"--lang: expected zh or en, got {language!r}")
    loaded = load_agent(agent)
    if file is None:
        asyncio.run(_talk(loaded, language))  # type: ignore[arg-type]
    else:
        asyncio.run(_play(loaded, file, as_json))


async def _talk(agent: Agent, language: Language) -> None:
    from voice_agent.chat import Chat

    async with _thinker(agent) as thinker:
        chat = Chat(agent, thinker, language)
        out.print("[dim]Say something; an empty line ends the chat.[/]")
        while text := (await asyncio.to_thread(input, "> ")).strip():
            chat.language = "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in text) else "en"
            told = len(chat.tools)
            reply = await chat.say(text)
            for call, result in chat.tools[told:]:
                _show_tool(call.name, dict(call.arguments), result)
            out.print(f"[bold]{reply}[/]")


async def _play(agent: Agent, file: Path, as_json: bool) -> None:
    from voice_agent.evaluate import play, read_dialogues

    dialogues = read_dialogues(file)
    exact = done = 0
    async with _thinker(agent) as thinker:
        async for outcome in play(agent, thinker, dialogues):
            done += 1
            exact += outcome.ok
            cart = [line.model_dump() for line in outcome.cart]
            if as_json:
                print(json.dumps({"ok": outcome.ok, "cart": cart, "replies": outcome.replies}, ensure_ascii=False))
                continue
            mark = "[green]ok[/]" if outcome.ok else "[red]no[/]"
            out.print(f"{mark} {' / '.join(outcome.dialogue.turns)}")
            if not outcome.ok:
                out.print(f"   [dim]expected[/] {_brief(outcome.dialogue.cart)}")
                out.print(f"   [dim]got     [/] {_brief(outcome.cart)}")
                out.print(f"   [dim]replies [/] {' / '.join(outcome.replies)}")
    print(json.dumps({"dialogues": done, "exact": exact}))


def _brief(cart: Any) -> str:
    return "; ".join(
        " ".join([str(line.quantity), line.drink, line.size, line.ice, line.sugar, *line.toppings]) for line in cart
    )


def _show_tool(name: str, arguments: dict[str, Any], result: Any) -> None:
    given = ", ".join(f"{key}={value}" for key, value in arguments.items())
    error = result.get("error") if isinstance(result, dict) else None
    out.print(f"[cyan]{name}({given})[/]" + (f" [red]{error}[/]" if error else ""))
    if isinstance(result, dict) and "cart" in result:
        for line in result["cart"]["lines"]:
            extras = " ".join([line["size"], line["ice"], line["sugar"], *line["toppings"]])
            out.print(f"   [dim]{line['line']}. {line['quantity']} × {line['drink']} {extras}  {line['price']}[/]")


@app.command()
def call(
    recordings: Annotated[list[Path], typer.Argument(help="Sound files, a turn each.")],
    url: Annotated[str, typer.Option(help="A running server.")] = "http://127.0.0.1:8080",
    serve_own: Annotated[bool, typer.Option("--serve", help="Call a server that is started for it.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write what was heard to this WAV file.")] = None,
    save_aligned: Annotated[Path | None, typer.Option(help="Write both voices, a channel each.")] = None,
    key: Annotated[str | None, typer.Option(envvar="VOICE_AGENT_KEY", help="The server's API key.")] = None,
    expect_cart: Annotated[str | None, typer.Option(help="JSON lines of the cart; else exit code 1.")] = None,
    as_json: AsJson = False,
) -> None:
    """Place a real WebRTC call, play recordings into it, and print what happens as it happens."""
    work = _call(recordings, url, serve_own, save, save_aligned, key, expect_cart, as_json)
    raise SystemExit(asyncio.run(_until_terminated(work)))


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM cancels the work, so that a server that was started for it ends too."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


async def _call(
    recordings: list[Path],
    url: str,
    serve_own: bool,
    save: Path | None,
    save_aligned: Path | None,
    key: str | None,
    expect_cart: str | None,
    as_json: bool,
) -> int:
    from contextlib import AsyncExitStack

    from voice_agent.calling import own_server, place_call
    from voice_agent.client import CallRefused, IceFailed
    from voice_agent.evaluate import CartLine, lines_of, same

    expected = None if expect_cart is None else [CartLine.model_validate(line) for line in json.loads(expect_cart)]
    async with AsyncExitStack() as stack:
        if serve_own:
            err.print("[dim]starting a server …[/]")
            url = await stack.enter_async_context(own_server())
        try:
            report = await place_call(
                url,
                recordings,
                on_event=(lambda event: print(json.dumps(event.data, ensure_ascii=False))) if as_json else _show_event,
                save=save,
                save_aligned=save_aligned,
                headers={"Authorization": f"Bearer {key}"} if key else None,
            )
        except IceFailed:
            raise
        except (CallRefused, OSError, TimeoutError) as error:
            raise ConnectionError(f"{url}: {error or type(error).__name__}; is the server running?") from None
    if as_json:
        print(json.dumps({"type": "report", **report.view()}, ensure_ascii=False))
    else:
        _show_report(report)
    reached = lines_of(report.cart) or lines_of(report.placed)
    if expected is not None and not same(reached, expected):
        err.print(f"[bold red]the cart is not the expected one:[/] {_brief(reached) or 'empty'}")
        return 1
    return 0 if all(turn.answered for turn in report.turns) else 1


def _show_event(event: Any) -> None:
    data = event.data
    kind = data["type"]
    if kind == "conversation.item.input_audio_transcription.delta":
        out.print(f"  [dim]hearing[/]  {data['transcript']}")
    elif kind == "conversation.item.input_audio_transcription.completed":
        out.print(f"[bold]caller[/]  {data['transcript']}")
    elif kind == "agent.tool.called":
        _show_tool(data["name"], data["arguments"], data["result"])
    elif kind == "response.output_audio_transcript.done":
        out.print(f"[bold green]agent[/]   {data['transcript']}")
    elif kind == "agent.stage.failed":
        out.print(f"[bold red]failed[/]  {data['stage']}: {data['message']}")
    elif kind == "agent.turn.latency":
        steps = "  ".join(f"{name[:-3]} {value:.0f}" for name, value in data.items() if name.endswith("_ms"))
        out.print(f"  [dim]ms: {steps}[/]")


def _show_report(report: Any) -> None:
    table = Table("recording", "caller", "agent", "V2V ms at RTP arrival", box=None)
    for turn in report.turns:
        v2v = "–" if turn.v2v_ms is None else f"{turn.v2v_ms:.0f}"
        table.add_row(turn.recording, turn.transcript, turn.reply or turn.failed, v2v)
    out.print(table)

"""`voice-agent bench …`: place calls, measure them, show and compare results."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from voice_agent.bench.compare import Change
    from voice_agent.bench.load import Ramp
    from voice_agent.bench.network import Network
    from voice_agent.bench.results import CallResult, Results

app = typer.Typer(no_args_is_help=True, help="Measure what a caller hears, of any server.")
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Url = Annotated[str, typer.Option(help="Of the server, or of its route.")]
Kind = Annotated[str, typer.Option(help="webrtc, offer, realtime or pcm; see docs/bench.md.")]
Key = Annotated[str | None, typer.Option(help="Environment variable with the server's key.")]
Own = Annotated[bool, typer.Option("--serve", help="Start this project's server for it.")]
Seed = Annotated[int, typer.Option(help="Of random delays and networks.")]

PEER_SET = ["order-zh", "order-en", "interruptions", "distractions", "pause-0600", "pause-1000"]


@app.command()
def run(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Files, folders or names; none: the library.")] = None,
    url: Url = "http://127.0.0.1:8080",
    kind: Kind = "webrtc",
    key_from: Key = None,
    serve: Own = False,
    folder: Annotated[Path, typer.Option("--out", help="Folder for recordings and results.")] = Path("bench-out"),
    trials: Annotated[int | None, typer.Option(min=1, help="Calls of each scenario; else what it says.")] = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Calls at a time.")] = 1,
    seed: Seed = 1,
    between: Annotated[
        str | None,
        typer.Option(help="As root, with --serve: DELAY,JITTER,LOSS (ms, ms, %) each way between namespaces."),
    ] = None,
    calibrate: Annotated[bool, typer.Option(help="Measure the bench's own error first.")] = True,
    quality: Annotated[bool, typer.Option("--quality", help="Judge each reply's sound; needs speechmos.")] = False,
    table: Annotated[Path | None, typer.Option(help="Write the figures to this file, as Markdown.")] = None,
    into: Annotated[list[Path] | None, typer.Option(help="Write them between the bench's marks in this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Place the calls of scenarios, and write results.json, report.html and a recording of each call.

    Exit code 1: an assertion did not hold, or a call failed.
    """
    from voice_agent.bench.report import markdown_table, write_into, write_report
    from voice_agent.bench.scenario import check_sounds, find_scenarios

    found = find_scenarios(scenarios or [])
    check_sounds(found)
    network = None if between is None else _network(between, serve)
    folder.mkdir(parents=True, exist_ok=True)
    work = _run(found, url, kind, key_from, serve, folder, trials, parallel, seed, calibrate, network)
    results = asyncio.run(work)
    if quality:
        results = _judged(results, folder)
    results.save(folder / "results.json")
    write_report(results, folder)
    if table is not None:
        table.write_text(markdown_table(results), "utf-8")
    for path in into or ():
        write_into(results, path)
    if as_json:
        print((folder / "results.json").read_text("utf-8"), end="")
    else:
        show(results)
        out.print(f"[dim]{folder / 'report.html'}  {folder / 'results.json'}[/]")
    raise SystemExit(0 if all(check.passed for call in results.calls for check in call.checks) else 1)


async def _run(
    found: list[Any],
    url: str,
    kind: str,
    key_from: str | None,
    serve: bool,
    folder: Path,
    trials: int | None,
    parallel: int,
    seed: int,
    calibrated: bool,
    network: Network | None,
) -> Results:
    from voice_agent.bench.calibrate import calibrate
    from voice_agent.bench.calibrate import show as show_calibration
    from voice_agent.bench.link import target_of
    from voice_agent.bench.namespaces import joined, server_in
    from voice_agent.bench.results import Results
    from voice_agent.bench.runner import about, jobs, run_calls
    from voice_agent.calling import own_server

    target = target_of(url, kind, key_from)
    async with AsyncExitStack() as stack:
        calibration = None
        if calibrated:
            with _progress("calibration", 1) as on_call:
                calibration = await calibrate(folder, calls=1, on_call=on_call)
            err.print(f"[dim]{show_calibration(calibration)}[/]")
        prefix: tuple[str, ...] = ()
        if serve:
            err.print("[dim]starting a server …[/]")
            if network is None:
                url = await stack.enter_async_context(own_server())
            else:
                there, here = await stack.enter_async_context(joined(network, seed))
                url = await stack.enter_async_context(server_in(there))
                prefix = here.prefix
            target = target_of(url, kind, key_from)
        work = jobs(target, found, folder, trials, seed)
        with _progress("calls", len(work)) as on_call:
            calls = await run_calls(work, on_call, parallel, prefix)
    facts = about(target, [scenario for scenario, _ in found], seed)
    if network is not None:
        facts["network"] = network.model_dump()
    return Results(facts, tuple(calls), calibration)


def _judged(results: Results, folder: Path) -> Results:
    """Raises ValueError without speechmos."""
    from dataclasses import replace

    from voice_agent.bench.quality import Judges
    from voice_agent.bench.runner import judge

    try:
        judges = Judges()
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--quality: expected the module {error.name}; in the checkout: pip install -e '.[bench]'"
        ) from None
    return replace(results, calls=tuple(judge(call, folder, judges) for call in results.calls))


def _network(told: str, serve: bool) -> Network:
    """DELAY,JITTER,LOSS. Raises ValueError."""
    from voice_agent.bench.network import Network

    try:
        delay_ms, jitter_ms, loss_pct = map(float, told.split(","))
        network = Network(delay_ms=delay_ms, jitter_ms=jitter_ms, loss_pct=loss_pct)
    except ValueError:
        raise ValueError(f"--between: expected DELAY,JITTER,LOSS such as 80,20,3, got {told!r}") from None
    if not serve:
        raise ValueError("--between: expected --serve with it, for the server has to run in a namespace too")
    return network


class _progress:
    """A bar on a terminal's stderr while calls run; gives what to call after each."""

    def __init__(self, what: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty())
        self._what, self._total = what, total

    def __enter__(self) -> Callable[[Any], None]:
        self._bar.start()
        task = self._bar.add_task(self._what, total=self._total)

        def on_call(call: CallResult) -> None:
            self._bar.update(task, advance=1, description=call.scenario)

        return on_call

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="results.json of the earlier run.")],
    after: Annotated[Path, typer.Argument(help="results.json of the later run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Every figure as JSON.")] = False,
) -> None:
    """What changed between two runs beyond noise. Exit code 1: something got worse."""
    from dataclasses import asdict

    from voice_agent.bench.compare import compare as compare_results
    from voice_agent.bench.results import Results

    changes = compare_results(Results.load(before), Results.load(after))
    if as_json:
        print(json.dumps([asdict(change) for change in changes], ensure_ascii=False, indent=1))
    else:
        _show_changes(changes)
    raise SystemExit(1 if any(change.verdict == "worse" for change in changes) else 0)


@app.command()
def peers(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Files, folders or names; none: a set of them.")] = None,
    servers: Annotated[str, typer.Option(help="Peers to put beside this server, with commas.")] = "pipecat,fastrtc",
    folder: Annotated[Path, typer.Option("--out", help="Folder for recordings and results.")] = Path("bench-peers"),
    trials: Annotated[int | None, typer.Option(min=1, help="Calls of each scenario; else what it says.")] = None,
    seed: Seed = 1,
    calibrate: Annotated[bool, typer.Option(help="Measure the bench's own error first.")] = True,
    table: Annotated[Path | None, typer.Option(help="Write the table to this file, as Markdown.")] = None,
) -> None:
    """This server and others, started here one after the other, by the same calls. Needs PyPI the first time."""
    from voice_agent.bench.beside import OWN, beside, side_by_side
    from voice_agent.bench.calibrate import calibrate as measure_error
    from voice_agent.bench.calibrate import show as show_error
    from voice_agent.bench.peers import recipe_of
    from voice_agent.bench.report import write_report
    from voice_agent.bench.scenario import find_scenarios

    found = find_scenarios(scenarios or PEER_SET)
    names = [OWN, *(recipe_of(name.strip()).name for name in servers.split(",") if name.strip())]
    folder.mkdir(parents=True, exist_ok=True)

    async def measured() -> dict[str, Results]:
        calibration = await measure_error(folder) if calibrate else None
        if calibration is not None:
            err.print(f"[dim]{show_error(calibration)}[/]")
        total = len(names) * sum(trials or scenario.trials for scenario, _ in found)
        with _progress("calls", total) as on_call:
            return await beside(names, found, folder, trials, seed, calibration, on_call)

    results = asyncio.run(measured())
    for name, of in results.items():
        write_report(of, folder / name.replace(" ", "-"))
    text = side_by_side(results)
    for scenario, _ in found:
        text += f"\n{scenario.name}\n\n{side_by_side(results, scenario.name)}"
    (folder / "table.md").write_text(text, "utf-8")
    if table is not None:
        table.write_text(text, "utf-8")
    out.print(text, soft_wrap=True, markup=False)


@app.command()
def networks(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Files, folders or names; none: orders.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the recordings.")] = Path("bench-networks"),
    trials: Annotated[int | None, typer.Option(min=1, help="Calls of each scenario; else what it says.")] = None,
    seed: Seed = 1,
    inside: Annotated[
        bool, typer.Option("--inside", help="In the callers' transport; as root it is namespaces without this.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="These alone, such as clean or outage; else all.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write the table to this file, as Markdown.")] = None,
) -> None:
    """Orders over four reference networks, a lost packet, an outage and drifting clocks. Exit code 1: beyond a bar."""
    from voice_agent.bench import conditions
    from voice_agent.bench.scenario import find_scenarios

    found = find_scenarios(scenarios or ["orders"])
    events = find_scenarios(conditions.EVENTS)
    namespaces = conditions.privileged() and not inside
    names = only or [*conditions.NETWORKS, *conditions.EVENTS]
    count = [trials or scenario.trials for scenario, _ in found] * sum(name in names for name in conditions.NETWORKS)
    count += [trials or scenario.trials for scenario, _ in events if scenario.name in names]
    with _progress("calls", sum(count)) as on_call:
        calls = asyncio.run(conditions.conditions(found, folder, trials, seed, namespaces, names, on_call))
    place = "between namespaces" if namespaces else "inside the callers' transport"
    text = f"The reference networks lay {place}.\n\n{conditions.table(calls)}"
    if table is not None:
        table.write_text(text, "utf-8")
    out.print(text, soft_wrap=True, markup=False)
    added = conditions.added(conditions.v2v_by(calls))
    for name, bar in added.items():
        within = f"95 % interval {bar['low_ms']:g} … {bar['high_ms']:g}"
        out.print(f"{name.replace('_', ' ')} adds {bar['added_ms']:g} ms to V2V ({within}); bar {bar['bar_ms']:g} ms")
    raise SystemExit(0 if all(bar["passed"] for bar in added.values()) else 1)


@app.command(name="fdb")
def full_duplex_bench(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")] = Path("bench-out"),
    as_json: Annotated[bool, typer.Option("--json", help="The scores as JSON.")] = False,
) -> None:
    """The calls of a run by the rules of Full-Duplex-Bench: take-over rates and latencies."""
    from dataclasses import asdict

    from voice_agent.bench.full_duplex_bench import scores, trials
    from voice_agent.bench.quality import whisper
    from voice_agent.bench.recording import Recording
    from voice_agent.bench.results import Results

    calls = Results.load(folder / "results.json").calls
    transcribe = whisper()
    found = [trial for call in calls for trial in trials(Recording.load(folder / call.recording), transcribe)]
    told = scores(found)
    if as_json:
        print(json.dumps({task: asdict(score) for task, score in told.items()}, indent=1))
        return
    table = Table("task", "take-over rate", "mean latency", "trials", box=None)
    for task, score in told.items():
        table.add_row(
            task, f"{score.rate:.3f}", "–" if score.latency_s is None else f"{score.latency_s:.3f} s", str(score.trials)
        )
    out.print(table)


@app.command(name="calibrate")
def calibrate_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the recordings.")] = Path("bench-out"),
    calls: Annotated[int, typer.Option(min=1, help="Calls of 12 figures each.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Every trial as JSON.")] = False,
) -> None:
    """The bench's own error, by an agent with known delays. Exit code 1: above 15 ms at p95."""
    from voice_agent.bench.calibrate import calibrate, show

    with _progress("calibration", calls) as on_call:
        result = asyncio.run(calibrate(folder, calls, on_call=on_call))
    print(json.dumps(result, indent=1) if as_json else show(result))
    raise SystemExit(0 if result["passed"] else 1)


@app.command()
def load(
    scenario: Annotated[str, typer.Argument(help="File or name of the scenario that each caller plays.")] = "order-zh",
    url: Url = "http://127.0.0.1:8080",
    kind: Kind = "webrtc",
    key_from: Key = None,
    serve: Own = False,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the recordings.")] = Path("bench-out"),
    callers: Annotated[str, typer.Option(help="Callers of each step.")] = "1,2,3,4,6,8",
    calls_each: Annotated[int, typer.Option(min=1, help="Calls of each caller in a step.")] = 3,
    hold: Annotated[int, typer.Option(min=0, help="Then so many calls each by as many callers as are held.")] = 0,
    seed: Seed = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Every step as JSON.")] = False,
) -> None:
    """More and more callers at once, until TTFC p95 is above 1.5 times that of one. Exit code 1: one was too many."""
    from dataclasses import asdict

    steps = [int(count) for count in callers.split(",")]
    ramp = asyncio.run(_load(scenario, url, kind, key_from, serve, folder, steps, calls_each, hold, seed))
    if as_json:
        print(json.dumps(asdict(ramp), indent=1))
    else:
        table = Table(
            "callers", "TTFC p95", "V2V p95", "yield p95", "packet gap p99", "failed", "busy", "MiB", "slots", box=None
        )
        for step in (*ramp.steps, *([ramp.hold] if ramp.hold is not None else [])):
            times = (step.ttfc_ms, step.v2v_ms, step.yield_ms, step.packet_gap_ms)
            busy = "–" if step.busy is None else f"{100 * step.busy:.0f} %"
            table.add_row(
                str(step.callers),
                *("–" if value is None else f"{value:g}" for value in times),
                f"{step.failed} of {step.calls}",
                busy,
                "–" if step.memory_mib is None else f"{step.memory_mib:.0f}",
                " ".join(f"{name} {used}" for name, used in step.slots.items()) or "–",
            )
        out.print(table)
        grew = f"; {ramp.saturated} grew the most" if ramp.saturated else ""
        out.print(f"held at 1.5×: {ramp.held} of the callers tried{grew}")
    raise SystemExit(0 if ramp.held else 1)


async def _load(
    scenario: str,
    url: str,
    kind: str,
    key_from: str | None,
    serve: bool,
    folder: Path,
    callers: list[int],
    calls_each: int,
    hold: int,
    seed: int,
) -> Ramp:
    from voice_agent.bench.link import target_of
    from voice_agent.bench.load import ramp
    from voice_agent.bench.scenario import find_scenarios
    from voice_agent.calling import own_server

    ((found, sounds),) = find_scenarios([scenario])
    async with AsyncExitStack() as stack:
        if serve:
            err.print("[dim]starting a server …[/]")
            url = await stack.enter_async_context(own_server())
        with _progress("calls", calls_each * sum(callers)) as on_call:
            target = target_of(url, kind, key_from)
            return await ramp(target, found, sounds, folder, callers, calls_each, hold, seed, on_call)


@app.command(name="list")
def list_scenarios() -> None:
    """The scenarios of the library."""
    from voice_agent.bench.scenario import find_scenarios

    table = Table("scenario", "turns", "trials", "about", box=None)
    for scenario, _ in find_scenarios([]):
        table.add_row(scenario.name, str(len(scenario.turns)), str(scenario.trials), scenario.about)
    out.print(table)


def show(results: Results) -> None:
    """The figures over all calls, and each assertion that did not hold."""
    from voice_agent.bench.results import KINDS, summaries

    values = results.values()
    told = summaries(values)
    table = Table("figure", "p50", "p95", "p99", "n", "95 % of p50", box=None)
    for name, trials in values.items():
        kind = KINDS[name]
        if kind.share:
            hits = f"{sum(trials):.0f} of {len(trials)}"
            table.add_row(kind.title, f"{100 * sum(trials) / len(trials):.1f} %", "", "", hits, "")
        else:
            s = told[name]
            table.add_row(
                kind.title, f"{s.p50:g}", f"{s.p95:g}", f"{s.p99:g}", str(s.n), f"{s.p50_low:g} … {s.p50_high:g}"
            )
    out.print(table)
    for call in results.calls:
        for check in call.checks:
            if not check.passed:
                out.print(
                    f"[red]no[/] {call.recording} turn {check.where}: "
                    f"{check.what}: expected {check.expected}, got {check.got}"
                )


def _show_changes(changes: list[Change]) -> None:
    moved = [change for change in changes if change.verdict != "same"]
    if not moved:
        out.print(f"nothing changed beyond noise in {len(changes)} figures")
        return
    colours = {"better": "green", "worse": "red", "changed": "yellow"}
    table = Table("scenario", "figure", "", "before", "after", "change within", "n", "", box=None)
    for change in moved:
        within = f"p = {change.low:.2g}" if change.statistic == "share" else f"{change.low:+.0f} … {change.high:+.0f}"
        table.add_row(
            change.scenario,
            change.figure,
            change.statistic,
            f"{change.before:g}",
            f"{change.after:g}",
            within,
            f"{change.n_before}/{change.n_after}",
            f"[{colours[change.verdict]}]{change.verdict}[/]",
        )
    out.print(table)

"""One HTML file of a run that needs nothing else: tables, distributions, time lines, waterfalls and the sound."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from voice_agent.bench.calibrate import show as show_calibration
from voice_agent.bench.results import KINDS, SERVER_STEPS, CallResult, Results, summaries

SOUND_CALLS = 24
"""So many calls are playable in the report: those in which something failed first, then the slowest."""

WIDTH = 900
WIDE_S = 30.0
"""The time line of a call that is longer than this is wider than the page, and scrolls."""

LANE = 44
ENVELOPE_S = 0.02

STEPS = ("eot_delay_ms", *SERVER_STEPS, "first_rtp_ms")
COLOURS = ("#8a8f98", "#d9a441", "#4f7fd9", "#7a5bd1", "#2aa198", "#c0603f")

STYLE = """
:root { color-scheme: light dark; --line: #8884; --caller: #3b76d6; --agent: #2f9e64; --bad: #c8372d; --dim: #8a8f98 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-top: 1px solid var(--line) }
table { border-collapse: collapse; width: 100% } td, th { padding: .25rem .6rem; text-align: left }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
tr + tr td { border-top: 1px solid var(--line) }
.dim { color: var(--dim) } .bad { color: var(--bad) } svg { width: 100%; height: auto; display: block }
svg text { font: 11px system-ui, sans-serif; fill: currentColor }
.scroll { overflow-x: auto } svg.timeline text { stroke: Canvas; stroke-width: 3px; paint-order: stroke }
details { margin: .6rem 0 }
summary { cursor: pointer } audio { width: 100% } .call { margin: 1rem 0 }
"""

SCRIPT = """
for (const call of document.querySelectorAll('.call')) {
  const audio = call.querySelector('audio'), line = call.querySelector('svg.timeline');
  if (!audio || !line) continue;
  const cursor = line.querySelector('.cursor');
  const seconds = Number(line.dataset.seconds), width = Number(line.dataset.width);
  audio.addEventListener('timeupdate', () => {
    const x = audio.currentTime / seconds * width;
    cursor.setAttribute('x1', x); cursor.setAttribute('x2', x);
  });
  line.addEventListener('click', event => {
    const box = line.getBoundingClientRect();
    audio.currentTime = (event.clientX - box.left) / box.width * seconds;
    audio.play();
  });
}
"""


def write_report(results: Results, folder: Path) -> Path:
    """Write `folder`/report.html from results whose recordings lie under `folder`."""
    path = folder / "report.html"
    path.write_text(render_report(results, folder), "utf-8")
    return path


def markdown_table(results: Results) -> str:
    """Every figure of a run as a Markdown table, with the bench's own error and the machine above it."""
    about = results.about
    error = "not calibrated" if results.calibration is None else show_calibration(results.calibration)
    values = results.values()
    told = summaries(values)
    rows = ["| figure | p50 | p95 | p99 | n |", "|---|---|---|---|---|"]
    for name, trials in values.items():
        if KINDS[name].share:
            share = f"{100 * sum(trials) / len(trials):.1f} %"
            rows.append(f"| {KINDS[name].title} | {share} | | | {sum(trials):.0f} of {len(trials)} |")
        else:
            s = told[name]
            rows.append(f"| {KINDS[name].title} | {s.p50:g} | {s.p95:g} | {s.p99:g} | {s.n} |")
    scenarios = ", ".join(results.scenarios())
    head = (
        f"{about['began']}, {about['cores']} cores, load average {about['load_average'][0]:.1f}; {scenarios}.\n{error}."
    )
    return head + "\n\n" + "\n".join(rows) + "\n"


README_FIGURES = {
    "v2v_ms": "V2V：来电者最后一声 → 听到第一声",
    "eot_delay_ms": "EOT：最后一声 → 话轮提交",
    "faded_ms": "被盖过的回复：插话起点 → 第一个减弱的样本",
    "yield_ms": "让位：插话起点 → 旧回复最后一声",
    "yielded": "让位率",
    "stale_ms": "停下后的旧声音",
    "kept": "不被附和、咳嗽和噪声打断",
    "resume_ms": "声音结束 → 暂停的回复继续",
    "pause_tor": "在思考的停顿里抢话",
    "cer": "听写的 CER",
    "packet_gap_p99_ms": "数据包间隔 p99，每通",
}
"""What a README shows, with the titles of the Chinese one."""

MARKS = ("<!-- bench -->", "<!-- /bench -->")


def write_into(results: Results, path: Path) -> None:
    """Put a run's table between the marks of a README; one named *.zh.md gets Chinese titles.

    Raises ValueError for a file without the two marks.
    """
    text = path.read_text("utf-8")
    counts = [text.count(mark) for mark in MARKS]
    if counts != [1, 1]:
        raise ValueError(f"{path}: expected {MARKS[0]} and {MARKS[1]} once each, got {counts[0]} and {counts[1]}")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    table = readme_table(results, chinese=path.name.endswith(".zh.md"))
    path.write_text(f"{before}{MARKS[0]}\n\n{table}\n{MARKS[1]}{after}", "utf-8")


def readme_table(results: Results, chinese: bool = False) -> str:
    """The figures that a reader of the README wants, each with its trials."""
    values = results.values()
    told = summaries(values)
    about = results.about
    load = f"{about['load_average'][0]:.1f}"
    day = str(about["began"])[:10]
    head = f"`make bench`，{day}，负载 {load}" if chinese else f"`make bench`, {day}, load average {load}"
    rows = [f"| {head} | p50 | p95 | n |", "|---|---|---|---|"]
    for name, translated in README_FIGURES.items():
        trials = values.get(name)
        if not trials:
            continue
        title = translated if chinese else KINDS[name].title
        if KINDS[name].share:
            rows.append(f"| {title} | {100 * sum(trials) / len(trials):.0f} % | | {len(trials)} |")
        else:
            rows.append(f"| {title} | {told[name].p50:g} | {told[name].p95:g} | {len(trials)} |")
    return "\n".join(rows) + "\n"


def render_report(results: Results, folder: Path) -> str:
    """The report's HTML."""
    about = results.about
    head = f"{about.get('target', {}).get('url', '')} ({about.get('target', {}).get('kind', '')})"
    facts = f"{about.get('began', '')} · {about.get('cores', '')} cores · load {about.get('load_average', [0])[0]:.1f}"
    audible = {call.recording for call in _audible(results.calls)}
    parts = [
        f"<h1>What a caller heard</h1><p>{escape(head)}<br><span class=dim>{escape(facts)}</span></p>",
        _calibration(results.calibration),
        _figure_table(results.values()),
        _failures(results),
    ]
    for scenario in results.scenarios():
        calls = [call for call in results.calls if call.scenario == scenario]
        parts.append(f"<h2>{escape(scenario)}</h2><p>{escape(about.get('scenarios', {}).get(scenario, ''))}</p>")
        parts.append(f"<details><summary>figures</summary>{_figure_table(results.values(scenario))}</details>")
        parts += [_call(call, folder, call.recording in audible) for call in calls]
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>voice-agent bench</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{body}<script>{SCRIPT}</script></body></html>\n"
    )


def _audible(calls: Sequence[CallResult]) -> list[CallResult]:
    def order(call: CallResult) -> tuple[bool, float]:
        slowest = max((turn["v2v_ms"] or 0 for turn in call.figures["turns"]), default=0)
        return all(check.passed for check in call.checks), -slowest

    return sorted(calls, key=order)[:SOUND_CALLS]


def _calibration(calibration: dict[str, Any] | None) -> str:
    if calibration is None:
        return "<p class=bad>The detector was not calibrated in this run.</p>"
    return f"<p class={'dim' if calibration['passed'] else 'bad'}>{escape(show_calibration(calibration))}</p>"


def _figure_table(values: dict[str, list[float]]) -> str:
    told = summaries(values)
    rows = []
    for name, trials in values.items():
        kind = KINDS[name]
        if kind.share:
            share = f"{100 * sum(trials) / len(trials):.1f} %"
            cells = [share, "", "", f"{sum(trials):.0f} of {len(trials)}", "", ""]
        else:
            s = told[name]
            interval = f"{s.p50_low:g} … {s.p50_high:g}"
            cells = [f"{s.p50:g}", f"{s.p95:g}", f"{s.p99:g}", str(s.n), interval, _strip(trials)]
        rows.append(f"<tr><td>{escape(kind.title)}</td>" + "".join(f"<td class=n>{cell}</td>" for cell in cells))
    heads = "".join(f"<th class=n>{head}</th>" for head in ("p50", "p95", "p99", "n", "95 % of p50", "every trial"))
    return f"<table><tr><th>figure, in ms where not said otherwise</th>{heads}</tr>{''.join(rows)}</table>"


def _strip(trials: Sequence[float]) -> str:
    """Every trial as a dot from 0 (or the lowest) to the highest, p50 and p95 as bars."""
    low, high = min(0.0, *trials), max(*trials, 1e-9)
    wide, tall = 180, 18

    def x(value: float) -> float:
        return 4 + (wide - 8) * (value - low) / (high - low)

    heights = np.random.default_rng(1).uniform(4, tall - 4, len(trials))
    dots = "".join(
        f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="1.8"/>' for value, y in zip(trials, heights, strict=True)
    )
    marks = "".join(
        f'<line x1="{x(q):.1f}" x2="{x(q):.1f}" y1="1" y2="{tall - 1}" stroke="currentColor"/>'
        for q in np.percentile(trials, [50, 95])
    )
    return (
        f'<svg viewBox="0 0 {wide} {tall}" style="min-width:{wide}px"><title>{low:g} to {high:g}</title>'
        f'<g fill="var(--caller)" fill-opacity=".45">{dots}</g>{marks}</svg>'
    )


def _failures(results: Results) -> str:
    failed = [(call, check) for call in results.calls for check in call.checks if not check.passed]
    total = sum(len(call.checks) for call in results.calls)
    if not failed:
        return f"<p>All {total} assertions hold.</p>"
    rows = "".join(
        f"<tr><td><a href='#{escape(call.recording)}'>{escape(call.recording)}</a></td><td>{escape(check.where)}</td>"
        f"<td>{escape(check.what)}</td><td>{escape(check.expected)}</td><td class=bad>{escape(check.got)}</td></tr>"
        for call, check in failed
    )
    head = "<tr><th>call</th><th>turn</th><th>assertion</th><th>expected</th><th>got</th></tr>"
    return f"<p class=bad>{len(failed)} of {total} assertions do not hold.</p><table>{head}{rows}</table>"


def _call(call: CallResult, folder: Path, audible: bool) -> str:
    wav = folder / f"{call.recording}.wav"
    stereo, rate = soundfile.read(wav, dtype="float32", always_2d=True)
    name = escape(call.recording)
    parts = [f'<div class=call id="{name}"><h3>{name}</h3>']
    if call.failed:
        parts.append(f"<p class=bad>{escape(call.figures['failed'])}</p>")
    if len(stereo):
        parts.append(_timeline(call, stereo, rate))
        if audible:
            parts.append(f'<audio controls preload=none src="data:audio/ogg;base64,{_sound(stereo, rate)}"></audio>')
        else:
            parts.append(f"<p class=dim>sound: {escape(wav.name)} beside this report</p>")
    parts.append(_waterfall(call))
    return "".join(parts) + "</div>"


def _sound(stereo: npt.NDArray[np.float32], rate: int) -> str:
    """Ogg Opus, left the caller and right the agent, as base64."""
    file = io.BytesIO()
    soundfile.write(file, stereo, rate, format="OGG", subtype="OPUS")
    return base64.b64encode(file.getvalue()).decode()


def _timeline(call: CallResult, stereo: npt.NDArray[np.float32], rate: int) -> str:
    """Both voices on one line: the caller above, the agent below, with each turn's marks."""
    seconds = len(stereo) / rate
    wide = round(WIDTH * max(1.0, seconds / WIDE_S))

    def x(at: float) -> float:
        return wide * at / seconds

    shapes = []
    for channel, (colour, middle) in enumerate((("--caller", LANE / 2), ("--agent", LANE * 1.5))):
        shapes.append(f'<path d="{_envelope(stereo[:, channel], rate, middle, wide)}" fill="var({colour})"/>')
    for turn in call.figures["turns"]:
        shapes.append(_marks(turn, x))
    ticks = "".join(
        f'<text x="{x(s):.0f}" y="{2 * LANE + 14}">{s} s</text>'
        for s in range(0, int(seconds) + 1, _tick(min(seconds, WIDE_S)))
        if x(s) < wide - 30  # a label that fits
    )
    names = f'<text class=dim x="4" y="10">caller</text><text class=dim x="4" y="{2 * LANE - 2}">agent</text>'
    return (
        f'<div class=scroll><svg class=timeline viewBox="0 0 {wide} {2 * LANE + 18}" data-seconds="{seconds:.3f}"'
        f' data-width="{wide}" style="width: {100 * wide / WIDTH:g}%">'
        f"{''.join(shapes)}{names}{ticks}"
        f'<line class=cursor x1="0" x2="0" y1="0" y2="{2 * LANE}" stroke="var(--bad)"/></svg></div>'
    )


def _tick(seconds: float) -> int:
    return next((step for step in (1, 2, 5, 10, 30, 60) if seconds / step <= 20), 120)


def _envelope(pcm: npt.NDArray[np.float32], rate: int, middle: float, wide: int) -> str:
    size = max(1, int(rate * ENVELOPE_S))
    peaks = np.abs(np.pad(pcm, (0, -len(pcm) % size))).reshape(-1, size).max(axis=1)
    # A scale that shows quiet voices too: 60 dB over half a lane.
    tall = (LANE / 2 - 2) * np.clip(1 + 20 * np.log10(np.maximum(peaks, 1e-6)) / 60, 0, 1)
    xs = wide * (np.arange(len(peaks)) + 0.5) / len(peaks)
    upper = " ".join(f"{x:.1f},{middle - y:.1f}" for x, y in zip(xs, tall, strict=True))
    lower = " ".join(f"{x:.1f},{middle + y:.1f}" for x, y in zip(xs[::-1], tall[::-1], strict=True))
    return f"M {upper} {lower} Z"


def _marks(turn: dict[str, Any], x: Any) -> str:
    """Where the turn ended and the reply began, or where the caller cut in and the reply stopped."""
    spans = []
    if turn["v2v_ms"] is not None:
        spans.append((turn["until"], turn["v2v_ms"], "V2V", "--dim", LANE - 6))
    if turn["yield_ms"] is not None:
        spans.append((turn["at"], turn["yield_ms"], "yield", "--bad", LANE + 14))
    return "".join(
        f'<rect x="{x(at):.1f}" y="{LANE - 3}" width="{max(1.0, x(ms / 1000)):.1f}" height="6" fill="var({colour})"/>'
        f'<text x="{x(at):.1f}" y="{y}">{what} {ms:.0f}</text>'
        for at, ms, what, colour, y in spans
    )


def _waterfall(call: CallResult) -> str:
    """The server's break-down of each turn that it told one of, and what the caller measured under it."""
    turns = [turn for turn in call.figures["turns"] if any(step in turn["server"] for step in STEPS)]
    if not turns:
        return ""
    longest = max(max(sum(turn["server"].get(step, 0) for step in STEPS), turn["v2v_ms"] or 0) for turn in turns)
    scale = (WIDTH - 60) / max(1.0, longest)
    rows = []
    for row, turn in enumerate(turns):
        at = 50.0
        y = 22 + 26 * row
        name = f"<title>{escape(turn.get('turn_id', ''))}</title>turn {escape(turn['name'])}"
        rows.append(f'<text x="0" y="{y + 11}">{name}</text>')
        for step, colour in zip(STEPS, COLOURS, strict=True):
            wide = scale * max(0.0, turn["server"].get(step, 0))
            title = f"<title>{step[:-3]} {turn['server'].get(step, 0):.0f} ms</title>"
            rows.append(f'<rect x="{at:.1f}" y="{y}" width="{wide:.1f}" height="12" fill="{colour}">{title}</rect>')
            at += wide
        if turn["v2v_ms"] is not None:
            wide = scale * turn["v2v_ms"]
            rows.append(
                f'<rect x="50" y="{y + 13}" width="{wide:.1f}" height="3" fill="var(--caller)">'
                f"<title>V2V {turn['v2v_ms']:.0f} ms</title></rect>"
            )
    legend = "".join(
        f'<rect x="{50 + 140 * i}" y="4" width="8" height="8" fill="{colour}"/>'
        f'<text x="{62 + 140 * i}" y="12">{step[:-3].replace("_", " ")}</text>'
        for i, (step, colour) in enumerate(zip(STEPS, COLOURS, strict=True))
    )
    return f'<svg viewBox="0 0 {WIDTH} {24 + 26 * len(turns)}">{legend}{"".join(rows)}</svg>'

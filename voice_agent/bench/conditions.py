"""The same calls over networks that get worse, over a lost packet, an outage, and clocks that drift."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from voice_agent.bench.link import Target
from voice_agent.bench.namespaces import joined, server_in
from voice_agent.bench.network import Network
from voice_agent.bench.results import KINDS, CallResult, summaries, values_of
from voice_agent.bench.runner import OnCall, jobs, run_calls
from voice_agent.bench.scenario import Scenario, find_scenarios
from voice_agent.bench.statistics import CONFIDENCE, difference
from voice_agent.calling import own_server

NETWORKS = {
    "clean": Network(),
    "40 ± 5 ms, 1 %": Network(delay_ms=40, jitter_ms=5, loss_pct=1),
    "80 ± 20 ms, 3 %": Network(delay_ms=80, jitter_ms=20, loss_pct=3),
    "150 ± 30 ms, 5 %": Network(delay_ms=150, jitter_ms=30, loss_pct=5),
}
"""The reference loads, each way."""

EVENTS = ("lost-packet", "outage", "drifting-clock", "slow-clock")
"""Scenarios with a condition of their own; it lies inside the caller's transport."""

WORST_MS = 450.0
"""What the worst reference load may add to V2V p95: the 300 ms of its way there and back, and half as much again."""

UNHARMED_TURNS = 4
BEFORE_LOSS = "before a lost packet"
"""The first turns of a `lost-packet` call, in which nothing is lost yet."""

RECOVERED_MS = 60.0
"""What a lost packet may still add to V2V 2 s later."""

FIGURES = ("v2v_ms", "v2v_playout_ms", "eot_delay_ms", "cer", "lost_pct", "packet_gap_max_ms", "drift_ppm")


def privileged() -> bool:
    """Whether the network can lie between namespaces, where whole programs talk over it unchanged."""
    return os.geteuid() == 0 and Path("/dev/net/tun").exists()


async def over(
    network: Network,
    scenarios: Sequence[tuple[Scenario, Path]],
    out: Path,
    trials: int | None,
    seed: int,
    namespaces: bool,
    on_call: OnCall = lambda call: None,
) -> list[CallResult]:
    """The calls over one network to a server started for them: between namespaces, or inside the transport."""
    if not namespaces:
        changed = [(scenario.model_copy(update={"network": network}), folder) for scenario, folder in scenarios]
        async with own_server() as url:
            return await run_calls(jobs(Target(url=url), changed, out, trials, seed), on_call)
    async with joined(network, seed) as (there, here), server_in(there) as url:
        return await run_calls(jobs(Target(url=url), scenarios, out, trials, seed), on_call, prefix=here.prefix)


async def conditions(
    scenarios: Sequence[tuple[Scenario, Path]],
    out: Path,
    trials: int | None,
    seed: int,
    namespaces: bool,
    names: Sequence[str] = (*NETWORKS, *EVENTS),
    on_call: OnCall = lambda call: None,
) -> dict[str, list[CallResult]]:
    """The calls of each condition in `names`. Raises ValueError for one that there is not."""
    unknown = [name for name in names if name not in NETWORKS and name not in EVENTS]
    if unknown:
        raise ValueError(f"expected conditions out of {', '.join((*NETWORKS, *EVENTS))}, got {unknown[0]!r}")
    found: dict[str, list[CallResult]] = {}
    for number, (name, network) in enumerate(NETWORKS.items()):
        if name in names:
            folder = out / f"network-{number}"
            found[name] = await over(network, scenarios, folder, trials, seed, namespaces, on_call)
    events = [name for name in EVENTS if name in names]
    if events:
        async with own_server() as url:
            for name in events:
                work = jobs(Target(url=url), find_scenarios([name]), out, trials, seed)
                found[name] = await run_calls(work, on_call)
    return found


def table(found: Mapping[str, Sequence[CallResult]]) -> str:
    """Markdown: a row a condition; p50 / p95 (n)."""
    heads = [KINDS[name].title.split(":")[0] for name in FIGURES]
    rows = [f"| each way | calls | answered | {' | '.join(heads)} |", "|---" * (len(heads) + 3) + "|"]
    for condition, calls in found.items():
        values = values_of(calls)
        told = summaries(values)
        cells = [f"{told[f].p50:g} / {told[f].p95:g} ({told[f].n})" if f in told else "–" for f in FIGURES]
        answered = values.get("responded", [])
        failed = sum(call.failed for call in calls)
        placed = f"{len(calls)}" if not failed else f"{len(calls)}, {failed} failed"
        rows.append(f"| {condition} | {placed} | {sum(answered):.0f} of {len(answered)} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def v2v_by(found: Mapping[str, Sequence[CallResult]]) -> dict[str, list[float]]:
    """V2V of every turn by condition, in ms. Of the calls of `lost-packet`, the turns before the first loss stand
    apart as `BEFORE_LOSS`, and those that end 2 s after one are left.
    """
    v2v: dict[str, list[float]] = {}
    for condition, calls in found.items():
        for call in calls:
            for number, turn in enumerate([] if call.failed else call.figures["turns"]):
                unharmed = condition == "lost-packet" and number < UNHARMED_TURNS
                if turn["v2v_ms"] is not None:
                    v2v.setdefault(BEFORE_LOSS if unharmed else condition, []).append(turn["v2v_ms"])
    return v2v


def added(v2v: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """What the worst network adds to V2V p95 beside a clean one, and a lost packet to the p50 of the same calls' V2V.

    `v2v`: as `v2v_by` gives it. {"worst_network": {added_ms, low_ms, high_ms, n, bar_ms, passed}, "lost_packet": …},
    for those that were measured; from `low_ms` to `high_ms` is the 95 % bootstrap interval.
    """
    told: dict[str, dict[str, Any]] = {}
    for key, calm, name, quantile, bar in (
        ("worst_network", "clean", list(NETWORKS)[-1], 95, WORST_MS),
        ("lost_packet", BEFORE_LOSS, "lost-packet", 50, RECOVERED_MS),
    ):
        if v2v.get(calm) and v2v.get(name):
            change, low, high = difference(v2v[calm], v2v[name], quantile, CONFIDENCE)
            times = {"added_ms": change, "low_ms": low, "high_ms": high}
            told[key] = {
                **{at: round(ms, 1) for at, ms in times.items()},
                "n": [len(v2v[calm]), len(v2v[name])],
                "bar_ms": bar,
                "passed": change <= bar,
            }
    return told

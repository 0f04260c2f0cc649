"""The pieces of `bench-peers` side by side, and the figures in which this server is not ahead."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.evidence._calls import ROOT, write_table
from tests.evidence.bench_peers import SERVERS, shown
from tests.evidence.bench_standard import pooled
from voice_agent.bench.beside import SHOWN
from voice_agent.bench.results import KINDS

TRIALS = 1


async def run(seed: int, trials: int) -> dict[str, Any]:
    stored = [json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "evidence").glob("bench-peers-*.json"))]
    each = {server: [c for piece in stored if piece["server"] == server for c in piece["each"]] for server in SERVERS}
    missing = [server for server in SERVERS if not each[server]]
    if missing:
        raise FileNotFoundError(f"expected pieces of {', '.join(SERVERS)} in evidence/, found none of {missing[0]}")
    middle = {server: {name: centre(name, of) for name, of in pooled(each[server]).items()} for server in SERVERS}
    own = middle[SERVERS[0]]
    behind = {
        name: {server: middle[server][name] for server in SERVERS if name in middle[server]}
        for name in SHOWN
        if name in own
        and any(ahead(name, middle[peer][name], own[name]) for peer in SERVERS[1:] if name in middle[peer])
    }
    servers = {server: shown(each[server]) for server in SERVERS}
    rows = [
        [KINDS[name].title, *(_cell(servers[server].get(name)) for server in SERVERS)]
        for name in SHOWN
        if any(name in of for of in servers.values())
    ]
    return {
        "name": "bench-peers",
        "table": write_table("bench-peers", ["figure, in ms: p50 / p95 (n)", *SERVERS], rows),
        "servers": servers,
        "not_ahead": behind,
        "pieces": [{key: piece[key] for key in ("name", "commit", "began", "load_average_before")} for piece in stored],
    }


def _cell(figure: dict[str, Any] | str | None) -> str:
    if isinstance(figure, dict):
        return f"{figure['p50']:g} / {figure['p95']:g} ({figure['n']})"
    return figure or "–"


def centre(name: str, values: list[float]) -> float:
    """The median, or of a share the share."""
    return round(float(np.mean(values) if KINDS[name].share else np.median(values)), 3)


def ahead(name: str, peer: float, own: float) -> bool:
    """Whether the peer is better in this figure."""
    return peer > own if KINDS[name].better == "higher" else peer < own

"""What the pieces of evidence conclude from their trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evidence import (
    _calls,
    bench_compare,
    bench_merge,
    bench_networks_merge,
    bench_peers_merge,
    turns_echo,
    turns_interruptions,
    turns_pauses,
    turns_selectivity,
    turns_v2v,
)
from tests.evidence.bench_peers import SERVERS
from tests.evidence.bench_standard import PIECES
from tests.evidence.turns_interruptions import boundary
from voice_agent.bench.conditions import BEFORE_LOSS, EVENTS, NETWORKS

FULL = list("好的一杯珍珠奶茶十八块")


@pytest.mark.parametrize(
    ("heard", "units"),
    [("好的一杯珍珠", 6), ("好的一杯真珠奶", 7), ("", 0), ("好的一杯珍珠奶茶十八块", 11), ("好的乙杯真", 5)],
)
def test_the_boundary_is_the_prefix_nearest_to_what_was_recognised(heard: str, units: int) -> None:
    assert boundary(list(heard), FULL) == units


def interruption(**more: Any) -> dict[str, Any]:
    memory = {"clear": True, "off_by": 1, "near": True}
    good = {"faded_ms": 100.0, "yield_ms": 120.0, "stopped": True, "came_back": False, "stale_ms": 0.0}
    return {**good, "decided_ms": 700.0, "memory": memory, **more}


def test_replies_that_come_back_or_fade_late_do_not_pass() -> None:
    assert turns_interruptions.judge([interruption()] * 100)["passed"]
    assert not turns_interruptions.judge([interruption()] * 97 + [interruption(came_back=True)] * 3)["passed"]
    assert not turns_interruptions.judge([interruption()] * 90 + [interruption(faded_ms=300.0)] * 10)["passed"]
    assert not turns_interruptions.judge([interruption(faded_ms=None)] * 10)["passed"]


def test_skipped_or_late_replies_do_not_pass() -> None:
    good: dict[str, Any] = {"kind": "burst", "over_a_reply": True, "kept": True}
    good |= {"resume_ms": 300.0, "repeated_ms": 100.0, "skipped_ms": 0.0}
    assert turns_selectivity.judge([good] * 20)["passed"]
    for wrong in ({"kept": False}, {"resume_ms": 400.0}, {"repeated_ms": 350.0}, {"skipped_ms": 60.0}):
        assert not turns_selectivity.judge([good] * 10 + [{**good, **wrong}] * 2)["passed"]


def test_pauses_and_echo_are_judged_by_their_levels() -> None:
    def pause(length: int, taken: int) -> dict[str, Any]:
        return {"pause_ms": length, "taken_over": taken, "turns_heard": 1, "v2v_ms": 400.0}

    patient = [pause(1000, 0)] * 20 + [pause(1500, 0)] * 16 + [pause(1500, 1)] * 4
    assert turns_pauses.judge(patient)["passed"]
    assert not turns_pauses.judge([*patient, pause(600, 1), pause(600, 1)])["passed"]

    def echo(gain: int, **more: Any) -> dict[str, Any]:
        calm = {"self_interruptions": 0, "own_turns": 0, "unanswered": 0, "pauses_s": []}
        return {"gain_db": gain, "delay_ms": 60, "agent_minutes": 5.0, **calm, **more}

    assert turns_echo.judge([echo(-10, pauses_s=[0.5, 1.2]), echo(-20)])["passed"]
    assert not turns_echo.judge([echo(-10, pauses_s=[0.5, 1.8])])["passed"]
    assert not turns_echo.judge([echo(-20, pauses_s=[0.1])])["passed"]
    assert not turns_echo.judge([echo(-10, own_turns=1)])["passed"]


def test_a_slow_tail_does_not_pass() -> None:
    quick = {"v2v_ms": 350.0, "eot_delay_ms": 200.0, "early": False, "voice": "a"}
    assert turns_v2v.judge([quick] * 20)["passed"]
    assert not turns_v2v.judge([quick] * 17 + [{**quick, "v2v_ms": 900.0}] * 3)["passed"]


ABOUT = {
    "commit": "c", "began": "b", "load_average_before": [0, 0, 0], "calibration": {"v2v_ms": {"error_p95": 3.0}},
}  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for pieces."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    for module in (_calls, bench_networks_merge, bench_peers_merge):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return folder


def store(folder: Path, name: str, **piece: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"name": name, **ABOUT, **piece}), "utf-8")


def standard(folder: Path, seed: int, v2v: list[float], yielded: list[float]) -> None:
    first, *others = PIECES
    for piece in others:
        store(folder, f"bench-standard-{piece}-{seed}", seed=seed, each=[])
    values = {"v2v_ms": v2v, "yielded": yielded, "connect_ms": [50.0]}
    store(folder, f"bench-standard-{first}-{seed}", seed=seed, each=[{"scenario": "orders", "values": values}])


@pytest.mark.anyio
@pytest.mark.parametrize(("slower", "same"), [(0.0, True), (19.0, True), (30.0, False)])
async def test_two_runs_are_merged_and_told_apart(evidence: Path, slower: float, same: bool) -> None:
    times = [300.0 + n for n in range(41)]
    standard(evidence, 1, times, [1.0] * 30)
    with pytest.raises(FileNotFoundError, match="expected pieces of two runs"):
        await bench_merge.run(1, 60)
    standard(evidence, 2, [time + slower for time in times], [1.0] * 28)
    told = await bench_merge.run(1, 60)
    assert told["figures"]["v2v_ms"]["medians"] == [320, 320 + slower]
    assert told["medians_apart"] == ([] if same else ["v2v_ms"])
    assert told["figures"]["yielded"] == "58 of 58"
    assert {"yielded", "dnsmos"} <= set(told["fewer_trials"])
    assert not {"v2v_ms", "connect_ms"} & set(told["fewer_trials"])
    table = (evidence / told["table"]).read_text("utf-8")
    assert f"| 82 | 320 / {320 + slower:g} |" in table
    assert "| 58 of 58 |" in table


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("worst", "lost", "passed"), [(800.0, 400.0, True), (900.0, 400.0, False), (800.0, 700.0, False)]
)
async def test_networks_are_merged_and_judged(evidence: Path, worst: float, lost: float, passed: bool) -> None:
    v2v = dict.fromkeys((*NETWORKS, BEFORE_LOSS, *EVENTS), 400.0)
    v2v |= {list(NETWORKS)[-1]: worst, "lost-packet": lost}
    for number, name in enumerate((*NETWORKS, *EVENTS)):
        names = (BEFORE_LOSS, name) if name == "lost-packet" else (name,)
        each = [{"condition": condition, "v2v_ms": [v2v[condition]] * 20} for condition in names]
        shown = {name: {"responded": "20 of 20", "checks": "40 of 40"}}
        store(evidence, f"bench-networks-{number}", between="namespaces", conditions=shown, each=each)
    told = await bench_networks_merge.run(1, 1)
    assert told["added"]["worst_network"]["added_ms"] == worst - 400
    assert told["added"]["lost_packet"]["added_ms"] == lost - 400
    assert told["passed"] is passed
    table = (evidence / told["table"]).read_text("utf-8")
    assert f"| 150 ± 30 ms, 5 % | {worst:g} ({worst:g} … {worst:g})" in table
    (evidence / "bench-networks-0.json").unlink()
    with pytest.raises(FileNotFoundError, match="found none with clean"):
        await bench_networks_merge.run(1, 1)


@pytest.mark.anyio
async def test_peers_that_are_ahead_are_named(evidence: Path) -> None:
    times = dict(zip(SERVERS, (400.0, 300.0, 900.0), strict=True))
    for server, time in times.items():
        each = [{"values": {"v2v_ms": [time] * 3, "yielded": [1.0, float(server == SERVERS[0])]}}]
        store(evidence, f"bench-peers-{server}-1", server=server, each=each)
    told = await bench_peers_merge.run(1, 1)
    assert told["not_ahead"] == {"v2v_ms": times}
    table = (evidence / told["table"]).read_text("utf-8")
    assert "| 400 / 400 (3) | 300 / 300 (3) | 900 / 900 (3) |" in table
    assert "| 2 of 2 | 1 of 2 | 1 of 2 |" in table


@pytest.mark.anyio
async def test_a_planted_slowdown_is_found_in_the_stored_runs_and_nothing_without_it(evidence: Path) -> None:
    rng = np.random.default_rng(1)
    for seed in (1, 2):
        standard(evidence, seed, list(rng.normal(420, 60, 60)), [1.0] * 30)
    told = await bench_compare.run(1, 1)
    assert told["found_in"] == ["all", "orders"]
    assert told["changed_without_it"] == []
    assert told["passed"]
    standard(evidence, 2, list(rng.normal(620, 60, 60)), [1.0] * 30)
    assert not (await bench_compare.run(1, 1))["passed"]

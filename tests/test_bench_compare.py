"""Comparison of runs: a slowdown is found, and noise is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from voice_agent.bench.checks import Check
from voice_agent.bench.commands import app
from voice_agent.bench.compare import compare
from voice_agent.bench.results import CallResult, Results, summaries

TURN = {
    "name": "0", "expect": "respond", "at": 1.0, "until": 2.0, "responded": True, "early": False, "pauses": 0,
    "taken_over": 0, "taken_over_fdb": 0, "stopped": None, "kept": None, "server": {},
}  # fmt: skip
STREAM = {
    "packets": 500, "lost": 0, "reordered": 0, "gap_p50_ms": 20.0, "gap_p99_ms": 24.0, "gap_max_ms": 30.0,
    "burst_ms": 5.0, "drift_ppm": None,
}  # fmt: skip


def run(seed: int, slower: float = 1.0, answered: float = 1.0, trials: int = 60) -> Results:
    """A run whose V2V is about 840 ± 60 ms with a tail, and whose stops take 280 ± 30 ms."""
    rng = np.random.default_rng(seed)
    calls = []
    for trial in range(trials):
        replied = bool(rng.random() < answered)
        v2v = float(rng.normal(840, 60) + rng.exponential(20)) * slower
        reply = {**TURN, "v2v_ms": v2v if replied else None, "responded": replied}
        stop = {**TURN, "expect": "stop", "stopped": True, "yield_ms": float(rng.normal(280, 30))}
        stream = {**STREAM, "gap_max_ms": float(30 + rng.exponential(15))}
        figures = {"turns": [reply, stop], "stream": stream, "agent": [], "failed": ""}
        checks = (Check("0", "expect", "respond", "answered", replied),)
        calls.append(CallResult("order", f"calls/order-{trial:03d}", figures, checks, {"connected_ms": 60.0}))
    return Results({"began": "now"}, tuple(calls))


def test_a_slowdown_of_a_fifth_is_found_where_it_is() -> None:
    worse = {(c.figure, c.statistic) for c in compare(run(1), run(2, slower=1.2)) if c.verdict != "same"}
    assert worse == {("v2v_ms", "p50"), ("v2v_ms", "p95")}
    faster = [c for c in compare(run(2, slower=1.2), run(1)) if c.verdict == "better"]
    assert {c.figure for c in faster} == {"v2v_ms"}


def test_no_change_stays_quiet_fifty_times() -> None:
    moved = [c for seed in range(10) for c in compare(run(seed), run(1000 + seed)) if c.verdict != "same"]
    assert not moved


def test_answers_that_fail_are_a_regression() -> None:
    worse = {c.figure for c in compare(run(1), run(2, answered=0.7)) if c.verdict == "worse"}
    assert {"responded", "checks"} <= worse


def test_few_trials_are_not_judged_and_strangers_are_refused() -> None:
    assert compare(run(1, trials=2), run(2, slower=3, trials=2)) == []
    other = Results({}, tuple(CallResult("other", c.recording, c.figures) for c in run(1).calls))
    with pytest.raises(ValueError, match=r"expected a scenario in common, got \['order'\] and \['other'\]"):
        compare(run(1), other)


def test_the_command_says_it_and_exits_by_it(tmp_path: Path) -> None:
    for name, results in (("a", run(1)), ("same", run(2)), ("slow", run(3, slower=1.2))):
        results.save(tmp_path / f"{name}.json")
    runner = CliRunner()
    quiet = runner.invoke(app, ["compare", str(tmp_path / "a.json"), str(tmp_path / "same.json")])
    assert quiet.exit_code == 0, quiet.output
    assert "nothing changed beyond noise" in quiet.output
    loud = runner.invoke(app, ["compare", str(tmp_path / "a.json"), str(tmp_path / "slow.json")])
    assert loud.exit_code == 1
    assert "v2v_ms" in loud.output
    assert "worse" in loud.output
    told = runner.invoke(app, ["compare", str(tmp_path / "a.json"), str(tmp_path / "slow.json"), "--json"])
    assert any(change["verdict"] == "worse" for change in json.loads(told.stdout))


def test_results_are_the_same_after_a_file(tmp_path: Path) -> None:
    before = run(4)
    before.save(tmp_path / "r.json")
    after = Results.load(tmp_path / "r.json")
    assert after == before
    assert summaries(after.values())["v2v_ms"].n == 60
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match=r"x\.json: expected results of voice-agent bench"):
        Results.load(tmp_path / "x.json")


def test_small_errors_are_not_rounded_away() -> None:
    told = summaries({"v2v_ms": [412.34], "cer": [0.0385], "dnsmos": [2.7142], "yielded": [1.0]})
    assert {name: summary.p50 for name, summary in told.items()} == {"v2v_ms": 412.3, "cer": 0.038, "dnsmos": 2.714}

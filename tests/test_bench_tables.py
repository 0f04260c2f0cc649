"""Tables of results: for READMEs, of servers side by side, of networks; and which peers there are recipes for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.bench_signals import call
from voice_agent.bench.beside import OWN, side_by_side
from voice_agent.bench.commands import app
from voice_agent.bench.conditions import BEFORE_LOSS, EVENTS, NETWORKS, UNHARMED_TURNS, added, table, v2v_by
from voice_agent.bench.figures import measure
from voice_agent.bench.peers import REPLY, recipe_of
from voice_agent.bench.report import MARKS, README_FIGURES, readme_table, write_into
from voice_agent.bench.results import KINDS, CallResult, Results
from voice_agent.bench.scenario import RATE, find_scenarios, render

ABOUT: dict[str, Any] = {"began": "2026-01-02T03:04:05+00:00", "load_average": [0.5, 0, 0], "cores": 2}


def answered(gap: float, failed: str = "") -> CallResult:
    """A call whose reply comes after `gap` seconds, and is cut in on."""
    said = [("respond", [(0.5, 1.5)]), ("stop", [(4.0, 4.5)])]
    figures = measure(call(8, said, [(1.5 + gap, 4.2), (5.3, 6.0)])).view()
    return CallResult("a", "calls/a-000", figures | {"failed": failed})


def results(*gaps: float) -> Results:
    return Results(ABOUT, tuple(answered(gap) for gap in gaps))


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_a_readme_s_table_stands_between_its_marks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n", "utf-8")
    for _ in range(2):
        write_into(results(0.5, 0.7), path)
    text = path.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "\nold\n" not in text
    assert text.count("2026-01-02") == 1
    # 0.8 s after the interruption, and both replies to the first turn.
    assert re.search(r"\| V2V.* \| 750 \| 800 \| 4 \|", text)
    assert re.search(r"\| 100 % \| \| 2 \|", text)


def test_a_file_without_marks_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("text", "utf-8")
    with pytest.raises(ValueError, match="expected <!-- bench --> and <!-- /bench --> once each, got 0 and 0"):
        write_into(results(0.5), path)
    assert path.read_text("utf-8") == "text"


def test_both_readmes_show_the_same_numbers_and_every_figure_exists() -> None:
    assert README_FIGURES.keys() <= KINDS.keys()
    numbers = [re.findall(r"\d+(?:\.\d+)?", readme_table(results(0.5, 0.7), chinese)) for chinese in (False, True)]
    assert numbers[0] == numbers[1]


def test_servers_stand_side_by_side() -> None:
    shown = side_by_side({OWN: results(0.5, 0.7), "other": results(1.0)})
    head, _, v2v = shown.splitlines()[:3]
    assert head == f"| figure | {OWN} | other |"
    assert v2v.split(" | ")[1:] == ["750 / 800 (4)", "900 / 990 (2) |"]
    assert "| yield rate | 100 % (2 of 2) | 100 % (1 of 1) |" in shown
    assert side_by_side({OWN: results(0.5), "none": Results(ABOUT, ())}).count("–") > 3


def orders(*gaps: float) -> CallResult:
    """A call of as many orders, answered after so many seconds."""
    said = [("respond", [(1.0 + 5 * n, 2.0 + 5 * n)]) for n in range(len(gaps))]
    figures = measure(call(5 * len(gaps) + 1, said, [(2.0 + 5 * n + gap, 4.5 + 5 * n) for n, gap in enumerate(gaps)]))
    return CallResult("a", "calls/a-000", figures.view())


def test_networks_are_judged_beside_the_clean_one() -> None:
    calls = {
        "clean": [answered(0.5), answered(0.6)],
        "150 ± 30 ms, 5 %": [answered(1.2), answered(0.1, failed="no call")],
    }
    told = added(v2v_by(calls))
    assert told.keys() == {"worst_network"}
    assert told["worst_network"]["added_ms"] == pytest.approx(1180 - 800, abs=6)
    assert told["worst_network"]["n"] == [4, 2]
    assert told["worst_network"]["passed"]
    assert not added({"clean": [400.0] * 9, "150 ± 30 ms, 5 %": [851.0] * 9})["worst_network"]["passed"]
    rows = table(calls).splitlines()
    assert rows[2].startswith("| clean | 2 | 4 of 4 |")
    assert rows[3].startswith("| 150 ± 30 ms, 5 % | 2, 1 failed | 2 of 2 |")


@pytest.mark.parametrize(("after", "passed"), [((0.41, 0.46, 0.44, 0.43), True), ((0.69, 0.70, 0.68, 0.71), False)])
def test_a_delay_that_stays_after_a_lost_packet_does_not_pass(after: tuple[float, ...], passed: bool) -> None:
    v2v = v2v_by({"clean": [orders(2.0)], "lost-packet": [orders(0.40, 0.41, 0.39, 0.42, *after)]})
    assert [len(v2v[name]) for name in (BEFORE_LOSS, "lost-packet")] == [4, 4]
    lost = added(v2v)["lost_packet"]
    assert lost["added_ms"] == pytest.approx(30 if passed else 290, abs=6)
    assert lost["low_ms"] <= lost["added_ms"] <= lost["high_ms"]
    assert lost["passed"] is passed


def test_each_packet_is_lost_two_seconds_before_the_end_of_its_order() -> None:
    ((scenario, folder),) = find_scenarios(["lost-packet"])
    assert scenario.network is not None
    harmed = scenario.turns[UNHARMED_TURNS:]
    assert len(scenario.network.lose_at_s) == len(harmed)
    for lost_s, turn in zip(scenario.network.lose_at_s, harmed, strict=True):
        assert isinstance(turn.start.delay_ms, int)
        pcm = render(turn.say, folder)
        ends_s = turn.start.delay_ms / 1000 + float(np.flatnonzero(np.abs(pcm) > 0.01)[-1]) / RATE
        # The network counts from the offer on, the caller from 0.05 to 0.6 s later.
        assert ends_s - (lost_s - 0.05) >= 2.0
        assert ends_s - (lost_s - 0.6) < 2.7


def test_conditions_and_recipes_are_there() -> None:
    assert {scenario.name for scenario, _ in find_scenarios(EVENTS)} == set(EVENTS)
    assert [network.loss_pct for network in NETWORKS.values()] == [0, 1, 3, 5]
    assert REPLY.is_file()
    assert all("==" in package for name in ("pipecat", "fastrtc") for package in recipe_of(name).packages)
    with pytest.raises(ValueError, match="expected a peer out of pipecat, fastrtc, got 'moshi'"):
        recipe_of("moshi")
    # Before anything is started or measured.
    refused = CliRunner().invoke(app, ["peers", "order-zh", "--servers", "pipecat,moshi"])
    assert "got 'moshi'" in str(refused.exception)

"""What changed between two runs beyond noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from voice_agent.bench.results import KINDS, Results
from voice_agent.bench.statistics import difference, shares_differ

LEAST_TRIALS = 5
P95_TRIALS = 20
LEAST_MS = 20.0
LEAST_SHARE = 0.05
"""A median that moves by less than 20 ms or 5 % of itself is the same for a caller, however sure it is."""

CHANCE = 0.002
"""How often a figure that did not change is called changed, at most: a run compares hundreds of them."""

Verdict = Literal["better", "worse", "same", "changed"]
Trials = Mapping[str, list[float]]
"""By figure."""


@dataclass(frozen=True)
class Change:
    """One figure of one scenario in both runs. `low`, `high`: the 99.8 % interval of the change; for a share its p.

    `statistic`: p50, p95 or share.
    """

    scenario: str
    figure: str
    statistic: str
    before: float
    after: float
    low: float
    high: float
    n_before: int
    n_after: int
    verdict: Verdict


def compare(before: Results, after: Results) -> list[Change]:
    """Each figure that both runs have enough trials of, by scenario.

    Raises ValueError if the runs have no scenario in common.
    """
    return compare_trials(*({name: run.values(name) for name in run.scenarios()} for run in (before, after)))


def compare_trials(before: Mapping[str, Trials], after: Mapping[str, Trials]) -> list[Change]:
    """The same of each figure's trials by scenario."""
    common = [name for name in before if name in after]
    if not common:
        raise ValueError(f"expected a scenario in common, got {list(before)} and {list(after)}")
    changes = []
    for scenario in common:
        a, b = before[scenario], after[scenario]
        for name, kind in KINDS.items():
            if name not in a or name not in b or min(len(a[name]), len(b[name])) < LEAST_TRIALS:
                continue
            if kind.share:
                changes.append(_share(scenario, name, a[name], b[name]))
                continue
            changes.append(_percentile(scenario, name, a[name], b[name], 50))
            if min(len(a[name]), len(b[name])) >= P95_TRIALS:
                changes.append(_percentile(scenario, name, a[name], b[name], 95))
    return changes


def _percentile(scenario: str, name: str, a: list[float], b: list[float], quantile: int) -> Change:
    change, low, high = difference(a, b, quantile, 1 - CHANCE)
    was = float(np.percentile(a, quantile))
    least = max(LEAST_SHARE * abs(was), LEAST_MS if name.endswith("_ms") else 0.0)
    certain = abs(change) > least and (low > 0 or high < 0)
    verdict = _verdict(name, change) if certain else "same"
    shown = [round(figure, 3) for figure in (was, was + change, low, high)]
    return Change(scenario, name, f"p{quantile}", shown[0], shown[1], shown[2], shown[3], len(a), len(b), verdict)


def _share(scenario: str, name: str, a: list[float], b: list[float]) -> Change:
    hits_a, hits_b = int(sum(a)), int(sum(b))
    p = shares_differ(hits_a, len(a), hits_b, len(b))
    was, now = hits_a / len(a), hits_b / len(b)
    verdict = _verdict(name, now - was) if p < CHANCE else "same"
    return Change(scenario, name, "share", round(was, 3), round(now, 3), p, p, len(a), len(b), verdict)


def _verdict(name: str, change: float) -> Verdict:
    better = KINDS[name].better
    if not better:
        return "changed"
    return "better" if (change < 0) == (better == "lower") else "worse"

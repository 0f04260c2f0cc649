"""Impairment on a virtual clock."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from voice_agent.bench.network import Impairment, Network


def arrivals(network: Network, count: int = 5000, seed: int = 1) -> list[tuple[float, float | None]]:
    impairment = Impairment(network, seed, 0.0)
    return [(i * 0.02, impairment.arrival(i * 0.02)) for i in range(count)]


def test_delay_jitter_and_loss_are_as_asked_for() -> None:
    sent = arrivals(Network(delay_ms=80, jitter_ms=20, loss_pct=3))
    delays = np.array([at - left for left, at in sent if at is not None]) * 1000
    assert np.mean(delays) == pytest.approx(80, abs=1)
    assert np.std(delays) == pytest.approx(20, abs=1)
    assert len(sent) - len(delays) == pytest.approx(150, abs=40)
    assert np.any(np.diff([at for _, at in sent if at is not None]) < 0)


def test_order_is_kept_if_asked_for() -> None:
    sent = arrivals(Network(delay_ms=80, jitter_ms=40, reorder=False))
    assert np.all(np.diff([at for _, at in sent if at is not None]) >= 0)


def test_set_losses_and_an_outage_take_what_they_name_alone() -> None:
    sent = arrivals(Network(lose_at_s=(1.01, 2.0), outage_s=(10.0, 13.0)), 1000)
    lost = [round(left, 2) for left, at in sent if at is None]
    assert lost == [1.02, 2.0, *[round(10 + 0.02 * i, 2) for i in range(150)]]


def test_a_clean_network_changes_nothing_and_nonsense_is_refused() -> None:
    assert all(at == left for left, at in arrivals(Network(), 100))
    with pytest.raises(ValidationError, match="loss_pct"):
        Network(loss_pct=100)

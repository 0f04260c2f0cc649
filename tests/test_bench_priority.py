"""A caller's priority lasts as long as its call."""

from __future__ import annotations

import os

import pytest

from voice_agent.bench.priority import urgent


def test_the_priority_is_raised_for_a_while_and_given_back() -> None:
    before = os.sched_getscheduler(0)
    with urgent() as allowed:
        assert os.sched_getscheduler(0) == (os.SCHED_RR if allowed else before)
    assert os.sched_getscheduler(0) == before


def test_who_may_not_goes_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with urgent() as allowed:
        assert allowed is False

"""The server's figures in Prometheus' text format: what each stage does, the calls, the event loop.

Nothing is counted twice: a scrape reads the counters that the stages keep anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE_LATEST", "generate_latest", "make_registry"]

Figures = Mapping[str, Any]
"""`calls`: `Calls.view()`; `loop_lag`: `LoopLag.percentiles()`; `engine`: a `Stage.view()` for each stage's name."""

GAUGES = {
    "slots": ("slots", "Replies that the stage can hold at once."),
    "slots_in_use": ("slots_in_use", "Replies that it holds."),
    "waiting": ("queue", "Replies that wait for a slot."),
    "dialogues": ("dialogues", "Dialogues that the thinker holds, for their next turns too."),
}
COUNTERS = {
    "steps": ("steps", "Steps done."),
    "units": ("units", "Tokens of the thinker, frames of talker and codec."),
    "busy_s": ("busy_seconds", "Time within steps; its rate is the stage's utilisation."),
    "aborts": ("aborts", "Replies aborted while the stage held them."),
    "wasted": ("wasted_units", "Units of aborted replies that were made and never heard."),
    "failures": ("failures", "Steps and commands that failed."),
    "restarts": ("restarts", "Processes of the stage that died and were started again."),
}
HISTOGRAMS = {
    "step_s": ("step_seconds", "What a step took."),
    "batch": ("batch_rows", "Replies that a step served."),
    "abort_s": ("abort_seconds", "From an abort to its slot's being free."),
}


class ServerCollector(Collector):
    """Reads the figures anew for each scrape."""

    def __init__(self, read: Callable[[], Figures]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        figures = self._read()
        yield GaugeMetricFamily("voice_agent_calls", "Calls that are running.", value=figures["calls"]["active"])
        yield GaugeMetricFamily("voice_agent_calls_limit", "Calls allowed at once.", value=figures["calls"]["limit"])
        ended = CounterMetricFamily("voice_agent_calls_ended", "Calls that ended, by reason.", labels=["reason"])
        for reason, count in figures["calls"]["ended"].items():
            ended.add_metric([reason], count)
        yield ended
        lag = GaugeMetricFamily(
            "voice_agent_loop_lag_seconds", "How late the event loop ran what was due.", labels=["quantile"]
        )
        for quantile, name in (("0.5", "p50_ms"), ("0.99", "p99_ms"), ("1", "max_ms")):
            lag.add_metric([quantile], figures["loop_lag"][name] / 1000)
        yield lag
        yield from _stages(figures.get("engine", {}))


def _stages(stages: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    for kinds, family in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
        for key, (name, text) in kinds.items():
            metric = family(f"voice_agent_stage_{name}", text, labels=["stage"])
            for stage, view in stages.items():
                if key in view:  # `restarts` is told of processes alone, `dialogues` of a thinker that keeps them
                    metric.add_metric([stage], view[key])
            yield metric
    for key, (name, text) in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(f"voice_agent_stage_{name}", text, labels=["stage"])
        for stage, view in stages.items():
            bounds = [*map(str, view[key]["bounds"]), "+Inf"]
            buckets = list(zip(bounds, accumulate(view[key]["counts"]), strict=True))
            histogram.add_metric([stage], buckets, sum_value=view[key]["sum"])
        yield histogram


def make_registry(read: Callable[[], Figures]) -> CollectorRegistry:
    """A registry of the application's own."""
    registry = CollectorRegistry()
    registry.register(ServerCollector(read))
    return registry

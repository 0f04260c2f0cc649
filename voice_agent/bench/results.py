"""The results of a run: its calls with their figures and checks, and each figure over all trials. Kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from voice_agent.bench.checks import Check
from voice_agent.bench.statistics import Summary, summarise

FORMAT = 1

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Kind:
    """What a figure is. `better`: the direction that is an improvement; a share counts trials that were so."""

    name: str
    title: str
    better: Better = "lower"
    share: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind("v2v_ms", "V2V: last sound sent → first heard"),
        Kind("v2v_playout_ms", "V2V at playout"),
        Kind("answer_ms", "… to the first half second of voice"),
        Kind("leading_silence_ms", "silence before a reply's first sound"),
        Kind("eot_delay_ms", "EOT delay: last sound → turn committed"),
        Kind("ttfa_ms", "TTFA: turn committed → first sound at playout"),
        Kind("ttfc_ms", "TTFC: final text → first PCM, by the server"),
        Kind("yield_ms", "yield: onset → last sound of the old reply"),
        Kind("yield_playout_ms", "yield at playout"),
        Kind("stale_ms", "stale audio after a stop"),
        Kind("faded_ms", "onset → first faded sample, reply spoken over"),
        Kind("resume_gap_ms", "gap in a reply that goes on"),
        Kind("resume_ms", "sound's end → a paused reply goes on"),
        Kind("repeated_ms", "repeated of a paused reply that goes on"),
        Kind("skipped_ms", "skipped of a reply that goes on"),
        Kind("cer", "CER of what was understood"),
        Kind("dnsmos", "DNSMOS of a reply", "higher"),
        Kind("reply_cer", "CER of a call's replies by an independent recogniser"),
        Kind("connect_ms", "offer → connected"),
        Kind("burst_ms", "most audio ahead of its time, a call"),
        Kind("packet_gap_p99_ms", "packet gap p99, a call"),
        Kind("packet_gap_max_ms", "longest packet gap, a call"),
        Kind("lost_pct", "packets lost, a call", ""),
        Kind("drift_ppm", "clock drift, a call", ""),
        Kind("responded", "turns answered", "higher", share=True),
        Kind("early", "turns broken into", "lower", share=True),
        Kind("yielded", "yield rate", "higher", share=True),
        Kind("came_back", "interrupted replies that came back", "lower", share=True),
        Kind("kept", "selectivity", "higher", share=True),
        Kind("pause_tor", "pause TOR", "lower", share=True),
        Kind("pause_tor_fdb", "pause TOR, Full-Duplex-Bench's rule", "lower", share=True),
        Kind("checks", "assertions that hold", "higher", share=True),
    )
}
"""Every figure, in the order in which it is shown."""

SERVER_STEPS = ("asr_ms", "thinker_first_token_ms", "talker_first_frame_ms", "codec_first_chunk_ms")
"""The parts of `agent.turn.latency` from the turn's commit to its first PCM."""


@dataclass(frozen=True)
class CallResult:
    """One call. `recording`: path of its files without their ending, relative to the results."""

    scenario: str
    recording: str
    figures: dict[str, Any]
    checks: tuple[Check, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    cer: tuple[float, ...] = ()
    dnsmos: tuple[float, ...] = ()
    reply_cer: tuple[float, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.figures["failed"])


@dataclass(frozen=True)
class Results:
    """A run. `about`: where, when and what was measured; `calibration`: of the detector, on the same machine."""

    about: dict[str, Any]
    calls: tuple[CallResult, ...]
    calibration: dict[str, Any] | None = None

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(call.scenario for call in self.calls))

    def values(self, scenario: str | None = None) -> dict[str, list[float]]:
        """Each figure's trials, in order of `KINDS`; of one scenario, or of all."""
        return values_of(call for call in self.calls if scenario in (None, call.scenario))

    def save(self, path: Path) -> None:
        record = {"format": FORMAT, "summary": {name: asdict(s) for name, s in summaries(self.values()).items()}}
        path.write_text(json.dumps(record | asdict(self), ensure_ascii=False, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Raises ValueError for a file that `save` did not write."""
        try:
            record = json.loads(path.read_text("utf-8"))
            if record["format"] != FORMAT:
                raise ValueError(f"{path}: expected results of format {FORMAT}, got {record['format']!r}")
            calls = tuple(
                CallResult(
                    **{
                        **call,
                        "checks": tuple(Check(**c) for c in call["checks"]),
                        **{name: tuple(call.get(name, ())) for name in ("cer", "dnsmos", "reply_cer")},
                    }
                )
                for call in record["calls"]
            )
            return cls(record["about"], calls, record["calibration"])
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: expected results of voice-agent bench, got {error}") from None
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: expected results of voice-agent bench, got {error!r}") from None


def summaries(values: dict[str, list[float]]) -> dict[str, Summary]:
    """Of every figure that is no share; an error or a score of a few units keeps three decimals."""
    return {
        name: summarise(trials, digits=1 if name.endswith(("_ms", "_ppm", "_pct")) else 3)
        for name, trials in values.items()
        if not KINDS[name].share
    }


def values_of(calls: Iterable[CallResult]) -> dict[str, list[float]]:
    """Each figure's trials; a share's are 1 for a trial that was so and 0 for one that was not."""
    found: dict[str, list[float]] = {name: [] for name in KINDS}

    def put(name: str, value: float | bool | None) -> None:
        if value is not None:
            found[name].append(float(value))

    for call in calls:
        for check in call.checks:
            put("checks", check.passed)
        for name in ("cer", "dnsmos", "reply_cer"):
            for value in getattr(call, name):
                put(name, value)
        if call.failed:
            continue
        stream = call.figures["stream"]
        put("connect_ms", call.facts.get("connected_ms"))
        put("burst_ms", stream["burst_ms"])
        put("packet_gap_p99_ms", stream["gap_p99_ms"])
        put("packet_gap_max_ms", stream["gap_max_ms"])
        put("lost_pct", 100 * stream["lost"] / max(1, stream["lost"] + stream["packets"]))
        put("drift_ppm", stream["drift_ppm"])
        for turn in call.figures["turns"]:
            _put_turn(turn, put)
    return {name: trials for name, trials in found.items() if trials}


def _put_turn(turn: dict[str, Any], put: Any) -> None:
    for name in KINDS:
        # A reply that was never paused had nothing to repeat; its zero would hide what the others do.
        if name in turn and not KINDS[name].share and not (name == "repeated_ms" and turn.get("resume_ms") is None):
            put(name, turn[name])
    if all(step in turn["server"] for step in SERVER_STEPS):
        put("ttfc_ms", sum(turn["server"][step] for step in SERVER_STEPS))
    if turn["expect"] in ("respond", "stop"):
        put("responded", turn["responded"])
        put("early", turn["early"])
    put("yielded", turn["stopped"])
    put("came_back", turn.get("came_back"))
    put("kept", turn["kept"])
    for number in range(turn["pauses"]):
        put("pause_tor", number < turn["taken_over"])
        put("pause_tor_fdb", number < turn["taken_over_fdb"])

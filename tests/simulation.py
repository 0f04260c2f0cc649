"""Thinker, talker and codec on a virtual clock, with the step times of real ones and the batch policy of one's choice.

Each stage has a processor of its own and runs one step at a time. A reply passes through as it does in the engine:
its prompt is read in parts, each token takes a step, a frame needs its text, a chunk its frames; the talker stays
within `ahead_s` of playback. The listener hears the first chunk when it is there and stops where the reply has none.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from voice_agent.engine.schedule import (
    Claim,
    Deadline,
    Policy,
    StepCost,
    Undecoded,
    most_rows,
    pick_chunk,
    speech_due,
    thought_due,
)

WORKLOAD = Path(__file__).parent / "workload.json"
STEP_TIMES = Path(__file__).parent.parent / "evidence" / "step-times.json"
MAX_CHUNK = 4


@dataclass(frozen=True)
class Times:
    """Measured milliseconds of a step, by rows of thinker and talker and by frames of the codec; by prompt tokens."""

    frame_rate: float
    thinker_ms: dict[int, float]
    prompt_ms: dict[int, float]
    talker_ms: dict[int, float]
    codec_ms: dict[int, float]
    prompt_part: int = 512

    @classmethod
    def load(cls, path: Path = STEP_TIMES) -> Times:
        told = json.loads(path.read_text("utf-8"))
        tables = {name: {int(k): v for k, v in told[name].items()} for name in told if name.endswith("_ms")}
        return cls(told["frame_rate"], **tables)

    def seconds(self, stage: str, units: int) -> float:
        """Between measured sizes on a straight line; beyond the largest on the last one's."""
        table: dict[int, float] = getattr(self, f"{stage}_ms")
        sizes = sorted(table)
        if units > sizes[-1]:
            below, last = sizes[-2:]
            return (table[last] + (units - last) * (table[last] - table[below]) / (last - below)) / 1000
        return float(np.interp(units, sizes, [table[size] for size in sizes])) / 1000

    def best(self, stage: str) -> float:
        """Seconds a unit in the most efficient batch that was measured."""
        table: dict[int, float] = getattr(self, f"{stage}_ms")
        return min(ms / size for size, ms in table.items()) / 1000


@dataclass(frozen=True)
class Asked:
    """A reply of the workload. `gap`: since the one before, in mean gaps. `cut`: the part of it that is heard."""

    gap: float
    prompt: int
    call_tokens: int
    text_tokens: int
    frames: int
    cut: float


def make_workload(seed: int, count: int, frame_rate: float = 20.0, median_s: float = 3.0, sigma: float = 0.6) -> Any:
    """Gaps of a Poisson process; log-normal lengths; a fifth of the replies is cut off at a random place."""
    chance = np.random.default_rng(seed)
    gaps = chance.exponential(1.0, count)
    gaps /= gaps.mean()
    seconds = chance.lognormal(math.log(median_s), sigma, count)
    prompts = chance.integers(10, 120, count)
    calls = chance.integers(8, 40, count)
    cuts = np.where(chance.random(count) < 0.2, chance.random(count), 1.0)
    tokens_per_s = 5.4
    return {
        "seed": seed,
        "median_s": median_s,
        "sigma": sigma,
        "frame_rate": frame_rate,
        "fields": ["gap", "prompt", "call_tokens", "text_tokens", "frames", "cut"],
        "replies": [
            [round(float(g), 4), int(p), int(c), max(1, round(s * tokens_per_s)), max(1, round(s * frame_rate)),
             round(float(k), 3)]
            for g, s, p, c, k in zip(gaps, seconds, prompts, calls, cuts, strict=True)
        ],
    }  # fmt: skip


def load_workload(path: Path = WORKLOAD) -> list[Asked]:
    return [Asked(*reply) for reply in json.loads(path.read_text("utf-8"))["replies"]]


@dataclass
class Plain:
    """What the deadline is compared with: first come, or (`fair`) in turn. Steps are kept as short as by `Deadline`."""

    fair: bool = False
    longest_s: float = 0.05
    urgent_s: float = math.inf
    cost: StepCost = field(default_factory=StepCost)
    max_batch: int = 64

    def pick(self, claims: Sequence[Claim], now_s: float, size: int = 1) -> list[int]:
        order = sorted(range(len(claims)), key=lambda i: claims[i].due_s)
        return order[: most_rows(self.cost, self.longest_s, size, self.max_batch)]

    def took(self, units: int, seconds: float) -> None:
        self.cost.took(units, seconds)


@dataclass(frozen=True)
class Discipline:
    """A way to run the stages. `ahead_s`: how far the talker may run ahead of playback."""

    name: str
    make: Callable[[float], Policy]
    ahead_s: float


DISCIPLINES = (
    Discipline("first come", lambda longest_s: Plain(longest_s=longest_s), math.inf),
    Discipline("round robin", lambda longest_s: Plain(fair=True, longest_s=longest_s), math.inf),
    Discipline("deadline", lambda longest_s: Deadline(longest_s=longest_s), 1.5),
)


@dataclass(eq=False)
class _Reply:
    asked: Asked
    asked_s: float
    prompt: int
    call_tokens: int
    tokens: int = 0
    first_s: float | None = None
    served_s: dict[str, float] = field(default_factory=dict)
    frames: int = 0
    pending: int = 0
    decoded: int = 0
    ttfc_s: float = 0.0
    stall_s: float = 0.0
    stalls: int = 0
    ended: bool = False
    caller: int = -1

    @property
    def text_done(self) -> bool:
        return self.tokens == self.asked.text_tokens

    @property
    def heard_whole(self) -> int:
        return max(1, round(self.asked.frames * self.asked.cut))


class Simulation:
    """One run of a discipline: `arrive` or `converse`, once; `done` are the replies in the order of their ends."""

    def __init__(self, times: Times, discipline: Discipline) -> None:
        self.times, self.discipline = times, discipline
        longest_s = 1 / times.frame_rate
        self.policies = {name: discipline.make(longest_s) for name in ("thinker", "talker", "codec")}
        self.now_s = 0.0
        self.replies: list[_Reply] = []
        self.done: list[_Reply] = []
        self.busy: dict[str, bool] = dict.fromkeys(self.policies, False)
        self.worked_s = dict.fromkeys(self.policies, 0.0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._waking = dict.fromkeys(self.policies, False)
        self._on_end: Callable[[_Reply], None] = lambda reply: None

    def arrive(self, workload: Sequence[Asked], per_s: float) -> None:
        """Run the whole workload with arrivals at this mean rate."""
        at = 0.0
        for asked in workload:
            at += asked.gap / per_s
            self._at(at, lambda asked=asked, at=at: self._ask(asked, at, -1))
        self._run()

    def converse(self, workload: Sequence[Asked], callers: int, pause_s: float = 4.0) -> None:
        """`callers` who each ask, hear the answer, and ask again after a pause, until the workload is used up."""
        left = iter(workload)

        def go_on(caller: int) -> None:
            asked = next(left, None)
            if asked is not None:
                at = self.now_s + pause_s * asked.gap
                self._at(at, lambda: self._ask(asked, at, caller))

        self._on_end = lambda reply: go_on(reply.caller)
        for caller in range(callers):
            go_on(caller)
        self._run()

    # ---- events ----

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), event))

    def _run(self) -> None:
        while self._events:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
            for stage in self.policies:
                if not self.busy[stage]:
                    self._begin(stage)

    def _ask(self, asked: Asked, at_s: float, caller: int) -> None:
        self.replies.append(_Reply(asked, at_s, asked.prompt, asked.call_tokens, caller=caller))

    def _end(self, reply: _Reply) -> None:
        """The listener has heard all, or cuts in: what was made beyond that is wasted."""
        if not reply.ended:
            reply.ended = True
            self.replies.remove(reply)
            self.done.append(reply)
            self._on_end(reply)

    # ---- stages ----

    def _played(self, reply: _Reply) -> int:
        if not reply.decoded:
            return 0
        since = self.now_s - reply.asked_s - reply.ttfc_s - reply.stall_s
        return min(reply.decoded, int(since * self.times.frame_rate + 1e-9))

    def _due_s(self, stage: str, reply: _Reply, made: int) -> float:
        policy = self.policies[stage]
        if isinstance(policy, Plain):
            return reply.served_s.get(stage, -1.0) if policy.fair else reply.asked_s
        if stage == "thinker":
            return thought_due(reply.asked_s, True, reply.first_s, reply.tokens, 0.0)
        return speech_due(reply.asked_s, self.now_s, made - self._played(reply), made, self.times.frame_rate)

    def _begin(self, stage: str) -> None:
        rows, size, seconds = getattr(self, f"_{stage}_step")()
        if not rows:
            self._sleep(stage)
            return
        self.busy[stage] = True
        self.worked_s[stage] += seconds

        def end() -> None:
            self.busy[stage] = False
            units = len(rows) * size
            if units and not (stage == "thinker" and any(row.prompt for row in rows)):
                self.policies[stage].took(units, seconds)
            for row in rows:
                row.served_s[stage] = self.now_s
                if not row.ended:
                    getattr(self, f"_{stage}_made")(row, size)

        self._at(self.now_s + seconds, end)

    def _sleep(self, stage: str) -> None:
        """Playback alone can make a row of an idle stage able: look again when the next frame has been heard."""
        if stage == "thinker" or self._waking[stage]:
            return

        def wake() -> None:
            self._waking[stage] = False

        held = (r.frames < r.asked.frames if stage == "talker" else r.pending for r in self.replies if r.decoded)
        if any(held):
            self._waking[stage] = True
            self._at(self.now_s + 1 / self.times.frame_rate, wake)

    def _thinker_step(self) -> tuple[list[_Reply], int, float]:
        able = [reply for reply in self.replies if not reply.text_done]
        claims = [Claim(self._due_s("thinker", reply, 0), light=not reply.prompt) for reply in able]
        rows = [able[i] for i in self.policies["thinker"].pick(claims, self.now_s)] if able else []
        decoding = sum(not reply.prompt for reply in rows)
        seconds = self.times.seconds("thinker", decoding) if decoding else 0.0
        for reply in rows:
            if reply.prompt:
                seconds += self.times.seconds("prompt", min(reply.prompt, self.times.prompt_part))
        return rows, 1, seconds

    def _thinker_made(self, reply: _Reply, size: int) -> None:
        if reply.prompt:
            reply.prompt = max(0, reply.prompt - self.times.prompt_part)
        elif reply.call_tokens:
            reply.call_tokens -= 1
        else:
            reply.tokens += 1
            reply.first_s = self.now_s if reply.first_s is None else reply.first_s

    def _talker_step(self) -> tuple[list[_Reply], int, float]:
        ahead = self.discipline.ahead_s * self.times.frame_rate
        able = [
            reply
            for reply in self.replies
            if reply.frames < self._speakable(reply) and reply.frames - self._played(reply) < ahead
        ]
        claims = [Claim(self._due_s("talker", reply, reply.frames)) for reply in able]
        rows = [able[i] for i in self.policies["talker"].pick(claims, self.now_s)] if able else []
        return rows, 1, self.times.seconds("talker", len(rows)) if rows else 0.0

    def _speakable(self, reply: _Reply) -> int:
        """Frames that the text so far is enough for; the latest token is spoken once the one after it is known."""
        if reply.text_done:
            return reply.asked.frames
        return reply.asked.frames * max(0, reply.tokens - 1) // reply.asked.text_tokens

    def _talker_made(self, reply: _Reply, size: int) -> None:
        reply.frames += 1
        reply.pending += 1

    def _codec_step(self) -> tuple[list[_Reply], int, float]:
        able = [reply for reply in self.replies if reply.pending]
        undecoded = [
            Undecoded(
                self._due_s("codec", reply, reply.decoded),
                reply.pending,
                reply.decoded,
                reply.frames == reply.asked.frames,
            )
            for reply in able
        ]
        picked, size = pick_chunk(self.policies["codec"], undecoded, self.now_s, MAX_CHUNK)
        rows = [able[i] for i in picked]
        return rows, size, self.times.seconds("codec", len(rows) * size) if rows else 0.0

    def _codec_made(self, reply: _Reply, size: int) -> None:
        if not reply.decoded:
            reply.ttfc_s = self.now_s - reply.asked_s
        else:
            late = self.now_s - reply.asked_s - reply.ttfc_s - reply.stall_s - reply.decoded / self.times.frame_rate
            if late > 0:
                reply.stall_s += late
                reply.stalls += 1
        reply.pending -= size
        reply.decoded += size
        heard = reply.heard_whole
        if reply.decoded - size < heard <= reply.decoded:
            over_s = reply.asked_s + reply.ttfc_s + reply.stall_s + heard / self.times.frame_rate
            self._at(max(self.now_s, over_s), lambda: self._end(reply))


def capacity_per_s(times: Times, workload: Sequence[Asked]) -> tuple[float, dict[str, float]]:
    """Replies a second that the busiest stage can bear at its most efficient batch; and what each stage could."""
    frames = float(np.mean([asked.frames for asked in workload]))
    tokens = float(np.mean([asked.call_tokens + asked.text_tokens for asked in workload]))
    prompt_s = float(np.mean([times.seconds("prompt", asked.prompt) for asked in workload]))
    per_reply = {
        "thinker": prompt_s + tokens * times.best("thinker"),
        "talker": frames * times.best("talker"),
        "codec": frames * times.best("codec"),
    }
    each = {name: 1 / seconds for name, seconds in per_reply.items()}
    return min(each.values()), each


def summary(run: Simulation) -> dict[str, Any]:
    """What a run showed. `wasted_frames`: made and never heard."""
    ttfc = [1000 * reply.ttfc_s for reply in run.done]
    p50, p95, p99 = np.percentile(ttfc, [50, 95, 99]).tolist()
    made = sum(reply.frames for reply in run.done)
    wasted = sum(max(0, reply.frames - reply.heard_whole) for reply in run.done)
    return {
        "replies": len(run.done),
        "ttfc_ms": {"p50": round(p50, 1), "p95": round(p95, 1), "p99": round(p99, 1)},
        "underruns": sum(reply.stalls for reply in run.done),
        "replies_with_underrun": sum(reply.stalls > 0 for reply in run.done),
        "silence_s": round(sum(reply.stall_s for reply in run.done), 2),
        "wasted_frames": wasted,
        "wasted_share": round(wasted / made, 4),
        "utilisation": {name: round(worked / run.now_s, 3) for name, worked in run.worked_s.items()},
    }

"""Where each stage runs: on which device, in how many copies, as threads here or in processes of their own.

A place is a group of stages; talker and codec in one group stay together, so that codes do not cross twice. A request
goes to the least busy copy of a group, and stays there with all that follows; a turn of a thinker in a place of its own
goes where the turn before it was, which may hold the dialogue. Every request of a reply has one id in all stages.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, cast, get_args

from voice_agent.engine.copies import Copy, ThreadCopy
from voice_agent.engine.places import Place, check_places
from voice_agent.engine.process import ProcessCopy
from voice_agent.engine.process_messages import Job, Load
from voice_agent.engine.protocols import StageName, ThinkRequest
from voice_agent.engine.stage import Receipt, Stage
from voice_agent.engine.stages import CodecStage, Stages, TalkerStage, ThinkerStage

KINDS = {"thinker": ThinkerStage, "talker": TalkerStage, "codec": CodecStage}
# Conversations of which it is known where their last turn was; beyond it the oldest go.
HOMES = 1024
# Of several copies, these figures are told as their mean, the others as their sum.
MEANS = ("batch_mean", "step_ms_mean", "utilisation")


def place_stages(places: Sequence[Place], load: Load, *, ahead_ms: float, threads: int) -> Stages:
    """Start the stages in their places, all processes at once; stages that no place names run here as threads.

    `ahead_ms`: how far the talker runs ahead of playback. `threads`: cores of a step. Blocks until all is loaded.
    Raises ValueError for a stage in two places; and what `load` raises.
    """
    check_places(places)
    named = {stage for place in places for stage in place.stages}
    rest = tuple(stage for stage in get_args(StageName) if stage not in named)
    groups = [
        Replicas(place, [Job(place.stages, device, load, ahead_ms, threads) for device in place.devices])
        for place in (*places, *([Place(stages=rest)] if rest else []))
    ]
    with ExitStack() as undo, ThreadPoolExecutor(sum(len(group.copies) for group in groups)) as starting:
        for group in groups:
            undo.callback(group.close)
        for started in [starting.submit(copy.start) for group in groups for copy in group.copies]:
            started.result()
        undo.pop_all()
    placed = {stage: cast(Any, _stage(stage, group)) for group in groups for stage in group.stages}
    return Stages(placed["thinker"], placed["talker"], placed["codec"])


def _stage(name: StageName, group: Replicas) -> Stage[Any] | PlacedStage:
    """The one that is called; a single thread here needs nobody in between."""
    only = group.copies[0]
    return only.stages[name] if len(group.copies) == 1 and isinstance(only, ThreadCopy) else PlacedStage(name, group)


class Replicas:
    """The copies of one group of stages."""

    def __init__(self, place: Place, jobs: Sequence[Job]) -> None:
        self.stages = place.stages
        self.copies: list[Copy] = [ProcessCopy(job) if place.process else ThreadCopy(job) for job in jobs]
        self._homes: OrderedDict[str, Copy] = OrderedDict()

    def for_new(self, rid: int) -> Copy:
        """The copy that has this request in another of its stages, or else the least busy one that is alive."""
        return self.holding(rid) or self.least_busy()

    def for_turn(self, rid: int, conversation: str) -> Copy:
        """As `for_new`; but before the least busy one that of the conversation's last turn, if it has a free slot."""
        home = self._homes.pop(conversation, None)
        free = home is not None and home.alive and home.in_use("thinker") < home.facts["thinker"].slots
        copy = self.holding(rid) or (home if free else None) or self.least_busy()
        if conversation:
            self._homes[conversation] = copy
            while len(self._homes) > HOMES:
                self._homes.popitem(last=False)
        return copy

    def forget(self, conversation: str) -> None:
        """It has no further turn."""
        self._homes.pop(conversation, None)

    def least_busy(self) -> Copy:
        return min(self.copies, key=lambda copy: (not copy.alive, copy.load))

    def holding(self, rid: int) -> Copy | None:
        """The copy that has this request; None once it is over."""
        return next((copy for copy in self.copies if copy.holds(rid)), None)

    def close(self) -> None:
        for copy in self.copies:
            copy.close()


class PlacedStage:
    """Stands where a `Stage` would: the same public methods, carried out by the copy that has the request."""

    def __init__(self, name: StageName, group: Replicas) -> None:
        self.name, self._group = name, group
        self.ids = itertools.count(1)
        self.model = group.copies[0].facts[name]
        self.slots: int = sum(copy.facts[name].slots for copy in group.copies)

    def submit(self, rid: int, *arguments: Any) -> None:
        first = arguments[0]
        thought = isinstance(first, ThinkRequest)
        copy = self._group.for_turn(rid, first.conversation) if thought else self._group.for_new(rid)
        copy.submit(self.name, rid, arguments)

    def abort(self, rid: int, used: int = 0) -> Future[Receipt]:
        """Free the request; the receipt's time is that until the answer is here."""
        copy = self._group.holding(rid)
        if copy is not None:
            return copy.abort(self.name, rid, used)
        over: Future[Receipt] = Future()
        over.set_result(Receipt(self.name, 0.0, 0))
        return over

    @property
    def judges(self) -> bool:
        """As `ThinkerStage.judges`."""
        return bool(self.model.judges)

    def turn_end(self, request: ThinkRequest) -> Future[float]:
        """As `ThinkerStage.turn_end`; StageDied if the process dies first."""
        return self._group.least_busy().ask(self.name, "turn_end", (request,))

    def forget(self, conversation: str) -> list[Future[None]]:
        """As `ThinkerStage.forget`, in every copy; StageDied from a process that has died, and so holds nothing."""
        self._group.forget(conversation)
        return [copy.ask(self.name, "forget", (conversation,)) for copy in self._group.copies]

    def __getattr__(self, method: str) -> Callable[..., None]:
        """Any other public method of the stage that is about one request."""
        if method.startswith("_") or not callable(getattr(KINDS[self.name], method, None)):
            raise AttributeError(f"stage {self.name} has no {method!r}")

        def call(rid: int, *arguments: Any) -> None:
            copy = self._group.holding(rid)
            if copy is not None:
                copy.call(self.name, method, rid, arguments)

        return call

    @property
    def slots_in_use(self) -> int:
        return min(self.slots, sum(copy.in_use(self.name) for copy in self._group.copies))

    @property
    def waiting(self) -> int:
        return max(0, sum(copy.in_use(self.name) for copy in self._group.copies) - self.slots)

    def view(self) -> dict[str, Any]:
        """The figures of all copies together."""
        return together([copy.view(self.name) for copy in self._group.copies])

    def close(self) -> None:
        self._group.close()


def together(views: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of several copies of a stage as those of one: means of what is a mean, else sums."""
    names = dict.fromkeys(name for view in views for name in view)
    return {name: _joined(name, [view[name] for view in views if name in view]) for name in names}


def _joined(name: str, values: Sequence[Any]) -> Any:
    if isinstance(values[0], Mapping):
        return together(values)
    if name == "bounds":  # of a histogram, the same in all copies
        return values[0]
    if isinstance(values[0], list):
        return [sum(column) for column in zip(*values, strict=True)]
    return sum(values) / len(values) if name in MEANS else sum(values)

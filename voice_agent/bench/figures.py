"""The figures of one call: what was said and heard, when, and whether the agent kept its manners. Sans-IO.

Definitions: a voice begins at its first and ends at its last sample above -45 dBFS; what the caller said ends as the
packet leaves, what the agent said begins as the packet arrives, before any playout buffer. Figures named `playout`
are of what a listener hears (`playout.play_out`). A figure that a turn cannot have is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from voice_agent.bench.continuity import Course, Pcm, follow
from voice_agent.bench.detect import join, voice_spans
from voice_agent.bench.playout import Playout, play_out
from voice_agent.bench.recording import RATE, Event, Line, Recording, reply_text
from voice_agent.bench.spoken import plain

PAUSE_S = 0.3
"""Silence in a turn that counts as a thinking pause."""

SUBSTANCE_S = 0.5
"""A shorter sound by itself (a tone, an "mm") is not yet an answer."""

FINE_JOIN_S = 0.1
REPLY_JOIN_S = 0.5
"""Pauses inside one reply."""

STOPPED_S = 2.0
"""A reply that goes on for longer after an interruption was not stopped by it; also how soon it has to go on."""

ON_THE_WAY_S = 0.06
"""Packets that may be under way when the server tells that it cut a reply; also by how much they may be ahead of it."""

BACKCHANNEL_S = 1.0
"""Full-Duplex-Bench: an agent's sound of less than this takes no turn."""


@dataclass(frozen=True)
class Voice:
    """A stretch of the agent's voice. `start`, `end`: at arrival, `heard`, `heard_until`: at playout; in seconds."""

    start: float
    end: float
    heard: float
    heard_until: float


@dataclass
class TurnFigures:
    """One turn of the caller, in ms.

    v2v: last voiced sample sent → first voiced sample received; `answer`: → first half a second of voice, pauses inside
    it of up to half a second counted.
    leading_silence: the server says it speaks (or its stream begins) → first voiced sample.
    eot_delay: last voiced sample → turn committed. ttfa: turn committed → first voiced sample at playout.
    early: the agent began before the caller had ended. pauses, taken_over: thinking pauses, and those in which the
    agent began to speak; `taken_over_fdb`: of them by Full-Duplex-Bench's rule.
    yield: caller's onset → last voiced sample of the reply cut in on; stopped: it ended within 2 s. came_back: it went
    on after a pause. stale: voice of it that still came later. kept: a sound that is no interruption did not end the
    reply, or began none.
    resume_gap: the longest silence that such a sound put into the reply.
    With the same call uncut beside it, by the sound alone (`continuity`): faded: onset → first sample of the reply that
    is quieter than it would be; resume: the sound's end → a reply that was paused goes on, 0 if it went on before;
    repeated, skipped: what of it was heard twice, and never.
    turn_id, server: the server's name for the turn, and its own break-down of that turn's reply.
    """

    name: str
    expect: str
    at: float
    until: float
    responded: bool | None = None
    early: bool = False
    v2v_ms: float | None = None
    v2v_playout_ms: float | None = None
    answer_ms: float | None = None
    leading_silence_ms: float | None = None
    eot_delay_ms: float | None = None
    ttfa_ms: float | None = None
    pauses: int = 0
    taken_over: int = 0
    taken_over_fdb: int = 0
    stopped: bool | None = None
    came_back: bool | None = None
    yield_ms: float | None = None
    yield_playout_ms: float | None = None
    stale_ms: float | None = None
    kept: bool | None = None
    resume_gap_ms: float | None = None
    faded_ms: float | None = None
    resume_ms: float | None = None
    repeated_ms: float | None = None
    skipped_ms: float | None = None
    turn_id: str = ""
    server: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamFigures:
    """The packets of a call. gaps: between arrivals, in ms; burst: the most audio that lay ahead of its time.

    drift: how much faster the sender's clock runs than the caller's; None for less than 10 s.
    """

    packets: int
    lost: int
    reordered: int
    gap_p50_ms: float
    gap_p99_ms: float
    gap_max_ms: float
    burst_ms: float
    drift_ppm: float | None


@dataclass(frozen=True)
class CallFigures:
    """All figures of a call. `agent`: its voice, pauses up to 0.3 s inside; times in seconds from the call's start."""

    begin: float
    turns: list[TurnFigures]
    stream: StreamFigures
    agent: list[Voice]
    failed: str = ""

    def view(self) -> dict[str, Any]:
        return asdict(self)


def measure(recording: Recording, *uncut: Recording) -> CallFigures:
    """Every figure of a recording, on a time line that starts with its first packet.

    `uncut`: the same call in which nothing was said over the replies, once or several times; see `scenario.uncut`.
    """
    begin = min(
        (float(line.at.min()) for line in (recording.sent, recording.received) if len(line.at)),
        default=0.0,
    )
    agent = _Agent(recording)
    replies = replies_of(uncut, recording)
    turns = [_turn(recording, agent, number, replies) for number in range(len(recording.said))]
    for turn in turns:
        turn.at, turn.until = round(turn.at - begin, 4), round(turn.until - begin, 4)
    voices = [Voice(*(round(t - begin, 4) for t in vars(voice).values())) for voice in agent.voices(0.3)]
    stream = stream_figures(recording.received, agent.playout, recording.facts.get("media_clock", True))
    return CallFigures(begin, turns, stream, voices, recording.failed)


def replies_of(uncut: Sequence[Recording], recording: Recording) -> dict[int, Pcm]:
    """What was received in the first call of `uncut` that fits between each turn that is to be answered and the next.

    A call does not fit at a turn to which the server says something else in `recording`: it understood this turn or one
    before otherwise. One word misheard in one call changes every total after it, so there may be several.
    """
    mine = _answers(recording)
    replies: dict[int, Pcm] = {}
    for calm in reversed(uncut):
        for number, span in _answers(calm).items():
            if number in mine and _alike(reply_text(calm.events, *span), reply_text(recording.events, *mine[number])):
                replies[number] = calm.received.pcm[slice(*calm.received.between(*span))]
    return replies


def _answers(recording: Recording) -> dict[int, tuple[float, float]]:
    """From the end of each turn that is to be answered to the beginning of the next one."""
    said, sent = recording.said, recording.sent
    asked = [number for number, turn in enumerate(said) if turn.expect in ("respond", "stop")]
    if not asked:
        return {}
    ends = [sent.time(said[number].voice[-1][1] - 1) for number in asked]
    begins = [sent.time(said[number].voice[0][0]) for number in asked[1:]]
    return dict(zip(asked, zip(ends, [*begins, np.inf], strict=True), strict=True))


def _alike(one: str, other: str) -> bool:
    """Whether two replies can be the same as far as they went. A server that says nothing is taken at its sound."""
    shorter, longer = sorted((plain(one), plain(other)), key=len)
    return longer.startswith(shorter)


class _Agent:
    """The agent's side of a recording, looked at with pauses of any length joined."""

    def __init__(self, recording: Recording) -> None:
        self.line = recording.received
        self.playout = play_out(self.line)
        self._sounds = voice_spans(self.line.pcm, 0.0)

    def voices(self, join_s: float) -> list[Voice]:
        return [self._voice(start, end) for start, end in join(self._sounds, join_s)]

    def course(self, onset: float, until: float, uncut: Pcm) -> Course | None:
        """How the reply that sounds at `onset` ran on; times in seconds."""
        (_, first), (_, last) = self.line.between(-np.inf, onset), self.line.between(-np.inf, until)
        return follow(self.line.pcm, first, last, join(self._sounds, FINE_JOIN_S), uncut)

    def _voice(self, start: int, end: int) -> Voice:
        arrived, heard = self.line.time, self.playout.time
        return Voice(arrived(start), arrived(end - 1) + 1 / RATE, heard(start), heard(end - 1) + 1 / RATE)


def _turn(recording: Recording, agent: _Agent, number: int, replies: dict[int, Pcm]) -> TurnFigures:
    said = recording.said[number]
    sent = recording.sent
    onset, end = sent.time(said.voice[0][0]), sent.time(said.voice[-1][1] - 1)
    following = recording.said[number + 1] if number + 1 < len(recording.said) else None
    limit = sent.time(following.voice[0][0]) if following else np.inf
    turn = TurnFigures(said.name, said.expect, onset, end)
    pauses = [(sent.time(a[1] - 1), sent.time(b[0])) for a, b in pairwise(said.voice) if b[0] - a[1] >= PAUSE_S * RATE]
    if said.expect == "join":
        assert following is not None, "a scenario's last turn joins none"
        pauses.append((end, limit))
    _manners(turn, agent, pauses, sent.time(following.voice[-1][1] - 1) if said.expect == "join" and following else end)
    answered = [n for n in range(number) if recording.said[n].expect in ("respond", "stop")]
    uncut = replies.get(answered[-1]) if answered else None
    if said.expect in ("respond", "stop"):
        if said.expect == "stop":
            _interruption(turn, recording, agent, onset, end, limit, uncut)
        _response(turn, recording, agent, onset, end, limit)
    elif said.expect == "ignore":
        _distraction(turn, recording, agent, onset, end, limit, uncut)
    return turn


def _manners(turn: TurnFigures, agent: _Agent, pauses: list[tuple[float, float]], until: float) -> None:
    """Thinking pauses, and those after which the agent began to speak before the caller had finished."""
    turn.pauses = len(pauses)
    voices = agent.voices(REPLY_JOIN_S)
    for (start, _), (after, _) in pairwise([*pauses, (until, until)]):
        taken = [voice for voice in voices if start < voice.start < after]
        turn.taken_over += bool(taken)
        turn.taken_over_fdb += any(voice.end - voice.start >= BACKCHANNEL_S for voice in taken)


def _response(turn: TurnFigures, recording: Recording, agent: _Agent, onset: float, end: float, limit: float) -> None:
    voices = [voice for voice in agent.voices(0.3) if end < voice.start < limit]
    over = [voice for voice in agent.voices(0.3) if onset < voice.start <= end < voice.end]
    turn.early = bool(over) and turn.expect == "respond"
    turn.responded = bool(voices or over)
    if not voices or turn.early:
        return
    first = voices[0]
    turn.v2v_ms = _ms(first.start - end)
    turn.v2v_playout_ms = _ms(first.heard - end)
    # "Sure, one latte": a short word and the pause after it are a part of the answer.
    phrases = [voice for voice in agent.voices(REPLY_JOIN_S) if end < voice.start < limit]
    turn.answer_ms = next((_ms(p.start - end) for p in phrases if p.end - p.start >= SUBSTANCE_S), None)
    claims = [e.at for e in recording.events if e.data.get("type") == "output_audio_buffer.started"]
    claims += _stream_starts(agent.line)
    claimed = [at for at in claims if end < at <= first.start + 0.04]
    if claimed:
        turn.leading_silence_ms = max(0.0, _ms(first.start - min(claimed)))
    committed = [
        event.at
        for event in recording.events
        if event.data.get("type") == "input_audio_buffer.committed" and onset < event.at < first.start + 0.04
    ]
    if committed:
        turn.eot_delay_ms = _ms(committed[-1] - end)
        turn.ttfa_ms = _ms(first.heard - committed[-1])
    turn.turn_id, turn.server = _server_side(recording.events, end, limit)


def _server_side(events: tuple[Event, ...], after: float, before: float) -> tuple[str, dict[str, float]]:
    """The server's id of the turn and its own break-down: the first `agent.turn.latency` after the caller's end."""
    for event in events:
        if event.data.get("type") == "agent.turn.latency" and after < event.at < before:
            told = {key: float(value) for key, value in event.data.items() if key.endswith("_ms")}
            return str(event.data.get("turn_id", "")), told
    return "", {}


def _interruption(
    turn: TurnFigures,
    recording: Recording,
    agent: _Agent,
    onset: float,
    end: float,
    limit: float,
    uncut: Pcm | None,
) -> None:
    # What follows a reply that was cancelled, by the server's own word, is the next one: its words may be the same.
    limit = min(limit, _next_reply(recording.events, onset) - ON_THE_WAY_S)
    course = None if uncut is None else agent.course(onset, min(onset + STOPPED_S, limit), uncut)
    since = _came_back(recording, agent, course, onset, limit)
    turn.came_back = since is not None
    if since is None:
        arrived, heard = (_stop(agent, onset, end, heard) for heard in (False, True))
    else:
        # It ends where it ends after that, and what comes then is told from it by half a second of silence alone.
        # What is heard of it at playout may begin a little later.
        arrived, heard = (_stop(agent, since + ON_THE_WAY_S, np.inf, heard) for heard in (False, True))
    if arrived is None and heard is None:
        if course is not None and not course.complete and not course.other:
            # The onset fell into a silence of the reply's own, and the rest of it never came.
            turn.stopped, turn.yield_ms, turn.yield_playout_ms, turn.stale_ms = True, 0.0, 0.0, 0.0
        return
    # A reply that was sent ahead of its time may have arrived whole before the onset, and is heard on.
    turn.yield_ms = None if arrived is None else _ms(arrived - onset)
    turn.yield_playout_ms = None if heard is None else _ms(heard - onset)
    last = max(moment for moment in (arrived, heard) if moment is not None)
    turn.stopped = last - onset <= STOPPED_S
    if course is not None and course.faded is not None:
        turn.faded_ms = _ms(agent.line.time(course.faded) - onset)
    turn.stale_ms = _ms(_stale(recording, agent, last if arrived is None else arrived, onset, end))


def _came_back(recording: Recording, agent: _Agent, course: Course | None, onset: float, limit: float) -> float | None:
    """When the reply went on last after the caller cut in, by its sound or by the server's word; None if it did not."""
    found = []
    if course is not None and course.went_on is not None:
        found.append(agent.line.time(course.went_on))
    voices = [voice.start for voice in agent.voices(FINE_JOIN_S) if onset < voice.start < limit]
    for event in recording.events:
        if event.data.get("type") == "agent.turn.resumed" and onset < event.at < limit:
            found += [start for start in voices if start >= event.at - ON_THE_WAY_S][:1]
    return max(found, default=None)


def _stop(agent: _Agent, onset: float, end: float, heard: bool) -> float | None:
    """When the reply that runs at `onset` ends, in seconds; None if none runs.

    A silence of 0.5 s ends a reply; so does a shorter one after which voice comes only when the caller is done, for
    that is the next reply.
    """
    spans = [
        (voice.heard, voice.heard_until) if heard else (voice.start, voice.end) for voice in agent.voices(FINE_JOIN_S)
    ]
    before = [i for i, (start, _) in enumerate(spans) if start <= onset]
    if not before or spans[before[-1]][1] < onset - REPLY_JOIN_S:
        return None
    last = before[-1]
    while last + 1 < len(spans):
        gap = spans[last + 1][0] - spans[last][1]
        if gap > REPLY_JOIN_S or (gap > FINE_JOIN_S and spans[last + 1][0] > end and spans[last][1] > onset):
            break
        last += 1
    return spans[last][1] if spans[last][1] > onset else None


def _stale(recording: Recording, agent: _Agent, stopped: float, onset: float, end: float) -> float:
    """Seconds of voice of the old reply after its stop: until the next reply starts, by the server's own word.

    A server that tells nothing is taken to reply only to a caller who is done.
    """
    cleared = _cleared(recording.events, onset)
    if cleared is None:
        after, until = stopped, end
    else:
        after, until = cleared + ON_THE_WAY_S, _next_reply(recording.events, onset)
    voices = agent.voices(0.0)
    return float(sum(max(0.0, min(voice.end, until) - max(voice.start, after)) for voice in voices))


def _cleared(events: tuple[Event, ...], after: float) -> float | None:
    """When the server first tells that it cut its reply."""
    kind = "output_audio_buffer.cleared"
    return next((event.at for event in events if event.data.get("type") == kind and event.at > after), None)


def _next_reply(events: tuple[Event, ...], onset: float) -> float:
    """When the server tells that it begins to speak again after it cut the reply; infinity if it tells nothing."""
    cleared = _cleared(events, onset)
    kind = "output_audio_buffer.started"
    begun = (e.at for e in events if cleared is not None and e.data.get("type") == kind and e.at > cleared)
    return next(begun, np.inf)


def _distraction(
    turn: TurnFigures,
    recording: Recording,
    agent: _Agent,
    onset: float,
    end: float,
    limit: float,
    uncut: Pcm | None,
) -> None:
    fine = agent.voices(FINE_JOIN_S)
    course = None if uncut is None else agent.course(onset, limit, uncut)
    # A reply that is silent between two of its words runs too: the same one uncut says more, or the server tells so.
    due = _is_playing(recording.events, onset) if course is None else course.due
    if not due and not any(voice.start <= onset < voice.end for voice in agent.voices(REPLY_JOIN_S)):
        turn.responded = any(onset < voice.start < min(limit, end + STOPPED_S) for voice in fine)
        turn.kept = not turn.responded
        return
    gaps = [b.start - a.end for a, b in pairwise(fine) if onset <= a.end <= end + 0.3]
    goes_on = any(end < voice.end and voice.start < end + STOPPED_S for voice in fine)
    cancelled = any(
        onset < event.at < min(limit, end + STOPPED_S)
        and (
            event.data.get("type") == "output_audio_buffer.cleared"
            or (event.data.get("type") == "response.done" and _status(event) == "cancelled")
        )
        for event in recording.events
    )
    if course is not None:
        goes_on = course.complete
    turn.kept = goes_on and not cancelled
    if not turn.kept:
        return
    turn.resume_gap_ms = _ms(max(gaps, default=0.0))
    if course is not None:
        turn.repeated_ms, turn.skipped_ms = _ms(course.repeated), _ms(course.skipped)
        if course.faded is not None:
            turn.faded_ms = _ms(agent.line.time(course.faded) - onset)
        if course.resumed is not None:
            turn.resume_ms = max(0.0, _ms(agent.line.time(course.resumed) - end))


def _is_playing(events: tuple[Event, ...], at: float) -> bool:
    """Whether the server has told by then that it began to speak, and not that it stopped."""
    kinds = ("output_audio_buffer.started", "output_audio_buffer.stopped", "output_audio_buffer.cleared")
    told = [event.data["type"] for event in events if event.at < at and event.data.get("type") in kinds]
    return bool(told) and told[-1] == kinds[0]


def _status(event: Event) -> str:
    response = event.data.get("response")
    return str(response.get("status", "")) if isinstance(response, dict) else ""


def _stream_starts(line: Line) -> list[float]:
    """Arrivals with which a stream that had fallen silent for 100 ms of its own time line flows again."""
    at, position, length = (values[line.order] for values in (line.at, line.position, line.length))
    silent = position[1:] - position[:-1] - length[:-1] > RATE // 10
    return [float(at[i + 1]) for i in np.flatnonzero(silent)]


def stream_figures(line: Line, playout: Playout, media_clock: bool) -> StreamFigures:
    """The packets of a received line. `media_clock`: the sender counts its samples, so that its drift can be told."""
    if len(line.at) < 2:
        return StreamFigures(len(line.at), 0, 0, 0.0, 0.0, 0.0, 0.0, None)
    gaps = np.diff(np.sort(line.at)) * 1000
    span = int(line.sequence.max() - line.sequence.min()) + 1
    return StreamFigures(
        packets=len(line.at),
        lost=span - len(line.at),
        reordered=int(np.sum(np.diff(line.sequence) < 0)),
        gap_p50_ms=round(float(np.percentile(gaps, 50)), 1),
        gap_p99_ms=round(float(np.percentile(gaps, 99)), 1),
        gap_max_ms=round(float(gaps.max()), 1),
        burst_ms=round(float(playout.waiting_ms().max(initial=0.0)), 1),
        drift_ppm=drift_ppm(line) if media_clock else None,
    )


def drift_ppm(line: Line) -> float | None:
    """The sender's clock against the caller's, from the packets that were fastest in each second; None below 10 s."""
    media: npt.NDArray[np.float64] = line.position / RATE
    if len(media) < 2 or line.at.max() - line.at.min() < 10:
        return None
    delay = line.at - media
    second = (media - media.min()).astype(np.int64)
    fastest = np.array([np.flatnonzero(second == s)[np.argmin(delay[second == s])] for s in np.unique(second)])
    slope = float(np.polyfit(media[fastest], delay[fastest], 1)[0])
    return round(-slope * 1e6, 1)


def _ms(seconds: float) -> float:
    return round(1000 * float(seconds), 1)


def spans_of(pcm: npt.NDArray[np.int16], at: int = 0) -> tuple[tuple[int, int], ...]:
    """The voice of a clean recording (int16[T] @ 24 kHz) said at sample `at`; pauses of a thinker stay apart."""
    return tuple((at + start, at + end) for start, end in voice_spans(pcm, PAUSE_S - 0.01))

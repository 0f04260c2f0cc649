"""Streaming speech recognition: partial transcripts while a person speaks, a final one when they stop.

An utterance is an `AsrStream`. All streams share the worker threads of one `AsrPool`. Finals go before partials; a
stream has at most one partial waiting, and it transcribes everything pushed by the time it runs. The first of
several workers takes no such partials, so that a final never waits for one; partials rest while a final runs, and
use at most `partial_share` of their worker's time. All streams that are spoken into share the cadence of one. With
many calls it is therefore the partials that become rare.

A stream over a reply that is held until its words are known is urgent. Its partials come sooner, go before the others,
on any worker and without rest, and are looked at for the few words that decide what becomes of the reply. Whoever asks
for its final transcript gets one more of these first, as that takes less time and is often all that was wanted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from voice_agent.utterance import Utterance
from voice_agent.whisper import SAMPLE_RATE, Prompt, Recognizer, RecognizerConfig, Transcript, check_language
from voice_agent.words import LIKELY

if TYPE_CHECKING:
    from voice_agent.engine.protocols import Language

__all__ = [
    "AsrConfig",
    "AsrPool",
    "AsrStats",
    "AsrStream",
    "Recognizer",
    "RecognizerConfig",
    "Transcript",
    "check_language",
]

_log = logging.getLogger(__name__)

LATELY_S = 1.0
"""A pool that transcribed other callers so short a time ago is shared with them."""


class AsrConfig(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workers: int = Field(default=2, ge=1)
    """Threads. With two or more the first takes finals and urgent partials only."""
    partial_every_ms: int = Field(default=400, ge=50)
    """New audio that is worth a partial, times the streams that are being transcribed."""
    urgent_first_ms: int = Field(default=550, ge=50)
    """Audio, what was before the voice included, that is worth the first partial of an urgent stream."""
    urgent_every_ms: int = Field(default=200, ge=50)
    """New audio that is worth another one."""
    partial_share: float = Field(default=0.5, gt=0, le=1)
    """Share of a worker's time that partials may use."""
    segment_min_s: float = Field(default=8.0, gt=0)
    segment_max_s: float = Field(default=15.0, gt=0, le=25)
    """An utterance longer than this is cut at its quietest moment after `segment_min_s`."""
    backlog_max_s: float = Field(default=60.0, gt=0)
    """Audio of a stream that may wait for transcription."""

    @model_validator(mode="after")
    def _ordered(self) -> AsrConfig:
        if not self.segment_min_s < self.segment_max_s < self.backlog_max_s:
            raise ValueError(
                "expected segment_min_s < segment_max_s < backlog_max_s, got "
                f"{self.segment_min_s}, {self.segment_max_s}, {self.backlog_max_s}"
            )
        return self


@dataclass
class AsrStats:
    """Counters since the pool began, and times of the latest jobs.

    `final_ms`: from asking to having a final. `lag_ms`: from pushing a partial's last sample to having it.
    """

    finals: int = 0
    partials: int = 0
    discarded: int = 0
    failures: int = 0
    queue_depth: int = 0
    running: int = 0
    final_ms: deque[float] = field(default_factory=lambda: deque(maxlen=256))
    lag_ms: deque[float] = field(default_factory=lambda: deque(maxlen=256))


@dataclass(eq=False)
class _Final:
    """A final that `waiters` wait for: the stream up to sample `end`. `asked`: seconds, monotonic clock.

    `urgent`: it is no final yet, but a partial that comes before one.
    """

    stream: AsrStream
    end: int
    asked: float
    future: asyncio.Future[Transcript]
    waiters: int = 0
    urgent: bool = False


class AsrPool:
    """Worker threads for all calls' streams. Made and used on one event loop."""

    def __init__(self, recognizer: Recognizer, config: AsrConfig | None = None) -> None:
        self.config = config or AsrConfig()
        self.stats = AsrStats()
        self._recognizer = recognizer
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._finals: deque[_Final] = deque()
        self._running: list[_Final] = []
        self._begun: deque[tuple[float, AsrStream]] = deque(maxlen=8)
        self._partials: deque[AsrStream] = deque()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"asr-{number}", daemon=True)
            for number in range(self.config.workers)
        ]
        for thread in self._threads:
            thread.start()

    def open(self, language: Language | None, prompt: Prompt, likely: Language = "zh") -> AsrStream:
        """A new utterance; `prompt`: words that are likely, or such words by language.

        `language` None: it is detected; `likely`: the one expected, as that of the utterance before.
        Raises ValueError for an unknown language.
        """
        check_language(language)
        check_language(likely)
        if self._closed:
            raise RuntimeError("expected an open pool: it was closed")
        return AsrStream(self, language, prompt, likely)

    def others(self, stream: AsrStream) -> int:
        """Other streams that wait to be transcribed, or began to be within the last `LATELY_S`."""
        since = time.monotonic() - LATELY_S
        with self._changed:
            waiting = {*(job.stream for job in self._finals), *self._partials}
            lately = {other for at, other in self._begun if at >= since}
        return len((waiting | lately) - {stream})

    async def aclose(self) -> None:
        """Cancel whatever is waited for, and return when the workers have ended: one transcription later at most."""
        with self._changed:
            self._closed = True
            unfinished = [*self._finals, *self._running]
            self._finals.clear()
            self._partials.clear()
            self._changed.notify_all()
        for job in unfinished:
            job.future.cancel()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _want_final(self, job: _Final) -> bool:
        """Queue a final in place of the stream's partial; whether there was one."""
        with self._changed:
            if self._closed:
                raise RuntimeError("expected an open pool: it was closed")
            dropped = self._drop_partial(job.stream)
            self._finals.append(job)
            self._update()
            return dropped

    def _want_partial(self, stream: AsrStream) -> None:
        with self._changed:
            if not self._closed and stream not in self._partials:
                place = sum(other.urgent for other in self._partials) if stream.urgent else len(self._partials)
                self._partials.insert(place, stream)
                self._update()

    def _forget(self, job: _Final) -> None:
        with self._changed:
            if job in self._finals:
                self._finals.remove(job)
                self._update()

    def _forget_partial(self, stream: AsrStream) -> None:
        with self._changed:
            self._drop_partial(stream)
            self._update()

    def _drop_partial(self, stream: AsrStream) -> bool:
        if stream not in self._partials:
            return False
        self._partials.remove(stream)
        return True

    def _update(self) -> None:
        self.stats.queue_depth = len(self._finals) + len(self._partials)
        self.stats.running = len(self._running)
        self._changed.notify_all()

    def _work(self, number: int) -> None:
        partials_too = number > 0 or len(self._threads) == 1
        rest_until = 0.0
        while True:
            job = self._take(partials_too, rest_until)
            if job is None:
                return
            began = time.monotonic()
            if isinstance(job, _Final):
                self._run_final(job)
            else:
                self._run_partial(job)
                now = time.monotonic()
                rest_until = now + (now - began) * (1 / self.config.partial_share - 1)

    def _take(self, partials_too: bool, rest_until: float) -> _Final | AsrStream | None:
        """The next job, as soon as there is one; None: the pool was closed."""
        with self._changed:
            while not self._closed:
                if self._finals:
                    job = self._finals.popleft()
                    self._running.append(job)
                    self._begun.append((time.monotonic(), job.stream))
                    self._update()
                    return job
                rest = None
                urgent = bool(self._partials) and self._partials[0].urgent
                if urgent or (partials_too and self._partials and not self._running):
                    rest = 0.0 if urgent else rest_until - time.monotonic()
                    if rest <= 0:
                        stream = self._partials.popleft()
                        self._begun.append((time.monotonic(), stream))
                        self._update()
                        return stream
                self._changed.wait(rest)
        return None

    def _run_final(self, job: _Final) -> None:
        result: Transcript | Exception | None = None
        if not job.future.cancelled():
            try:
                prompt = self._prompt_of(job)
                result = job.stream.utterance.transcribe(self._recognizer, job.end, prompt, over_reply=job.urgent)
                took_ms = (time.monotonic() - job.asked) * 1000
                if job.urgent:
                    self.stats.partials += 1
                    self.stats.lag_ms.append(took_ms)
                else:
                    self.stats.finals += 1
                    self.stats.final_ms.append(took_ms)
            except Exception as error:
                self.stats.failures += 1
                result = error
        with self._changed:
            self._running.remove(job)
            self._update()
        self._deliver(job.stream._urgent_done if job.urgent else job.stream._final_done, job, result)

    @staticmethod
    def _prompt_of(job: _Final) -> Prompt | None:
        """None: the stream's own."""
        if job.urgent:
            return LIKELY
        return _with_likely(job.stream.prompt) if job.stream.urgent else None

    def _run_partial(self, stream: AsrStream) -> None:
        end, pushed_at = stream.utterance.samples, stream.pushed_at
        result: Transcript | None = None
        try:
            urgent = stream.urgent
            prompt = LIKELY if urgent else None
            result = stream.utterance.transcribe(self._recognizer, end, prompt, over_reply=urgent)
            self.stats.partials += 1
            self.stats.lag_ms.append((time.monotonic() - pushed_at) * 1000)
        except Exception:
            self.stats.failures += 1
            _log.exception("a partial transcription failed")
        self._deliver(stream._partial_done, end, result)

    def _deliver(self, call: Callable[..., None], *args: object) -> None:
        if not self._closed:
            self._loop.call_soon_threadsafe(call, *args)


class AsrStream:
    """One utterance. Every method is called on the loop, and none of them blocks."""

    def __init__(self, pool: AsrPool, language: Language | None, prompt: Prompt, likely: Language) -> None:
        self._pool = pool
        self.prompt = prompt
        config = pool.config
        self.utterance = Utterance(
            language,
            prompt,
            likely,
            segment_min=int(config.segment_min_s * SAMPLE_RATE),
            segment_max=int(config.segment_max_s * SAMPLE_RATE),
            backlog_max=int(config.backlog_max_s * SAMPLE_RATE),
        )
        self.on_partial: Callable[[Transcript], None] | None = None
        """Called on the loop with the transcript of the utterance so far, be it empty; without it none is computed."""
        self.urgent = False
        """Whether a reply is held until these words are known; may be set at any time."""
        self.pushed_at = 0.0
        """When the latest audio came, in seconds on the monotonic clock."""
        self.cancelled = False
        self.recorded: list[npt.NDArray[np.int16]] = []
        """All that was pushed, for a model that hears recordings itself."""
        self._partial_end = 0
        self._partial_busy = False
        self._waiting: _Final | None = None
        self._before_final: _Final | None = None
        self._result: tuple[int, Transcript] | None = None

    def push(self, pcm: npt.NDArray[np.int16]) -> None:
        """More of the utterance: int16[T] @ 16 kHz.

        Raises BufferError if the workers are so far behind that `backlog_max_s` of it wait.
        """
        if self.cancelled:
            raise RuntimeError("expected a live stream: it was cancelled")
        self.utterance.push(pcm)
        self.recorded.append(pcm)
        self.pushed_at = time.monotonic()
        idle = not self._partial_busy and self._waiting is None and self._before_final is None
        new = self.utterance.samples - self._partial_end
        if self.on_partial is not None and idle and new * 1000 >= self._partial_after_ms * SAMPLE_RATE:
            self._partial_busy = True
            self._pool._want_partial(self)

    @property
    def _partial_after_ms(self) -> int:
        config = self._pool.config
        if not self.urgent:
            return config.partial_every_ms * (1 + self._pool.others(self))
        return config.urgent_every_ms if self._partial_end else config.urgent_first_ms

    async def final(self) -> Transcript:
        """The transcript of everything pushed so far; empty text: nothing was said, or nothing to be believed.

        It may be asked for on suspicion and again after more audio. A call that comes while an earlier one still
        waits in the queue takes its place, and both get the later transcript. A cancelled call leaves the queue.
        Of an urgent stream `on_partial` gets a first transcript of it; whoever has heard enough by that cancels the
        stream.
        """
        if self.cancelled:
            raise RuntimeError("expected a live stream: it was cancelled")
        end = self.utterance.samples
        if self._result is not None and self._result[0] == end:
            return self._result[1]
        if self.urgent and self.on_partial is not None and self._partial_end < end:
            await self._hear_urgently(end)
        job = self._waiting
        if job is None or job.end != end:
            older, job = job, _Final(self, end, time.monotonic(), self._pool._loop.create_future())
            if older is not None:
                self._pool._forget(older)
                _follow(older, job)
            self._waiting = job
            if self._pool._want_final(job):
                self._partial_busy = False
        job.waiters += 1
        try:
            return await asyncio.shield(job.future)
        finally:
            job.waiters -= 1
            if not job.waiters and not job.future.done():
                self._abandon(job)

    async def _hear_urgently(self, end: int) -> None:
        """Give `on_partial` what was said up to sample `end` under the few words that matter most."""
        job = _Final(self, end, time.monotonic(), self._pool._loop.create_future(), urgent=True)
        self._before_final = job
        if self._pool._want_final(job):
            self._partial_busy = False
        try:
            transcript = await job.future
        finally:
            self._pool._forget(job)
            if self._before_final is job:
                self._before_final = None
        if self.on_partial is not None and self._partial_end < end:
            self._partial_end = end
            self.on_partial(transcript)
        if self.cancelled:
            raise asyncio.CancelledError

    def cancel(self) -> None:
        """Drop the utterance: nothing of it is delivered any more, and whoever waits for a final is cancelled."""
        self.cancelled = True
        self._pool._forget_partial(self)
        for job in (self._waiting, self._before_final):
            if job is not None:
                self._abandon(job)
        self.utterance.clear()

    def _abandon(self, job: _Final) -> None:
        self._pool._forget(job)
        job.future.cancel()
        if self._waiting is job:
            self._waiting = None

    def _final_done(self, job: _Final, result: Transcript | Exception | None) -> None:
        if self._waiting is job:
            self._waiting = None
        unwanted = job.future.done()  # nobody waits for it any more, as the caller went on
        if result is None or (unwanted and (self.cancelled or isinstance(result, Exception))):
            self._pool.stats.discarded += 1
        elif isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            self._result = (job.end, result)
            if job.end < self.utterance.samples and self.on_partial is not None:
                # More was said meanwhile, and this may be no final any more: it is a hypothesis like any other.
                self._partial_end = job.end
                self.on_partial(result)
            if not unwanted:
                job.future.set_result(result)

    def _urgent_done(self, job: _Final, result: Transcript | Exception | None) -> None:
        if job.future.done() or result is None:
            self._pool.stats.discarded += 1
        elif isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)

    def _partial_done(self, end: int, result: Transcript | None) -> None:
        self._partial_busy = False
        self._partial_end = end
        if self.cancelled or (self._result is not None and self._result[0] >= end):
            self._pool.stats.discarded += 1
        elif result is not None and self.on_partial is not None:
            self.on_partial(result)


def _with_likely(prompt: Prompt) -> Prompt:
    """What is likely over a reply, after what is likely anyway."""
    given = dict.fromkeys(LIKELY, prompt) if isinstance(prompt, str) else prompt
    return {
        language: ("、" if language == "zh" else ", ").join(filter(None, [given.get(language, ""), words]))
        for language, words in LIKELY.items()
    }


def _follow(older: _Final, newer: _Final) -> None:
    """Give those who wait for `older` what `newer` gets, unless `older` has a result of its own first."""

    def copy(done: asyncio.Future[Transcript]) -> None:
        if older.future.done():
            return
        if done.cancelled():
            older.future.cancel()
        elif (error := done.exception()) is not None:
            older.future.set_exception(error)
        else:
            older.future.set_result(done.result())

    newer.waiters += older.waiters
    newer.future.add_done_callback(copy)

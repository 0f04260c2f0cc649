"""The caller's side of a call: audio comes in, what the voice detector made of it and the words of it go out.

It decides nothing. The session's policy is told of every event, and asks for utterances to be opened and ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import numpy.typing as npt

from voice_agent.engine.protocols import Language
from voice_agent.turn import SAMPLES_PER_MS
from voice_agent.vad import SAMPLE_RATE

if TYPE_CHECKING:
    from voice_agent.asr import AsrStream, Transcript
    from voice_agent.media.speaker import Speaker
    from voice_agent.runtime import Runtime
    from voice_agent.vad import VadEvent

log = logging.getLogger(__name__)

# Input that the VAD has not seen yet; beyond it the oldest audio is dropped and counted (the loop was blocked).
INPUT_BOUND_MS = 4000
# A source that can wait, such as a socket, is asked for more when less than this has not been seen yet.
INPUT_ROOM_MS = 1000
RECENT_MS = 3000
# Audio that a client who ends its turns by itself may have said before a commit; beyond it the oldest goes.
HELD_MS = 30_000
PRE_ROLL_MS = 200
# How long a transcript that may be for nothing gives way to others that are under way.
BUSY_S = 0.1
# Verdicts of a recogniser that heard speech and does not believe what it has written.
UNCLEAR = ("unlikely", "too_dense", "repeated")


@dataclass
class Utterance:
    """What the caller said in one go, spoken or typed, and its final transcript once there is one.

    `onset`, `last_voiced`: samples of the caller's audio; `begun_at`: the first one that is recognised. `final_at`: the
    sample up to which the final transcript goes that was begun last, `generation` counts them. `announced`: the client
    was told that speech has started. `unclear`: somebody spoke, and what they said could not be made out.
    """

    item_id: str
    onset: int = 0
    begun_at: int = 0
    stream: AsrStream | None = None
    last_voiced: int = 0
    announced: bool = False
    committed: bool = False
    generation: int = 0
    final_at: int = -1
    guess: str = ""
    told: str = ""
    text: str = ""
    seconds: float = 0.0
    failed: bool = False
    unclear: bool = False
    work: asyncio.Task[None] | None = None
    language: Language | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)

    def agree(self, text: str) -> str:
        """Take a hypothesis; gives the new words that it shares with the one before.

        That is LocalAgreement of Liu et al., 2020 (https://arxiv.org/abs/2005.11185).
        """
        agreed = _common_prefix(self.guess, text)
        self.guess = text
        new = agreed[len(self.told) :] if agreed.startswith(self.told) else ""
        self.told += new
        return new


class Hearing:
    """Audio, voice detection and recognition of one call. All methods belong to the event loop.

    `current` is the utterance that is being spoken. Callbacks: `on_voice` with the detector's events, in order;
    `on_partial` with each hypothesis of the current utterance, and the sample up to which it goes; `on_final` when an
    utterance's words are known, or have failed; `on_overload` when the recogniser does not keep up, and the current
    utterance was dropped.
    """

    def __init__(
        self,
        runtime: Runtime,
        speaker: Speaker,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None],
    ) -> None:
        self.on_voice: Callable[[list[VadEvent]], None] = lambda events: None
        self.on_partial: Callable[[Utterance, Transcript, int], None] = lambda utterance, transcript, at: None
        self.on_final: Callable[[Utterance], None] = lambda utterance: None
        self.on_overload: Callable[[], None] = lambda: None
        self.current: Utterance | None = None
        self.dropped_samples = 0
        self.client_commits = False
        self._runtime = runtime
        self._spawn = spawn
        self._speaker = speaker
        self._ears = runtime.open_ears(speaker.reference)
        self._held: deque[npt.NDArray[np.int16]] = deque()
        self._held_samples = 0
        self._input: deque[npt.NDArray[np.int16]] = deque()
        self._input_samples = 0
        self._input_at = 0.0
        self._input_ready = anyio.Event()
        self._input_taken = asyncio.Event()
        self._heard_samples = 0
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=500)
        self._recent = np.zeros(0, np.int16)
        self._recent_end = 0

    # Audio.

    def feed(self, pcm: npt.NDArray[np.int16]) -> None:
        """The caller's audio: int16 mono at 16 kHz, any length, in order."""
        self._heard_samples += len(pcm)
        self._arrivals.append((self._heard_samples, time.perf_counter()))
        self._input.append(pcm)
        self._input_samples += len(pcm)
        while self._input_samples > INPUT_BOUND_MS * SAMPLES_PER_MS:
            lost = len(self._input.popleft())
            self._input_samples -= lost
            self.dropped_samples += lost
        self._input_at = self._speaker.now()
        self._input_ready.set()
        if self.client_commits:
            self._held.append(pcm)
            self._held_samples += len(pcm)
            while self._held_samples > HELD_MS * SAMPLES_PER_MS:
                self._held_samples -= len(self._held.popleft())

    async def room(self) -> None:
        """Wait until more audio is wanted: for sources that can hold it back."""
        while self._input_samples > INPUT_ROOM_MS * SAMPLES_PER_MS:
            self._input_taken.clear()
            await self._input_taken.wait()

    def take_held(self) -> npt.NDArray[np.int16]:
        """What came since the last commit, for a client that ends its turns by itself."""
        pcm = np.concatenate(self._held) if self._held else np.zeros(0, np.int16)
        self._held.clear()
        self._held_samples = 0
        return pcm

    def arrival_of(self, sample: int) -> float:
        """When this sample of the caller's audio arrived (`time.perf_counter()`)."""
        return next((at for end, at in self._arrivals if end >= sample), time.perf_counter())

    def silent_for(self) -> float:
        """Seconds since any audio came, silence included; 0 before the first."""
        return time.perf_counter() - self._arrivals[-1][1] if self._arrivals else 0.0

    @property
    def now(self) -> int:
        """Samples that the voice detector has seen."""
        return self._recent_end

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            await self._input_ready.wait()
            self._input_ready = anyio.Event()
            pcm = np.concatenate(self._input) if self._input else np.zeros(0, np.int16)
            self._input.clear()
            self._input_samples = 0
            self._input_taken.set()
            if not len(pcm):
                continue
            pcm, events = await self._runtime.listen(self._ears, pcm, self._input_at)
            self._recent = np.concatenate([self._recent, pcm])[-RECENT_MS * SAMPLES_PER_MS :]
            self._recent_end += len(pcm)
            self._recognise(pcm)
            self.on_voice(events)

    # Utterances.

    def open(self, item_id: str, onset: int, language: Language | None, likely: Language) -> Utterance:
        """The caller began to speak at sample `onset`: recognise what is said from shortly before it on."""
        pcm = self._since(onset - PRE_ROLL_MS * SAMPLES_PER_MS)
        utterance = self.current = self.record(item_id, pcm, language, likely)
        utterance.onset, utterance.begun_at = onset, self._recent_end - len(pcm)
        assert utterance.stream is not None
        utterance.stream.on_partial = lambda transcript: self._on_partial(utterance, transcript)
        return utterance

    def record(
        self, item_id: str, pcm: npt.NDArray[np.int16], language: Language | None, likely: Language
    ) -> Utterance:
        """An utterance of which `pcm` (int16[T] @ 16 kHz) is the beginning. Raises BufferError if it is too long."""
        stream = self._runtime.asr.open(language, self._runtime.prompt, likely=likely)
        stream.push(pcm)
        return Utterance(item_id, stream=stream)

    def drop(self) -> None:
        """Forget the current utterance."""
        if self.current is not None and self.current.stream is not None:
            self.current.stream.cancel()
        self.current = None

    def echo_share(self, utterance: Utterance) -> float:
        """How much of the sound of the utterance, 0 to 1, was the agent's own voice; of its last 3 s at most."""
        return self._ears.echo_share(utterance.onset, self._recent_end)

    def unspeculate(self, utterance: Utterance) -> None:
        """The caller goes on: the final transcript that was begun is none."""
        utterance.generation += 1
        utterance.final_at = -1
        if utterance.work is not None:
            utterance.work.cancel()

    def finalise(self, utterance: Utterance, *, early: bool = False) -> None:
        """Begin the final transcript of what was said so far; a later one supersedes it.

        `early`: the caller may well go on. With other callers to be transcribed it then waits for `BUSY_S`, unless a
        reply is held for it.
        """
        utterance.generation += 1
        utterance.final_at = self._recent_end
        utterance.ready = anyio.Event()
        utterance.work = self._spawn(self._transcribe(utterance, utterance.generation, early))

    async def _transcribe(self, utterance: Utterance, generation: int, early: bool) -> None:
        assert utterance.stream is not None
        try:
            if early and not utterance.stream.urgent and self._runtime.asr.others(utterance.stream):
                await asyncio.sleep(BUSY_S)
            transcript = await utterance.stream.final()
        except Exception:
            log.exception("recognition failed")
            if generation == utterance.generation:
                utterance.failed = True
                utterance.ready.set()
                self.on_final(utterance)
            return
        if generation == utterance.generation:
            utterance.text, utterance.language = transcript.text, transcript.language
            utterance.seconds, utterance.unclear = transcript.seconds, transcript.verdict in UNCLEAR
            utterance.ready.set()
            self.on_final(utterance)

    def _on_partial(self, utterance: Utterance, transcript: Transcript) -> None:
        if utterance is self.current:
            self.on_partial(utterance, transcript, utterance.begun_at + round(transcript.seconds * SAMPLE_RATE))

    def _recognise(self, pcm: npt.NDArray[np.int16]) -> None:
        if self.current is None or self.current.stream is None:
            return
        try:
            self.current.stream.push(pcm)
        except BufferError as error:
            log.error("the recogniser does not keep up: %s", error)
            self.drop()
            self.on_overload()

    def _since(self, at: int) -> npt.NDArray[np.int16]:
        return self._recent[max(0, len(self._recent) - (self._recent_end - at)) :]


def _common_prefix(one: str, other: str) -> str:
    """What both begin with; of alphabetic words only whole ones."""
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    whole = length == len(one) == len(other)
    while not whole and 0 < length < len(other) and other[length - 1].isascii() and other[length].isascii():
        if other[length - 1].isspace() or other[length].isspace():
            break
        length -= 1
    return other[:length]

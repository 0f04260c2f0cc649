"""The audio of one utterance while it grows, and its transcript in segments.

Whisper's time grows with the length of what it reads. A long utterance is therefore cut at its quietest moments: a
segment that is closed is transcribed once, and its audio let go.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from voice_agent.whisper import SAMPLE_RATE, Prompt, Recognizer, Transcript

if TYPE_CHECKING:
    from voice_agent.engine.protocols import Language

__all__ = ["Utterance"]

_STEP = 800
"""Samples (50 ms) of the energy curve that a quiet moment is looked for in."""


@dataclass
class _Segment:
    start: int
    end: int
    transcript: Transcript | None = None


class Utterance:
    """Audio of one utterance. `push` and `clear` are called on one thread, `transcribe` on any others."""

    def __init__(
        self,
        language: Language | None,
        prompt: Prompt,
        likely: Language,
        segment_min: int,
        segment_max: int,
        backlog_max: int,
    ) -> None:
        """`segment_min`, `segment_max`: samples a segment has at least and at most; `backlog_max`: samples kept."""
        self._language = language
        self._prompt = prompt
        self._likely = likely
        self._segment_min = segment_min
        self._segment_max = segment_max
        self._backlog_max = backlog_max
        self._lock = threading.Lock()
        self._settling = threading.Lock()
        self._chunks: deque[npt.NDArray[np.int16]] = deque()
        self._chunks_start = 0
        self._segments: list[_Segment] = []
        self._latest: tuple[int, Transcript] | None = None
        self.samples = 0
        """Samples pushed so far."""

    @property
    def kept(self) -> int:
        """Samples still in memory."""
        return self.samples - self._chunks_start

    def push(self, pcm: npt.NDArray[np.int16]) -> None:
        """More audio: int16[T] @ 16 kHz. Raises BufferError if more than `backlog_max` samples would be kept."""
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise ValueError(f"expected int16[T], got {pcm.dtype}{list(pcm.shape)}")
        with self._lock:
            if self.kept + len(pcm) > self._backlog_max:
                raise BufferError(
                    f"expected at most {self._backlog_max / SAMPLE_RATE:.0f} s of audio to wait for transcription, "
                    f"got {(self.kept + len(pcm)) / SAMPLE_RATE:.0f} s"
                )
            self._chunks.append(pcm)
            self.samples += len(pcm)
            self._cut()

    def clear(self) -> None:
        """Let go of the audio."""
        with self._lock:
            self._chunks.clear()
            self._chunks_start = self.samples

    def transcribe(
        self, recognizer: Recognizer, end: int, prompt: Prompt | None = None, *, over_reply: bool = False
    ) -> Transcript:
        """Transcript up to sample `end`.

        `prompt`: likelier words than its own, for what is not yet a whole segment; `over_reply`: see `Recognizer`.
        """
        with self._lock:
            closed = [segment for segment in self._segments if segment.end <= end]
        parts: list[Transcript] = []
        for segment in closed:
            with self._settling:
                if segment.transcript is None:
                    segment.transcript = self._recognize(recognizer, segment.start, segment.end, self._prompt)
                    self._trim()
            parts.append(segment.transcript)
        start = closed[-1].end if closed else 0
        words = self._prompt if prompt is None else prompt
        parts.append(self._recognize(recognizer, start, end, words, over_reply and not closed))
        return _joined(parts)

    def _recognize(
        self, recognizer: Recognizer, start: int, end: int, prompt: Prompt, over_reply: bool = False
    ) -> Transcript:
        """Transcript of these samples; the latest one of those that begin there too goes before it."""
        with self._lock:
            audio = self._audio(start, end)
            before = self._latest[1] if self._latest is not None and self._latest[0] == start else None
        pcm = audio.astype(np.float32) / 32768.0
        transcript = recognizer.transcribe(pcm, self._language, prompt, self._likely, before, over_reply)
        with self._lock:
            self._latest = start, transcript
        return transcript

    def _audio(self, start: int, end: int) -> npt.NDArray[np.int16]:
        """Samples of the utterance that are still kept; holds the lock."""
        joined = np.concatenate([np.zeros(0, np.int16), *self._chunks])
        return joined[max(0, start - self._chunks_start) : max(0, end - self._chunks_start)]

    def _cut(self) -> None:
        """Close segments that are full, each at the quietest 200 ms of its allowed end; holds the lock."""
        while True:
            start = self._segments[-1].end if self._segments else 0
            if self.samples - start <= self._segment_max:
                return
            begin = start + self._segment_min
            audio = self._audio(begin, start + self._segment_max).astype(np.float32)
            steps = len(audio) // _STEP
            power = np.square(audio[: steps * _STEP]).reshape(steps, _STEP).mean(axis=1)
            quietest = int(np.convolve(power, np.ones(4), mode="valid").argmin())
            self._segments.append(_Segment(start, begin + (quietest + 2) * _STEP))

    def _trim(self) -> None:
        """Let go of audio whose transcript is settled."""
        with self._lock:
            settled = 0
            for segment in self._segments:
                if segment.transcript is None:
                    break
                settled = segment.end
            while self._chunks and self._chunks_start + len(self._chunks[0]) <= settled:
                self._chunks_start += len(self._chunks.popleft())


def _joined(parts: list[Transcript]) -> Transcript:
    """One transcript of consecutive pieces; its verdict is that of the last piece with words, or of the last."""
    said = [part for part in parts if part.text]
    if len(parts) == 1 or not said:
        return parts[-1]
    last = said[-1]
    space = " " if last.language == "en" else ""
    return Transcript(
        text=space.join(part.text for part in said),
        language=last.language,
        seconds=sum(part.seconds for part in parts),
        verdict=last.verdict,
        avg_logprob=min(part.avg_logprob for part in said),
        no_speech_prob=last.no_speech_prob,
        compute_ms=sum(part.compute_ms for part in parts),
        raw=space.join(part.raw for part in parts),
    )

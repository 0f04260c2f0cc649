"""Voice activity: where speech begins and ends in a call's microphone signal, counted in samples.

Two detectors in a row. webrtcvad looks at every 10 ms and is nearly free; Silero VAD (an LSTM over windows of 512
samples, https://github.com/snakers4/silero-vad) decides, and runs only while the first one has heard something
lately. A gate that opens replays the last 300 ms into Silero, so that a soft onset before it is not lost.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["SAMPLE_RATE", "WINDOW", "SileroModel", "SileroState", "StreamingVad", "VadConfig", "VadEvent"]

SAMPLE_RATE = 16_000
FRAME = 160
WINDOW = 512
_CONTEXT = 64


class VadConfig(BaseModel):
    """Thresholds are probabilities, durations milliseconds of audio. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    onset_threshold: float = Field(default=0.5, gt=0, lt=1)
    """Speech begins when Silero is at least this sure."""
    release_threshold: float = Field(default=0.35, gt=0, lt=1)
    """Speech goes on while Silero is at least this sure."""
    min_speech_ms: int = Field(default=32, ge=32)
    """Shorter runs above `onset_threshold` are clicks. One window is enough to pause a reply; a turn needs more."""
    decay_db: float = Field(default=32.0, ge=10)
    """In speech, a window so far below the loudest one is silent: Silero is sure of a voice beyond its end."""
    hangover_ms: int = Field(default=96, ge=32)
    """Speech has ended when it was below `release_threshold` for this long."""
    gate_mode: int = Field(default=0, ge=0, le=3)
    """webrtcvad's aggressiveness; 0 lets the most through."""
    gate_hold_ms: int = Field(default=1000, ge=100)
    """The gate closes this long after webrtcvad heard a voice last."""
    replay_ms: int = Field(default=300, ge=0, le=2000)
    """How much audio from before the gate opened Silero hears."""
    reset_ms: int = Field(default=5000, ge=500)
    """In silence that lasts, Silero's state starts afresh this often."""

    @model_validator(mode="after")
    def _ordered(self) -> VadConfig:
        if self.release_threshold > self.onset_threshold:
            raise ValueError(
                f"expected release_threshold <= onset_threshold ({self.onset_threshold}), got {self.release_threshold}"
            )
        return self


@dataclass(frozen=True)
class VadEvent:
    """`at` is a sample index since the call began.

    onset: speech began at `at`, which lies in the past. offset: it ended at `at`, which does too. speech: the window
    that ends at `at` is voiced, and its level is `level_db` (RMS, dBFS). silence: that window is not voiced; it may be
    a gap in speech that goes on, until there is an offset.
    """

    kind: Literal["onset", "offset", "speech", "silence"]
    at: int
    level_db: float | None = None


@dataclass
class SileroState:
    """A call's own part of the model: LSTM state float32[2, 1, 128] and the last 64 samples float32[64]."""

    lstm: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]

    @classmethod
    def fresh(cls) -> SileroState:
        return cls(np.zeros((2, 1, 128), np.float32), np.zeros(_CONTEXT, np.float32))


class SileroModel:
    """Silero VAD's weights, loaded once and shared by all calls; safe to use from several threads at once."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: the 16 kHz ONNX file; None: the verified one of the silero-vad wheel."""
        import onnxruntime

        from voice_agent import weights

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            str(path or weights.silero()), options, providers=["CPUExecutionProvider"]
        )
        self._rate = np.array(SAMPLE_RATE, np.int64)

    def step(self, state: SileroState, window: npt.NDArray[np.int16]) -> float:
        """Probability that `window` (int16[512] @ 16 kHz) is voiced; advances `state`."""
        if window.shape != (WINDOW,):
            raise ValueError(f"expected a window of {WINDOW} samples, got shape {window.shape}")
        samples = np.concatenate([state.context, window.astype(np.float32) / 32768.0])
        probability, state.lstm = self._session.run(
            None, {"input": samples[None], "state": state.lstm, "sr": self._rate}
        )
        state.context = samples[-_CONTEXT:]
        return float(probability[0, 0])


class StreamingVad:
    """Voice activity of one call. Chunks of any size give the same events."""

    def __init__(self, config: VadConfig, model: SileroModel) -> None:
        import webrtcvad

        self._config = config
        self._model = model
        self._webrtc: Any = webrtcvad.Vad(config.gate_mode)
        self._endpointer = _Endpointer(config)
        self._state = SileroState.fresh()
        self._replay_windows = -(-config.replay_ms * SAMPLE_RATE // (1000 * WINDOW))
        self._closed: deque[npt.NDArray[np.int16]] = deque(maxlen=self._replay_windows)
        self._buffer = np.zeros(0, np.int16)
        self._buffer_start = 0
        self._next_frame_end = FRAME
        self._next_window_end = WINDOW
        self._last_voice: int | None = None
        self._state_age = 0
        self.windows_seen = 0
        """Windows that have gone by."""
        self.windows_judged = 0
        """Windows that Silero was run on, replayed ones included."""

    def push(self, pcm: npt.NDArray[np.int16]) -> list[VadEvent]:
        """Take the next samples (int16[T] @ 16 kHz, any T) and return what they decided, in order."""
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise ValueError(f"expected int16[T], got {pcm.dtype}{list(pcm.shape)}")
        self._buffer = np.concatenate([self._buffer, pcm])
        end = self._buffer_start + len(self._buffer)
        events: list[VadEvent] = []
        while min(self._next_frame_end, self._next_window_end) <= end:
            if self._next_frame_end <= self._next_window_end:
                self._take_frame(events)
            else:
                self._take_window(events)
        keep = min(self._next_frame_end - FRAME, self._next_window_end - WINDOW)
        self._buffer = self._buffer[keep - self._buffer_start :]
        self._buffer_start = keep
        return events

    @property
    def gate_open(self) -> bool:
        return self._last_voice is not None

    def _span(self, end: int, length: int) -> npt.NDArray[np.int16]:
        stop = end - self._buffer_start
        return self._buffer[stop - length : stop]

    def _take_frame(self, events: list[VadEvent]) -> None:
        end = self._next_frame_end
        self._next_frame_end += FRAME
        if self._webrtc.is_speech(self._span(end, FRAME).tobytes(), SAMPLE_RATE):
            opening = not self.gate_open
            self._last_voice = end
            if opening:
                self._open_gate(events)
        elif (
            self._last_voice is not None
            and not self._endpointer.in_speech
            and (end - self._last_voice) * 1000 >= self._config.gate_hold_ms * SAMPLE_RATE
        ):
            self._last_voice = None

    def _open_gate(self, events: list[VadEvent]) -> None:
        self._state = SileroState.fresh()
        self._state_age = 0
        self._endpointer.restart()
        start = self._next_window_end - WINDOW * (len(self._closed) + 1)
        for number, window in enumerate(self._closed, start=1):
            self._judge(window, start + number * WINDOW, events)
        self._closed.clear()

    def _take_window(self, events: list[VadEvent]) -> None:
        end = self._next_window_end
        self._next_window_end += WINDOW
        self.windows_seen += 1
        window = self._span(end, WINDOW)
        if self.gate_open:
            self._judge(window, end, events)
            return
        self._closed.append(window)
        events.extend(self._endpointer.quiet(end))

    def _judge(self, window: npt.NDArray[np.int16], end: int, events: list[VadEvent]) -> None:
        if not self._endpointer.in_speech and self._state_age * WINDOW * 1000 >= self._config.reset_ms * SAMPLE_RATE:
            self._state = SileroState.fresh()
            self._state_age = 0
        self.windows_judged += 1
        events.extend(self._endpointer.take(self._model.step(self._state, window), end, _level_db(window)))
        self._state_age = 0 if self._endpointer.in_speech else self._state_age + 1


class _Endpointer:
    """Turns Silero's probability for each window into events; knows nothing of audio."""

    def __init__(self, config: VadConfig) -> None:
        self._config = config
        self.in_speech = False
        self._began: int | None = None
        self._sure_since: int | None = None
        self._voiced_to = 0
        self._loudest_db = -math.inf
        self._said = 0
        self._silent = False

    def restart(self) -> None:
        """Forget a run of voiced windows that has not become speech."""
        self._began = self._sure_since = None

    def quiet(self, end: int) -> list[VadEvent]:
        """A window nobody judged, because the gate is closed."""
        self.restart()
        return self._silence(end)

    def take(self, probability: float, end: int, level_db: float) -> list[VadEvent]:
        """`end`: the sample after the window's last; `level_db`: the window's level."""
        if self.in_speech:
            return self._during(probability, end, level_db)
        start = end - WINDOW
        if probability < self._config.release_threshold:
            self._began = self._sure_since = None
            return self._silence(end)
        if self._began is None:
            self._began = start
        if probability < self._config.onset_threshold:
            self._sure_since = None
            return self._silence(end)
        if self._sure_since is None:
            self._sure_since = start
        if (end - self._sure_since) * 1000 < self._config.min_speech_ms * SAMPLE_RATE:
            return self._silence(end)
        began = self._began
        self.in_speech, self._silent, self._voiced_to = True, False, end
        self._loudest_db = level_db
        self._began = self._sure_since = None
        return [VadEvent("onset", began), VadEvent("speech", end, level_db)]

    def _during(self, probability: float, end: int, level_db: float) -> list[VadEvent]:
        self._loudest_db = max(self._loudest_db, level_db)
        faded = level_db < self._loudest_db - self._config.decay_db
        if probability >= self._config.release_threshold and not faded:
            self._voiced_to = end
            return [VadEvent("speech", end, level_db)]
        if (end - self._voiced_to) * 1000 < self._config.hangover_ms * SAMPLE_RATE:
            return [VadEvent("silence", end)]
        self.in_speech, self._silent, self._said = False, True, end
        return [VadEvent("offset", self._voiced_to), VadEvent("silence", end)]

    def _silence(self, end: int) -> list[VadEvent]:
        """A silence event, once a window: replayed windows had theirs while the gate was closed."""
        if not self._silent or end <= self._said:
            return []
        self._said = end
        return [VadEvent("silence", end)]


def _level_db(window: npt.NDArray[np.int16]) -> float:
    """RMS in dBFS; of digital silence -120."""
    power = float(np.mean(np.square(window.astype(np.float32) / 32768.0)))
    return 10 * math.log10(max(power, 1e-12))

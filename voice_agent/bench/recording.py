"""A recorded call: both directions on the caller's clock, each packet with the moment at which it left or arrived."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import soundfile

RATE = 24_000
"""Rate in Hz of everything that is recorded and measured."""

Expect = Literal["respond", "stop", "ignore", "join"]


@dataclass(frozen=True)
class Packet:
    """Audio that left or arrived in one piece.

    `at`: when, in seconds on the caller's monotonic clock. `position`: its first sample (24 kHz) on the stream's own
    time line, by RTP timestamps where there are any. `pcm`: int16[T] @ 24 kHz.
    """

    at: float
    position: int
    sequence: int
    pcm: npt.NDArray[np.int16]


@dataclass(frozen=True)
class Line:
    """One direction of a call: its audio by position, and when each packet of it left (`outgoing`) or arrived.

    `pcm`: int16[T] @ 24 kHz, lost packets as silence. The arrays have a value for each packet, in the order of
    arrival: `at` float64[N] in seconds, `position`, `length` and `sequence` int64[N], the first two in samples.
    """

    pcm: npt.NDArray[np.int16]
    at: npt.NDArray[np.float64]
    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]
    outgoing: bool = False

    @classmethod
    def of(cls, packets: Sequence[Packet], outgoing: bool = False) -> Line:
        """Lay out packets; positions are counted from the lowest one, and a packet that came twice counts once."""
        kept = list({packet.position: packet for packet in reversed(packets)}.values())[::-1]
        first = min((packet.position for packet in kept), default=0)
        pcm = np.zeros(max((p.position - first + len(p.pcm) for p in kept), default=0), np.int16)
        for packet in kept:
            pcm[packet.position - first : packet.position - first + len(packet.pcm)] = packet.pcm
        return cls(
            pcm,
            np.array([packet.at for packet in kept], np.float64),
            np.array([packet.position - first for packet in kept], np.int64),
            np.array([len(packet.pcm) for packet in kept], np.int64),
            np.array([packet.sequence for packet in kept], np.int64),
            outgoing,
        )

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """Packets in order of position: int64[N]."""
        return np.argsort(self.position, kind="stable")

    @cached_property
    def _positions(self) -> npt.NDArray[np.int64]:
        return self.position[self.order]

    def packet_of(self, position: int) -> int:
        """The rank, in `order`, of the packet that holds a sample, or of the last one before it if that is lost."""
        if not len(self.at):
            raise ValueError(f"expected a packet with the sample {position}, got a line without packets")
        return max(0, int(np.searchsorted(self._positions, position, side="right")) - 1)

    def between(self, start: float, until: float) -> tuple[int, int]:
        """The samples of the packets that were there from `start` to before `until`: (first, after the last)."""
        there = np.flatnonzero((self.at >= start) & (self.at < until))
        if not len(there):
            return 0, 0
        return int(self.position[there].min()), int((self.position[there] + self.length[there]).max())

    def time(self, position: int) -> float:
        """When a sample was there, in seconds: an outgoing packet ends as it leaves, an arriving one begins then."""
        packet = self.order[self.packet_of(position)]
        offset = position - self.position[packet] - (self.length[packet] if self.outgoing else 0)
        return float(self.at[packet] + offset / RATE)


@dataclass(frozen=True)
class Said:
    """A turn as the caller said it. `voice`: the stretches of its voice, in samples of the sent line (start, end)."""

    name: str
    expect: Expect
    voice: tuple[tuple[int, int], ...]
    text: str = ""


@dataclass(frozen=True)
class Event:
    """A server event and its arrival, in seconds on the caller's monotonic clock."""

    at: float
    data: dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """A whole call. `failed`: why it is not; `facts`: what else the caller knows of it."""

    sent: Line
    received: Line
    said: tuple[Said, ...] = ()
    events: tuple[Event, ...] = ()
    failed: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write `path`.wav (left sent, right received) and `path`.json, from which `load` gives the same recording.

        In the sound file each direction runs by its own positions and begins where its first packet does.
        """
        starts = [line.time(0) if len(line.at) else np.inf for line in (self.sent, self.received)]
        begin = min(starts)
        offsets = [round((start - begin) * RATE) if np.isfinite(start) else 0 for start in starts]
        ends = [offset + len(line.pcm) for offset, line in zip(offsets, (self.sent, self.received), strict=True)]
        stereo = np.zeros((max(ends), 2), np.int16)
        for channel, line in enumerate((self.sent, self.received)):
            stereo[offsets[channel] : ends[channel], channel] = line.pcm
        soundfile.write(path.with_suffix(".wav"), stereo, RATE, subtype="PCM_16")
        record = {
            "rate": RATE,
            "begin": begin if np.isfinite(begin) else 0.0,
            "offsets": offsets,
            "lines": [_line_record(line) for line in (self.sent, self.received)],
            "said": [asdict(said) for said in self.said],
            "events": [asdict(event) for event in self.events],
            "failed": self.failed,
            "facts": self.facts,
        }
        path.with_suffix(".json").write_text(json.dumps(record, ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read what `save` wrote. Raises ValueError for files of another rate, FileNotFoundError for none."""
        record = json.loads(path.with_suffix(".json").read_text("utf-8"))
        stereo, rate = soundfile.read(path.with_suffix(".wav"), dtype="int16", always_2d=True)
        if rate != RATE or stereo.shape[1] != 2:
            raise ValueError(f"{path}: expected 2 channels at {RATE} Hz, got {stereo.shape[1]} at {rate} Hz")
        lines = []
        for channel, line in enumerate(record["lines"]):
            offset = record["offsets"][channel]
            lines.append(
                Line(
                    stereo[offset : offset + line["samples"], channel],
                    np.array(line["at"], np.float64),
                    np.array(line["position"], np.int64),
                    np.array(line["length"], np.int64),
                    np.array(line["sequence"], np.int64),
                    outgoing=channel == 0,
                )
            )
        return cls(
            lines[0],
            lines[1],
            tuple(Said(**{**said, "voice": _pairs(said["voice"])}) for said in record["said"]),
            tuple(Event(**event) for event in record["events"]),
            record["failed"],
            record["facts"],
        )


def _line_record(line: Line) -> dict[str, Any]:
    arrays = {name: getattr(line, name).tolist() for name in ("at", "position", "length", "sequence")}
    return {"samples": len(line.pcm), **arrays}


def _pairs(values: Iterable[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in values)


def heard_text(events: tuple[Event, ...], start: float, until: float) -> str:
    """What the server says it understood between two moments."""
    kind = "conversation.item.input_audio_transcription.completed"
    return _texts(events, start, until, lambda data: data.get("type") == kind or _is_pcm_transcript(data, "user"))


def reply_text(events: tuple[Event, ...], start: float, until: float) -> str:
    """What the server says it answered between two moments."""
    kind = "response.output_audio_transcript.done"
    return _texts(events, start, until, lambda data: data.get("type") == kind or _is_pcm_transcript(data, "agent"))


def _texts(events: tuple[Event, ...], start: float, until: float, wanted: Callable[[dict[str, Any]], bool]) -> str:
    found = [event.data for event in events if start < event.at < until and wanted(event.data)]
    return " ".join(str(data.get("transcript", data.get("text", ""))) for data in found).strip()


def _is_pcm_transcript(data: dict[str, Any], role: str) -> bool:
    return data.get("type") == "transcript" and data.get("role") == role and data.get("final", True) is True

"""The jitter buffer of a listener: puts RTP packets in order and decides what to do about missing ones.

Who listens here is a recogniser, not a loudspeaker. It needs no even pace, so a packet that is in order is given
out at once and nothing is held for smoothness: on a clean path the buffer adds no delay at all. Only a gap makes
it wait, for a reordered packet that may still come; then the gap is concealed and everything behind it follows at
once, so a loss leaves no lasting delay. When nothing arrives at all (an outage, or a sender that stops sending in
silence), the time is filled as it passes, so that sample counts keep step with the clock and pauses stay pauses.

No I/O and no clock of its own: times are arguments, in milliseconds on any monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

CLOCK_RATE = 48_000
"""RTP clock of Opus in Hz (RFC 7587, section 4.1), whatever the rate of the audio."""

_SAMPLES_PER_MS = CLOCK_RATE // 1000
_ROUNDING_MS = 1e-6  # so that a pull exactly when it is due finds it due


@dataclass(frozen=True)
class JitterConfig:
    """`gap_*`: how long a gap waits for a reordered packet, grown from min to max while such packets are seen.

    `starve_*`: how long nothing may arrive before the time is filled; between min and max it follows the jitter.
    `ahead_ms`: how much audio may come at once after a stall before the rest is refused.
    `largest_gap_ms`: a jump of timestamps above it is a new stream, and is not filled.
    """

    gap_min_ms: float = 40.0
    gap_max_ms: float = 60.0
    starve_min_ms: float = 60.0
    starve_max_ms: float = 200.0
    ahead_ms: float = 4000.0
    largest_gap_ms: float = 10_000.0
    capacity_packets: int = 256


@dataclass(frozen=True)
class Play:
    """Decode this payload now."""

    payload: bytes


@dataclass(frozen=True)
class Conceal:
    """Audio that is missing: `samples` at 48 kHz. `lost`: packets were lost; otherwise nothing has arrived."""

    samples: int
    lost: bool


@dataclass
class JitterStats:
    received: int = 0
    duplicates: int = 0
    late: int = 0
    refused: int = 0
    lost: int = 0
    concealed_samples: int = 0


@dataclass(frozen=True)
class _Held:
    timestamp: int
    samples: int
    payload: bytes
    arrived_ms: float


def opus_samples(payload: bytes) -> int:
    """Duration of an Opus packet in samples at 48 kHz, from its first bytes (RFC 6716, section 3.1).

    Raises ValueError for a packet that cannot be one.
    """
    if not payload:
        raise ValueError("expected an Opus packet of at least 1 byte, got 0")
    toc = payload[0]
    config = toc >> 3
    if config < 12:
        frame = (480, 960, 1920, 2880)[config & 3]
    elif config < 16:
        frame = (480, 960)[config & 1]
    else:
        frame = (120, 240, 480, 960)[config & 3]
    code = toc & 3
    if code < 3:
        frames = 1 if code == 0 else 2
    elif len(payload) < 2:
        raise ValueError("expected a frame count in the second byte of an Opus packet, got 1 byte")
    else:
        frames = payload[1] & 0x3F
    if not 0 < frames * frame <= 5760:
        raise ValueError(f"expected an Opus packet of at most 120 ms, got {frames} frames of {frame} samples")
    return frames * frame


class JitterBuffer:
    """`push` packets as they arrive, `pull` after each push and whenever `due_ms` is reached."""

    def __init__(self, config: JitterConfig | None = None) -> None:
        self.config = config or JitterConfig()
        self.stats = JitterStats()
        self._held: dict[int, _Held] = {}
        self._given_up: deque[int] = deque(maxlen=self.config.capacity_packets)
        self._gap_ms = self.config.gap_min_ms
        self._gap_since_ms: float | None = None
        self._next_sequence: int | None = None
        self._newest_sequence = 0
        self._next_timestamp = 0
        self._last_timestamp = 0
        self._last_arrival_ms = 0.0
        self._filled_until_ms = 0.0
        self._transit_ms: float | None = None
        self._lateness_ms = 0.0
        self._credit_ms = self.config.ahead_ms
        self._credit_at_ms = 0.0

    def push(self, sequence: int, timestamp: int, payload: bytes, now_ms: float) -> None:
        """Take a packet: RTP `sequence` (16 bits) and `timestamp` (32 bits) as they were on the wire.

        A packet without a payload (a probe) is ignored; one that cannot be Opus raises ValueError.
        """
        if not payload:
            return
        samples = opus_samples(payload)
        self.stats.received += 1
        if self._next_sequence is None:
            self._restart(sequence, timestamp, now_ms)
        assert self._next_sequence is not None
        number = _unwrap(sequence, self._newest_sequence, 16)
        stamp = _unwrap(timestamp, self._last_timestamp, 32)
        if abs(number - self._newest_sequence) > 3000 or (
            abs(stamp - self._next_timestamp) > self.config.largest_gap_ms * _SAMPLES_PER_MS
        ):
            self._held.clear()
            self._restart(sequence, timestamp, now_ms)
            number, stamp = sequence, timestamp
        if number in self._held:
            self.stats.duplicates += 1
            return
        if number < self._next_sequence:
            self._came_late(number)
            return
        self._observe(stamp, now_ms)
        self._last_arrival_ms = now_ms
        self._newest_sequence = max(number, self._newest_sequence)
        self._last_timestamp = stamp
        if len(self._held) >= self.config.capacity_packets or not self._afford(samples, now_ms):
            self.stats.refused += 1
            return
        self._held[number] = _Held(stamp, samples, payload, now_ms)

    def pull(self, now_ms: float) -> list[Play | Conceal]:
        """What is to be decoded or concealed by now, in order."""
        out: list[Play | Conceal] = []
        if self._next_sequence is None:
            return out
        while self._held:
            packet = self._held.get(self._next_sequence)
            if packet is None:
                first = min(self._held)
                if self._gap_since_ms is None:
                    self._gap_since_ms = min(held.arrived_ms for held in self._held.values())
                full = len(self._held) >= self.config.capacity_packets
                if not full and now_ms - self._gap_since_ms < self._gap_ms - _ROUNDING_MS:
                    return out
                self._give_up(range(self._next_sequence, first))
                missing = self._held[first].timestamp - self._next_timestamp
                # A flood leaves gaps of its own, where packets were refused: they are not filled on top.
                missing = min(missing, int(self._credit_ms) * _SAMPLES_PER_MS)
                self._credit_ms -= max(missing, 0) / _SAMPLES_PER_MS
                self._fill(out, missing, lost=True)
                self._next_timestamp = max(self._next_timestamp, self._held[first].timestamp)
                self._next_sequence = first
                continue
            del self._held[self._next_sequence]
            self._gap_since_ms = None
            self._fill(out, packet.timestamp - self._next_timestamp, lost=False)
            out.append(Play(packet.payload))
            self._next_sequence += 1
            self._next_timestamp = packet.timestamp + packet.samples
            self._filled_until_ms = now_ms
        starve_ms = self._starve_ms()
        if now_ms - self._last_arrival_ms >= starve_ms - _ROUNDING_MS:
            # One frame behind the clock, so that a packet on time never finds its place filled.
            frames = max(int((now_ms - self._filled_until_ms + _ROUNDING_MS) // 20) - 1, 0)
            self._filled_until_ms += frames * 20
            self._fill(out, frames * 20 * _SAMPLES_PER_MS, lost=False)
        return out

    def due_ms(self) -> float | None:
        """When `pull` has something to say even if no packet arrives; None before the first packet."""
        if self._next_sequence is None:
            return None
        if self._gap_since_ms is not None:
            return self._gap_since_ms + self._gap_ms
        return max(self._last_arrival_ms + self._starve_ms(), self._filled_until_ms + 40)

    def _restart(self, sequence: int, timestamp: int, now_ms: float) -> None:
        self._next_sequence = self._newest_sequence = sequence
        self._next_timestamp = self._last_timestamp = timestamp
        self._gap_since_ms = None
        self._given_up.clear()
        self._last_arrival_ms = self._filled_until_ms = self._credit_at_ms = now_ms
        self._transit_ms = None

    def _fill(self, out: list[Play | Conceal], samples: int, lost: bool) -> None:
        if samples > 0:
            out.append(Conceal(samples, lost))
            self.stats.concealed_samples += samples
            self._next_timestamp += samples

    def _starve_ms(self) -> float:
        config = self.config
        return min(max(config.starve_min_ms, self._lateness_ms + 40.0), config.starve_max_ms)

    def _observe(self, stamp: int, now_ms: float) -> None:
        """Follow the jitter: how late packets are against the fastest ones, forgotten over some seconds."""
        transit = now_ms - stamp / _SAMPLES_PER_MS
        # The fastest transit creeps up by 0.5 ms/s at 50 packets/s, more than two sound cards drift apart.
        self._transit_ms = transit if self._transit_ms is None else min(self._transit_ms + 0.01, transit)
        self._lateness_ms = max(self._lateness_ms * 0.995, transit - self._transit_ms)
        self._gap_ms = max(self.config.gap_min_ms, self._gap_ms - 0.02)

    def _give_up(self, numbers: range) -> None:
        self.stats.lost += len(numbers)
        self._given_up.extend(numbers[-self.config.capacity_packets :])

    def _came_late(self, number: int) -> None:
        """A packet whose place is past: one that was given up, after which later gaps wait longer, or a copy."""
        if number not in self._given_up:
            self.stats.duplicates += 1
            return
        self._given_up.remove(number)
        self.stats.late += 1
        self._gap_ms = min(self._gap_ms + 10.0, self.config.gap_max_ms)

    def _afford(self, samples: int, now_ms: float) -> bool:
        """A sender may send what real time allows, plus what a stall has held back (token bucket)."""
        self._credit_ms = min(self._credit_ms + now_ms - self._credit_at_ms, self.config.ahead_ms)
        self._credit_at_ms = now_ms
        self._credit_ms -= samples / _SAMPLES_PER_MS
        if self._credit_ms < 0:
            self._credit_ms += samples / _SAMPLES_PER_MS
            return False
        return True


def _unwrap(value: int, near: int, bits: int) -> int:
    """The number closest to `near` whose low `bits` are `value`."""
    size = 1 << bits
    return near + ((value - near + size // 2) % size) - size // 2

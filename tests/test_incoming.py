"""The caller's audio: decoded, concealed and resampled, continuous in time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from voice_agent.media.incoming import Concealer, IncomingAudio
from voice_agent.media.opus import FRAME, OpusEncoder

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Rtp:
    sequence_number: int
    timestamp: int
    payload: bytes


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualLoop:
    """The part of an event loop that is used: a clock and timers."""

    def __init__(self) -> None:
        self.now = 50.0
        self.timers: list[tuple[float, object, Timer]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object) -> Timer:
        timer = Timer()
        self.timers.append((when, callback, timer))
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while ready := [entry for entry in self.timers if entry[0] <= end and not entry[2].cancelled]:
            entry = min(ready, key=lambda item: item[0])
            self.timers.remove(entry)
            self.now = max(self.now, entry[0])
            entry[1]()  # type: ignore[operator]
        self.now = end


def tone_packets(count: int, hz: float = 440.0) -> list[Rtp]:
    encoder = OpusEncoder()
    pcm = (0.5 * np.sin(2 * np.pi * hz * np.arange(count * FRAME) / 48_000) * 32767).astype(np.int16)
    return [Rtp(i, i * 960, bytes(encoder.encode(pcm[i * FRAME : (i + 1) * FRAME]))) for i in range(count)]


class Run:
    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.pieces: list[np.ndarray] = []
        self.incoming = IncomingAudio(self.pieces.append, self.loop)  # type: ignore[arg-type]

    def send(self, packets: list[Rtp], lost: tuple[int, ...] = ()) -> None:
        for packet in packets:
            if packet.sequence_number not in lost:
                self.incoming.packet(packet)  # type: ignore[arg-type]
            self.loop.advance(0.02)

    @property
    def pcm(self) -> np.ndarray:
        return np.concatenate(self.pieces)


def test_each_packet_gives_20_ms_at_16_khz_at_once() -> None:
    run = Run()
    run.send(tone_packets(100))
    assert [len(piece) for piece in run.pieces] == [320] * 100
    assert run.pcm.dtype == np.int16
    steady = run.pcm[8_000:24_000].astype(np.float32) / 32768
    assert np.argmax(np.abs(np.fft.rfft(steady))) == 440
    assert np.sqrt(np.mean(steady**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)


def test_a_loss_is_faded_and_the_length_is_kept() -> None:
    run = Run()
    run.send(tone_packets(100), lost=(50,))
    assert len(run.pcm) == 32_000
    quiet = np.sqrt(np.mean((run.pcm[50 * 320 + 200 : 51 * 320] / 32768.0) ** 2))
    assert 0 < quiet < 0.15
    assert np.abs(np.diff(run.pcm.astype(np.int32))).max() < 0.5 * 32768  # no click of full height


def test_silence_is_fed_while_nothing_arrives() -> None:
    run = Run()
    packets = tone_packets(100)
    run.send(packets[:50])
    run.loop.advance(3.0)
    assert len(run.pcm) / 16_000 == pytest.approx(4.0, abs=0.1)
    assert not run.pcm[-16_000:].any()


def test_closing_stops_the_timer() -> None:
    run = Run()
    packets = tone_packets(20)
    run.send(packets[:10])
    run.incoming.close()
    fed = len(run.pieces)
    run.loop.advance(2.0)
    run.send(packets[10:])
    run.incoming.close()
    assert len(run.pieces) == fed


def test_damaged_packets_are_counted_and_concealed() -> None:
    run = Run()
    packets = tone_packets(20)
    packets[10] = Rtp(10, 9600, b"\x7b")
    run.send(packets)
    assert run.incoming.damaged == 1
    assert len(run.pcm) == 20 * 320


def test_the_concealer_joins_without_a_jump_and_then_is_silent() -> None:
    concealer = Concealer()
    pcm = np.sin(2 * np.pi * 300 * np.arange(960) / 48_000).astype(np.float32)
    concealer.heard(pcm)
    out = np.concatenate([concealer.fill(480), concealer.fill(1000), concealer.fill(960)])
    assert out.shape == (2440,)
    assert abs(out[0] - pcm[-1]) < 1e-6
    assert np.abs(np.diff(out)).max() < 0.05
    assert np.abs(out[:480]).max() > 0.5
    assert not out[960:].any()


async def test_on_a_real_loop_the_time_is_filled() -> None:
    pieces: list[np.ndarray] = []
    incoming = IncomingAudio(pieces.append, asyncio.get_running_loop())
    incoming.packet(tone_packets(1)[0])  # type: ignore[arg-type]
    await asyncio.sleep(0.25)
    incoming.close()
    assert 100 <= sum(map(len, pieces)) / 16 <= 300

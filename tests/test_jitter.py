"""The jitter buffer on a virtual clock: what is given out, when, and how much time it covers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from voice_agent.media.jitter import Conceal, JitterBuffer, Play, opus_samples

TOC_20_MS = 0x78  # SILK/CELT hybrid and so on differ; this is CELT, 20 ms, one frame
PER_MS = 48


@dataclass(frozen=True)
class Sent:
    sequence: int
    timestamp: int
    at_ms: float
    payload: bytes


@dataclass(frozen=True)
class Out:
    at_ms: float
    item: Play | Conceal
    index: int | None
    """Which packet was played; None: concealed."""


def speech(packets: int, sequence: int = 1000, timestamp: int = 5_000_000) -> list[Sent]:
    """20 ms packets in real time, each payload naming its index."""
    return [
        Sent((sequence + i) & 0xFFFF, (timestamp + 960 * i) & 0xFFFFFFFF, 20.0 * i, payload(i)) for i in range(packets)
    ]


def payload(index: int) -> bytes:
    return bytes([TOC_20_MS]) + index.to_bytes(4, "big")


def through(
    arrivals: Iterable[tuple[float, Sent]], until_ms: float, buffer: JitterBuffer | None = None
) -> tuple[list[Out], JitterBuffer]:
    """Run packets (arrival in ms, packet) through a buffer that is also pulled whenever it is due."""
    buffer = buffer or JitterBuffer()
    outs: list[Out] = []

    def pull(now_ms: float) -> None:
        for item in buffer.pull(now_ms):
            index = int.from_bytes(item.payload[1:5], "big") if isinstance(item, Play) else None
            outs.append(Out(now_ms, item, index))

    def run_timers(until: float) -> None:
        while (due := buffer.due_ms()) is not None and due < until:
            pull(due)

    for at_ms, packet in sorted(arrivals, key=lambda arrival: arrival[0]):
        run_timers(at_ms)
        buffer.push(packet.sequence, packet.timestamp, packet.payload, at_ms)
        pull(at_ms)
    run_timers(until_ms)
    return outs, buffer


def played(outs: list[Out]) -> list[int]:
    return [out.index for out in outs if out.index is not None]


def covered_ms(outs: list[Out], until_ms: float = float("inf")) -> float:
    """Audio given out by a time, in ms."""
    total = 0
    for out in outs:
        if out.at_ms <= until_ms:
            total += out.item.samples if isinstance(out.item, Conceal) else opus_samples(out.item.payload)
    return total / PER_MS


def holds(outs: list[Out], arrived: Callable[[int], float]) -> dict[int, float]:
    """How long each played packet was held, in ms."""
    return {out.index: out.at_ms - arrived(out.index) for out in outs if out.index is not None}


def test_a_clean_path_is_not_delayed() -> None:
    packets = speech(500)
    outs, buffer = through([(p.at_ms, p) for p in packets], 9_990)
    assert played(outs) == list(range(500))
    assert max(holds(outs, lambda i: 20.0 * i).values()) == 0
    assert covered_ms(outs) == 10_000
    assert buffer.stats.lost == buffer.stats.concealed_samples == 0


def test_jitter_without_reordering_is_not_delayed_further() -> None:
    rng = random.Random(1)
    packets = speech(500)
    arrivals = []
    last = 0.0
    for packet in packets:
        last = max(last, packet.at_ms + 40 + rng.uniform(-15, 15))
        arrivals.append((last, packet))
    outs, _ = through(arrivals, arrivals[-1][0])
    assert played(outs) == list(range(500))
    assert max(holds(outs, lambda i: arrivals[i][0]).values()) == 0


def test_one_lost_packet_is_concealed_in_time_and_leaves_no_delay() -> None:
    packets = speech(1000)
    arrivals = [(p.at_ms, p) for i, p in enumerate(packets) if i != 500]
    outs, buffer = through(arrivals, packets[-1].at_ms)
    concealed = [out for out in outs if isinstance(out.item, Conceal)]
    assert [out.item for out in concealed] == [Conceal(960, lost=True)]
    assert 40 <= concealed[0].at_ms - packets[501].at_ms <= 60
    assert played(outs) == [i for i in range(1000) if i != 500]
    held = holds(outs, lambda i: packets[i].at_ms)
    assert max(held.values()) <= 60
    assert max(hold for i, hold in held.items() if i >= 500 + 5) == 0
    assert covered_ms(outs) == 20_000
    assert buffer.stats.lost == 1


@pytest.mark.parametrize("share", [0.01, 0.05, 0.10])
def test_random_loss_never_holds_a_packet_longer_than_a_gap(share: float) -> None:
    rng = random.Random(7)
    packets = speech(3000)
    kept = [p for p in packets[:-1] if rng.random() >= share] + packets[-1:]
    outs, buffer = through([(p.at_ms, p) for p in kept], packets[-1].at_ms + 60)
    assert played(outs) == [int.from_bytes(p.payload[1:5], "big") for p in kept]
    assert max(holds(outs, lambda i: packets[i].at_ms).values()) <= 60
    assert buffer.stats.lost == 3000 - len(kept)
    assert covered_ms(outs) == pytest.approx(60_000, abs=60)


def test_reordered_packets_come_out_in_order_and_complete() -> None:
    rng = random.Random(3)
    packets = speech(2000)
    arrivals = [(p.at_ms + (35 if rng.random() < 0.05 and i else 0), p) for i, p in enumerate(packets)]
    outs, buffer = through(arrivals, packets[-1].at_ms + 35)
    assert played(outs) == list(range(2000))
    assert buffer.stats.lost == 0
    assert covered_ms(outs) == 40_000


def test_late_packets_make_later_gaps_wait_longer_and_the_wait_shrinks_back() -> None:
    packets = speech(4000)
    arrivals = [(p.at_ms + (75 if i in (100, 200, 300) else 0), p) for i, p in enumerate(packets)]
    outs, buffer = through(arrivals, packets[-1].at_ms)
    gaps = [out.at_ms - packets[i + 1].at_ms for out, i in zip(_lost(outs), (100, 200), strict=True)]
    assert gaps == pytest.approx([40, 48], abs=0.1)
    assert buffer.stats.late == buffer.stats.lost == 2
    assert 300 in played(outs)  # it came 55 ms after the packet behind it, and now that was waited for
    buffer.push(5001, packets[-1].timestamp + 960 * 2, payload(0), packets[-1].at_ms + 40)
    assert buffer.pull(packets[-1].at_ms + 40) == []
    assert buffer.due_ms() == pytest.approx(packets[-1].at_ms + 80, abs=1)


def _lost(outs: list[Out]) -> list[Out]:
    return [out for out in outs if isinstance(out.item, Conceal) and out.item.lost]


def test_duplicates_are_played_once() -> None:
    packets = speech(100)
    arrivals = [(p.at_ms + late, p) for p in packets for late in (0, 0.1, 45)]
    outs, buffer = through(arrivals, packets[-1].at_ms + 50)
    assert played(outs) == list(range(100))
    assert buffer.stats.duplicates == 200
    assert buffer.stats.late == buffer.stats.lost == 0


def test_an_outage_is_filled_as_it_passes_and_leaves_no_delay() -> None:
    packets = speech(500)
    arrivals = [(p.at_ms, p) for i, p in enumerate(packets) if not 200 <= i < 350]
    outs, _ = through(arrivals, packets[-1].at_ms)
    for at_ms in range(4_000, 10_000, 100):
        assert at_ms - 100 <= covered_ms(outs, at_ms) <= at_ms + 20
    assert played(outs) == [i for i in range(500) if not 200 <= i < 350]
    assert max(hold for i, hold in holds(outs, lambda i: packets[i].at_ms).items() if i > 352) == 0
    assert covered_ms(outs) == 10_000


def test_what_a_stall_held_back_is_heard_when_it_comes() -> None:
    packets = speech(400)
    arrivals = [(7000.0 if 200 <= i < 350 else p.at_ms, p) for i, p in enumerate(packets)]
    outs, buffer = through(arrivals, packets[-1].at_ms)
    assert played(outs) == list(range(400))
    assert buffer.stats.refused == 0


def test_a_sender_that_is_silent_without_packets_is_filled_by_the_clock() -> None:
    """Discontinuous transmission: consecutive sequence numbers, timestamps that jump by the pause."""
    packets = []
    for i in range(50):
        packets.append(Sent(i, 400 * PER_MS * i, 400.0 * i, payload(i)))
    outs, buffer = through([(p.at_ms, p) for p in packets], packets[-1].at_ms)
    assert played(outs) == list(range(50))
    assert covered_ms(outs) == 49 * 400 + 20
    assert buffer.stats.lost == 0
    for at_ms in range(1000, 19_000, 130):
        assert at_ms - 80 <= covered_ms(outs, at_ms) <= at_ms + 20


def test_sequence_numbers_and_timestamps_wrap() -> None:
    packets = speech(300, sequence=65_400, timestamp=(1 << 32) - 960 * 100)
    arrivals = [(p.at_ms, p) for i, p in enumerate(packets) if i not in (136, 100)]
    outs, buffer = through(arrivals, packets[-1].at_ms)
    assert played(outs) == [i for i in range(300) if i not in (136, 100)]
    assert buffer.stats.lost == 2
    assert covered_ms(outs) == 6000


def test_a_new_stream_is_taken_over_without_filling_the_jump() -> None:
    first, second = speech(100), speech(100, sequence=40_000, timestamp=77)
    arrivals = [(p.at_ms, p) for p in first] + [(p.at_ms + 2000, p) for p in second]
    outs, _ = through(arrivals, 3980)
    assert played(outs) == list(range(100)) * 2
    assert covered_ms(outs) == pytest.approx(4000, abs=20)


def test_a_flood_is_refused_beyond_what_a_stall_can_explain() -> None:
    packets = speech(2000)
    outs, buffer = through([(p.at_ms / 20, p) for p in packets], 2000)
    assert 4000 <= covered_ms(outs) <= 4000 + 2 * 2000 + 100
    assert buffer.stats.refused > 1000


def test_other_packet_durations() -> None:
    sizes = {0x60: 480, 0x78: 960, 0x18: 2880, 0xE0: 120, 0x79: 1920}
    for toc, samples in sizes.items():
        assert opus_samples(bytes([toc, 0])) == samples
    assert opus_samples(bytes([0x7B, 3])) == 2880
    for bad in (b"", b"\x7b", b"\x7b\x3f", b"\x1b\x03"):
        with pytest.raises(ValueError, match="expected"):
            opus_samples(bad)
    sent = [Sent(i, 2880 * i, 60.0 * i, bytes([0x18]) + bytes(4)) for i in range(50)]
    outs, _ = through([(p.at_ms, p) for p in sent], sent[-1].at_ms)
    assert covered_ms(outs) == 3000
    assert all(isinstance(out.item, Play) for out in outs)


def test_probes_without_payload_and_damaged_packets() -> None:
    buffer = JitterBuffer()
    buffer.push(1, 1, b"", 0)
    assert buffer.due_ms() is None
    with pytest.raises(ValueError, match="expected"):
        buffer.push(2, 2, b"\x7b", 0)


@pytest.mark.parametrize("seed", range(30))
def test_any_network_gives_order_and_keeps_bounds(seed: int) -> None:
    rng = random.Random(seed)
    packets = speech(600, sequence=rng.randrange(65_536), timestamp=rng.randrange(1 << 32))
    arrivals = []
    for packet in packets:
        if rng.random() > 0.1:
            copies = 2 if rng.random() < 0.05 else 1
            arrivals += [(packet.at_ms + rng.expovariate(1 / 15), packet) for _ in range(copies)]
    outs, buffer = through(arrivals, 13_000)
    indices = played(outs)
    assert indices == sorted(set(indices))
    assert len(indices) >= 600 * 0.8
    times = [out.at_ms for out in outs]
    assert times == sorted(times)
    assert len(buffer._held) == 0
    first = {}
    for at_ms, packet in arrivals:
        index = int.from_bytes(packet.payload[1:5], "big")
        first[index] = min(at_ms, first.get(index, at_ms))
    assert max(holds(outs, lambda i: first[i]).values()) <= 125  # two gaps in a row, at most 60 ms each

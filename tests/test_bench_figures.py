"""The bench's figures on calls whose every moment is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench_signals import FRAME, call, line, tones
from voice_agent.bench.detect import voice_spans
from voice_agent.bench.figures import measure, spans_of
from voice_agent.bench.playout import play_out
from voice_agent.bench.recording import RATE, Line, Packet, Recording


def only(recording: Recording):  # type: ignore[no-untyped-def]
    (turn,) = measure(recording).turns
    return turn


@given(st.integers(0, 24_000), st.integers(1200, 24_000), st.floats(0.05, 0.9))
def test_a_hard_cut_tone_is_found_within_two_milliseconds(start: int, length: int, level: float) -> None:
    pcm = tones(3, [(start / RATE, (start + length) / RATE)], 437, level)
    ((first, end),) = voice_spans(pcm)
    assert abs(first - start) <= 48
    assert abs(end - (start + length)) <= 48


def test_clicks_and_quiet_sounds_are_no_voice() -> None:
    pcm = tones(1, [(0.1, 0.105), (0.5, 0.7)], level=0.3)
    pcm[round(0.5 * RATE) :] //= 100
    assert voice_spans(pcm) == []
    assert voice_spans(np.zeros(0, np.int16)) == []


def test_pauses_are_joined_up_to_the_given_length() -> None:
    pcm = tones(3, [(0.2, 0.5), (0.7, 1.0), (1.5, 2.0)])
    near = [[round(x / RATE, 2) for x in span] for span in voice_spans(pcm, 0.3)]
    assert near == [[0.2, 1.0], [1.5, 2.0]]
    assert len(voice_spans(pcm, 0.1)) == 3
    assert len(voice_spans(pcm, 0.6)) == 1


@pytest.mark.parametrize("gap", [0.1, 0.305, 0.84, 1.5])
def test_voice_to_voice_is_the_silence_between_the_voices(gap: float) -> None:
    turn = only(call(6, [("respond", [(0.5, 1.503)])], [(1.503 + gap, 4)]))
    assert turn.v2v_ms == pytest.approx(1000 * gap, abs=4)
    assert turn.v2v_playout_ms == pytest.approx(1000 * gap, abs=4)
    assert turn.answer_ms == turn.v2v_ms
    assert turn.responded
    assert not turn.early


def test_voice_to_voice_is_of_the_packets_arrival() -> None:
    """Its first packet comes 150 ms late, whatever its RTP timestamp says."""
    heard = line(tones(6, [(2.0, 4.0)]), delay=lambda i: 0.15 if 98 <= i < 103 else 0.0)
    turn = only(call(6, [("respond", [(0.5, 1.5)])], [], received=heard))
    assert turn.v2v_ms == pytest.approx(650, abs=4)


def test_no_reply_and_a_reply_to_the_next_turn_are_no_response() -> None:
    silent, answered = measure(call(9, [("respond", [(0.5, 1.5)]), ("respond", [(5, 6)])], [(6.7, 8)])).turns
    assert silent.responded is False
    assert silent.v2v_ms is None
    assert answered.v2v_ms == pytest.approx(700, abs=4)


def test_leading_silence_counts_and_is_named() -> None:
    """The agent says that it speaks after 200 ms, and sends silence for 600 ms more."""
    told = [(1.7, {"type": "output_audio_buffer.started"}), (1.68, {"type": "input_audio_buffer.committed"})]
    turn = only(call(6, [("respond", [(0.5, 1.5)])], [(2.3, 4)], told))
    assert turn.v2v_ms == pytest.approx(800, abs=4)
    assert turn.leading_silence_ms == pytest.approx(600, abs=4)
    assert turn.eot_delay_ms == pytest.approx(180, abs=4)
    assert turn.ttfa_ms == pytest.approx(620, abs=4)


def test_an_early_tone_is_not_an_answer() -> None:
    turn = only(call(6, [("respond", [(0.5, 1.5)])], [(1.6, 1.7), (2.7, 4.5)]))
    assert turn.v2v_ms == pytest.approx(100, abs=4)
    assert turn.answer_ms == pytest.approx(1200, abs=4)


def test_a_word_and_the_pause_after_it_begin_an_answer() -> None:
    """As in "Sure, one latte", with a comma of 0.4 s; with one of 0.6 s the word is a sound by itself."""
    turn = only(call(6, [("respond", [(0.5, 1.5)])], [(1.6, 1.95), (2.35, 4.5)]))
    assert turn.answer_ms == turn.v2v_ms == pytest.approx(100, abs=4)
    turn = only(call(6, [("respond", [(0.5, 1.5)])], [(1.6, 1.95), (2.55, 4.5)]))
    assert turn.answer_ms == pytest.approx(1050, abs=4)


def test_a_burst_is_seen_and_its_end_is_heard_late() -> None:
    """A reply of 3 s is sent within 60 ms. By arrival it is over before the caller cuts in; the caller hears it on."""
    pcm = tones(8, [(2.0, 5.0)])
    heard = line(pcm, delay=lambda i: -(i - 100) * 0.0196 if 100 <= i < 250 else 0.0)
    recording = call(8, [("respond", [(0.5, 1.5)]), ("stop", [(3.0, 4.0)])], [], received=heard)
    result = measure(recording)
    assert result.stream.burst_ms == pytest.approx(149 * 19.6, abs=30)
    stop = result.turns[1]
    assert stop.yield_ms is None
    assert stop.yield_playout_ms == pytest.approx(2000, abs=10)


@pytest.mark.parametrize("answer", [[(2.2, 2.5), (4.5, 6)], [(2.2, 6)]])
def test_an_answer_into_a_pause_is_taking_over(answer: list[tuple[float, float]]) -> None:
    turn = only(call(8, [("respond", [(0.5, 1.5), (3.0, 4.0)])], answer))
    assert (turn.pauses, turn.taken_over) == (1, 1)
    assert turn.taken_over_fdb == (answer[0][1] - answer[0][0] >= 1)
    assert turn.early == (len(answer) == 1)


def test_a_waited_pause_is_none_and_a_join_turn_is_a_pause_too() -> None:
    first, second = measure(call(8, [("join", [(0.5, 1.5)]), ("respond", [(2.8, 4.0)])], [(4.6, 6)])).turns
    assert (first.pauses, first.taken_over, first.v2v_ms) == (1, 0, None)
    assert second.v2v_ms == pytest.approx(600, abs=4)
    eager = measure(call(8, [("join", [(0.5, 1.5)]), ("respond", [(2.8, 4.0)])], [(2.0, 2.6), (4.6, 6)])).turns
    assert (eager[0].pauses, eager[0].taken_over) == (1, 1)


@pytest.mark.parametrize("stop", [0.0, 0.13, 0.28, 0.9])
def test_yield_runs_from_the_onset_to_the_last_voiced_sample(stop: float) -> None:
    _, turn = measure(call(8, [("respond", [(0.2, 1)]), ("stop", [(3, 4.5)])], [(1.5, 3.002 + stop), (5, 6)])).turns
    assert turn.yield_ms == pytest.approx(1000 * stop + 2, abs=4)
    assert turn.yield_playout_ms == pytest.approx(1000 * stop + 2, abs=4)
    assert turn.stopped is True
    assert turn.v2v_ms == pytest.approx(500, abs=4)


def test_a_reply_that_goes_on_did_not_yield() -> None:
    turns = measure(call(9, [("respond", [(0.2, 1)]), ("stop", [(3, 4)])], [(1.5, 3.3), (3.5, 8)])).turns
    assert turns[1].stopped is False
    assert turns[1].yield_ms == pytest.approx(5000, abs=4)


def test_a_fast_next_reply_is_not_the_old_one() -> None:
    _, turn = measure(call(8, [("respond", [(0.2, 1)]), ("stop", [(3, 3.4)])], [(1.5, 3.2), (3.6, 6)])).turns
    assert turn.yield_ms == pytest.approx(200, abs=4)
    assert turn.v2v_ms == pytest.approx(200, abs=4)


def test_nothing_to_stop_is_no_trial() -> None:
    turn = only(call(5, [("stop", [(1, 2)])], [(2.5, 4)]))
    assert turn.stopped is None
    assert turn.yield_ms is None


def test_stale_audio_is_voice_between_the_stop_and_the_next_reply() -> None:
    said = [("respond", [(0.2, 1)]), ("stop", [(3, 5)])]
    heard = [(1.5, 3.2), (3.9, 4.2), (5.6, 7)]
    assert measure(call(8, said, heard)).turns[1].stale_ms == pytest.approx(300, abs=6)
    told = [(3.18, {"type": "output_audio_buffer.cleared"}), (5.58, {"type": "output_audio_buffer.started"})]
    assert measure(call(8, said, heard, told)).turns[1].stale_ms == pytest.approx(300, abs=6)
    assert measure(call(8, said, [(1.5, 3.2), (5.6, 7)], told)).turns[1].stale_ms == 0


def test_a_backchannel_that_pauses_the_reply_has_a_resume_gap() -> None:
    said = [("respond", [(0.2, 1)]), ("ignore", [(3, 3.4)])]
    _, kept = measure(call(9, said, [(1.5, 3.1), (3.9, 8)])).turns
    assert kept.kept is True
    assert kept.resume_gap_ms == pytest.approx(800, abs=4)
    _, ended = measure(call(9, said, [(1.5, 3.3)])).turns
    assert ended.kept is False
    assert ended.resume_gap_ms is None
    told = [(3.3, {"type": "response.done", "response": {"status": "cancelled"}})]
    _, cancelled = measure(call(9, said, [(1.5, 3.3), (4.0, 8)], told)).turns
    assert cancelled.kept is False


def test_noise_into_silence_must_not_be_answered() -> None:
    assert only(call(6, [("ignore", [(1, 1.5)])], [])).kept is True
    assert only(call(6, [("ignore", [(1, 1.5)])], [(2.4, 3)])).kept is False


def test_packets_lost_late_and_reordered_are_counted() -> None:
    heard = line(tones(12, []), delay=lambda i: 0.05 if i == 100 else 0.0, lost=[200, 201])
    stream = measure(call(12, [], [], received=heard)).stream
    assert (stream.packets, stream.lost, stream.reordered) == (598, 2, 1)
    assert stream.gap_p50_ms == 20.0
    assert stream.gap_max_ms == pytest.approx(60, abs=0.1)


@pytest.mark.parametrize("ppm", [-100.0, 0.0, 100.0])
def test_drift_is_found_under_jitter(ppm: float) -> None:
    jitter = np.random.default_rng(1).exponential(0.004, 3000)
    heard = line(tones(60, []), delay=lambda i: jitter[i] - i * 0.02 * ppm / 1e6)
    drift = measure(call(60, [], [], received=heard)).stream.drift_ppm
    assert drift == pytest.approx(ppm, abs=12)


def test_a_late_packet_pushes_playout_back_until_silence() -> None:
    pcm = tones(4, [(0, 1), (2, 3)])
    played = play_out(line(pcm, delay=lambda i: 0.1 if i == 10 else 0.0))
    assert played.time(9 * FRAME) == pytest.approx(0.18)
    assert played.time(10 * FRAME) == pytest.approx(0.30)
    assert played.time(40 * FRAME) == pytest.approx(0.90)
    assert played.time(2 * RATE) == pytest.approx(2.0)


def test_a_recording_is_the_same_after_a_file(tmp_path: Path) -> None:
    told = [(1.7, {"type": "output_audio_buffer.started"})]
    heard = line(tones(6, [(2.0, 4.0)]), begin=0.4, delay=lambda i: 0.03 * (i % 3), lost=[7])
    before = call(6, [("respond", [(0.5, 1.5)])], [], told, received=heard)
    before.save(tmp_path / "call-1")
    after = Recording.load(tmp_path / "call-1")
    assert measure(after) == measure(before)
    assert np.array_equal(after.received.pcm, before.received.pcm)
    assert after.said == before.said
    assert after.events == before.events


def test_a_call_in_which_nothing_arrived_is_measured_too(tmp_path: Path) -> None:
    recording = call(3, [("respond", [(0.5, 1.5)])], [], received=Line.of([]))
    result = measure(recording)
    assert result.turns[0].responded is False
    assert result.stream.packets == 0
    recording.save(tmp_path / "silent")
    assert measure(Recording.load(tmp_path / "silent")) == result


def test_a_packet_that_came_twice_counts_once() -> None:
    frame = np.full(FRAME, 1000, np.int16)
    twice = Line.of([Packet(1.0, 960, 5, frame), Packet(1.01, 960, 5, frame), Packet(1.02, 1440, 6, frame)])
    assert twice.at.tolist() == [1.0, 1.02]
    assert twice.position.tolist() == [0, 480]


def test_thinking_pauses_of_a_clean_recording_stay_apart() -> None:
    pcm = tones(4, [(0.5, 1.0), (1.2, 1.6), (2.2, 3.0)])
    spans = spans_of(pcm, at=1000)
    assert [tuple(round((x - 1000) / RATE, 2) for x in span) for span in spans] == [(0.5, 1.6), (2.2, 3.0)]


def test_a_stream_that_falls_silent_claims_to_speak_when_it_flows_again() -> None:
    """Packets for the reply alone: its first 400 ms are silence. A sender that only stalls claims nothing."""
    heard = line(tones(6, [(2.4, 4.0)]), lost=[i for i in range(300) if not 100 <= i < 210])
    turn = only(call(6, [("respond", [(0.5, 1.5)])], [], received=Line.of([*first_packet(), *packets(heard)])))
    assert turn.leading_silence_ms == pytest.approx(400, abs=4)
    stalled = line(tones(6, [(2.4, 4.0)]), delay=lambda i: 0.15 if i == 100 else 0.0)
    assert only(call(6, [("respond", [(0.5, 1.5)])], [], received=stalled)).leading_silence_ms is None


def first_packet() -> list[Packet]:
    return [Packet(0.0, 0, 0, np.zeros(FRAME, np.int16))]


def packets(heard: Line) -> list[Packet]:
    return [
        Packet(float(at), int(at * RATE + 0.5), number, heard.pcm[position : position + FRAME])
        for number, (at, position) in enumerate(zip(heard.at, heard.position, strict=True), 1)
    ]

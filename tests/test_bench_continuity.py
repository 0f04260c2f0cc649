"""Whether a reply that was spoken over went on: on replies whose every cut is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.bench_signals import call, line, tones
from voice_agent.bench.continuity import locate
from voice_agent.bench.figures import TurnFigures, measure
from voice_agent.bench.recording import RATE, Recording
from voice_agent.bench.scenario import Scenario, uncut

ASKED = ("respond", [(0.2, 1.0)])
REPLY_AT = 1.5


def voice(seconds: float, seed: int = 1) -> np.ndarray:
    """int16[T] @ 24 kHz: a sound that is nowhere like itself, with a short silence of its own after 2 s."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    smooth = np.convolve(noise, np.hanning(24), "same")
    smooth *= 8000 / np.abs(smooth).max()
    smooth[round(2.0 * RATE) : round(2.15 * RATE)] = 0
    return smooth.astype(np.int16)


def heard(*pieces: tuple[float, np.ndarray], seconds: float = 12.0) -> Any:
    pcm = np.zeros(round(seconds * RATE), np.int16)
    for at, piece in pieces:
        pcm[round(at * RATE) : round(at * RATE) + len(piece)] = piece
    return line(pcm)


def faded(piece: np.ndarray) -> np.ndarray:
    """With its last 20 ms faded out."""
    ramp = np.linspace(1, 0, RATE // 50)
    return np.concatenate((piece[: -len(ramp)], (piece[-len(ramp) :] * ramp).astype(np.int16)))


REPLY = voice(5)
CALM = call(12, [ASKED], [], received=heard((REPLY_AT, REPLY)))


def second_turn(
    received: Any, expect: str = "ignore", said: tuple[float, float] = (3.0, 3.4), **more: Any
) -> TurnFigures:
    recording: Recording = call(12, [ASKED, (expect, [said])], [], received=received, **more)
    return measure(recording, CALM).turns[1]


def cut(seconds: float) -> int:
    """The sample of the reply that is due at this moment of the call."""
    return round((seconds - REPLY_AT) * RATE)


def test_a_piece_is_found_in_the_whole_and_nowhere_else() -> None:
    noisy = REPLY[30_000:40_000] + np.random.default_rng(2).integers(-500, 500, 10_000)
    assert locate(noisy.astype(np.int16), REPLY) == 30_000
    assert locate(voice(0.4, seed=9), REPLY) is None
    assert locate(np.zeros(9600, np.int16), REPLY) is None
    assert locate(REPLY, REPLY[:100]) is None
    assert locate(tones(0.4, [(0, 0.4)]), tones(3, [(0, 3)])) is None
    twice = np.concatenate((REPLY[:24_000], REPLY[:24_000]))
    assert locate(REPLY[2000:12_000], twice) is None


def test_a_reply_that_is_left_alone_repeats_and_skips_nothing() -> None:
    turn = second_turn(heard((REPLY_AT, REPLY)))
    assert (turn.kept, turn.repeated_ms, turn.skipped_ms) == (True, 0, 0)
    assert turn.faded_ms is None
    assert turn.resume_ms is None


@pytest.mark.parametrize("change", [-0.3, 0.0, 0.2])
def test_a_pause_is_measured_with_what_it_repeats_or_skips(change: float) -> None:
    """The reply pauses 200 ms after the onset and goes on 250 ms after the sound's end, from so much further on."""
    at = cut(3.2)
    turn = second_turn(heard((REPLY_AT, faded(REPLY[:at])), (3.65, REPLY[at + round(change * RATE) :])))
    assert turn.kept is True
    assert turn.faded_ms == pytest.approx(190, abs=15)
    assert turn.resume_ms == pytest.approx(250, abs=5)
    assert turn.repeated_ms == pytest.approx(max(0, -1000 * change), abs=25)
    assert turn.skipped_ms == pytest.approx(max(0, 1000 * change), abs=25)


def test_a_stream_that_faltered_before_is_followed_from_there() -> None:
    """The server had run dry for 100 ms, half a second before the onset."""
    at = cut(2.5)
    turn = second_turn(heard((REPLY_AT, REPLY[:at]), (2.6, REPLY[at : at + 20_000]), (5.0, REPLY[at + 20_000 :])))
    assert (turn.kept, turn.repeated_ms, turn.skipped_ms) == (True, 0, 0)
    assert turn.resume_ms == pytest.approx(1600, abs=5)


def test_two_pauses_in_one_reply_are_both_counted() -> None:
    a, b = cut(3.2), cut(3.2) + round(0.3 * RATE)
    back = round(0.1 * RATE)
    pieces = (REPLY_AT, REPLY[:a]), (3.5, REPLY[a:b]), (4.3, REPLY[b - back :])
    turn = second_turn(heard(*pieces), said=(3.0, 4.1))
    assert turn.resume_ms == pytest.approx(200, abs=5)
    assert turn.repeated_ms == pytest.approx(100, abs=25)


def test_a_pause_in_the_reply_s_own_silence_skips_no_voice() -> None:
    """It stops in its silence from 3.5 s to 3.65 s, and goes on after that."""
    at = cut(3.55)
    turn = second_turn(heard((REPLY_AT, REPLY[:at]), (4.2, REPLY[at:])), said=(3.4, 3.8))
    assert (turn.kept, turn.repeated_ms, turn.skipped_ms) == (True, 0, 0)
    assert turn.resume_ms == pytest.approx(500, abs=5)  # 0.1 s of it is the reply's own silence


def test_the_reply_s_own_end_and_silence_are_no_pause() -> None:
    turn = second_turn(heard((REPLY_AT, REPLY)), said=(6.3, 6.9))
    assert turn.kept is True
    turn = second_turn(heard((REPLY_AT, REPLY)), said=(3.45, 3.7))
    assert turn.resume_ms is None


def test_a_reply_that_is_held_in_its_own_silence_runs() -> None:
    """At the onset it is silent between two words, and it goes on 0.9 s later."""
    turn = second_turn(heard((REPLY_AT, REPLY[: cut(3.55)]), (4.5, REPLY[cut(3.55) :])), said=(3.57, 4.2))
    assert (turn.kept, turn.responded, turn.skipped_ms) == (True, None, 0)
    assert turn.resume_ms == pytest.approx(400, abs=10)
    gone = second_turn(heard((REPLY_AT, REPLY[: cut(3.55)])), said=(3.57, 4.2))
    assert gone.kept is False


def test_another_reply_is_not_the_old_one_gone_on() -> None:
    turn = second_turn(heard((REPLY_AT, REPLY[: cut(3.2)]), (4.2, voice(3, seed=5))))
    assert turn.kept is False
    assert turn.repeated_ms is None


def test_a_reply_that_ends_just_after_the_sound_was_cut_short() -> None:
    turn = second_turn(heard((REPLY_AT, REPLY[: cut(3.5)])))
    assert turn.kept is False
    assert second_turn(heard((REPLY_AT, REPLY[: cut(3.5)])), said=(8.0, 8.4)).kept is True  # nothing runs there


def test_a_reply_that_begins_anew_repeats_all_that_was_heard() -> None:
    turn = second_turn(heard((REPLY_AT, REPLY[: cut(3.2)]), (4.2, REPLY)))
    assert turn.kept is True
    assert turn.repeated_ms == pytest.approx(1700, abs=30)


@pytest.mark.parametrize("stop", [0.1, 0.18, 0.4])
def test_an_interruption_is_timed_by_its_first_faded_sample(stop: float) -> None:
    turn = second_turn(heard((REPLY_AT, REPLY[: cut(3.0 + stop)]), (6.0, voice(2, seed=7))), "stop", (3.0, 5.5))
    assert turn.faded_ms == pytest.approx(1000 * stop, abs=6)
    assert turn.yield_ms == pytest.approx(1000 * stop, abs=6)


def test_an_interrupted_reply_that_comes_back_is_seen() -> None:
    """It pauses, goes on 700 ms later for half a second, and ends then."""
    pieces = (REPLY_AT, REPLY[: cut(3.2)]), (3.9, REPLY[cut(3.2) : cut(3.7)]), (6.5, voice(2, seed=7))
    back = second_turn(heard(*pieces), "stop", (3.0, 3.5))
    assert back.came_back is True
    assert back.stopped is True
    assert back.yield_ms == pytest.approx(1400, abs=6)
    gone = second_turn(heard(pieces[0], pieces[2]), "stop", (3.0, 3.5))
    assert (gone.came_back, gone.stopped) == (False, True)
    assert gone.yield_ms == pytest.approx(200, abs=6)


def test_a_new_reply_that_opens_with_the_same_words_is_not_the_old_one() -> None:
    again = np.concatenate((REPLY[:12_000], voice(2, seed=8)))
    turn = second_turn(heard((REPLY_AT, REPLY[: cut(3.2)]), (4.2, again)), "stop", (3.0, 3.5))
    assert turn.came_back is False
    assert turn.yield_ms == pytest.approx(200, abs=6)


def test_the_reply_after_a_cancelled_one_may_say_the_same() -> None:
    """It goes on from where the old one was; only the server can tell whose words they are."""
    pieces = (REPLY_AT, REPLY[: cut(3.2)]), (3.9, REPLY[cut(3.2) :])
    told = [(3.3, {"type": "output_audio_buffer.cleared"}), (3.92, {"type": "output_audio_buffer.started"})]
    for events, came_back, yield_ms in ((told, False, 200), (told[:1], True, 4200), ([], True, 4200)):
        recording: Recording = call(12, [ASKED, ("stop", [(3.0, 3.5)])], [], events, received=heard(*pieces))
        turn = measure(recording, CALM).turns[1]
        assert turn.came_back is came_back
        assert turn.yield_ms == pytest.approx(yield_ms, abs=10)


def test_a_server_that_tells_that_it_went_on_is_believed() -> None:
    told = [(3.8, {"type": "agent.turn.resumed"})]
    said = call(12, [ASKED, ("stop", [(3.0, 3.5)])], [(1.5, 3.2), (3.85, 5.5)], told)
    turn = measure(said).turns[1]
    assert (turn.came_back, turn.stopped) == (True, False)
    assert turn.yield_ms == pytest.approx(2500, abs=6)


def test_a_call_that_was_never_placed_uncut_has_no_such_figures() -> None:
    recording = call(12, [ASKED, ("ignore", [(3.0, 3.4)])], [], received=heard((REPLY_AT, REPLY)))
    turn = measure(recording).turns[1]
    assert (turn.kept, turn.repeated_ms, turn.faded_ms) == (True, None, None)
    other = call(12, [ASKED], [], received=heard((REPLY_AT, voice(5, seed=3))))
    assert measure(recording, other).turns[1].repeated_ms is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One latte, it is ten yuan.", True),
        ("One latte,", False),
        ("One Latte, it is two yuan. Sorry?", False),
        ("", False),
    ],
)
def test_a_reply_that_says_something_else_is_not_compared_with_the_uncut_one(text: str, kept: bool) -> None:
    """As after an order that was understood otherwise: the same first words, another price."""
    told = "response.output_audio_transcript.done"
    calm_told = [(1.4, {"type": told, "transcript": "One latte, it is 2 yuan."})]
    calm = call(12, [ASKED], [], calm_told, received=heard((REPLY_AT, REPLY)))
    other = np.concatenate((REPLY[: cut(3.1)], voice(2, seed=5)))
    said = [(1.4, {"type": told, "transcript": text})] if text else []
    recording = call(12, [ASKED, ("ignore", [(3.0, 3.4)])], [], said, received=heard((REPLY_AT, other)))
    assert measure(recording, calm).turns[1].kept is kept


def test_where_one_uncut_call_was_understood_otherwise_the_next_stands_in() -> None:
    told = "response.output_audio_transcript.done"
    calls = [
        call(12, [ASKED], [], [(1.4, {"type": told, "transcript": text})], received=heard((REPLY_AT, sound)))
        for text, sound in (("One mocha.", voice(5, seed=3)), ("One latte.", REPLY), ("One tea.", voice(5, seed=4)))
    ]
    said = [(1.4, {"type": told, "transcript": "One latte."})]
    recording = call(12, [ASKED, ("ignore", [(3.0, 3.4)])], [], said, received=heard((REPLY_AT, REPLY)))
    assert measure(recording, *calls).turns[1].repeated_ms == 0
    assert measure(recording, calls[0], calls[2]).turns[1].repeated_ms is None


@pytest.mark.parametrize(("stopped", "kept"), [(5.0, True), (2.8, False)])
def test_a_reply_that_the_server_has_not_ended_runs_through_its_silence(stopped: float, kept: bool) -> None:
    told = [(1.5, {"type": "output_audio_buffer.started"}), (stopped, {"type": "output_audio_buffer.stopped"})]
    recording = call(12, [ASKED, ("ignore", [(3.0, 3.2)])], [(1.5, 2.4), (3.4, 5.0)], told)
    turn = measure(recording).turns[1]
    assert turn.kept is kept
    assert turn.responded is (None if kept else True)


def test_the_uncut_call_says_nothing_over_the_agent() -> None:
    tone = {"tone_hz": 300, "ms": 300}
    over = {"after": "agent_speech_start", "delay_ms": 300}
    turns = [
        {"say": tone},
        {"say": tone, "expect": "ignore", "start": over},
        {"say": tone, "expect": "stop", "start": over},
    ]
    calm = uncut(Scenario.model_validate({"name": "a", "turns": turns, "echo": {"delay_ms": 60, "gain_db": -20}}))
    assert calm is not None
    assert [turn.expect for turn in calm.turns] == ["respond", "ignore", "respond"]
    assert calm.turns[1].say[0].model_dump() == {"pause_ms": 400}
    assert calm.turns[2].start.after == "agent_speech_end"
    assert calm.echo is None
    assert uncut(Scenario.model_validate({"name": "b", "turns": [{"say": tone}]})) is None

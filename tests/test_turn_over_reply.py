"""What becomes of a reply that is spoken over, on a virtual clock."""

from __future__ import annotations

import pytest

from tests.turn_caller import Caller
from voice_agent.turn import TurnConfig, TurnPolicy


@pytest.fixture
def caller() -> Caller:
    return Caller(TurnPolicy(TurnConfig()))


def test_voice_over_a_reply_pauses_it_at_once(caller: Caller) -> None:
    caller.reply()
    caller.speak(32)
    assert caller.kinds == ["speech_started", "pause"]


@pytest.mark.parametrize("audible", [True, False])
def test_words_cancel_the_reply_and_become_a_turn(caller: Caller, audible: bool) -> None:
    caller.reply(audible=audible)
    caller.speak(640)
    caller.hear("我要一杯")
    assert caller.new() == ["speech_started", "pause", "interrupt"]
    caller.policy.reply_ended(heard_all=False)
    caller.speak(400)
    caller.hush(600)
    assert caller.new() == ["speculate", "speech_stopped", "commit"]


@pytest.mark.parametrize("text", ["停", "等一下", "不对", "不要了", "换一个", "wait", "Stop!", "hold on", "No."])
def test_a_stop_word_cancels_as_soon_as_it_is_recognised(caller: Caller, text: str) -> None:
    caller.reply()
    caller.speak(200)
    caller.hear(text)
    assert caller.kinds == ["speech_started", "pause", "interrupt"]


@pytest.mark.parametrize("text", ["嗯", "好的", "对对对", "好灯", "uh-huh", "Okay.", ""])
def test_a_backchannel_or_no_words_let_the_same_reply_go_on(caller: Caller, text: str) -> None:
    caller.reply()
    caller.speak(400)
    caller.hush(128)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear(text)
    assert caller.new() == ["resume", "speech_stopped", "discard"]
    caller.hush(3000)
    assert caller.new() == []


def test_a_hypothesis_that_covers_the_sound_decides_when_the_sound_has_ended(caller: Caller) -> None:
    caller.reply()
    caller.speak(400)
    caller.hear("好的")
    caller.hush(96)
    assert caller.kinds[-3:] == ["resume", "speech_stopped", "discard"]


def test_only_the_final_transcript_says_that_there_were_no_words(caller: Caller) -> None:
    caller.reply()
    caller.speak(400)
    caller.hear("")
    caller.hush(128)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("不得", late_ms=96)
    assert caller.new() == ["interrupt"]


def test_a_word_to_stop_is_obeyed_even_in_doubt_and_no_other_is(caller: Caller) -> None:
    caller.reply()
    caller.speak(640)
    caller.actions += caller.policy.words("", caller.now, doubted="我要一杯")
    assert caller.new() == ["speech_started", "pause"]
    caller.actions += caller.policy.words("", caller.now, doubted="Wait!")
    assert caller.new() == ["interrupt"]


def test_a_click_over_a_reply_needs_no_words_to_be_let_go(caller: Caller) -> None:
    caller.reply()
    caller.speak(64)
    caller.hush(96)
    assert caller.kinds == ["speech_started", "pause", "resume", "speech_stopped", "discard"]


def test_words_may_be_the_beginning_of_a_backchannel(caller: Caller) -> None:
    caller.reply()
    caller.speak(480)
    caller.hear("名字")
    assert caller.new() == ["speech_started", "pause"]
    caller.speak(32)
    caller.hear("名字")
    assert caller.new() == ["interrupt"]


def test_a_hypothesis_counts_for_the_voice_that_it_covers(caller: Caller) -> None:
    caller.reply()
    caller.speak(640)
    caller.hear("讨", late_ms=320)
    caller.speak(96)
    caller.hush(96)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("好的")
    assert caller.new() == ["resume", "speech_stopped", "discard"]


def test_other_words_in_too_short_a_sound_are_not_believed(caller: Caller) -> None:
    caller.reply()
    caller.speak(300)
    caller.hear("本境")
    caller.hush(96)
    assert caller.kinds[-3:] == ["resume", "speech_stopped", "discard"]


def test_before_a_reply_is_heard_a_short_word_goes_on_with_what_was_said(caller: Caller) -> None:
    caller.reply(audible=False)
    caller.speak(300)
    caller.hush(96)
    caller.hear("奶茶")
    assert caller.kinds == ["speech_started", "pause", "speculate", "interrupt"]


def test_a_short_sound_is_waited_for_no_longer_than_a_backchannel_may_be(caller: Caller) -> None:
    caller.reply()
    caller.speak(192)
    caller.hush(224)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hush(32)
    assert caller.new() == ["resume"]


@pytest.mark.parametrize(("said", "hush_ms"), [("停", 448), ("wait", 832), ("换成两杯", 864)])
def test_late_words_cancel_a_reply_that_has_not_gone_on(caller: Caller, said: str, hush_ms: int) -> None:
    caller.reply()
    caller.speak(512)
    caller.hush(hush_ms)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear(said)
    assert caller.new() == ["interrupt"]


def test_a_sound_of_which_a_part_is_known_is_not_waited_for(caller: Caller) -> None:
    caller.reply()
    caller.speak(352)
    caller.hear("本", late_ms=96)
    caller.hush(224)
    assert "resume" not in caller.new()
    caller.hush(32)
    assert caller.new() == ["resume"]


def test_the_reply_does_not_wait_for_the_recogniser_for_ever(caller: Caller) -> None:
    caller.reply()
    caller.speak(512)
    caller.hush(896)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hush(32)
    assert caller.new() == ["resume"]
    caller.hear("我要两杯")
    assert caller.new() == ["pause", "interrupt"]
    caller.policy.reply_ended(heard_all=False)
    caller.hush(500)
    assert caller.new() == ["speech_stopped", "commit"]


def test_words_that_never_come_are_forgotten(caller: Caller) -> None:
    caller.reply()
    caller.speak(500)
    caller.hush(1600)
    assert caller.new() == ["speech_started", "pause", "speculate", "resume", "speech_stopped", "discard"]


def test_a_reply_that_is_not_heard_yet_can_wait_for_the_words(caller: Caller) -> None:
    caller.reply(audible=False)
    caller.speak(500)
    caller.hush(800)
    assert caller.new() == ["speech_started", "pause", "speculate"]
    caller.hear("再来一杯")
    assert caller.new() == ["interrupt"]


def test_a_long_voice_cancels_while_the_recogniser_says_nothing(caller: Caller) -> None:
    caller.reply()
    caller.speak(832)
    assert caller.new() == ["speech_started", "pause"]
    caller.speak(32)
    assert caller.new() == ["interrupt"]


def test_a_long_sound_without_words_does_not_hold_the_reply(caller: Caller) -> None:
    caller.reply()
    for _ in range(3):
        caller.speak(400)
        caller.hear("")
    assert caller.new() == ["speech_started", "pause", "resume"]
    caller.speak(20_000)
    assert caller.new() == []
    caller.hear("等一下")
    assert caller.new() == ["pause", "interrupt"]


def test_a_sound_that_was_let_go_does_not_pause_again_at_its_bound(caller: Caller) -> None:
    caller.reply()
    for _ in range(3):
        caller.speak(400)
        caller.hear("")
    caller.speak(60_000)
    assert caller.kinds.count("pause") == 1
    assert "commit" not in caller.kinds


def test_a_backchannel_without_end_is_decided_too(caller: Caller) -> None:
    caller.reply()
    for _ in range(5):
        caller.speak(320)
        caller.hear("对对对对")
    assert caller.new() == ["speech_started", "pause", "resume"]


def test_a_much_quieter_voice_is_another_talkers(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.new()
    caller.speak(256)
    caller.hear("我要一杯珍珠奶茶")
    assert caller.new() == ["speech_started", "pause", "resume"]
    caller.speak(2000)
    caller.hear("我要一杯珍珠奶茶 少冰")
    caller.hush(96)
    assert caller.new() == ["speech_stopped", "discard"]
    caller.level_db = -27.0
    caller.speak(640)
    caller.hear("我要两杯")
    assert caller.new() == ["speech_started", "pause", "interrupt"]


def test_with_no_reply_live_a_quiet_voice_is_a_turn_like_any_other(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.new()
    caller.level_db = -40.0
    caller.speak(1000)
    caller.hush(600)
    assert caller.new() == ["speech_started", "speculate", "speech_stopped", "commit"]


def test_the_caller_is_heard_over_a_quieter_talker(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.speak(640)
    caller.level_db = -20.0
    caller.new()
    caller.speak(640)
    caller.hear("等一下")
    assert caller.new() == ["pause", "interrupt"]


def test_somebody_else_who_talks_on_pauses_the_reply_once(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.new()
    for _ in range(8):
        caller.speak(900)
        caller.hear("今天天气真好 我们去哪里")
        caller.hush(1200)
    assert caller.new().count("pause") == 1


def test_the_caller_pauses_the_reply_as_ever_while_somebody_else_talks(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.speak(900)
    caller.hush(1200)
    caller.level_db = -22.0
    caller.new()
    caller.speak(32)
    assert caller.new() == ["speech_started", "pause"]


def test_a_faint_voice_that_had_no_time_to_be_known_is_a_turn_when_the_reply_is_over(caller: Caller) -> None:
    caller.level_db = -20.0
    caller.speak(1000)
    caller.hush(600)
    caller.reply()
    caller.level_db = -33.0
    caller.speak(900)
    caller.hush(1200)
    caller.new()
    caller.speak(96)
    caller.policy.reply_ended(heard_all=True)
    caller.level_db = -20.0
    caller.speak(600)
    caller.hush(600)
    assert caller.new() == ["speech_started", "speculate", "speech_stopped", "commit"]


def test_sounds_that_are_nothing_pause_a_reply_so_often_and_then_words_alone(caller: Caller) -> None:
    caller.reply()
    for _ in range(9):
        caller.speak(300)
        caller.hush(1600)
    most = caller.policy.config.most_pauses
    assert caller.new().count("pause") == most
    caller.speak(640)
    assert "pause" not in caller.new()
    caller.hear("等一下")
    assert caller.new() == ["pause", "interrupt"]
    caller.policy.reply_ended(heard_all=False)
    caller.hush(600)
    caller.reply()
    caller.new()
    caller.speak(32)
    assert "pause" in caller.new()


@pytest.mark.parametrize("text", ["要", "好的", "no"])
def test_what_is_said_over_the_last_moments_of_a_reply_is_an_answer(caller: Caller, text: str) -> None:
    caller.reply()
    caller.policy.reply_closing()
    caller.speak(300)
    caller.hush(128)
    caller.hear(text)
    assert caller.new() == ["speech_started", "pause", "speculate", "interrupt"]


def test_a_backchannel_that_was_let_go_answers_the_question_that_has_ended_meanwhile(caller: Caller) -> None:
    caller.reply()
    caller.speak(400)
    caller.hush(928)
    assert caller.new()[-1] == "resume"
    caller.policy.reply_ended(heard_all=True)
    caller.hear("好的")
    caller.hush(200)
    assert caller.new() == ["speech_stopped", "commit"]


def test_a_reply_that_ends_by_itself_leaves_an_ordinary_utterance(caller: Caller) -> None:
    caller.reply()
    caller.speak(300)
    caller.policy.reply_ended(heard_all=False)
    caller.hear("好的")
    caller.hush(600)
    assert caller.kinds == ["speech_started", "pause", "speculate", "speech_stopped", "commit"]


def test_a_reply_that_begins_while_the_caller_speaks_is_paused_and_judged(caller: Caller) -> None:
    caller.speak(300)
    caller.reply(audible=False)
    caller.speak(32)
    assert caller.new() == ["speech_started", "pause"]
    caller.speak(300)
    caller.hear("一杯奶茶")
    assert caller.new() == ["interrupt"]


def test_a_reply_that_is_not_cancelled_after_all_is_not_paused_twice(caller: Caller) -> None:
    caller.reply()
    caller.speak(640)
    caller.hear("我要一杯")
    caller.speak(3000)
    assert caller.kinds == ["speech_started", "pause", "interrupt"]

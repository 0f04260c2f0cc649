"""Judges of a reply's sound, and Full-Duplex-Bench's rules, on recordings whose words are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench_signals import call
from voice_agent.bench.figures import measure
from voice_agent.bench.full_duplex_bench import Trial, scores, takes_turn, trials, word_count
from voice_agent.bench.quality import JUDGE_RATE, Judged, Judges, error_of, reply_pcm
from voice_agent.bench.results import CallResult, Results, values_of

SAID = [("respond", [(0.5, 1.5)]), ("stop", [(4.0, 5.0)]), ("respond", [(8.0, 9.0)])]
HEARD = [(2.0, 4.2), (5.6, 7.0), (9.5, 9.8)]
WORDS = [
    (3.9, {"type": "response.output_audio_transcript.done", "transcript": "one milk tea"}),
    (6.9, {"type": "response.output_audio_transcript.done", "transcript": "no ice"}),
]


def seconds(pcm: np.ndarray) -> float:
    return len(pcm) / JUDGE_RATE


def test_a_reply_is_judged_by_what_was_heard_of_it() -> None:
    recording = call(11, SAID, HEARD, WORDS)
    figures = measure(recording)
    assert seconds(reply_pcm(recording, figures, 0)) == pytest.approx(2.4, abs=0.05)
    assert seconds(reply_pcm(recording, figures, 1)) == pytest.approx(1.6, abs=0.05)
    judges = Judges(score=seconds, transcribe=lambda pcm: "no nice")
    cut, whole = judges.replies(recording, figures)  # the third is no reply: 0.3 s
    assert cut.mos == pytest.approx(2.4, abs=0.05)
    assert (cut.turn, cut.said, cut.cer) == (0, "one milk tea", None)
    assert (whole.turn, whole.cer) == (1, 0.2)


def test_the_replies_of_a_call_count_by_their_length() -> None:
    long, short = (Judged(0, 1.0, 3.0, "", said, cer) for said, cer in (("one milk tea", 0.2), ("no ice", 1.0)))
    cut = Judged(0, 1.0, 3.0, "", "and so on", None)
    assert error_of([long, cut, short]) == pytest.approx((10 * 0.2 + 5) / 15)
    assert error_of([cut]) is None


def test_what_judges_say_is_a_figure_and_is_kept(tmp_path: Path) -> None:
    figures = measure(call(11, SAID, HEARD)).view()
    one = CallResult("a", "calls/a-000", figures, dnsmos=(2.5, 3.0), reply_cer=(0.1,))
    assert values_of([one])["dnsmos"] == [2.5, 3.0]
    Results({"began": "now"}, (one,)).save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").calls[0].reply_cer == (0.1,)
    record = json.loads((tmp_path / "results.json").read_text("utf-8"))
    del record["calls"][0]["dnsmos"]
    (tmp_path / "older.json").write_text(json.dumps(record), "utf-8")
    assert Results.load(tmp_path / "older.json").calls[0].dnsmos == ()


@pytest.mark.parametrize(
    ("length", "words", "taken"), [(0.5, 0, False), (3.0, 0, False), (0.9, 3, False), (0.9, 4, True), (1.0, 1, True)]
)
def test_a_short_sound_of_few_words_takes_no_turn(length: float, words: int, taken: bool) -> None:
    assert takes_turn(length, words) is taken


def test_words_are_counted_in_both_scripts() -> None:
    assert word_count("OK, 好的 sure") == 4
    assert word_count("…") == 0


def test_pauses_turns_and_interruptions_are_scored_by_its_rules() -> None:
    """A pause of 0.5 s is none; in one of 1 s the agent says "mm"; the interruption is answered after 0.6 s."""
    said = [
        ("respond", [(0.5, 1.0), (1.5, 2.0), (3.0, 3.5)]),
        ("stop", [(5.0, 6.0)]),
        ("respond", [(9.0, 9.5)]),
    ]
    recording = call(13, said, [(2.2, 2.6), (4.0, 5.2), (6.6, 7.2), (7.5, 8.0)])
    found = trials(recording, lambda pcm: "mm" if len(pcm) < JUDGE_RATE else "that is one milk tea")
    assert [(trial.task, trial.took_over) for trial in found] == [
        ("pause", False), ("turn", True), ("interruption", True), ("turn", False),
    ]  # fmt: skip
    told = scores(found)
    assert told["pause"].rate == 0
    assert (told["turn"].trials, told["turn"].rate) == (2, 0.5)
    assert told["turn"].latency_s == pytest.approx(0.5, abs=0.01)
    assert told["interruption"].latency_s == pytest.approx(0.6, abs=0.01)
    assert scores([Trial("pause", True, 0.2)]).keys() == {"pause"}
    assert scores([]) == {}


def test_an_agent_that_speaks_into_a_pause_takes_over() -> None:
    recording = call(8, [("respond", [(0.5, 1.0), (2.5, 3.0)])], [(1.3, 2.4)])
    found = trials(recording, lambda pcm: "yes of course I can do that")
    assert (found[0].task, found[0].took_over) == ("pause", True)
    assert found[0].latency_s == pytest.approx(0.3, abs=0.01)


def test_events_after_the_call_do_not_belong_to_a_reply() -> None:
    recording = call(6, [("respond", [(0.5, 1.5)])], [(2.0, 4.0)], [(0.2, WORDS[0][1])])
    (judged,) = Judges(score=seconds, transcribe=lambda pcm: "").replies(recording, measure(recording))
    assert (judged.said, judged.cer) == ("", None)

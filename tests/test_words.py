from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.words import LIKELY, LIKELY_SO, NAMED, PHRASES, SURE, asks, is_name, kind_of, surely_whole


@pytest.mark.parametrize("text", ["", " ", "。", "...", "拜拜", "等", "Bye.", "Thank you for watching!"])
def test_what_a_recogniser_writes_for_no_words_is_none(text: str) -> None:
    assert kind_of(text) == "none"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "嗯",
            "嗯嗯",
            "哦、对对对",
            "好的",
            "好,好的。",
            "是吗?",
            "行",
            "知道了",
            "没错",
            "好x3",
            "OK 好的",
            "谢谢",
            "不错",
        ),
        *("Uh-huh.", "Mmhmm", "Mm-hmm", "Okay, okay.", "yeah", "Yes, yes", "All right.", "I see", "No problem"),
    ],
)
def test_who_listens_wants_to_hear_more(text: str) -> None:
    assert kind_of(text) == "backchannel"


@pytest.mark.parametrize("text", ["好灯", "好登", "淘的", "适等", "请", "心", "推等", "跑啊", "吃到了"])
def test_backchannels_are_known_by_their_sound(text: str) -> None:
    """As Whisper wrote 好的, 是的, 行, 对的, 好啊 and 知道了 of several voices."""
    assert kind_of(text) == "backchannel"


@pytest.mark.parametrize(
    "text", ["任何", "如何", "不要喝", "嗯哼", "啊哈。", "越喝越喝", "约会", "绿河,绿河", "Ha ha", "Uhuh."]
)
def test_uh_huh_is_known_in_whatever_characters_it_is_written(text: str) -> None:
    assert kind_of(text) == "backchannel"


@pytest.mark.parametrize("text", ["拿铁和", "奶茶和", "喝", "有什么好喝", "不要喝了", "我要喝拿铁", "一杯不要喝"])
def test_what_only_resembles_it_is_none(text: str) -> None:
    assert kind_of(text) in ("words", "stop")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "停",
            "停停停",
            "屏",
            "等一下",
            "等等",
            "不对",
            "不要了",
            "换一个",
            "好的等一下",
            "不是这个",
            "别说了",
            "我说不要",
            "好了",
            "好了好了",
        ),
        *("wait", "Wait, wait.", "stop", "Hold on", "No.", "No, I'm not", "wait a minute", "okay stop", "never mind"),
    ],
)
def test_whoever_says_stop_is_obeyed(text: str) -> None:
    assert kind_of(text) == "stop"


@pytest.mark.parametrize(
    "text",
    [
        *("我要一杯", "好的再来一杯奶茶", "对我还要一杯", "大杯", "去冰", "两杯", "热的", "四", "听说", "中等", "要"),
        *(
            "I know",
            "two cups",
            "ten",
            "yes and another one",
            "okay how much",
            "notebook",
            "what?",
            "there is no ice",
            "对不起",
        ),
    ],
)
def test_everything_else_is_words(text: str) -> None:
    assert kind_of(text) == "words"


@pytest.mark.timeout(5)
def test_what_is_written_over_and_over_takes_no_longer() -> None:
    assert kind_of("uh huh " * 100) == "backchannel"
    assert kind_of("uh huh " * 100 + "tea") == "words"


@pytest.mark.parametrize("language", ["zh", "en"])
def test_what_is_likely_over_a_reply_is_what_is_told_apart(language: str) -> None:
    kinds = {kind_of(word) for word in LIKELY[language].replace("、", ",").split(",")}
    assert kinds == {"backchannel", "stop"}


YES_AND_NO = ["对", "不要", "不要了", "好的谢谢", "没有了", "就这些", "是的", "No.", "Yes,", "Okay!", "No, thank you."]
NUMBERS = ["要", "两杯", "二", "3", "十二杯", "18块", "two", "Ten!", "20", "Two, please", "three cups"]
CUT_OFF = [
    *("我要", "我要一杯", "两", "再来", "还有", "然后", "那个", "一杯热的"),
    *("and", "the", "I", "with", "I want", "two lattes and", "No, but can you"),
]


@pytest.mark.parametrize("text", YES_AND_NO)
def test_a_bare_yes_or_no_is_a_turn(text: str) -> None:
    assert surely_whole(text, asked=True) == surely_whole(text, asked=False) == SURE


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_answers_a_question_and_may_else_begin_an_order(text: str) -> None:
    assert surely_whole(text, asked=True) == SURE
    assert surely_whole(text, asked=False) == LIKELY_SO


@pytest.mark.parametrize("text", ["嗯", "嗯嗯。", "Mm-hm.", "uh-huh"])
def test_a_hum_may_answer_a_question_and_else_begins_anything(text: str) -> None:
    assert surely_whole(text, asked=True) == LIKELY_SO
    assert surely_whole(text, asked=False) == 0.0


NAMES = "拿铁咖啡、抹茶拿铁、茉莉绿茶、乌龙茶、大杯、一杯少冰的, oolong tea, latte, large, less ice"


@pytest.mark.parametrize(
    "text",
    [
        "乌龙茶",
        "乌隆茶。",
        "拿铁",
        "拿铁吧",
        "绿茶，谢谢",
        "大杯",
        "Latte.",
        "a latte, please",
        "the oolong tea",
        "tea",
        "large",
    ],
)
def test_a_name_alone_is_a_turn(text: str) -> None:
    assert is_name(text, NAMES)
    assert surely_whole(text, asked=True, names=NAMES) == SURE
    assert surely_whole(text, asked=False, names=NAMES) == NAMED
    assert surely_whole(text, asked=True) == 0.0


@pytest.mark.parametrize(
    "text", ["茶", "乌龙", "少冰的", "我要乌龙茶", "拿铁还有", "oolong", "a", "latte and", "less", ""]
)
def test_a_part_of_a_name_or_more_than_one_is_none(text: str) -> None:
    assert not is_name(text, NAMES)
    assert surely_whole(text, asked=True, names=NAMES) == 0.0


@pytest.mark.parametrize("text", ["", "。", "a", *CUT_OFF])
def test_what_was_cut_off_is_not_whole_though_it_is_short(text: str) -> None:
    assert surely_whole(text, asked=True) == surely_whole(text, asked=False) == 0.0


@given(st.lists(st.sampled_from(YES_AND_NO + NUMBERS + ["嗯"]), max_size=3), st.sampled_from(CUT_OFF), st.booleans())
def test_whatever_comes_before_a_cut_off_word_does_not_make_it_whole(said: list[str], last: str, asked: bool) -> None:
    assert surely_whole(" ".join([*said, last]), asked=asked) == 0.0


@given(st.text(max_size=12))
def test_a_question_makes_no_words_less_of_a_turn(text: str) -> None:
    assert 0.0 <= surely_whole(text, asked=False) <= surely_whole(text, asked=True) <= SURE


def test_a_question_ends_in_its_mark() -> None:
    assert asks("您要几杯？")
    assert asks("Anything else? ")
    assert not asks("好的，十八块。")
    assert not asks("")


@pytest.mark.parametrize("kind", ["stop", "backchannel"])
def test_what_is_weighed_over_a_reply_is_of_its_kind(kind: str) -> None:
    assert {kind_of(phrase) for phrases in PHRASES[kind].values() for phrase in phrases.split("|")} == {kind}

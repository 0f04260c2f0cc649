from __future__ import annotations

import pytest

from voice_agent.words import LIKELY, kind_of


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

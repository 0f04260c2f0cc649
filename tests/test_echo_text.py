"""Words that come back from the loudspeaker are told from answers that repeat some of them."""

from __future__ import annotations

import pytest

from voice_agent.echo_text import LEAST_UNITS, is_echo
from voice_agent.engine.protocols import Language


@pytest.mark.parametrize(
    ("heard", "speaking"),
    [
        ("好的少冰珍珠奶茶一杯", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("好的,勺冰針珠奶查一背", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("不好意思,草莓奶心沒有熱等,只能寫正常兵", "不好意思，草莓奶昔没有热的，只能选正常冰。"),
        ("三杯珍珠奶茶都改成去冰半糖", "您的三杯珍珠奶茶都改成去冰半糖了，一共五十四块。"),
        ("您要大杯还是中杯", "好的，您要大杯还是中杯？"),
        ("珍珠奶茶一杯18块", "好的，少冰珍珠奶茶一杯，十八块。"),
    ],
)
def test_mandarin_echoes(heard: str, speaking: str) -> None:
    assert is_echo(heard, speaking, "zh")


@pytest.mark.parametrize(
    ("heard", "speaking"),
    [
        ("大杯", "您要大杯还是中杯？"),
        ("要大杯的", "您要大杯还是中杯？"),
        ("少冰", "少冰还是去冰？"),
        ("珍珠奶茶", "您要珍珠奶茶还是椰果奶茶？"),
        ("我要珍珠奶茶", "您要珍珠奶茶还是椰果奶茶？"),
        ("对少冰珍珠奶茶一杯", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("不要少冰珍珠奶茶", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("等一下换成椰果奶茶", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("再来一杯红豆奶茶大杯", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("可以加珍珠吗？", "有的，黑糖鲜奶二十二块，想加珍珠吗？"),
        ("一共多少钱", "一共五十四块。"),
        ("", "好的，少冰珍珠奶茶一杯，十八块。"),
        ("好的少冰珍珠奶茶一杯", ""),
    ],
)
def test_mandarin_answers(heard: str, speaking: str) -> None:
    assert not is_echo(heard, speaking, "zh")


@pytest.mark.parametrize(
    ("heard", "speaking"),
    [
        ("one pearl milk tea with less ice", "Sure, one pearl milk tea with less ice, eighteen yuan."),
        ("Sure, 1 pearl milk tea with less eyes", "Sure, one pearl milk tea with less ice, eighteen yuan."),
        ("What else would you like?", "Okay, no coconut jelly milk tea. What else would you like?"),
        ("do you want medium or large", "Do you want medium or large?"),
    ],
)
def test_english_echoes(heard: str, speaking: str) -> None:
    assert is_echo(heard, speaking, "en")


@pytest.mark.parametrize(
    ("heard", "speaking"),
    [
        ("less ice", "Less ice or no ice?"),
        ("medium", "Do you want medium or large?"),
        ("a large one please", "Do you want medium or large?"),
        ("I want medium, not large", "Do you want medium or large?"),
        ("yes one pearl milk tea with less ice", "Sure, one pearl milk tea with less ice, eighteen yuan."),
        ("no wait make it a latte", "Sure, one pearl milk tea with less ice, eighteen yuan."),
        ("two taro milk teas with no sugar", "Sure, one pearl milk tea with less ice, eighteen yuan."),
    ],
)
def test_english_answers(heard: str, speaking: str) -> None:
    assert not is_echo(heard, speaking, "en")


@pytest.mark.parametrize(("language", "said"), [("zh", "少冰珍珠奶茶十杯"), ("en", "one pearl milk tea with ice")])
def test_what_is_too_short_may_be_an_answer(language: Language, said: str) -> None:
    pieces = list(said) if language == "zh" else said.split()
    joint = "" if language == "zh" else " "
    least = LEAST_UNITS[language]
    assert is_echo(joint.join(pieces[:least]), said, language)
    assert not is_echo(joint.join(pieces[: least - 1]), said, language)


def test_the_order_of_the_words_counts() -> None:
    assert not is_echo("一杯珍珠奶茶少冰热的", "热的少冰奶茶珍珠一杯", "zh")

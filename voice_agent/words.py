"""What a few words said over a reply mean: nothing, that somebody listens, that the agent is to stop, or more.

A recogniser writes short words by their sound, often in the wrong characters and not quite the right sound: 好的 as
好灯, 行 as 请. Chinese is therefore compared by pinyin without tones; what stops the agent as it sounds, and what lets
it go on with sounds that are easily confused taken for one: -n and -ng, e and en, the plosives and h, j q x.

Some few words are all of a turn by themselves: a yes, a no, a number.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Literal

from pypinyin import lazy_pinyin

__all__ = ["LIKELY", "PHRASES", "Kind", "asks", "is_name", "kind_of", "surely_whole"]

Kind = Literal["none", "backchannel", "stop", "words"]
"""none: no words. backchannel: 嗯, 对, 好的, uh-huh: go on. stop: 停, 等一下, wait: be silent. words: all the rest."""

LIKELY = {
    "zh": "嗯、嗯嗯、哦、啊、对、对对对、好、好的、是、是的、行、没错、明白、知道了、停、等一下、等等、停一下、不对、"
    "不是、不要了、换一个、算了、别说了",
    "en": "Uh-huh, mm-hm, yeah, okay, right, sure, yes, no, wait, stop, hold on, never mind, wait a minute",
}
"""What is likely to be said over a reply, by language: a prompt for the recogniser."""

PHRASES = {
    "stop": {
        "zh": "停|停一下|停停|不对|不是|不要|不要了|不对不对|算了|别说了|慢着|打住|够了",
        "en": "stop|wait|hold on|hang on|no|no, no|wait a minute|cancel|never mind|one moment|wait, wait|stop, stop|"
        "hold on a second",
    },
    "backchannel": {
        "zh": "嗯|嗯嗯|哦|啊|对|对对|对对对|对的|好|好的|好啊|是|是的|行|可以|没错|明白|知道了|没问题|谢谢",
        "en": "mm-hmm|mm|mhm|hmm|uh-huh|yeah|yes|yep|okay|OK|right|sure|I see|got it|oh|ah|great|all right|thanks|"
        "thank you",
    },
}
"""Phrases that are said over a reply to stop it, and by somebody who listens, weighed by their sound.

Not 等一下 and its like: to Whisper a hum is a 等, and these it writes by itself where they are said.
"""

SURE, NAMED, LIKELY_SO = 0.9, 0.75, 0.6
"""Probabilities of a turn that is certainly over, of a name alone, and of what is more likely over than not."""

# Of what stops the agent, what must be all that is said, and what it begins with.
_ALONE = ("停 平 好了", "")
_FIRST = ("不 无对", "no")
_STOPS = (
    "停一 停下 等等 等一 等下 等会 慢着 打住 闭嘴 安静 够了 别说 别讲 别念 不对 不是 不要 错了 算了 "
    "换一个 重来 取消 听我说",
    "wait|stop|hold on|hang on|nope|never mind|cancel|not that|enough|quiet|shut up|excuse me|one moment|"
    "just a moment|one second|just a second",
)
_BACKCHANNELS = (
    "嗯 恩 呃 额 哦 噢 喔 啊 唉 哎 诶 对 对的 对啊 好 好的 好啊 好吧 好嘞 很好 是 是的 是吧 是吗 是啊 行 行吧 "
    "可以 不错 没错 没问题 没事 明白 明白了 知道 知道了 了解 这样 这样啊 原来如此 谢谢",
    "uh|huh|uh huh|uhuh|ha|mm|mm hm|mhm|hm|um|ah|aha|oh|ok|okay|kay|yeah|yea|yep|yup|ya|yes|right|all right|alright|"
    "sure|great|good|fine|cool|nice|perfect|exactly|indeed|i see|got it|gotcha|of course|sounds good|no problem|"
    "that s right|thanks|thank you",
)
# What Whisper writes for short sounds that are no words.
_INVENTED = (
    "等 拜拜 再见 谢谢观看 谢谢大家 字幕",
    "you|bye|bye bye|thank you for watching|thanks for watching|the end",
)

# What answers by itself, asked or not; and what does if somebody asked, and may else be the beginning of more.
_ANSWERS = (
    "对 对的 对啊 不对 不 不要 不要了 不用 不用了 没有 没有了 没了 不是 是 是的 是啊 好 好的 好啊 好吧 好了 行 "
    "可以 可以的 没错 没问题 就这样 就这些 就这些了 谢谢 要的 够了",
    "no|nope|no thanks|no thank you|nah|yes|yeah|yep|yup|ok|okay|sure|please|yes please|correct|exactly|of course|"
    "that s all|that s it|that s right|nothing else|nothing more|thanks|thank you|right|all right",
)
_HALF_ANSWERS = ("要", "good|fine|great")
_HUMS = ("嗯 哦", "mm|mm hm|mhm|hm|uh huh|ah|oh")
_NUMBER = re.compile(
    r"(?!.*两$)[零一二两三四五六七八九十百半\d]+\s*[杯个份号块元]?|"
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|\d+)(?: cups?| of them)?(?: please)?"
)
_MARKS = re.compile(r"[\s。，,.!！?？、…~—-]+")

_POLITE = re.compile(r"^(?:a |an |the )|(?:please |ba |xie xie )$")

# One syllable or two and a breathed one, once or more: 嗯哼, 任何, 不要喝, 越喝越喝, and 约会. A last 和 is an "and".
_BREATHED = re.compile(r"(?:(?:[a-z]+ ){1,2}(?:he|ha|heng|hen) ){1,3}|yue hui ")

_CONFUSED = (
    (r"ng\b", "n"),
    (r"\b[bptgkh](?=[aeiou])", "d"),
    (r"\b[jq](?=[iu])", "x"),
    (r"\bch", "zh"),
    (r"(?<=[^\Waeiou])en\b", "e"),
)


def kind_of(text: str) -> Kind:
    """What `text`, Mandarin or English, means when it is said over a reply."""
    sounds = _sounds(text)
    if not sounds or sounds in _listed(_INVENTED):
        return "none"
    if _made_of(_BACKCHANNELS).fullmatch(sounds):
        return "backchannel"
    if _is_breathed(text, sounds):
        return "backchannel"
    if _stop().search(sounds):
        return "stop"
    return "backchannel" if _made_of(_BACKCHANNELS, loosely=True).fullmatch(_loosened(sounds)) else "words"


def _is_breathed(text: str, sounds: str) -> bool:
    """Whether this is how a recogniser writes uh-huh and mm-hm in Chinese characters."""
    characters = _MARKS.sub("", text)
    chinese = all("\u4e00" <= character <= "\u9fff" for character in characters)
    return chinese and not characters.endswith("和") and _BREATHED.fullmatch(sounds) is not None


def surely_whole(text: str, *, asked: bool, names: str = "") -> float:
    """How probable it is at least that these words are all of a turn; 0: the words alone do not tell.

    `asked`: they follow a question of the agent's. Then a bare yes, no or number is its answer, and 嗯 likely so;
    without one a number and 要 may be the beginning of an order, and 嗯 that of anything. `names`: what can be ordered
    by naming it (`is_name`).
    """
    sounds = _sounds(text)
    if not sounds:
        return 0.0
    if _made_of(_ANSWERS).fullmatch(sounds):
        return SURE
    if is_name(text, names):
        return SURE if asked else NAMED
    if _made_of(_HALF_ANSWERS).fullmatch(sounds) or _NUMBER.fullmatch(_MARKS.sub(" ", text.lower()).strip()):
        return SURE if asked else LIKELY_SO
    return LIKELY_SO if asked and _made_of(_HUMS).fullmatch(sounds) else 0.0


def is_name(text: str, names: str) -> bool:
    """Whether `text` is one of `names`, a list such as a menu's, or the end of one that it stands for: 拿铁, 绿茶, tea.

    By sound, and with what goes with a name: 吧, 谢谢, a, the, please. What ends in 的 waits for its noun.
    """
    sounds = _POLITE.sub("", _sounds(text))
    return bool(sounds) and sounds in _name_ends(names)


def asks(text: str) -> bool:
    """Whether what the agent said ends in a question."""
    return text.rstrip().endswith(("?", "？"))


def _sounds(text: str) -> str:
    """Syllables and English words, each followed by a space; a letter that is written more than once counts once."""
    spelt = " ".join(lazy_pinyin(re.sub(r"[x×]\d+", " ", text.lower())))
    return "".join(f"{sound} " for sound in re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])\1+", r"\1", spelt)))


def _loosened(sounds: str) -> str:
    """Sounds that a recogniser takes for one another, as one."""
    for confused, one in _CONFUSED:
        sounds = re.sub(confused, one, sounds)
    return sounds


@lru_cache(maxsize=16)
def _name_ends(names: str) -> frozenset[str]:
    """The sounds of each name, and of its ends of a word, or of two syllables, and more."""
    found = set()
    for name in re.split(r"[、，,]\s*", names):
        if name and not name.endswith("的"):
            units = _sounds(name).split()
            least = 1 if name.isascii() else 2
            found |= {" ".join(units[at:]) + " " for at in range(len(units) - least + 1)}
    return frozenset(found)


@cache
def _listed(phrases: tuple[str, str]) -> list[str]:
    mandarin, english = phrases
    return [_sounds(phrase) for phrase in (*mandarin.split(), *english.split("|")) if phrase]


@cache
def _made_of(phrases: tuple[str, str], loosely: bool = False) -> re.Pattern[str]:
    """Matches any number of these phrases, one after the other, the longest first and without a second thought."""
    listed = [_loosened(phrase) if loosely else phrase for phrase in _listed(phrases)]
    return re.compile(f"(?:{'|'.join(sorted(listed, key=len, reverse=True))})*+")


@cache
def _stop() -> re.Pattern[str]:
    """Matches where a phrase to stop begins."""
    anywhere, alone, first = ("|".join(_listed(phrases)) for phrases in (_STOPS, _ALONE, _FIRST))
    return re.compile(rf"(?:^|(?<= ))(?:{anywhere})|^(?:{alone})+$|^(?:{first})")

import re

import numpy as np
import pytest

from tests.recordings import recording
from voice_agent.whisper import (
    Recognizer,
    RecognizerConfig,
    Transcript,
    _Draft,
    _Sound,
    _voiced_seconds,
    check_language,
)
from voice_agent.whisper_text import (
    begins_foreign,
    condensed,
    rhymes,
    sounds_like,
    tidy,
    units,
    unrolled,
)

MENU = "珍珠奶茶、椰果奶茶、柠檬红茶、抹茶拿铁、美式咖啡、杨枝甘露、少冰、去冰、半糖、三分糖、珍珠、布丁、大杯、中杯"


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer(RecognizerConfig(parallel=1))


def heard(recognizer: Recognizer, name: str, language: str | None, prompt: str = "") -> Transcript:
    pcm = recording(name).astype(np.float32) / 32768
    return recognizer.transcribe(pcm, language, prompt)  # type: ignore[arg-type]


def draft(text: str, logprob: float, no_speech: float = 0.1, looped: bool = False) -> _Draft:
    return _Draft(text, logprob, no_speech, looped)


def errors(expected: str, got: str) -> float:
    """Edit distance of the letters, as a share of the expected ones."""
    one, other = (re.sub(r"\W", "", text).lower() for text in (expected, got))
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1] / len(one)


@pytest.mark.parametrize(
    ("name", "language", "text", "bound"),
    [
        ("zh_song.wav", "zh", "换一首歌", 0.0),
        ("zh_news.wav", "zh", "甚至出现交易几乎停滞的情况", 0.16),
        ("zh_welcome.wav", "zh", "欢迎大家来体验达摩院推出的语音识别模型", 0.25),
        ("zh_complete.wav", "zh", "你有没有发生过一些童年趣事呀", 0.4),
        ("en_spk1.wav", "en", "the child almost hurt the small dog", 0.1),
        ("en_jfk.flac", "en", "And so my fellow Americans ask not what your country can do for you "
         "ask what you can do for your country", 0.05),
    ],
)  # fmt: skip
def test_people_are_understood(recognizer: Recognizer, name: str, language: str, text: str, bound: float) -> None:
    for prompt in ("", MENU if language == "zh" else ""):
        transcript = heard(recognizer, name, language, prompt)
        assert transcript.verdict == "accepted"
        assert errors(text, transcript.text) <= bound, transcript


@pytest.mark.parametrize(
    ("name", "language", "words"),
    [("order_zh.flac", "zh", "珍珠奶茶"), ("order_en.flac", "en", "pearl milk tea with less ice")],
)
def test_the_language_is_detected_and_the_prompt_is_of_that_language(
    recognizer: Recognizer, name: str, language: str, words: str
) -> None:
    pcm = recording(name).astype(np.float32) / 32768
    prompt = {"zh": MENU, "en": "pearl milk tea, latte, lemon black tea, less ice, no sugar"}
    transcript = recognizer.transcribe(pcm, None, prompt)
    assert transcript.language == language
    assert words in transcript.text.lower()


@pytest.mark.parametrize(
    ("zh", "en", "likely", "order"),
    [
        (0.99, 0.001, "en", ["zh"]),
        (0.02, 0.93, "zh", ["en"]),
        (0.51, 0.05, "en", ["zh"]),
        (0.57, 0.23, "zh", ["zh", "en"]),
        (0.00, 0.10, "zh", ["en", "zh"]),
        (0.10, 0.16, "zh", ["zh", "en"]),
        (0.10, 0.16, "en", ["en", "zh"]),
        (0.20, 0.08, "en", ["zh", "en"]),
    ],
)
def test_a_language_is_taken_at_once_where_it_is_clear_and_both_are_tried_where_it_is_not(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch, zh: float, en: float, likely: str, order: list[str]
) -> None:
    class Fixed:
        def detect_language(self, encoded: object) -> list[list[tuple[str, float]]]:
            return [[("<|ja|>", 1 - zh - en), ("<|zh|>", zh), ("<|en|>", en)]]

    monkeypatch.setattr(recognizer, "_model", Fixed())
    assert list(recognizer._detect(_Sound(None, None), likely)) == order  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("zh", "en", "weights", "language", "tried"),
    [
        (draft("一杯", -0.3), draft("one taro tea", -0.4), (-0.1, -4.0), "zh", ["zh"]),
        (draft("一杯", -0.4, looped=True), draft("one taro tea", -0.4), (-1.4, -1.6), "en", ["zh", "en"]),
        (draft("一杯", -0.6, looped=True), draft("one taro tea", -0.7), (-1.4, -1.6), "en", ["zh", "en"]),
        (draft("二沙茶", -0.4), draft("two hot lattes", -0.7), (-4.0, -1.0), "en", ["en"]),
        (draft("芋圆那杯", -0.7), draft("you yen nabe", -1.5), (-4.0, -1.0), "zh", ["en", "zh"]),
        (draft("声喽请", -0.9), draft("seem again please", -1.1), (-4.0, -1.0), "en", ["en", "zh"]),
        (draft("一杯" * 20, -0.3), draft("three lattes", -0.9), (-1.0, -1.2), "en", ["zh", "en"]),
    ],
)
def test_a_doubtful_language_is_that_of_the_likelier_text(
    recognizer: Recognizer,
    monkeypatch: pytest.MonkeyPatch,
    zh: _Draft,
    en: _Draft,
    weights: tuple[float, float],
    language: str,
    tried: list[str],
) -> None:
    decoded: list[str] = []

    before = Transcript("one", "en", 1.0, tokens=(1, 2))

    def decode(
        encoded: object, language: str, prompt: str, seconds: float, voiced: float, tokens: tuple[int, ...]
    ) -> _Draft:
        assert tokens == ((1, 2) if language == "en" else ())
        assert prompt == {"zh": "奶茶", "en": "tea"}[language]
        decoded.append(language)
        return {"zh": zh, "en": en}[language]

    monkeypatch.setattr(recognizer, "_decode", decode)
    languages = dict(sorted(zip(("zh", "en"), weights, strict=True), key=lambda entry: -entry[1]))
    words = {"zh": "奶茶", "en": "tea"}
    got, chosen = recognizer._first_look(None, languages, words, 2.0, 1.5, before)  # type: ignore[arg-type]
    assert (got, chosen) == (language, {"zh": zh, "en": en}[language])
    assert decoded == tried


def test_traditional_script_comes_out_simplified(recognizer: Recognizer) -> None:
    assert heard(recognizer, "zh_song.wav", "zh").text == "换一首歌"


@pytest.mark.parametrize("name", ["noise_room.wav", "cough.wav", "burst_dog.wav", "burst_phone.wav"])
@pytest.mark.parametrize("language", ["zh", None])
def test_noises_give_no_text(recognizer: Recognizer, name: str, language: str | None) -> None:
    transcript = heard(recognizer, name, language, MENU)
    assert transcript.text == "", transcript
    assert transcript.verdict != "accepted"


def test_silence_is_not_even_looked_at(recognizer: Recognizer) -> None:
    for pcm in (np.zeros(16_000, np.float32), np.zeros(0, np.float32), np.full(16_000, 1e-5, np.float32)):
        transcript = recognizer.transcribe(pcm, "zh", MENU)
        assert (transcript.text, transcript.verdict) == ("", "quiet")
        assert transcript.seconds == len(pcm) / 16_000


def test_wrong_input_is_refused(recognizer: Recognizer) -> None:
    with pytest.raises(ValueError, match="expected a language of zh, en or none to detect it, got 'cn'"):
        recognizer.transcribe(np.zeros(1, np.float32), "cn", "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected float32\[T\], got int16\[1\]"):
        recognizer.transcribe(np.zeros(1, np.int16), "zh", "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected at most 27.5 s of audio, got 28.0 s"):
        recognizer.transcribe(np.ones(28 * 16_000, np.float32), "zh", "")
    with pytest.raises(ValueError, match="extra"):
        RecognizerConfig.model_validate({"beam": 5})
    check_language(None)


def test_no_other_script_can_be_written(recognizer: Recognizer) -> None:
    tokenizer = recognizer._tokenizer
    for text in ("これはペンです", "감사합니다", "спасибо", "ありがとう"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert set(ids) & set(recognizer._suppress), text
    for text in ("我要一杯 latte 加 oat milk，三分糖。", "Café, 18 yuan – one please!", "不要了？"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert not set(ids) & set(recognizer._suppress) - set(tokenizer.encode("“¥", add_special_tokens=False).ids), (
            text
        )
    assert not begins_foreign("。".encode()[:2])
    assert begins_foreign("ア".encode()[:2])


@pytest.mark.parametrize(
    ("text", "fluent", "once"),
    [
        ("鹅鹅鹅鹅鹅鹅鹅鹅", 99, "鹅"),
        ("1-3-0-0-0-0-0-0-0", 99, "1-3-0"),
        ("我要珍珠奶茶，我要珍珠奶茶，我要珍珠奶茶", 99, "我要珍珠奶茶"),
        ("再加一杯热可可。再加一杯热可可。", 9, "再加一杯热可可"),
        ("再加一杯热可可。再加一杯热可可。", 16, "再加一杯热可可。再加一杯热可可。"),
        ("一杯珍珠奶茶，一杯椰果奶茶", 9, "一杯珍珠奶茶，一杯椰果奶茶"),
        ("布丁、布丁、布丁", 99, "布丁"),
        ("不不不", 99, "不不不"),
        ("不不不，不要了", 9, "不不不，不要了"),
    ],
)
def test_what_is_written_over_and_over_is_cut(text: str, fluent: float, once: str) -> None:
    assert unrolled(text, fluent) == once


def test_spoken_length_and_sound() -> None:
    assert units("我要18块") == 5
    assert units("one pearl milk tea, hmm") == 6
    assert sounds_like("少冰的珍珠奶茶", "小冰的珍珠海茶")
    assert not sounds_like("三分糖", "第一名")
    assert sounds_like("less ice please", "less eyes please")
    assert rhymes("停", "行")
    assert rhymes("stop", "top")
    assert not rhymes("停", "听说")
    assert not rhymes("对", "叶")
    assert not rhymes("", "行")
    assert tidy(" 《语音》 ok\ufffd ") == "语音 ok"
    loud = np.concatenate([np.zeros(8000), np.ones(8000), np.full(8000, 1e-3)]).astype(np.float32)
    assert _voiced_seconds(loud, -60) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("prompted", "plain", "text", "verdict"),
    [
        (draft("少冰的珍珠奶茶", -0.7), draft("小冰的珍珠海茶", -0.8), "少冰的珍珠奶茶", "accepted"),
        (draft("三分糖", -0.9), draft("第一名", -2.8), "第一名", "unlikely"),
        (draft("三分糖", -0.9), draft("马上停下", -0.4), "马上停下", "accepted"),
        (draft("椰果", -0.4, looped=True), draft("椰果", -0.4, looped=True), "椰果", "repeated"),
        (draft("三分糖", -0.9), draft("谢谢观看", -0.8, no_speech=0.8), "谢谢观看", "no_speech"),
        (draft("再来一杯热可可", -0.3, looped=True), draft("再来一杯热可可", -0.3), "再来一杯热可可", "accepted"),
        (draft("我要一杯珍珠奶茶、椰果", -0.3), draft("我要一杯", -0.5), "我要一杯", "accepted"),
        (draft("我要一杯杨枝甘露", -0.3), draft("算了", -0.4, looped=True), "我要一杯杨枝甘露", "accepted"),
        (draft("椰果", -0.3, no_speech=0.5), draft("啊", -0.4, looped=True), "啊", "repeated"),
    ],
)
def test_words_that_only_the_prompt_explains_are_not_believed(
    recognizer: Recognizer, prompted: _Draft, plain: _Draft, text: str, verdict: str
) -> None:
    got, why = recognizer._compare(prompted, plain, voiced=2.0)
    assert (got.text, why) == (text, verdict)


@pytest.mark.parametrize(
    ("plain", "text"),
    [(draft("行", -0.9), "停"), (draft("行", -1.8), "停"), (draft("叮", -2.4), "叮"), (draft("对", -1.0), "对")],
)
def test_a_word_whose_rhyme_alone_is_heard_is_the_prompt_s(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch, plain: _Draft, text: str
) -> None:
    """As 停 over a reply was heard twice in six calls: with the prompt 停, without it 行, and the reply went on."""
    monkeypatch.setattr(recognizer, "_decode", lambda *args: plain if args[2] == "" else draft("停", -1.2))
    monkeypatch.setattr(recognizer, "_is_voice", lambda pcm: True)
    pcm = np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)
    assert recognizer.transcribe(pcm, "zh", "停、行").text == text


@pytest.mark.parametrize(
    ("prompted", "plain", "voiced", "believed"),
    [
        (draft("不对", -0.7), draft("无电", -2.9), 0.4, True),
        (draft("不对", -0.7), draft("无电", -2.9), 0.8, False),
        (draft("不对", -1.2), draft("无电", -2.9), 0.4, False),
        (draft("不对", -0.7, no_speech=0.4), draft("无电", -2.9), 0.4, False),
        (draft("不对", -0.7, looped=True), draft("无电", -2.9), 0.4, False),
        (draft("三分糖", -0.9), draft("第一名", -2.4), 0.4, False),
    ],
)
def test_one_word_of_the_prompt_is_believed_where_nothing_else_is_heard(
    recognizer: Recognizer, prompted: _Draft, plain: _Draft, voiced: float, believed: bool
) -> None:
    assert recognizer._is_one_word(prompted, plain, voiced) == believed


def test_more_words_than_anybody_can_say_are_not_believed(recognizer: Recognizer) -> None:
    assert recognizer._judge(draft("我要一杯少冰的珍珠奶茶", -0.2), voiced=0.3, prompted=False) == "too_dense"
    assert recognizer._judge(draft("我要一杯少冰的珍珠奶茶", -0.2), voiced=2.0, prompted=False) == "accepted"


def test_a_long_prompt_loses_what_other_entries_contain(recognizer: Recognizer) -> None:
    assert condensed("珍珠奶茶、珍珠、少冰、奶茶") == "珍珠奶茶、少冰"
    assert condensed("matcha latte, latte, tea") == "matcha latte, tea"
    assert len(recognizer._prompt_ids("珍珠奶茶、" * 200)) < 10
    assert len(recognizer._prompt_ids("，".join(chr(0x4E00 + n) for n in range(400)))) == 223
    for number in range(40):
        recognizer._prompt_ids(f"茶{number}")
    assert len(recognizer._prompts) <= 16

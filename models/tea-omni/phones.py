"""English and Mandarin phones for tea-omni's talker, and how a reply is cut into tokens that carry them.

English phones are the symbols that Kokoro's acoustic model was trained on (IPA with single letters for diphthongs
and affricates), taken from espeak-ng word by word, so that a word sounds the same wherever it stands. A vowel
carries its stress as a suffix: `2` primary, `1` secondary, none unstressed. In the shared inventory every phone
has its language before it: `en/æ2`, `zh/iang4`. Pauses have one phone a kind of punctuation, shared by both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TOKEN_EN = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*|[^\sA-Za-z]")

# Stronger marks first; a mark that is not here is not spoken and makes no pause.
PAUSES = {
    ".": "sil/.", "。": "sil/.", "…": "sil/.",
    "!": "sil/!", "！": "sil/!",
    "?": "sil/?", "？": "sil/?",
    ",": "sil/,", "，": "sil/,", ";": "sil/,", "；": "sil/,", ":": "sil/,", "：": "sil/,", "、": "sil/,",
}  # fmt: skip
EDGE = "sil/edge"

# Words whose form in running speech is not the one espeak-ng gives them alone.
WEAK_FORMS = {
    "a": "ə", "an": "ən", "the": "ðə", "to": "tə", "of": "əv", "and": "ænd", "or": "ɔɹ", "for": "fɔɹ",
    "from": "fɹʌm", "at": "æt", "as": "æz", "is": "ɪz", "are": "ɑɹ", "was": "wʌz", "be": "bi", "been": "bɪn",
    "in": "ɪn", "on": "ɔn", "it": "ɪt", "its": "ɪts", "it's": "ɪts", "that's": "ðæts", "we": "wi", "he": "hi",
    "she": "ʃi", "me": "mi", "you": "ju", "your": "jʊɹ", "my": "mI", "i": "I", "i'm": "Im", "i'll": "Il",
    "that": "ðæt", "this": "ðɪs", "with": "wɪð", "can": "kæn", "could": "kʊd", "would": "wʊd", "will": "wɪl",
    "do": "du", "does": "dʌz", "have": "hæv", "has": "hæz", "had": "hæd", "but": "bʌt", "so": "sO", "if": "ɪf",
    "by": "bI", "our": "Wəɹ", "us": "ʌs", "them": "ðɛm", "they": "ðA", "there": "ðɛɹ", "what": "wʌt",
    "one": "wˈʌn", "zero": "zˈɪɹO", "yuan": "juˈɑn", "pomelo": "pˈɑməlO", "kumquat": "kˈʌmkwɑt",
}  # fmt: skip

# espeak-ng's IPA for American English, rewritten to the acoustic model's symbols. Order matters.
_REWRITES = (
    ("e^ɪ", "A"), ("a^ɪ", "I"), ("a^ʊ", "W"), ("o^ʊ", "O"), ("ɔ^ɪ", "Y"), ("d^ʒ", "ʤ"), ("t^ʃ", "ʧ"),
    ("eɪ", "A"), ("aɪ", "I"), ("aʊ", "W"), ("oʊ", "O"), ("ɔɪ", "Y"), ("dʒ", "ʤ"), ("tʃ", "ʧ"),
    ("^", ""), ("ʲ", ""), ("ʔˌn̩", "tᵊn"), ("ʔn", "tᵊn"), ("ʔ", "t"), ("n̩", "ᵊn"), ("l̩", "ᵊl"),
    ("ɚɹ", "əɹ"), ("ɚ", "əɹ"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("əl", "ᵊl"), ("r", "ɹ"), ("ɐ", "ə"), ("ɬ", "l"),
    ("x", "k"), ("ç", "k"), ("ː", ""), ("̃", ""), ("̩", ""), ("ᵻ", "ɪ"), ("e", "A"), ("o", "ɔ"), ("ᵊᵊ", "ᵊ"),
)  # fmt: skip
VOWELS_EN = "AIOWYaiuæɑɒɔəɛɜɪʊʌᵊ"
CONSONANTS_EN = "bdfhjklmnpstvwzðŋɡɹɾʃʒʤʧθ"


def english_tokens(text: str) -> list[str]:
    """Words (with their apostrophes) and single marks of an English reply, in order."""
    return TOKEN_EN.findall(text)


class EnglishLexicon:
    """Words to phones, through espeak-ng (a recipe's tool: nothing of it is needed to run the agent)."""

    def __init__(self) -> None:
        import espeakng_loader
        from phonemizer.backend import EspeakBackend
        from phonemizer.backend.espeak.wrapper import EspeakWrapper

        EspeakWrapper.set_library(espeakng_loader.get_library_path())
        EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
        self._espeak = EspeakBackend("en-us", with_stress=True, tie="^", preserve_punctuation=False)
        self._ipa: dict[str, str] = dict(WEAK_FORMS)

    def symbols(self, word: str) -> str:
        """The word in the acoustic model's symbols, stress marks before their vowels; "" if it has no sound."""
        key = word.lower()
        if key not in self._ipa:
            spoken = self._espeak.phonemize([key], strip=True)[0].replace(" ", "")
            for old, new in _REWRITES:
                spoken = spoken.replace(old, new)
            unknown = set(spoken) - set(VOWELS_EN + CONSONANTS_EN + "ˈˌ")
            if unknown:
                raise ValueError(f"expected known IPA symbols for {word!r}, got {sorted(unknown)} in {spoken!r}")
            self._ipa[key] = spoken
        return self._ipa[key]

    def phones(self, word: str) -> list[str]:
        """The word's phones without a language prefix, such as ["m", "ɪ2", "l", "k"]."""
        return split_symbols(self.symbols(word))


def split_symbols(symbols: str) -> list[str]:
    """Symbols with stress marks to phones with stress suffixes; a mark counts for the next vowel."""
    phones: list[str] = []
    stress = ""
    for symbol in symbols:
        if symbol in "ˈˌ":
            stress = "2" if symbol == "ˈ" else "1"
        elif symbol in VOWELS_EN:
            phones.append(symbol + stress)
            stress = ""
        else:
            phones.append(symbol)
    return phones


def inventory(spoken: Iterable[str]) -> list[str]:
    """All phones in a fixed order: padding first, then the pauses, then the rest sorted."""
    pauses = [EDGE, *dict.fromkeys(PAUSES.values())]
    return ["pad", *pauses, *sorted(set(spoken) - set(pauses) - {"pad"})]


# Readings that the teacher gives otherwise than pypinyin, or that pypinyin takes from a phrase that is not meant.
_READINGS_ZH = {"这个": ["zhe4", "ge4"], "那个": ["na4", "ge4"], "点了": ["dian3", "le5"]}


def mandarin_phones(text: str) -> list[list[str]]:
    """[initial, final with tone] of every character of a Mandarin text, marks included (as []), sandhi applied.

    `^` is the empty initial. Needs no teacher: the readings are pypinyin's, with the teacher's corrections.
    """
    from pypinyin import Style, lazy_pinyin
    from pypinyin.contrib.tone_convert import to_finals_tone3, to_initials
    from teacher_zh import READINGS, sandhi

    spoken: list[list[str]] = [[] for _ in text]
    for clause in re.finditer("[\u4e00-\u9fff]+", text):
        characters = clause.group()
        pinyin = lazy_pinyin(characters, style=Style.TONE3, neutral_tone_with_five=True)
        for phrase, reading in {**READINGS, **_READINGS_ZH}.items():
            for found in re.finditer(phrase, characters):
                pinyin[found.start() : found.end()] = reading
        for offset, syllable in enumerate(sandhi(characters, pinyin)):
            initial = to_initials(syllable, strict=True) or "^"
            final = to_finals_tone3(syllable, strict=True, neutral_tone_with_five=True)
            if final[:-1] == "i" and initial in ("z", "c", "s"):
                final = "ii" + final[-1]
            elif final[:-1] == "i" and initial in ("zh", "ch", "sh", "r"):
                final = "iii" + final[-1]
            spoken[clause.start() + offset] = [initial, final.replace("ü", "v")]
    for index, character in enumerate(text):
        if character == "嗯":  # has no vowel in pinyin, one in the teacher's voice
            spoken[index] = ["^", "en2"]
    return spoken

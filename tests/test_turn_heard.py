"""Sounds over a reply, through the real voice detector and recogniser, on a virtual clock.

The recogniser takes as long as it takes; on the clock each of its jobs takes `JOB_MS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import soxr
import torch

import voice_agent.bench
from tests.recordings import SHARED, recording
from voice_agent.asr import AsrConfig, _with_likely
from voice_agent.engine.protocols import Language
from voice_agent.turn import SAMPLES_PER_MS as MS
from voice_agent.turn import Action, TurnConfig, TurnPolicy
from voice_agent.vad import SileroModel, StreamingVad, VadConfig, VadEvent
from voice_agent.whisper import Prompt, Recognizer, RecognizerConfig
from voice_agent.words import LIKELY, kind_of

SOUNDS = Path(voice_agent.bench.__file__).parent / "library" / "sounds"
BEFORE_MS, PRE_ROLL_MS, JOB_MS = 300, 200, 200
MENU = {"zh": "珍珠奶茶、柠檬红茶、抹茶拿铁、少冰、半糖、大杯", "en": "pearl milk tea, latte, less ice, large"}
BACKCHANNELS = [
    *("mm-zh", "mm-high-zh", "mm-mm-zh", "mm-mm-high-zh", "oh-zh", "right-zh", "right-high-zh", "good-zh"),
    *("uh-huh", "uh-huh-low", "hmm", "okay", "okay-low", "right-en"),
]
VNNI = torch.cpu.get_capabilities().get("avx512_vnni", False)
CALLERS_DB = -16.0
"""Level of the callers in the library, by the loudest quarter of a second."""


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer(RecognizerConfig(parallel=1))


@pytest.fixture(scope="module")
def silero() -> SileroModel:
    return SileroModel()


@dataclass
class Held:
    """A reply that is heard while a sound comes, and what is done with it. Times in samples from the sound's start."""

    pcm: npt.NDArray[np.int16]
    recognizer: Recognizer
    silero: SileroModel
    likely: Language = "zh"
    done: list[tuple[str, int]] = field(default_factory=list)
    begun: int | None = None
    heard_to: int = 0
    jobs: list[tuple[int, int, Prompt]] = field(default_factory=list)
    """Of the recogniser: when each will be done, up to where it hears, and with which prompt."""

    def run(self) -> list[tuple[str, int]]:
        policy = TurnPolicy(TurnConfig())
        self.learn_level(policy)
        policy.reply_began()
        policy.reply_audible()
        vad = StreamingVad(VadConfig(), self.silero)
        silence = np.zeros(BEFORE_MS * MS, np.int16)
        audio = np.concatenate([silence, self.pcm, np.tile(silence, 5)])
        audio += np.random.default_rng(1).normal(0, 6, len(audio)).astype(np.int16)
        for now in range(320, len(audio) + 1, 320):
            for event in vad.push(audio[now - 320 : now]):
                self.obey(policy.on(event), now)
            if self.begun is not None and self.jobs and self.jobs[0][0] <= now:
                _, self.heard_to, prompt = self.jobs.pop(0)
                said = audio[self.begun : self.heard_to].astype(np.float32) / np.float32(32768)
                heard = self.recognizer.transcribe(said, None, prompt, self.likely, over_reply=prompt is LIKELY)
                self.obey(policy.words(heard.text, self.heard_to, doubted=heard.raw), now)
            self.begin_partial(now)
        return [(kind, (at - BEFORE_MS * MS) // MS) for kind, at in self.done]

    def learn_level(self, policy: TurnPolicy) -> None:
        """The caller has said something before."""
        end = -30_000
        for window in range(1, 31):
            policy.on(VadEvent("onset" if window == 1 else "speech", end + window * 512, CALLERS_DB))
        policy.on(VadEvent("offset", end + 30 * 512))
        (*_, last) = policy.on(VadEvent("silence", 0))
        assert last.kind == "commit"

    def obey(self, actions: list[Action], now: int) -> None:
        for action in actions:
            if action.kind == "speech_started":
                self.begun, self.heard_to = max(0, action.at - PRE_ROLL_MS * MS), 0
            elif action.kind == "speculate":
                # As over a held reply: what decides is heard first.
                prompts = (LIKELY, _with_likely(MENU)) if self.heard_to < now else (_with_likely(MENU),)
                due = self.jobs[-1][0] if self.jobs else now
                for prompt in prompts:
                    due += JOB_MS * MS
                    self.jobs.append((due, now, prompt))
            elif action.kind in ("commit", "discard"):
                self.begun, self.jobs = None, []
            elif action.kind in ("pause", "resume", "interrupt"):
                self.done.append((action.kind, now))

    def begin_partial(self, now: int) -> None:
        if self.begun is None or self.jobs or self.done[-1][0] != "pause":
            return
        config = AsrConfig()
        new = now - (self.heard_to or self.begun)
        if new >= (config.urgent_every_ms if self.heard_to else config.urgent_first_ms) * MS:
            self.jobs.append((now + JOB_MS * MS, now, LIKELY))


def library(name: str, gain_db: float = 0.0) -> npt.NDArray[np.int16]:
    pcm, rate = soundfile.read(SOUNDS / f"{name}.flac", dtype="float32")
    return np.asarray(soxr.resample(pcm, rate, 16_000) * 32767 * 10 ** (gain_db / 20), np.int16)


@pytest.mark.parametrize(
    "name",
    [
        *("stop-zh", "no-more-zh", "wait-please-zh", "stop-en", "wait-en", "hold-on-en", "i-want-zh"),
        pytest.param(
            "not-right-zh", marks=pytest.mark.skipif(not VNNI, reason="heard without VNNI in 4 of 12 alignments")
        ),
    ],
)
def test_an_interruption_cancels_the_reply(recognizer: Recognizer, silero: SileroModel, name: str) -> None:
    """Case B06, what stops the reply."""
    done = Held(library(name), recognizer, silero).run()
    assert [kind for kind, _ in done] == ["pause", "interrupt"]
    assert done[0][1] <= 200
    assert done[1][1] <= 900


@pytest.mark.parametrize("name", BACKCHANNELS)
def test_a_backchannel_lets_it_go_on(recognizer: Recognizer, silero: SileroModel, name: str) -> None:
    """Case B06, what does not; both languages, several voices."""
    pcm = library(name)
    done = Held(pcm, recognizer, silero).run()
    assert [kind for kind, _ in done] == ["pause", "resume"]
    assert done[1][1] <= len(pcm) // MS + 400


def test_a_hum_is_not_weighed_as_a_word_to_stop(recognizer: Recognizer) -> None:
    """Whisper writes a hum as 等去, and 等等 is the likeliest phrase then; that ended replies."""
    for place in range(8):
        pcm = np.concatenate([np.zeros(3200 + place * 43, np.int16), library("mm-zh")]).astype(np.float32)
        pcm += np.random.default_rng(place).normal(0, 6, len(pcm))
        heard = recognizer.transcribe((pcm / 32768).astype(np.float32), None, LIKELY, "zh", over_reply=True)
        assert kind_of(heard.text) != "stop" or heard.text == heard.raw, (place, heard.text, heard.raw)


@pytest.mark.parametrize("name", ["cough", "knock", "ring"])
def test_a_noise_does_not_even_pause_it(recognizer: Recognizer, silero: SileroModel, name: str) -> None:
    assert Held(library(name), recognizer, silero).run() == []


def test_a_talker_far_below_the_caller_does_not_cancel_it(recognizer: Recognizer, silero: SileroModel) -> None:
    done = Held(library("other-talker-zh", gain_db=-15.0), recognizer, silero).run()
    assert {kind for kind, _ in done} == {"pause", "resume"}
    assert done[-1][0] == "resume"


@pytest.mark.skipif(not SHARED.exists(), reason="needs people's recordings, which are not part of the project")
@pytest.mark.parametrize(("name", "last"), [("zh_backchannel.wav", "resume"), ("zh_wait.wav", "interrupt")])
def test_people_are_told_apart(recognizer: Recognizer, silero: SileroModel, name: str, last: str) -> None:
    done = Held(recording(name), recognizer, silero).run()
    assert done[-1][0] == last

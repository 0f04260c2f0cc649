from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recordings import levelled, recording
from voice_agent.vad import WINDOW, SileroModel, SileroState, StreamingVad, VadConfig, VadEvent, _Endpointer

MS = 16


@pytest.fixture(scope="module")
def silero() -> SileroModel:
    return SileroModel()


class LoudIsVoice(SileroModel):
    """Instead of Silero: a window is voiced as far as it is loud. Counts the windows that it was shown."""

    def __init__(self) -> None:
        self.shown: list[npt.NDArray[np.int16]] = []

    def step(self, state: SileroState, window: npt.NDArray[np.int16]) -> float:
        assert window.shape == (WINDOW,)
        self.shown.append(window)
        return float(min(1.0, np.abs(window.astype(np.float64)).mean() / 2000))


def tone(ms: int, level: float = 6000) -> npt.NDArray[np.int16]:
    """A buzz that webrtcvad takes for a voice."""
    time_s = np.arange(ms * MS) / 16_000
    buzz = sum(np.sin(2 * np.pi * 140 * k * time_s) / k for k in range(1, 20))
    return np.asarray(level * buzz / 2, np.int16)


def quiet(ms: int) -> npt.NDArray[np.int16]:
    return np.zeros(ms * MS, np.int16)


def marks(events: list[VadEvent]) -> list[tuple[str, int]]:
    return [(event.kind, event.at) for event in events if event.kind in ("onset", "offset")]


def scripted(config: VadConfig, probabilities: list[float]) -> list[VadEvent]:
    endpointer = _Endpointer(config)
    return [event for n, p in enumerate(probabilities, start=1) for event in endpointer.take(p, n * WINDOW, -20.0)]


def test_onset_is_where_speech_began_and_offset_where_it_ended() -> None:
    events = scripted(VadConfig(), [0.1, 0.4, 0.6, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1])
    assert [(event.kind, event.at // WINDOW) for event in events] == [
        ("onset", 1),
        ("speech", 3),
        ("speech", 4),
        ("speech", 5),
        ("silence", 6),
        ("silence", 7),
        ("offset", 5),
        ("silence", 8),
        ("silence", 9),
    ]


def test_a_click_is_no_speech() -> None:
    assert scripted(VadConfig(min_speech_ms=64), [0.1, 0.9, 0.1, 0.9, 0.2, 0.1]) == []


def test_a_dip_shorter_than_the_hangover_goes_on() -> None:
    events = scripted(VadConfig(hangover_ms=96), [0.9, 0.9, 0.1, 0.1, 0.9, 0.9])
    assert [event.kind for event in events if event.kind in ("onset", "offset")] == ["onset"]
    assert [event.at // WINDOW for event in events if event.kind == "silence"] == [3, 4]
    assert [event.at // WINDOW for event in events if event.kind == "speech"] == [1, 2, 5, 6]


def test_a_voice_that_has_faded_is_over_however_sure_the_model_is() -> None:
    endpointer = _Endpointer(VadConfig(decay_db=40))
    levels = [-20.0, -15.0, -50.0, -56.0, -56.0, -56.0]
    events = [event for n, level in enumerate(levels, start=1) for event in endpointer.take(0.9, n * WINDOW, level)]
    voiced = [event for event in events if event.kind == "speech"]
    assert [event.at // WINDOW for event in voiced] == [1, 2, 3]
    assert [event.level_db for event in voiced] == [-20.0, -15.0, -50.0]
    assert [event.at // WINDOW for event in events if event.kind == "offset"] == [3]


def test_the_level_of_a_window_is_its_rms() -> None:
    vad = StreamingVad(VadConfig(), LoudIsVoice())
    events = vad.push(np.concatenate([quiet(320), tone(320), np.full(20 * WINDOW, 16384, np.int16)]))
    assert [event.level_db for event in events if event.kind == "speech"][-1] == pytest.approx(-6.02, abs=0.01)


def test_between_the_thresholds_speech_goes_on_but_does_not_begin() -> None:
    assert scripted(VadConfig(), [0.4] * 8) == []
    assert [event.kind for event in scripted(VadConfig(), [0.9, 0.9, 0.4, 0.4, 0.4, 0.4])][2:] == ["speech"] * 5


@given(st.lists(st.floats(0, 1), max_size=60))
def test_events_alternate_and_time_never_runs_back(probabilities: list[float]) -> None:
    events = scripted(VadConfig(), probabilities)
    kinds = [event.kind for event in events if event.kind in ("onset", "offset")]
    assert kinds == ["onset", "offset"] * (len(kinds) // 2) + ["onset"] * (len(kinds) % 2)
    times = [event.at for event in events if event.kind in ("speech", "silence")]
    assert times == sorted(set(times))
    for before, after in pairwise(events):
        if after.kind == "onset":
            assert before.kind == "silence"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=20))
def test_any_chunking_gives_the_same_events(sizes: list[int]) -> None:
    parts = [quiet(300), tone(400), quiet(1500), tone(90), quiet(1200), tone(700, 3000), quiet(400)]
    pcm = np.concatenate(parts)
    whole_model, cut_model = LoudIsVoice(), LoudIsVoice()
    whole = StreamingVad(VadConfig(), whole_model).push(pcm)
    vad = StreamingVad(VadConfig(), cut_model)
    events: list[VadEvent] = []
    cuts = np.cumsum([0, *sizes])
    cuts = np.append(cuts[cuts < len(pcm)], len(pcm))
    for start, end in pairwise(cuts):
        events += vad.push(pcm[start:end])
    assert events == whole
    assert np.array_equal(np.concatenate(cut_model.shown), np.concatenate(whole_model.shown))
    assert len(marks(whole)) >= 4


def test_silence_costs_no_model() -> None:
    model = LoudIsVoice()
    vad = StreamingVad(VadConfig(), model)
    vad.push(quiet(10_000))
    assert model.shown == []
    assert (vad.windows_seen, vad.windows_judged) == (312, 0)


def test_the_gate_closes_after_its_hold_and_silence_is_still_counted() -> None:
    vad = StreamingVad(VadConfig(gate_hold_ms=500), LoudIsVoice())
    vad.push(np.concatenate([quiet(200), tone(500)]))
    assert vad.gate_open
    events = vad.push(quiet(3000))
    assert not vad.gate_open
    silences = [event.at for event in events if event.kind == "silence"]
    assert silences == list(range(silences[0], silences[0] + WINDOW * len(silences), WINDOW))
    assert silences[-1] == (3700 * MS) // WINDOW * WINDOW


def test_an_opening_gate_replays_what_it_missed() -> None:
    class LateGate:
        def __init__(self) -> None:
            self.frames = 0

        def is_speech(self, frame: bytes, rate: int) -> bool:
            self.frames += 1
            return self.frames > 120

    vad = StreamingVad(VadConfig(replay_ms=300), LoudIsVoice())
    vad._webrtc = LateGate()
    events = vad.push(np.concatenate([quiet(1000), tone(600)]))
    (kind, at), *_ = marks(events)
    assert kind == "onset"
    assert abs(at - 1000 * MS) <= WINDOW


def test_the_state_starts_afresh_in_lasting_silence_and_never_in_speech() -> None:
    class Counting(LoudIsVoice):
        def step(self, state: SileroState, window: npt.NDArray[np.int16]) -> float:
            probability = super().step(state, window)
            ages.append(float(state.lstm[0, 0, 0]))
            state.lstm[0, 0, 0] += 1
            return probability

    class Open:
        def is_speech(self, frame: bytes, rate: int) -> bool:
            return True

    ages: list[float] = []
    vad = StreamingVad(VadConfig(reset_ms=1000), Counting())
    vad._webrtc = Open()
    vad.push(quiet(5000))
    assert max(ages) <= 1000 / 32 + 1
    ages.clear()
    vad.push(tone(5000))
    assert max(ages) >= 5000 / 32 - 32


def test_unknown_and_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="extra"):
        VadConfig.model_validate({"threshold": 0.5})
    with pytest.raises(ValueError, match="release_threshold"):
        VadConfig(onset_threshold=0.3, release_threshold=0.4)
    with pytest.raises(ValueError, match=r"expected int16\[T\], got float32\[2\]"):
        StreamingVad(VadConfig(), LoudIsVoice()).push(np.zeros(2, np.float32))  # type: ignore[arg-type]


def test_calls_share_weights_but_no_state(silero: SileroModel) -> None:
    pcm = recording("order_zh.flac")
    windows = pcm[: len(pcm) // WINDOW * WINDOW].reshape(-1, WINDOW)
    alone = SileroState.fresh()
    expected = [silero.step(alone, window) for window in windows]
    one, other = SileroState.fresh(), SileroState.fresh()
    got = []
    for window in windows:
        got.append(silero.step(one, window))
        silero.step(other, -window[::-1])
    assert got == expected
    assert max(expected) > 0.9


@pytest.mark.parametrize(("gain_db", "late_windows"), [(0, 2), (-20, 5)])
@pytest.mark.parametrize("name", ["order_zh.flac", "order_en.flac", "zh_song.wav", "zh_complete.wav", "en_spk1.wav"])
def test_the_gate_loses_no_onset(silero: SileroModel, name: str, gain_db: float, late_windows: int) -> None:
    rng = np.random.default_rng(1)
    pcm = np.concatenate([quiet(2000), levelled(recording(name), gain_db), quiet(1500)])
    pcm = pcm + np.asarray(rng.normal(0, 10, len(pcm)), np.int16)
    gated, open_ = StreamingVad(VadConfig(), silero), StreamingVad(VadConfig(gate_hold_ms=10**9), silero)
    open_._last_voice = 0
    (kind, at), *_ = marks(gated.push(pcm))
    (_, expected), *_ = marks(open_.push(pcm))
    assert kind == "onset"
    assert abs(at - expected) <= late_windows * WINDOW
    assert gated.windows_judged < open_.windows_judged


def test_noises_are_no_speech(silero: SileroModel) -> None:
    for name in ("noise_room.wav", "cough.wav", "burst_dog.wav", "burst_phone.wav"):
        assert marks(StreamingVad(VadConfig(), silero).push(recording(name))) == [], name

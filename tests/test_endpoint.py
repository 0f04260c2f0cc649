"""The end-of-turn head: what it reads and what it gives, its examples, its recipe, and its place in the stage."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests.fakes import FakeThinker
from voice_agent.engine.protocols import JudgesTurnEnd, Language, Message, ThinkRequest
from voice_agent.engine.stages import ThinkerStage
from voice_agent.models import load_model
from voice_agent.tea.decoder import Decoder, DecoderConfig
from voice_agent.tea.endpoint import LAYERS, TurnEnd, lower_states, partial_tokens, unpunctuated
from voice_agent.tea.template import read
from voice_agent.tea.thinker import TeaThinker
from voice_agent.tea.tokenizer import PUNCTUATION

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "models" / "tea-omni"
WEIGHTS = RECIPES / "weights"
HAND_WRITTEN = ROOT / "tests" / "data" / "end_of_turn.jsonl"

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(RECIPES))
    import evaluate_endpoint
    import train_endpoint
    from dialogues import endings


@pytest.fixture(scope="module")
def thinker() -> TeaThinker:
    return TeaThinker.load(WEIGHTS / "thinker.safetensors", 2, WEIGHTS / "endpoint.safetensors")


def request(text: str, language: Language = "zh", agent: str = "") -> ThinkRequest:
    before = (Message("user", "奶茶"), Message("assistant", agent)) if agent else ()
    return ThinkRequest((*before, Message("user", text)), language)


# ---- what it gives ----


@pytest.mark.parametrize(
    ("language", "agent", "whole", "unfinished"),
    [
        ("zh", "", "给我来一杯热的拿铁", "给我来一杯热的"),
        ("zh", "", "有没有无糖的茶", "有没有"),
        ("en", "", "I'd like two lattes", "I'd like two"),
        ("en", "", "how much is the latte", "how much is the"),
        ("zh", "您要几杯？", "两杯", "我要"),
        ("en", "Would you like anything else?", "no", "no, but can you"),
    ],
)
def test_a_whole_turn_is_told_from_its_beginning(
    thinker: TeaThinker, language: Language, agent: str, whole: str, unfinished: str
) -> None:
    assert (
        thinker.turn_end(request(whole, language, agent)) > 0.5 > thinker.turn_end(request(unfinished, language, agent))
    )


def test_what_is_complete_depends_on_the_question(thinker: TeaThinker) -> None:
    asked = thinker.turn_end(request("大杯", agent="要大杯还是中杯？"))
    assert asked > 0.5 > thinker.turn_end(request("大杯"))


@pytest.mark.parametrize("mark", ["。", "…", "？", "，", "...", "!"])
@pytest.mark.parametrize("text", ["我要一杯", "我要一杯拿铁"])
def test_punctuation_at_the_end_is_no_cue(thinker: TeaThinker, text: str, mark: str) -> None:
    assert thinker.turn_end(request(text + mark)) == thinker.turn_end(request(text))


@pytest.mark.parametrize("text", ["", "。", "…"])
def test_no_word_is_no_turn(thinker: TeaThinker, text: str) -> None:
    assert thinker.turn_end(request(text)) == 0.0


def test_the_development_set_is_told_apart(thinker: TeaThinker) -> None:
    rows = evaluate_endpoint.read(RECIPES / "dialogues" / "dev_end_of_turn.jsonl")
    scores, _ = evaluate_endpoint.judge(thinker, rows)
    assert evaluate_endpoint.figures([row["complete"] for row in rows], scores)["auc"] >= 0.9


def test_figures_count_pairs_and_both_sides_of_one_half() -> None:
    found = evaluate_endpoint.figures([True, True, False, False], [0.9, 0.4, 0.4, 0.7])
    assert found == {"complete": 2, "unfinished": 2, "auc": 0.625, "recall": 0.5, "false_alarms": 0.5}


def test_the_hand_written_utterances_are_200_and_200_and_none_is_trained_on() -> None:
    rows = evaluate_endpoint.read(HAND_WRITTEN)
    assert [sum(row["complete"] is kind for row in rows) for kind in (True, False)] == [200, 200]
    assert sum(row["lang"] == "zh" for row in rows) == 240
    long = {row["text"].rstrip("。？！.?!…，, ").lower() for row in rows if len(row["text"]) > 10}
    for language in ("zh", "en"):
        known = endings.phrases(language)
        lists = [known.whole, known.open, known.begun, known.bare, endings.sentences(language)]
        assert not long & {phrase.rstrip("。？！.?! ").lower() for phrases in lists for phrase in phrases}


# ---- how it reads ----


def test_the_lower_layers_are_those_of_the_whole_network(thinker: TeaThinker) -> None:
    ids = torch.tensor([thinker.vocabulary.encode(partial_tokens(read(request("来两杯四季春")), thinker.vocabulary))])
    config = DecoderConfig(**{**vars(thinker.decoder.config), "tapped": LAYERS})
    same = Decoder(config)
    same.load_state_dict(thinker.decoder.state_dict())
    torch.testing.assert_close(lower_states(thinker.decoder, ids), same(ids)[1][..., config.width :])


def test_a_position_does_not_see_what_follows_it(thinker: TeaThinker) -> None:
    head = TurnEnd(thinker.decoder.config).eval()
    states = torch.randn(2, 9, thinker.decoder.config.width, generator=torch.Generator().manual_seed(0))
    whole = head(states, torch.tensor([4, 9 + 8]))
    torch.testing.assert_close(whole[:1], head(states[:1, :5], torch.tensor([4])))
    torch.testing.assert_close(whole[1:], head(states[1:], torch.tensor([8])))


def test_a_row_that_is_being_thought_is_not_touched(thinker: TeaThinker) -> None:
    def written(judged: bool) -> list[object]:
        thinker.start(0, request("你好"))
        thoughts: list[object] = []
        while not thoughts or not thoughts[-1].done:  # type: ignore[attr-defined]
            thoughts += thinker.step([0])
            if judged:
                thinker.turn_end(request("我要一杯"))
        thinker.free(0)
        return [thought.token.text for thought in thoughts if thought.token]  # type: ignore[attr-defined]

    assert written(True) == written(False) != []


def test_random_weights_give_a_probability_and_refuse_nothing(thinker: TeaThinker) -> None:
    untrained = TeaThinker.untrained(thinker.vocabulary, 1)
    assert isinstance(untrained, JudgesTurnEnd)
    assert 0 <= untrained.turn_end(request("我要一杯拿铁")) <= 1


def test_a_request_that_does_not_end_with_the_user_is_refused(thinker: TeaThinker) -> None:
    with pytest.raises(ValueError, match="ends with the user's message, got assistant"):
        thinker.turn_end(ThinkRequest((Message("assistant", "您好"),), "zh"))


# ---- its file ----


def test_a_thinker_without_its_head_says_so(thinker: TeaThinker) -> None:
    with pytest.raises(ValueError, match="loaded with its end-of-turn head"):
        TeaThinker(thinker.decoder, thinker.vocabulary, 1).turn_end(request("你好"))


def test_a_head_of_another_thinker_is_refused(thinker: TeaThinker, tmp_path: Path) -> None:
    other = TeaThinker.untrained(thinker.vocabulary, 1).decoder
    TurnEnd(other.config).save(tmp_path / "endpoint.safetensors", other)
    with pytest.raises(ValueError, match="expected an end-of-turn head that was fitted on this thinker"):
        TeaThinker.load(WEIGHTS / "thinker.safetensors", 1, tmp_path / "endpoint.safetensors")


def test_the_shipped_head_is_small_and_in_the_manifest() -> None:
    entries = {entry["file"]: entry for entry in json.loads((WEIGHTS / "manifest.json").read_text("utf-8"))}
    assert entries["endpoint.safetensors"]["bytes"] <= 1_000_000


def test_the_default_model_judges_the_end_of_a_turn() -> None:
    assert isinstance(load_model("tea-omni", slots=1).thinker, JudgesTurnEnd)


# ---- its examples ----


@pytest.mark.parametrize(
    ("language", "one"), [("zh", "[杯个份]|剩下的|其他的"), ("en", "the others?|the rest|, |and ")]
)
def test_cups_are_complete_when_each_has_had_its_part(language: Language, one: str) -> None:
    rng = random.Random(5)
    made = [endings._shared_out(rng, language) for _ in range(400)]
    whole, begun = ([said for said, complete in made if complete is kind] for kind in (True, False))
    assert len(whole) > 100
    assert len(begun) > 100
    assert not any(re.search("其中|of them|of those", said) for said in begun)
    parts = [sum(len(re.findall(one, said)) for said in kind) / len(kind) for kind in (whole, begun)]
    assert parts[0] > parts[1] + 0.5


@pytest.mark.parametrize("language", ["zh", "en"])
def test_examples_end_in_a_word_and_are_of_both_kinds(thinker: TeaThinker, language: Language) -> None:
    rng = random.Random(3)
    made = [cuts for _ in range(60) for cuts in endings.examples(rng, language, thinker.vocabulary)]
    assert all(cuts.before[-1] == "<u>" and cuts.said[-1] not in PUNCTUATION for cuts in made)
    assert all(cuts.weights[-1] == 1 and not any(cuts.complete[:-1]) for cuts in made)
    assert 0.4 < sum(cuts.complete[-1] for cuts in made) / len(made) < 0.8


@pytest.mark.parametrize(
    ("said", "toppings", "names"),
    [
        (["一", "杯", "抹", "茶", "拿", "铁", "加", "珍", "珠"], True, [(2, 6), (7, 9)]),
        (["一", "杯", "抹", "茶", "拿", "铁", "加", "珍", "珠"], False, [(2, 6)]),
    ],
)
def test_a_caller_may_stop_behind_the_longest_name(
    said: list[str], toppings: bool, names: list[tuple[int, int]]
) -> None:
    assert endings.names_in(said, "zh", toppings) == names


def test_no_partial_ends_inside_a_number_a_spelled_word_or_at_a_comma() -> None:
    said = ["T1", "U2", "个", ",", "^", "_o", "_k", "吧"]
    assert endings.cuts(["<u>"], said, True).weights == [0, endings.CUT, endings.PAUSE, 0, 0, 0, endings.CUT, 1]
    assert endings.cuts(["<u>"], said, True).complete == [0] * 7 + [1]


def test_a_broken_word_is_no_word(thinker: TeaThinker) -> None:
    rng = random.Random(0)
    broken = [endings._broken(rng, thinker.vocabulary, ["a", "smoothie"], True) for _ in range(40)]
    for said, complete in broken:
        assert complete == (said == ["a", "smoothie"])
        assert said[0] == "a"
        assert complete or said[1] == "^"
    assert {complete for _, complete in broken} == {True, False}


def test_every_slot_of_the_phrases_is_filled() -> None:
    rng = random.Random(1)
    for language in ("zh", "en"):
        known = endings.phrases(language)
        for phrase in (phrase for pair in known.answers for phrases in pair for phrase in phrases):
            assert "{" not in endings._filled(rng, language, phrase)


def test_punctuation_is_taken_from_the_end_alone() -> None:
    assert unpunctuated(["好", ",", "的", ".", "?"]) == ["好", ",", "的"]
    assert unpunctuated([",", "."]) == []


# ---- its recipe ----


@pytest.mark.parametrize(
    ("logits", "complete", "misses", "false_alarms"),
    [
        ([-3.0, -1.0, 1.0, 3.0], [False, False, True, True], 0, 0),
        ([-3.0, -1.0, 1.0, 3.0], [False, True, False, True], 1, 1),
    ],
)
def test_misses_and_false_alarms_are_balanced(
    logits: list[float], complete: list[bool], misses: int, false_alarms: int
) -> None:
    at = train_endpoint.balance(logits, complete)
    assert sum(x < at for x, whole in zip(logits, complete, strict=True) if whole) == misses
    assert sum(x >= at for x, whole in zip(logits, complete, strict=True) if not whole) == false_alarms


def fit(monkeypatch: pytest.MonkeyPatch, work: Path, minutes: float) -> None:
    arguments = ["--minutes", str(minutes), "--work", str(work), "--weights", str(WEIGHTS), "--seed", "1"]
    monkeypatch.setattr(sys, "argv", ["train_endpoint.py", *arguments])
    train_endpoint.main()


def test_fitting_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_endpoint, "BUFFER", 40)
    monkeypatch.setattr(train_endpoint, "BATCH_TOKENS", 400)
    threads = torch.get_num_threads()
    fit(monkeypatch, tmp_path, 0.05)
    first = torch.load(tmp_path / "checkpoint.pt")
    assert first["step"] >= 1
    fit(monkeypatch, tmp_path, 0.05)
    assert torch.load(tmp_path / "checkpoint.pt")["step"] == first["step"]
    fit(monkeypatch, tmp_path, first["spent"] + 0.05)
    torch.set_num_threads(threads)
    assert torch.load(tmp_path / "checkpoint.pt")["step"] > first["step"]
    fitted = TeaThinker.load(WEIGHTS / "thinker.safetensors", 1, tmp_path / "endpoint.safetensors")
    assert 0 <= fitted.turn_end(request("我要一杯拿铁")) <= 1


# ---- in the stage ----


class Judging(FakeThinker):
    """Judges on whatever thread it is called; notes which."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.judging = threading.Event()

    def turn_end(self, request: ThinkRequest) -> float:
        self.judging.set()
        self.gate.wait()
        self.threads.append(threading.current_thread().name)
        if not request.messages:
            raise ValueError("expected a message, got none")
        return 0.25


def test_the_stage_judges_on_its_own_thread() -> None:
    model = Judging()
    stage = ThinkerStage(model)
    try:
        assert stage.turn_end(request("我要")).result(5) == 0.25
        assert model.threads == ["stage-thinker"]
        with pytest.raises(ValueError, match="expected a message, got none"):
            stage.turn_end(ThinkRequest((), "zh")).result(5)
        assert stage.turn_end(request("好")).result(5) == 0.25
    finally:
        stage.close()


def test_what_is_not_judged_when_the_stage_closes_is_cancelled() -> None:
    model = Judging()
    model.gate.event.clear()
    stage = ThinkerStage(model)
    first, second = stage.turn_end(request("我要")), stage.turn_end(request("我要"))
    assert model.judging.wait(10)
    threading.Timer(0.2, model.gate.event.set).start()
    stage.close()
    assert stage.turn_end(request("我要")).cancelled()
    assert first.result(1) == 0.25
    assert second.done()


def test_a_thinker_that_does_not_judge_is_no_judge() -> None:
    stage = ThinkerStage(FakeThinker())
    try:
        assert not isinstance(stage.model, JudgesTurnEnd)
        with pytest.raises(TypeError, match="expected a thinker with turn_end, got FakeThinker"):
            stage.turn_end(request("我要"))
    finally:
        stage.close()

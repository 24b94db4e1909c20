"""Taggers and classifiers that read in int8: the same answers, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_questions import write_recipe
from made_up_reviews import reviews
from made_up_tags import sentences

from textgraft import agreement, tagging_network
from textgraft.classifier import Classifier, load
from textgraft.data.examples import Examples
from textgraft.errors import UserError
from textgraft.nn import int8
from textgraft.stages.finetune import FinetuneOptions, finetune
from textgraft.stages.stacked_tagging import Network
from textgraft.stages.tagging import STACKED, tag_finetune
from textgraft.tagging import Tagger
from textgraft.training.loop import Settings
from textgraft.words.stack import Stack

FP32 = Settings(precision="fp32")
native = pytest.mark.skipif(not int8.int8_is_native(), reason="no VNNI here")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8")
    write_recipe(folder, 8)
    network = Network(hidden_dim=16, character_filters=0)
    options = replace(STACKED, baseline=False, network=network, recipe=str(folder / "quick-8.toml"), settings=FP32)
    data = sentences(80, 1, names=True)
    stack = Stack.open(["en-flair-small-forward"], precision="fp32")
    tag_finetune(data, folder / "tagger", model=stack, test=sentences(9, 3, names=True), options=options, show=False)
    return folder / "tagger"


@native
def test_a_tagger_says_the_same_with_other_probabilities(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [s.words for s in sentences(60, 2, names=True).sentences]
    monkeypatch.setattr(tagging_network, "WORDS", 20)
    faster, usual = Tagger(tagger, precision="int8"), Tagger(tagger, precision="auto").tag(words)
    first, second = faster.tag(words), faster.tag(words)
    assert [r.probabilities for r in first] == [r.probabilities for r in usual]  # asked in both ways
    assert [r.tags for r in second] == [r.tags for r in usual]
    differences = [abs(a - b) for one, two in zip(second, usual) for a, b in zip(one.probabilities, two.probabilities)]
    assert 0 < max(differences) < 0.2


def test_a_tagger_that_strays_is_refused(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [s.words for s in sentences(15, 2, names=True).sentences]
    monkeypatch.setattr(agreement, "AGREEMENT", 1.01)
    strayed = Tagger(tagger, precision="int8")
    with pytest.raises(UserError, match=r"of \d\d words keep their answer"):
        strayed.tag(words)
    assert len(Tagger(tagger, precision="fp32").tag(words)) == 15


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8 labels") / "out"
    texts, labels = reviews(60, 1)
    options = FinetuneOptions(recipe="frozen", baselines=False, max_tokens=32, settings=FP32)
    finetune(Examples(texts, labels, "single"), folder, model="en-ulmfit", options=options, show=False)
    return folder


def test_a_classifier_is_asked_in_both_ways_at_first(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    inner = Classifier._outputs

    def outputs(self: Classifier, texts: list[str], precision: str) -> object:
        asked.append(precision)
        return inner(self, texts, precision)

    monkeypatch.setattr(Classifier, "_outputs", outputs)
    texts, _ = reviews(120, 2)
    faster, usual = load(classifier, precision="int8"), load(classifier, precision="fp32")
    said = [[p.label for p in faster.predict(texts)] for _ in range(3)]
    assert asked == ["int8", "auto", "int8", "auto", "int8"]  # until 200 have been asked in both ways
    assert said == [[p.label for p in usual.predict(texts)]] * 3
    monkeypatch.setattr(agreement, "AGREEMENT", 1.01)
    with pytest.raises(UserError, match="of 120 texts keep their answer"):
        load(classifier, precision="int8").outputs(texts)

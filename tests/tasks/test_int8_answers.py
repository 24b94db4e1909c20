"""Taggers and classifiers that read in int8: the same answers, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_questions import write_recipe
from made_up_reviews import reviews
from made_up_tags import sentences
from processor import native_int8

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.metrics import agreement
from textgraft.models.loading import load_network
from textgraft.nn.cpu import precision
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.predictor import Classifier, load_classifier
from textgraft.tasks.tagging import network as tagger_network
from textgraft.tasks.tagging import stacked as stacked_module
from textgraft.tasks.tagging.finetune import STACKED, tag_finetune
from textgraft.tasks.tagging.network import NetworkTagger
from textgraft.tasks.tagging.predictor import Tagger
from textgraft.tasks.tagging.stacked import Network, validated_in_int8
from textgraft.training.settings import Settings
from textgraft.word_embeddings.stack import Stack

pytestmark = pytest.mark.slow

FP32, AUTO = Settings(precision="fp32"), Settings()


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8")
    write_recipe(folder, 8)
    network = Network(hidden_dim=16, character_filters=0)
    options = replace(STACKED, baseline=False, network=network, recipe=str(folder / "quick-8.toml"), settings=FP32)
    data = sentences(80, 1, names=True)
    stack = Stack.open(["en-flair-small-forward"], precision="fp32")
    tag_finetune(data, folder / "tagger", model=stack, test=sentences(9, 3, names=True), options=options, context=QUIET)
    return folder / "tagger"


def stacked(folder: Path, precision: str) -> Tagger:
    """The tagger in a folder, as if its tags had not been compared."""
    artifact = load_network(folder)
    return Tagger(replace(artifact, run={k: v for k, v in artifact.run.items() if k != "read_in"}), precision=precision)


@native_int8
def test_a_tagger_whose_tags_stay_is_read_in_int8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_module, "MIN_WORDS", 20)
    write_recipe(tmp_path, 8)
    network = Network(hidden_dim=16, character_filters=0)
    about = {"baseline": False, "network": network, "recipe": str(tmp_path / "quick-8.toml")}
    test = sentences(9, 3, names=True)
    for settings, read_in in ((AUTO, "int8"), (FP32, "auto")):
        options = replace(STACKED, settings=settings, **about)
        stack = Stack.open(["en-flair-small-forward"], precision=settings.precision)
        folder = tmp_path / settings.precision
        done = tag_finetune(
            sentences(80, 1, names=True), folder, model=stack, test=test, options=options, context=QUIET
        )
        assert done.record.get("read_in", "auto") == read_in
        source = Tagger(folder).source
        assert isinstance(source, NetworkTagger)
        assert source.precision == read_in
        assert all(s.precision == read_in for s in source.artifact.stack.sources)  # type: ignore[union-attr]
        if read_in == "int8":  # what is scored is what `auto` answers, to the last digit
            predictions = Tagger(folder).tag(test.sentences)
            assert [r.probabilities for r in predictions] == [r.probabilities for r in done.predictions]
            assert Tagger(folder, precision="fp32").source.precision == "fp32"  # type: ignore[attr-defined]
            card = (folder / "README.md").read_text("utf-8")
            same = done.record["in_int8"]["same"]
            assert f"- inference precision: int8, {same} of {test.words} tags are the same in int8" in card
            with monkeypatch.context() as patched:  # who asks for it by name has it compared again
                patched.setattr(agreement, "MIN_AGREEMENT", 1.01)
                assert len(Tagger(folder).tag(test.sentences)) == len(test)
                with pytest.raises(UserError, match=r"of \d\d words keep their prediction"):
                    Tagger(folder, precision="int8").tag(test.sentences)
            with monkeypatch.context() as patched:  # on a processor without VNNI
                patched.setattr(precision, "int8_is_native", lambda: False)
                elsewhere, usual = Tagger(folder).tag(test.sentences), stacked(folder, "auto").tag(test.sentences)
                assert [r.probabilities for r in elsewhere] == [r.probabilities for r in usual]
            assert done.record["in_int8"]["words"] == test.words
            assert test.words - 1 <= done.record["in_int8"]["same"] <= test.words


@native_int8
def test_a_tagger_whose_tags_stray_is_not(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Tagger(tagger, precision="fp32").tag(sentences(9, 3, names=True).sentences)
    assert validated_in_int8(load_network(tagger), usual, 64, show=False) == ({}, usual)  # too few words
    monkeypatch.setattr(stacked_module, "MIN_WORDS", 20)
    monkeypatch.setattr(stacked_module, "MIN_AGREEMENT", 1.01)
    told, predictions = validated_in_int8(load_network(tagger), usual, 64, show=False)
    assert "read_in" not in told
    assert told["in_int8"]["same"] > 0
    assert predictions == usual
    monkeypatch.setattr(stacked_module, "int8_is_native", lambda: False)
    assert validated_in_int8(load_network(tagger), usual, 64, show=False) == ({}, usual)


@native_int8
def test_a_tagger_says_the_same_with_other_probabilities(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [s.words for s in sentences(60, 2, names=True).sentences]
    monkeypatch.setattr(tagger_network, "MIN_WORDS", 20)
    validated_in_int8, usual = Tagger(tagger, precision="int8"), Tagger(tagger, precision="auto").tag(words)
    first, second = validated_in_int8.tag(words), validated_in_int8.tag(words)
    assert [r.probabilities for r in first] == [r.probabilities for r in usual]  # asked in both ways
    assert [r.tags for r in second] == [r.tags for r in usual]
    differences = [abs(a - b) for one, two in zip(second, usual) for a, b in zip(one.probabilities, two.probabilities)]
    assert 0 < max(differences) < 0.2


def test_a_tagger_that_strays_is_refused(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [s.words for s in sentences(15, 2, names=True).sentences]
    monkeypatch.setattr(agreement, "MIN_AGREEMENT", 1.01)
    strayed = Tagger(tagger, precision="int8")
    with pytest.raises(UserError, match=r"of \d\d words keep their prediction"):
        strayed.tag(words)
    assert len(Tagger(tagger, precision="fp32").tag(words)) == 15


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8 labels") / "out"
    texts, labels = reviews(60, 1)
    options = FinetuneOptions(recipe="frozen", baselines=False, max_tokens=32, settings=FP32)
    finetune(Examples(texts, labels, "single"), folder, model="en-ulmfit", options=options, context=QUIET)
    return folder


def test_a_classifier_is_asked_in_both_ways_at_first(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    inner = Classifier._outputs

    def outputs(self: Classifier, texts: list[str], precision: str) -> object:
        asked.append(precision)
        return inner(self, texts, precision)

    monkeypatch.setattr(Classifier, "_outputs", outputs)
    texts, _ = reviews(120, 2)
    validated_in_int8, usual = (
        load_classifier(classifier, precision="int8"),
        load_classifier(classifier, precision="fp32"),
    )
    said = [[p.label for p in validated_in_int8.predict(texts)] for _ in range(3)]
    assert asked == ["int8", "auto", "int8", "auto", "int8"]  # until 200 have been asked in both ways
    assert said == [[p.label for p in usual.predict(texts)]] * 3
    monkeypatch.setattr(agreement, "MIN_AGREEMENT", 1.01)
    with pytest.raises(UserError, match="of 120 texts keep their prediction"):
        load_classifier(classifier, precision="int8").outputs(texts)

"""The recipe that contrasts first: whom it suits, what it trains when, and that it goes on where it was stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_questions import encoder
from made_up_reviews import BAD, GOOD, PLAIN, reviews

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, Pair
from textgraft.data.labels import Labels, kind_of_texts
from textgraft.data.streams.base import ExampleStream
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.tasks.classification.training import EncodedTexts, Plan, classifier_to_train, train_classifier
from textgraft.training.loop import Run
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

TEXT = " ".join([*GOOD, *BAD, *PLAIN, "the film was ."])
LABELS = Labels("single", ("neg", "pos"))


def source(pooling: str | None = "mean") -> Artifact:
    """A tiny BERT, made to compare texts or not."""
    made = encoder("bert", TEXT)
    shape = made.model.describe()
    shape["encoder"]["pooler"] = False
    torch.manual_seed(0)
    return replace(made, model=build(shape).eval(), embedding=SentenceEmbedding(pooling) if pooling else None)


def plan(made: Artifact, labels: Labels = LABELS) -> Plan:
    stage = load_recipe(made.recommended_recipe("default", labels.kind)).finetune
    settings, pad_id = Settings(precision="fp32"), made.tokenizer.pad_id
    return Plan(made.model, False, stage, settings, labels, None, pad_id, pooling=made.pooling)


def encoded(made: Artifact, count: int, seed: int) -> EncodedTexts:
    texts, labels = reviews(count, seed)
    return EncodedTexts(made.encoded(texts, 32)[0], np.array([label == "pos" for label in labels], dtype=np.int64))


def test_it_suits_who_was_made_to_compare_texts_and_texts_of_one_label() -> None:
    made = source()
    assert made.recommended_recipe("default", "single") == "contrastive"
    assert {made.recommended_recipe("default", kind) for kind in ("multi", "numeric", "choice", None)} == {
        "transformer"
    }
    assert made.recommended_recipe("frozen", "single") == "frozen"
    assert source(pooling=None).recommended_recipe("default", "single") == "transformer"


@pytest.mark.slow
def test_the_encoder_learns_first_and_the_head_afterwards() -> None:
    made = source()
    about, train = plan(made), encoded(made, 64, 0)
    model = classifier_to_train(about, 0)
    assert train.targets is not None
    stream = ExampleStream(train.sequences, torch.from_numpy(train.targets), pad_id=about.pad_id, rows=32)
    run = Run(model, about.stage.plan(len(model.layer_groups()), stream.length(0)), stream, about.settings)
    before = {name: value.clone() for name, value in model.values().items()}
    steps, between = run.steps(), before
    for step in steps:
        if step.phase == "head" and between is before:
            between = {name: value.clone() for name, value in model.values().items()}
            assert model.contrastive_temperature == 0.0
    moved = {name for name in before if not torch.equal(before[name], between[name]) and name.startswith("head")}
    assert len(moved) == 2  # one step into its phase
    assert any(not torch.equal(before[name], between[name]) for name in before if name.startswith("encoder"))
    after = model.values()
    assert all(torch.equal(between[name], after[name]) for name in before if name.startswith("encoder"))


@pytest.mark.slow
def test_it_learns_and_leaves_an_ordinary_classifier(tmp_path: Path) -> None:
    made = source()
    about, test = plan(made), encoded(made, 40, 1)
    trained = train_classifier(
        about, encoded(made, 64, 0), {"test": test}, title="t", context=RunContext(tmp_path, 0, show=False)
    )
    assert test.targets is not None
    assert (trained.logits["test"].argmax(axis=1) == test.targets).mean() >= 0.9
    train = encoded(made, 64, 0)
    again = train_classifier(about, train, {"test": test}, title="u", context=RunContext(tmp_path, 0, show=False))
    assert np.array_equal(again.logits["test"], trained.logits["test"])


@pytest.mark.slow
@pytest.mark.parametrize("stop", [3, 75, 80])
def test_stopped_in_either_phase_it_ends_as_if_it_had_not_been(tmp_path: Path, stop: int) -> None:
    made = source()
    about, train = plan(made), encoded(made, 64, 0)
    assert train.targets is not None

    def run() -> Run:
        model = classifier_to_train(about, 0)
        stream = ExampleStream(train.sequences, torch.from_numpy(train.targets), pad_id=about.pad_id, rows=32)
        return Run(model, about.stage.plan(len(model.layer_groups()), stream.length(0)), stream, about.settings)

    whole, first, second = run(), run(), run()
    for _ in whole.steps():
        pass
    for number, _ in enumerate(first.steps(), start=1):
        if number == stop:
            break
    first.save(tmp_path / "checkpoint")
    assert second.resume(tmp_path / "checkpoint")
    for _ in second.steps():
        pass
    assert all(torch.equal(value, second.model.values()[name]) for name, value in whole.model.values().items())


def test_labels_of_another_kind_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    made = source()
    numbers = replace(plan(made), labels=Labels("numeric", (), 0.0, 1.0))
    texts = EncodedTexts(made.encoded(["a"], 32)[0], np.zeros(1, dtype=np.float32))
    with pytest.raises(UserError, match="these have a number"):
        train_classifier(numbers, texts, {}, title="t", context=RunContext(tmp_path, 0, show=False))


def test_it_is_for_single_texts() -> None:
    pairs = Examples([Pair("a", "b"), Pair("c", "d")], ["x", "y"], "single")
    assert kind_of_texts(pairs, Labels.fit(pairs)) is None
    texts = Examples(["a", "b"], ["x", "y"], "single")
    assert kind_of_texts(texts, Labels.fit(texts)) == "single"

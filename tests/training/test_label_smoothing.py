"""Smoothed labels: the loss by hand, whom they are for, and that answers are measured as they are."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import VOCAB, classifier, examples, language_model

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.data.batch import pad
from textgraft.data.labels import Labels
from textgraft.tasks.classification.training import (
    EncodedTexts,
    Plan,
    as_model,
    classifier_to_train,
    train_classifier,
)
from textgraft.training.phases import Phase, Stage
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

PHASE = Phase("all", 30, 0.02)
PLAIN, SMOOTHED = (
    Stage((PHASE,), batch_size=4, dropout=0.0),
    Stage((PHASE,), batch_size=4, dropout=0.0, label_smoothing=0.3),
)


def plan(stage: Stage) -> Plan:
    return Plan(
        language_model(), False, stage, Settings(precision="fp32"), Labels("single", ("a", "b")), None, pad_id=1
    )


def texts() -> EncodedTexts:
    stream = examples(24)
    return EncodedTexts(stream.sequences, stream.targets.numpy())


def test_the_loss_is_that_of_labels_with_a_share_for_all_classes() -> None:
    model = classifier().eval()
    sequences = [np.array([4, 9, 2]), np.array([7, 5]), np.array([VOCAB - 1])]
    batch = replace(pad(sequences, 1), targets=torch.tensor([0, 1, 1]))
    logits = model(batch).double().tolist()
    model.head.label_smoothing = 0.3  # type: ignore[assignment]
    by_hand = 0.0
    for row, label in zip(logits, [0, 1, 1], strict=True):
        whole = math.log(sum(math.exp(x) for x in row))
        by_hand += sum(((0.7 if c == label else 0) + 0.15) * (whole - x) for c, x in enumerate(row))
    assert float(model.loss(batch).total.detach()) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.slow
def test_it_keeps_a_classifier_from_being_sure(tmp_path: Path) -> None:
    sure = {}
    for name, stage in (("plain", PLAIN), ("smoothed", SMOOTHED)):
        trained = train_classifier(
            plan(stage), texts(), {"test": texts()}, title=name, context=RunContext(tmp_path, 0, show=False)
        )
        probabilities = torch.tensor(trained.logits["test"]).softmax(dim=1)
        sure[name] = float(probabilities.amax(dim=1).mean())
        assert as_model(plan(stage), trained).head.label_smoothing == 0.0
    assert sure["smoothed"] < 0.9 < sure["plain"]


@pytest.mark.slow
def test_a_validation_is_of_the_labels_as_they_are(tmp_path: Path) -> None:
    trained = train_classifier(
        plan(SMOOTHED), texts(), {"valid": texts()}, title="run", context=RunContext(tmp_path, 0, show=False)
    )
    best = max(trained.history, key=lambda row: row["score"])
    logits, targets = torch.tensor(trained.logits["valid"]), torch.tensor(texts().targets)
    assert best["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, targets)), rel=1e-4)


def test_it_is_part_of_the_identity() -> None:
    for other in (SMOOTHED, replace(SMOOTHED, label_smoothing=0.1)):
        assert changed_keys(other.identity(), PLAIN.identity()) == ["label_smoothing"]
    assert classifier_to_train(plan(SMOOTHED), 0).head.label_smoothing == 0.3


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="label_smoothing is"):
        Stage((PHASE,), label_smoothing=share)


def test_it_is_for_one_label_a_text_and_for_classifiers() -> None:
    SMOOTHED.validate_label_kind("single")
    PLAIN.validate_label_kind("numeric")
    with pytest.raises(UserError, match="needs one label per text; these have any number"):
        SMOOTHED.validate_label_kind("multi")
    with pytest.raises(UserError, match="label_smoothing is for classifiers") as raised:
        SMOOTHED.validate_no_classifier_settings("a recipe")
    assert "Leave 'label_smoothing' out" in str(raised.value)
    PLAIN.validate_no_classifier_settings("a recipe")


def test_multifits_recipe_has_it() -> None:
    recipe = load_recipe("multifit")
    assert recipe.finetune.label_smoothing == 0.1
    (phase,) = recipe.finetune.phases
    rates = [rate for rate in phase.rates(6) if rate is not None]
    assert len(rates) == 6  # all from the first step
    assert rates[0] == pytest.approx(0.01 / 2.6**4, rel=0.01)
    assert rates[-1] == 0.02

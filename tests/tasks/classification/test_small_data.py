"""The least data that fine-tuning works on, and what it says of less: batch normalisation needs two texts a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.tasks.classification.fine_tuned import FinetuneResult
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.training.settings import Settings

RECIPE = """
name = "two epochs"
description = "d"
source = "s"
[finetune]
batch_size = 16
[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""
NUMBERS = Examples(["good film", "bad", "so so", "fine"], [1.0, 2.0, 3.0, 4.0], "numeric")
SETS = Examples(["good film", "bad", "so so", "fine"], [("a", "b"), ("a",), ("b",), ()], "multi")


def reviews(count: int) -> Examples:
    texts = ["The film was great, I think.", "It was awful.", "A lovely plot and a superb actor.", "Boring"] * 5
    return Examples(texts[:count], [("good", "bad")[i % 2] for i in range(count)], "single")


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textgraft.tasks.classification.report.render", lambda report: "")


@pytest.fixture
def tune(tiny_lm: Path, tmp_path: Path) -> Any:
    (tmp_path / "recipe.toml").write_text(RECIPE)

    def tuned(train: Examples, valid: Examples | None = None, **options: Any) -> FinetuneResult:
        asked = FinetuneOptions(recipe=str(tmp_path / "recipe.toml"), baselines=False)
        asked = replace(asked, **{"settings": Settings(precision="fp32"), **options})
        return finetune(train, tmp_path / "out", model=tiny_lm, valid=valid, options=asked, context=QUIET)

    return tuned


@pytest.mark.parametrize(
    ("train", "options"),
    [
        (reviews(17), {"folds": 3}),
        (reviews(4), {"folds": 2}),
        (reviews(4), {"folds": 4}),
        (SETS, {"folds": 2}),
    ],
    ids=["one more than a batch", "two texts a fold", "all but one", "several labels"],
)
def test_a_few_texts_in_folds(train: Examples, options: dict[str, Any], tune: Any) -> None:
    done = tune(train, **options)
    member = done.members["ulmfit"]
    assert [row["step"] for row in member.runs[0].history] == [1, 2]  # 17 texts are one batch of 17, not 16 and 1
    assert member.folds.logits is not None
    answered = ~np.isnan(member.folds.logits[:, 0])
    assert answered.sum() == len(done.evaluation) >= 2


@pytest.mark.parametrize(
    ("train", "valid"), [(reviews(2), reviews(4)), (NUMBERS.take([0, 1]), NUMBERS)], ids=["one a class", "two numbers"]
)
def test_two_texts_and_a_validation_set(train: Examples, valid: Examples, tune: Any) -> None:
    done = tune(train, valid)
    assert len(done.members["ulmfit"].runs[0].history) == 2
    told = {problem.name: problem.count for problem in done.problems}
    assert told["validation-leak-training"] == 2  # both texts are in the validation set too


def test_a_text_without_tokens_is_a_text(tune: Any) -> None:
    tune(Examples(["", "good", "", "bad"], ["a", "b", "a", "b"], "single"), reviews_as("a", "b"))


def reviews_as(*labels: str) -> Examples:
    return Examples(["", "good film"][: len(labels)], list(labels), "single")


def test_fewer_batches_than_are_accumulated_make_one_step_an_epoch(tune: Any) -> None:
    settings = Settings(precision="fp32", accumulate=50)
    history = tune(reviews(17), reviews(4), settings=settings).members["ulmfit"].runs[0].history
    assert [row["step"] for row in history] == [1, 2]


@pytest.mark.parametrize(
    ("train", "valid", "options", "message"),
    [
        (reviews(1), reviews(4), {}, "every label is 'good'"),
        (reviews(2), None, {}, "too few different texts to hold any out"),
        (reviews(8), None, {"folds": 1}, "cannot make 1 folds"),
        (NUMBERS.take([0, 1]), None, {"folds": 2}, "too few different texts to hold any out"),
        (reviews(8), Examples([], [], "single", source="valid.csv"), {}, r"valid\.csv: the valid set holds no texts"),
    ],
    ids=["one text", "one a class", "one fold", "two numbers", "empty validation"],
)
def test_less_is_a_clear_error(
    train: Examples, valid: Examples | None, options: dict[str, Any], message: str, tune: Any, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        tune(train, valid, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


@pytest.mark.parametrize("name", ["seeds", "max_tokens"])
def test_options_out_of_range_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is 0"):
        FinetuneOptions(**{name: 0})

"""Unlabelled texts are read by a language model that a first fold has shown to be worth it, and not by another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_reviews import reviews
from small_comparisons import write_family
from sudden import Killed, killed_at

import textgraft
from textgraft import compare
from textgraft.comparison.methods import MethodOptions
from textgraft.core.context import QUIET, RunContext
from textgraft.core.errors import DataWarning, UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.models import loading
from textgraft.tasks.classification import early_rejection, fine_tuned, model_selection
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.fine_tuned import FinetuneResult, encode_parts
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.first_fold import count_adaptation_tokens, fold_tokens
from textgraft.tasks.classification.sources import adapted_path
from textgraft.tasks.classification.training import Plan
from textgraft.tasks.classification.training_config import TrainingConfig
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[adapt]
batch_size = 4
bptt = 20

[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.01

[finetune]
batch_size = 8

[[finetune.phases]]
name = "all"
epochs = 1
lr = 0.01
"""
POOL = reviews(150, 9)[0]
SETTINGS = Settings(precision="fp32", save_seconds=0.0)
OPTIONS = FinetuneOptions(folds=2, settings=SETTINGS, adapt=SETTINGS)
NOT_ADAPTED = replace(OPTIONS, adapt=None)
AFTER = ("fold 1 of 2", "fold 2 of 2", "seed 0")


def labelled(count: int, seed: int) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, "single", source=f"reviews{seed}.csv")


TRAIN, TEST = labelled(24, 1), labelled(30, 2)


@pytest.fixture(autouse=True, scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A quick recipe, which is what an unnamed one is, and nobody gives a model up."""
    path = tmp_path_factory.mktemp("recipe") / "quick.toml"
    path.write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FinetuneOptions, "language_recipe", property(lambda self: self.recipe or str(path)))
        patch.setattr(early_rejection, "SIGNIFICANCE_LEVEL", 0.0)
        yield path


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory, tiny_lm: Path, recipe: Path) -> FinetuneResult:
    """A run that nobody disturbed."""
    return run(tmp_path_factory.mktemp("peace") / "out", tiny_lm)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of what is trained."""
    titles: list[str] = []
    real = fine_tuned.train_classifier

    def told(*given: Any, **named: Any) -> Any:
        titles.append(named["title"])
        return real(*given, **named)

    monkeypatch.setattr(fine_tuned, "train_classifier", told)
    return titles


def run(out: Path, model: Path, **given: Any) -> FinetuneResult:
    asked: dict[str, Any] = {"test": TEST, "unlabelled": POOL, "options": OPTIONS} | given
    return finetune(TRAIN, out, model=model, context=QUIET, **asked)


def hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has not read the unlabelled texts loses."""
    monkeypatch.setattr(
        EarlyRejection, "rejection", lambda self, logits, folds: "so the judge says" if self.before_adapting else None
    )


def answers(done: FinetuneResult, name: str) -> np.ndarray:
    shown = {o.name: o for o in (*done.comparison.outcomes, *done.comparison.parts)}
    return shown[name].outputs[0]


@pytest.mark.slow
def test_who_is_worth_it_reads_and_answers_as_if_it_had_been_adapted_before(
    tmp_path: Path, tiny_lm: Path, recipe: Path, trained: list[str]
) -> None:
    done = run(tmp_path / "out", tiny_lm)
    assert trained == ["as it is, fold 1 of 2", "fold 1 of 2", "fold 2 of 2", "seed 0"]
    folder = adapted_path(tmp_path / "out", "ulmfit", ["ulmfit"])
    assert done.language_models == {"ulmfit": folder}
    assert json.loads((folder / "run.json").read_text())["stage"] == "adapt"
    before = adapt(POOL, tmp_path / "before", model=tiny_lm, recipe=str(recipe), settings=SETTINGS, context=QUIET)
    alike = run(tmp_path / "alike", before, options=NOT_ADAPTED)
    assert done.record["ensemble"]["candidates"] == alike.record["ensemble"]["candidates"]
    for name in ("ensemble", "ulmfit"):
        assert np.array_equal(answers(done, name), answers(alike, name)), name
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.lm", "before", "alike"}


@pytest.mark.slow
def test_each_of_several_is_judged_and_reads_for_itself(
    tmp_path: Path, tiny_lm: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, judged = EarlyRejection.rejection, list[EarlyRejection]()

    def rejection(self: EarlyRejection, logits: np.ndarray, folds: int) -> str | None:
        first = len(judged) == 0
        judged.append(self)
        return "so the judge says" if first and self.before_adapting else real(self, logits, folds)

    monkeypatch.setattr(EarlyRejection, "rejection", rejection)
    gpt = write_family(tmp_path, "gpt")
    done = run(tmp_path / "out", f"{tiny_lm}+{gpt}")
    assert trained == ["ulmfit as it is, fold 1 of 2", *(f"gpt {name}" for name in ("as it is, fold 1 of 2", *AFTER))]
    assert done.language_models == {"gpt": tmp_path / "out.gpt.lm"}
    assert {path.name for path in tmp_path.iterdir()} == {"gpt", "out", "out.gpt.lm"}
    assert done.record["ensemble"]["left_out"]["ulmfit"] == "so the judge says"
    assert "; the fine-tuned model was so the judge says" in done.comparison.chosen


@pytest.mark.slow
def test_who_is_not_does_not_and_it_says_so(
    tmp_path: Path, tiny_lm: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeless(monkeypatch)
    done = run(tmp_path / "out", tiny_lm)
    assert trained == ["as it is, fold 1 of 2"]
    assert done.language_models == {}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert "ulmfit" not in done.record["results"]["methods"]
    assert "ulmfit-probe" in done.record["ensemble"]["candidates"]  # of the model as it is
    assert done.record["ensemble"]["left_out"]["ulmfit"] == "so the judge says"
    saved = textgraft.load(done.folder, precision="fp32").outputs(TEST.texts)
    assert saved == pytest.approx(answers(done, "ensemble"), abs=1e-5)


@pytest.mark.slow
def test_a_probe_of_a_model_that_read_and_was_then_given_up_says_what_it_had_read(
    tmp_path: Path, tiny_lm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        EarlyRejection, "rejection", lambda self, logits, folds: None if self.before_adapting else "so the judge says"
    )
    monkeypatch.setattr(
        model_selection, "ensemble_weights", lambda answers, *_, **__: np.full(len(answers), 1 / len(answers))
    )
    done = run(tmp_path / "out", tiny_lm)
    assert "ulmfit" not in done.record["results"]["methods"]
    assert "ulmfit-probe" in done.record["results"]["methods"]
    assert (done.record["base"]["stage"], done.record["base"]["name"]) == ("adapt", "out.lm")
    before = adapt(
        POOL, tmp_path / "before", model=tiny_lm, recipe=done.record["recipe"], settings=SETTINGS, context=QUIET
    )
    alike = run(tmp_path / "alike", before, options=NOT_ADAPTED)
    assert np.array_equal(answers(done, "ulmfit-probe"), answers(alike, "ulmfit-probe"))


@pytest.mark.slow
def test_the_judge_tells_that_it_had_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_lm: Path) -> None:
    monkeypatch.setattr(early_rejection, "SIGNIFICANCE_LEVEL", 1.1)
    monkeypatch.setattr(early_rejection, "ensemble_weights", lambda answers, *_, **__: np.eye(len(answers))[0])
    monkeypatch.setattr(early_rejection, "losses", lambda kind, targets, outputs: -np.asarray(outputs).max(axis=1))
    said = run(tmp_path / "out", tiny_lm).record["ensemble"]["left_out"]["ulmfit"]
    assert said.startswith("rejected before adaptation to the unlabelled texts, after 1 of 2 folds by its log loss, ")


@pytest.mark.slow
def test_who_names_a_recipe_has_it_read_at_once(
    tmp_path: Path, tiny_lm: Path, recipe: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeless(monkeypatch)
    options = FinetuneOptions(recipe=str(recipe), folds=0, settings=SETTINGS, adapt=SETTINGS)
    done = run(tmp_path / "out", tiny_lm, options=options)
    assert trained == ["seed 0"]
    assert list(done.language_models) == ["ulmfit"]
    assert done.record["base"]["stage"] == "adapt"


@pytest.mark.slow
def test_where_the_fold_is_dear_beside_the_reading_it_is_not_tried(
    tmp_path: Path, tiny_lm: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeless(monkeypatch)
    done = run(tmp_path / "out", tiny_lm, options=replace(OPTIONS, adapt=replace(SETTINGS, minutes=1e-4)))
    assert trained == ["fold 1 of 2", "fold 2 of 2", "seed 0"]
    assert list(done.language_models) == ["ulmfit"]


def test_what_there_is_no_time_for_is_neither_adapted_nor_tried(
    tmp_path: Path, tiny_lm: Path, trained: list[str]
) -> None:
    briefly = replace(SETTINGS, minutes=1e-4)
    done = run(tmp_path / "out", tiny_lm, options=replace(OPTIONS, adapt=briefly, minutes=1e-6))
    assert trained == []
    assert done.language_models == {}
    assert "not begun: it would take about" in done.record["ensemble"]["left_out"]["ulmfit"]


def test_what_reading_and_a_fold_cost_is_known_before(tmp_path: Path, tiny_lm: Path, recipe: Path) -> None:
    source, stage = loading.load_network(tiny_lm), load_recipe(str(recipe))
    about = count_adaptation_tokens(POOL, source, stage.adapt, None)
    folder = adapt(POOL, tmp_path / "lm", model=tiny_lm, recipe=str(recipe), settings=SETTINGS, context=QUIET)
    assert about == pytest.approx(json.loads((folder / "run.json").read_text())["tokens_seen"], rel=0.15)
    assert count_adaptation_tokens(POOL, source, stage.adapt, 0.01) == 2_400
    labels = Labels.fit(TRAIN)
    reading = encode_parts(source, {"train": TRAIN}, labels, 512)
    plan = Plan(source.model, False, stage.finetune, SETTINGS, labels, None, source.tokenizer.pad_id)
    splits = [(list(range(12)), list(range(12, 24)))]
    training_config = TrainingConfig("folds", 1, splits, RunContext(tmp_path, 0, show=False))
    lengths = [len(ids) for ids in reading.parts["train"].sequences[:12]]
    assert fold_tokens(plan, reading, training_config) == pytest.approx(
        2 * 8 * np.mean(lengths)
    )  # two steps of eight texts
    longer = replace(plan, stage=replace(stage.finetune, min_steps=10))
    assert fold_tokens(longer, reading, training_config) == pytest.approx(10 * 8 * np.mean(lengths))


OTHER_PLACES = [pytest.param(at, marks=pytest.mark.slow) for at in (2, 13, 17)]


@pytest.mark.slow
@pytest.mark.parametrize("at", [9, 15, 22, *OTHER_PLACES])
def test_killed_anywhere_it_ends_the_same(
    at: int, peace: FinetuneResult, tmp_path: Path, tiny_lm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`at` counts the files that a run puts in place."""
    with killed_at(at, monkeypatch):
        run(tmp_path / "out", tiny_lm)
    again = run(tmp_path / "out", tiny_lm)
    assert again.comparison.chosen == peace.comparison.chosen
    for one, other in zip(again.comparison.outcomes, peace.comparison.outcomes, strict=True):
        assert np.array_equal(one.outputs, other.outputs)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.lm"}


def test_what_reading_would_trip_over_is_told_first(
    tmp_path: Path, tiny_lm: Path, trained: list[str], recipe: Path
) -> None:
    with pytest.raises(UserError, match="too few to adapt a language model to"):
        run(tmp_path / "out", tiny_lm, unlabelled=POOL[:10], options=replace(OPTIONS, recipe=str(recipe)))
    with pytest.raises(UserError, match=r"^1 text is too few to adapt"):
        adapt(POOL[:1], tmp_path / "out", model=tiny_lm, settings=SETTINGS, context=QUIET)
    adapt(POOL[:100], tmp_path / "out.lm", model=tiny_lm, settings=SETTINGS, context=QUIET)
    with pytest.raises(UserError, match="was not adapted from the same model on the same texts"):
        run(tmp_path / "out", tiny_lm)
    assert trained == []


def test_model_selection_goes_on_without_adapting_to_too_few_texts(tmp_path: Path, tiny_lm: Path) -> None:
    with pytest.warns(DataWarning, match="10 texts are too few to adapt a language model to. None is adapted"):
        done = run(tmp_path / "out", tiny_lm, unlabelled=POOL[:10])
    assert done.language_models == {}
    assert done.folder.is_dir()


@pytest.mark.slow
def test_another_way_to_read_is_another_run(tmp_path: Path, tiny_lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(fine_tuned, "train_classifier", killed)
        with pytest.raises(Killed):
            run(tmp_path / "out", tiny_lm)
    with pytest.raises(UserError, match=r"differs in: adapt\."):
        run(tmp_path / "out", tiny_lm, options=NOT_ADAPTED)


@pytest.mark.slow
def test_compare_reads_for_the_first_training_that_asks_and_counts_it_once(
    tmp_path: Path, tiny_lm: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = MethodOptions(model=str(tiny_lm), recipe=str(recipe), precision="fp32", seeds=1, show=False)
    asked: dict[str, Any] = {"test": TEST, "unlabelled": POOL, "methods": ["default"], "labels": [24]}
    read: list[float] = []
    real = fine_tuned.adapt_seconds
    monkeypatch.setattr(fine_tuned, "adapt_seconds", lambda source: read.append(real(source)) or 3_000.0)
    found = compare(TRAIN, tmp_path / "read", **asked, options=options)
    assert read
    assert read[-1] > 0
    minutes = found["budgets"][0]["methods"]["default"]["minutes"]
    assert 50 < minutes < 60  # not twice
    with monkeypatch.context() as patch:
        hopeless(patch)
        read.clear()
        compare(TRAIN, tmp_path / "before_adapting", **asked, options=options)
        assert read == []


@pytest.mark.slow
def test_compare_gives_up_who_would_take_longer_than_the_minutes(
    tmp_path: Path, tiny_lm: Path, recipe: Path, trained: list[str]
) -> None:
    options = MethodOptions(model=str(tiny_lm), recipe=str(recipe), precision="fp32", seeds=1, show=False, minutes=1e-6)
    asked: dict[str, Any] = {"test": TEST, "unlabelled": POOL, "methods": ["default"], "labels": [24]}
    found = compare(TRAIN, tmp_path / "brief", **asked, options=options)
    assert trained == []
    assert found["run"]["minutes"] == 1e-6
    trained.clear()
    compare(TRAIN, tmp_path / "patient", **asked, options=replace(options, minutes=60.0), reuse=tmp_path / "brief")
    assert len(trained) > 3  # nothing of the brief one serves
    with pytest.raises(UserError, match="above 0"):
        replace(options, minutes=0.0)

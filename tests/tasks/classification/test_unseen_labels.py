"""Labels that training lacks: mistakes of the model that are named, in every path that measures one."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from made_up_reviews import reviews
from sklearn.metrics import accuracy_score, log_loss

import textgraft
from textgraft.comparison.compare import compare
from textgraft.comparison.methods import MethodOptions
from textgraft.core.context import QUIET
from textgraft.core.errors import DataWarning, UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.unseen_labels import UnseenLabels

TOLD = (
    "2 texts have a label that training lacked ('mixed', 'so-so') and count as mistakes; log loss is of the other 20."
)


def labelled(count: int, seed: int, *more: tuple[str, str]) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples([*texts, *(t for t, _ in more)], [*labels, *(y for _, y in more)], "single", source=f"{seed}.csv")


TRAIN = labelled(24, 1)
TEST = labelled(20, 2, ("neither here nor there", "so-so"), ("good and bad", "mixed"))


def test_they_are_counted_by_label_and_by_text() -> None:
    single = UnseenLabels.of(Labels("single", ("a", "b", "c", "d")), 2, np.array([0, 2, 1, 2, 3]))
    assert (single.counts, single.texts) == ({"c": 2, "d": 1}, 3)
    assert str(single).endswith("and count as mistakes; log loss is of the other 2.")
    sets = UnseenLabels.of(Labels("multi", ("a", "b", "c")), 1, np.array([[1, 1, 1], [1, 0, 0], [0, 0, 1]]))
    assert (sets.counts, sets.texts) == ({"b": 1, "c": 2}, 2)  # a text may have two of them
    assert str(sets).endswith("log loss is of the labels that training had.")
    nothing = UnseenLabels.of(Labels("numeric"), 1, np.zeros(3))
    assert (bool(nothing), str(nothing)) == (False, "")


def test_a_fine_tuning_measures_them_as_mistakes(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="2 texts with a label that is not in training: 'mixed', 'so-so'") as warned:
        done = finetune(
            TRAIN, tmp_path / "out", test=TEST, options=FinetuneOptions(method="linear", folds=2), context=QUIET
        )
    assert {one.filename for one in warned} == {__file__}
    assert len(repr(done)) < 300
    assert "of 22 texts are right." in repr(done)
    page = done._repr_html_()
    assert "of 22 texts are right." in page
    assert "&#x27;so-so&#x27;" in page  # escaped
    assert done.times.startswith("Time: ")
    assert "scored after: linear " in done.times
    run = json.loads((done.folder / "run.json").read_text())
    assert TOLD in run["results"]["verdict"]
    assert run["results"]["unseen_labels"] == {"mixed": 1, "so-so": 1}
    assert run["classes"] == ["neg", "pos"]  # the model's
    model = textgraft.load(done.folder)
    predicted = [p.label for p in model.predict(TEST.texts)]
    shown = run["results"]["methods"]["ensemble"]
    assert shown["accuracy"]["mean"] == pytest.approx(accuracy_score(TEST.labels, predicted))
    expected = log_loss(TEST.labels[:20], model.outputs(TEST.texts)[:20], labels=["neg", "pos"])
    assert shown["log_loss"]["mean"] == pytest.approx(expected)
    report = (done.folder / "report.html").read_text()
    assert "so-so" in report
    with pytest.warns(DataWarning, match="22 texts|label that training lacked"):
        evaluated = textgraft.evaluate(done.folder, TEST)
    assert evaluated["log_loss_of"] == "the other 20"
    assert evaluated["metrics"]["accuracy"] == pytest.approx(shown["accuracy"]["mean"])
    assert [c["name"] for c in evaluated["classes"]] == ["neg", "pos", "mixed", "so-so"]
    assert evaluated["coverage"][0]["accuracy"] == pytest.approx(shown["accuracy"]["mean"])


def test_a_validation_set_with_them_guides_the_training_by_the_others(tmp_path: Path, tiny_lm: Path) -> None:
    path = tmp_path / "quick.toml"
    path.write_text(
        'name = "quick"\ndescription = "d"\nsource = "none"\n[finetune]\nbatch_size = 8\n'
        '[[finetune.phases]]\nname = "all"\nepochs = 1\nlr = 0.01\n'
    )
    options = FinetuneOptions(recipe=str(path), baselines=False)
    with pytest.warns(DataWarning):
        done = finetune(TRAIN, tmp_path / "out", model=tiny_lm, valid=TEST, options=options, context=QUIET)
    (member,) = done.members.values()
    assert all(np.isfinite(row["loss"]) for row in member.runs[0].history if "loss" in row)
    assert TOLD in done.comparison.verdict()
    assert done.comparison.scores(done.comparison.outcomes[0])[:, 20:].sum() == 0


@pytest.mark.slow
def test_python_warns_of_test_texts_that_were_trained_on(tmp_path: Path) -> None:
    options = FinetuneOptions(method="linear", folds=2)
    with pytest.warns(DataWarning, match=r"24 texts of the test set \(100.0%\) are in the training texts too"):
        finetune(TRAIN, tmp_path / "out", test=TRAIN, options=options, context=QUIET)
    pool = [*TEST.texts, "another text"]
    with pytest.warns(DataWarning, match=r"22 texts of the test set \(100.0%\) are in the unlabelled texts too"):
        finetune(TRAIN, tmp_path / "pool", test=TEST, unlabelled=pool, options=options, context=QUIET)


def test_learning_curves_measure_them_as_mistakes(tmp_path: Path) -> None:
    options = MethodOptions(seeds=1, show=False)
    with pytest.warns(DataWarning, match="not in training"):
        results = compare(TRAIN, tmp_path / "out", test=TEST, methods=["linear"], labels=["all"], options=options)
    assert results["unseen_labels"] == {"mixed": 1, "so-so": 1}
    assert results["verdict"][-1] == TOLD
    assert results["budgets"][0]["methods"]["linear"]["accuracy"]["mean"] <= 20 / 22
    assert TOLD.replace("'", "&#x27;") in (tmp_path / "out" / "report.html").read_text()


def test_a_test_set_of_other_labels_is_refused(tmp_path: Path) -> None:
    test = Examples(["a", "b"], ["ship", "hull"], "single")
    with pytest.raises(UserError, match="'hull' is not one of: neg, pos"):
        finetune(TRAIN, tmp_path / "out", test=test, options=FinetuneOptions(method="linear"), context=QUIET)


def test_an_estimator_scores_them_as_mistakes_without_a_word() -> None:
    classifier = textgraft.TextClassifier(method="linear", folds=2).fit(TRAIN.texts, TRAIN.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        score = classifier.score(TEST.texts, TEST.labels)
    assert score == pytest.approx(accuracy_score(TEST.labels, classifier.predict(TEST.texts)))

"""Label names and a few labels as a candidate of `finetune`: when it takes part, what it knows, what is saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_reviews import reviews

from textgraft.core.context import RunContext
from textgraft.data.examples import Examples, Pair
from textgraft.data.labels import Labels
from textgraft.data.splits import stratified_folds
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact, save
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.label_names_candidate import knows_by_name, label_names_candidate
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.vector_cache import VectorCache

POOL = reviews(60, 5)[0]
NAMES = {"pos": "praise", "neg": "blame"}


def labelled(count: int, seed: int = 1) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, [NAMES[label] for label in labels], "single", source="a")


def selection(train: Examples, folder: Path, test: Examples | None = None) -> SelectionContext:
    split = "folds" if test is None else "test"
    context = RunContext(folder, 0, precision="fp32")
    return SelectionContext(train, test, split, Labels.fit(train), POOL, stratified_folds(train, 4, 0), context)


@pytest.fixture
def encoder(tiny_lm: Path) -> Artifact:
    """A sentence encoder whose vectors have any length."""
    return replace(loading.load_network(tiny_lm), embedding=SentenceEmbedding())


def candidate(encoder: Artifact, selected: SelectionContext) -> Candidate:
    vectors = VectorCache(encoder, precision="fp32")
    return label_names_candidate("lm-label-names", encoder, selected, vectors, vectors, POOL)


@pytest.mark.parametrize(
    ("labels", "takes_part"),
    [
        (["refund", "delivery"] * 8, True),
        (["refund", "delivery"] * 9, False),  # more than eight of each
        (["0", "1"] * 4, False),
        (["label_1", "label_2"] * 4, False),
        (["a", "b"] * 4, False),
        (["คืนเงิน", "จัดส่ง"] * 4, True),
    ],
)
def test_it_takes_part_where_names_describe_few_labelled_texts(
    labels: list[str], takes_part: bool, tmp_path: Path
) -> None:
    texts = [f"text {i}" for i in range(len(labels))]
    assert knows_by_name(selection(Examples(texts, labels, "single"), tmp_path)) is takes_part


def test_pairs_and_several_labels_are_left_out(tmp_path: Path) -> None:
    pairs = Examples([Pair(f"a {i}", f"b {i}") for i in range(8)], ["refund", "delivery"] * 4, "single")
    several = Examples([f"text {i}" for i in range(8)], [("refund",), ("refund", "delivery")] * 4, "multi")
    for train in (pairs, several):
        selected = replace(selection(labelled(8), tmp_path), train=train, labels=Labels.fit(train))
        assert not knows_by_name(selected)


def test_what_is_saved_answers_as_what_was_measured(encoder: Artifact, tmp_path: Path) -> None:
    test = labelled(30, 2)
    made = candidate(encoder, selection(labelled(12), tmp_path / "work", test))
    saved = save(made.predictor({"stage": "finetune", "max_tokens": 200, "reads": "texts"}), tmp_path / "saved")
    answers = Classifier([loading.load_network(saved)], precision="fp32").predict(test.texts)
    probabilities = [[answer.probabilities[name] for name in ("blame", "praise")] for answer in answers]
    np.testing.assert_allclose(probabilities, made.outcome.outputs[0], atol=1e-6)
    assert "a few labels on the frozen model: self-training" in made.outcome.about


def test_no_fold_knows_the_labels_that_it_holds_out(encoder: Artifact, tmp_path: Path) -> None:
    train = labelled(12)
    first = selection(train, tmp_path / "first")
    held_out = first.held_out_folds[0]
    wrong = [("praise", "blame")[label == "praise"] if i in held_out else label for i, label in enumerate(train.labels)]
    other = replace(first, train=replace(train, labels=wrong), run=first.run.at(tmp_path / "other"))
    before, after = (candidate(encoder, one).outcome.raw[0] for one in (first, other))
    np.testing.assert_array_equal(before[held_out], after[held_out])
    assert not np.allclose(np.delete(before, held_out, 0), np.delete(after, held_out, 0))


def test_finetune_tries_it_and_repeats_it(encoder: Artifact, tmp_path: Path) -> None:
    lm = artifact.save(encoder, tmp_path / "lm")
    rungs = {"ulmfit-label-names": 50}
    options = FinetuneOptions(rungs=rungs, folds=2, baselines=True, report=False)
    done = finetune(labelled(12), tmp_path / "out", model=lm, unlabelled=POOL, options=options)
    assert done.record["rungs"] == rungs
    assert set(done.record["ensemble"]["candidates"]) == {"linear", "ulmfit-label-names"}
    many = finetune(labelled(40), tmp_path / "many", model=lm, unlabelled=POOL, options=options)
    assert set(many.record["ensemble"]["candidates"]) == {"linear"}

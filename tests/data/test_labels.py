"""Labels as numbers, and splits that leave every class in training."""

import math
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.readers import read
from textgraft.data.splits import sample_per_class, stratified_folds, stratified_split

NAMES = st.lists(st.sampled_from("abcde"), min_size=6, max_size=60).filter(lambda names: len(set(names)) > 1)


def examples_of(labels: list, **options: str) -> Examples:
    return read(([f"text {i}" for i in range(len(labels))], labels), **options)


def test_single_labels_become_class_numbers_in_sorted_order() -> None:
    examples = examples_of(["pos", "neg", "pos"])
    labels = Labels.fit(examples)
    assert labels.names == ("neg", "pos")
    targets = labels.encode(examples)
    assert targets.dtype == np.int64
    assert targets.tolist() == [1, 0, 1]
    assert labels.decode(targets) == examples.labels


def test_several_labels_become_rows_of_zeros_and_ones() -> None:
    examples = examples_of([["b", "a"], [], ["c"]])
    labels = Labels.fit(examples)
    targets = labels.encode(examples)
    assert targets.dtype == np.float32
    assert targets.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert labels.decode(targets * 0.4 + 0.2) == [("a", "b"), (), ("c",)]


def test_numbers_are_scaled_to_zero_mean_and_unit_variance_and_back() -> None:
    examples = examples_of([1.5, 2.5, 7.0])
    labels = Labels.fit(examples)
    targets = labels.encode(examples)
    assert targets.dtype == np.float32
    assert targets.mean() == pytest.approx(0, abs=1e-6)
    assert targets.std() == pytest.approx(1)
    assert labels.decode(targets) == pytest.approx(examples.labels)


def test_a_small_test_file_that_looks_like_another_kind_still_encodes() -> None:
    scores = Labels.fit(examples_of([0.5, 1.5, 3.0]))
    assert scores.decode(scores.encode(examples_of(["1", "3"]))) == pytest.approx([1.0, 3.0])
    codes = Labels.fit(examples_of(list(range(30)), kind="single"))
    assert codes.encode(examples_of(list(range(29, 0, -1)))).tolist() == [
        codes.names.index(str(n)) for n in range(29, 0, -1)
    ]


def test_an_unseen_label_names_the_line_the_classes_and_the_nearest() -> None:
    labels = Labels("single", ("negative", "positive"))
    examples = Examples(["a", "b"], ["positive", "postive"], "single", lines=[2, 37], source="train.csv")
    with pytest.raises(UserError) as caught:
        labels.encode(examples)
    assert str(caught.value) == (
        "train.csv line 37: label 'postive' is not one of: negative, positive. Did you mean 'positive'?"
    )


@pytest.mark.parametrize(
    ("label", "kind", "remedy"),
    [
        ("neg|pos", "multi", "say what separates them: label_separator='|'."),
        ("pos, neg", "multi", "label_separator=','."),
        ("neg pos", "multi", "label_separator=' '."),
        ("pos|", "multi", "label_separator='|'."),
        ("pos|odd", "multi", "Did you mean 'pos'?"),
        ("posneg", "multi", "Did you mean 'pos'?"),
        ("|", "multi", "Correct it"),
        ("neg|pos", "single", "Did you mean 'pos'?"),
    ],
)
def test_labels_that_are_not_parted_are_told_by_the_separator(label: str, kind: Any, remedy: str) -> None:
    with pytest.raises(UserError, match=f"label '{re.escape(label)}' is not one of: neg, pos. ") as caught:
        Labels(kind, ("neg", "pos")).encode(Examples(["a"], [label], "single", source="test.csv"))
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["x", "x"], "every label is 'x'"),
        (["x", None], "row 2: the label is missing"),
        ([0.5, 0.5], "every label is 0.5"),
        ([0.5, None], "row 2: the label is missing"),
        ([["x"], ["x"]], "every text has the labels 'x'"),
        ([[], []], "every text has the labels"),
    ],
)
def test_labels_that_nothing_can_be_learnt_from_are_refused(labels: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Labels.fit(examples_of(labels))


def test_labels_that_only_the_test_set_has_come_after_those_of_training() -> None:
    labels = Labels("single", ("cat", "dog"))
    examples = examples_of(["dog", "ship", None, "ant", "cat"])
    covering = labels.covering(examples)
    assert covering.names == ("cat", "dog", "ant", "ship")
    assert covering.encode(examples_of(["dog", "ship", "cat"])).tolist() == [1, 3, 0]
    assert labels.covering(examples_of(["dog", "cat"])) is labels
    sets = Labels("multi", ("a", "b")).covering(examples_of([["a", "c"], [], ["b"]]))
    assert sets.encode(examples_of([["a", "c"], []])).tolist() == [[1, 0, 1], [0, 0, 0]]
    numbers = Labels("numeric", mean=1.0)
    assert numbers.covering(examples_of([7.0])) is numbers


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("single", ["ship", "hull"], "row 2: label 'hull' is not one of: a, b"),  # a wrong column
        ("multi", [["a"], ["a|b"]], "row 2: label 'a.b' is not one of: a, b"),  # not separated
    ],
)
def test_a_test_set_without_any_known_label_is_refused(kind: Any, labels: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Labels(kind, ("a", "b")).covering(examples_of(labels))


def test_unlabelled_texts_are_refused() -> None:
    for use in (Labels.fit, Labels("single", ("a", "b")).encode):
        with pytest.raises(UserError, match="no labels"):
            use(read(["a", "b"]))


def test_balanced_weights_are_scikit_learns_for_single_labels() -> None:
    names = ["a"] * 7 + ["b"] * 2 + ["c"]
    labels = Labels.fit(examples_of(names))
    expected = compute_class_weight("balanced", classes=np.array(labels.names), y=names)
    assert labels.class_weights(examples_of(names), "balanced") == pytest.approx(expected)
    assert labels.class_weights(examples_of(names), "none") is None
    assert labels.class_weights(examples_of(names), {"c": 3}).tolist() == [1, 1, 3]


def test_balanced_weights_of_several_labels_even_out_positive_and_negative() -> None:
    examples = examples_of([["a", "b"], ["a"], ["a"], []])
    assert Labels.fit(examples).class_weights(examples, "balanced") == pytest.approx([1 / 3, 3])


@pytest.mark.parametrize("weights", ["uniform", {"d": 1.0}, {"a": 0.0}, {"a": math.nan}, {"a": "2"}])
def test_class_weights_that_make_no_sense_are_refused(weights: object) -> None:
    examples = examples_of(["a", "b"])
    with pytest.raises(UserError):
        Labels.fit(examples).class_weights(examples, weights)


@pytest.mark.parametrize("labels", [Labels("single", ("é", "b")), Labels("multi", ("a",)), Labels("numeric", (), 2, 3)])
def test_labels_survive_json(labels: Labels) -> None:
    assert Labels.from_json(labels.to_json()) == labels


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "null",
            '{"kind": "single"',
            '{"kind": "single", "names": []}',
            '{"kind": "ordinal", "names": ["a"]}',
        ),
        *(
            '{"kind": "single", "names": ["a", "a"]}',
            '{"kind": "numeric", "std": 0}',
            '{"kind": "numeric", "mean": NaN}',
        ),
        *('{"kind": "single", "names": [1, 2]}', '{"kind": ["single"], "names": ["a"]}'),
    ],
)
def test_damaged_labels_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"model/labels\.json: this is not a set of labels"):
        Labels.from_json(text, where="model/labels.json")


def test_a_sample_per_class_is_even_and_repeats_with_its_seed() -> None:
    examples = examples_of(["a", "b", "c"] * 20 + ["d"])
    chosen = sample_per_class(examples, 5, seed=3)
    assert Counter(examples.take(chosen).labels) == {"a": 5, "b": 5, "c": 5, "d": 1}
    assert chosen == sorted(chosen) == sample_per_class(examples, 5, seed=3)
    assert chosen != sample_per_class(examples, 5, seed=4)


def test_a_stratified_split_keeps_the_proportions() -> None:
    examples = examples_of(["a"] * 70 + ["b"] * 20 + ["c"] * 10)
    train, held = stratified_split(examples, 0.2, seed=0)
    assert Counter(examples.take(held).labels) == {"a": 14, "b": 4, "c": 2}
    assert sorted(train + held) == list(range(100))
    assert stratified_split(examples, 20, seed=0) == (train, held)
    assert stratified_split(examples, 20, seed=1) != (train, held)


@settings(max_examples=80)
@given(NAMES, st.integers(1, 30), st.integers(2, 6), st.integers(0, 5))
def test_every_class_stays_in_training(names: list[str], held_out: int, k: int, seed: int) -> None:
    examples = examples_of(names)
    splits = []
    if held_out <= len(names) - len(set(names)):
        splits.append(stratified_split(examples, held_out, seed))
        assert len(splits[0][1]) == held_out
    folds = stratified_folds(examples, k, seed) if sum(n for n in Counter(names).values() if n > 1) >= k else []
    for train, held in splits + folds:
        assert set(examples.take(train).labels) == set(names)
        assert sorted(train + held) == list(range(len(names)))
    held = [i for _, fold in folds for i in fold]
    assert len(held) == len(set(held))
    if folds:
        sizes = [len(fold) for _, fold in folds]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=3), min_size=8, max_size=40), st.integers(0, 3))
def test_every_label_of_many_stays_in_training(sets: list[list[str]], seed: int) -> None:
    examples = examples_of(sets, kind="multi")
    if examples.labels is None or not any(examples.labels):
        return
    everything = {name for names in sets for name in names}
    for train, _ in stratified_folds(examples, 2, seed):
        assert {name for i in train for name in sets[i]} == everything


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from("tuvwxyz"), st.sampled_from("ab")), min_size=6, max_size=40), st.integers(0, 3)
)
def test_copies_of_a_text_are_on_one_side(rows: list[tuple[str, str]], seed: int) -> None:
    texts, names = zip(*rows, strict=True)
    examples = Examples(texts, names, "single")
    splits = []
    with suppress(UserError):
        splits.append(stratified_split(examples, 0.3, seed))
    with suppress(UserError):
        splits += stratified_folds(examples, 2, seed)
    contradicting = {text for text in texts if len({name for other, name in rows if other == text}) > 1}
    for train, held in splits:
        assert sorted(train + held) == list(range(len(rows)))
        assert {names[i] for i in train} == set(names)
        assert {texts[i] for i in train} & {texts[i] for i in held} <= contradicting


def test_held_out_is_a_share_of_the_different_texts() -> None:
    once = examples_of(["a"] * 30 + ["b"] * 20)
    twice = Examples([*once.texts] * 2, [*once.labels] * 2, "single")
    assert stratified_split(twice, 0.2, 1)[1] == [*(h := stratified_split(once, 0.2, 1)[1]), *(i + 50 for i in h)]
    for (_, alone), (_, both) in zip(stratified_folds(once, 5, 1), stratified_folds(twice, 5, 1), strict=True):
        assert both == [*alone, *(i + 50 for i in alone)]


def test_numbers_are_split_across_their_range() -> None:
    examples = examples_of([i + 0.5 for i in range(100)])
    _, held = stratified_split(examples, 0.1, seed=0)
    assert sorted(i // 10 for i in held) == list(range(10))


def test_unlabelled_texts_split_at_random() -> None:
    train, held = stratified_split(read([f"t{i}" for i in range(50)]), 0.1, seed=0)
    assert (len(train), len(held)) == (45, 5)


def test_splits_that_cannot_be_made_are_refused() -> None:
    examples = examples_of(["a", "a", "b", "b"])
    for attempt in (
        lambda: stratified_split(examples, 3, seed=0),
        lambda: stratified_split(examples, 0.0, seed=0),
        lambda: stratified_folds(examples, 5, seed=0),
        lambda: stratified_folds(examples, 1, seed=0),
        lambda: stratified_folds(examples_of(["a", "b", "c"]), 2, seed=0),
        lambda: sample_per_class(examples, 0, seed=0),
        lambda: sample_per_class(examples_of([0.5, 1.5]), 1, seed=0),
    ):
        with pytest.raises(UserError):
            attempt()

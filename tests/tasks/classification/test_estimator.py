"""TextClassifier and TextEmbedder as scikit-learn uses them.

Of scikit-learn's own checks those apply that need no numeric X: construction, parameters, cloning, tags, mixins, the
unfitted estimator. The rest draw matrices of numbers, which are refused here with an error of our own.
"""

import copy
import doctest
import pickle
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import textgraft
from textgraft.cli import main
from textgraft.core.errors import UserError
from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.tasks.classification import early_rejection, estimator
from textgraft.tasks.classification.embedder import TextEmbedder
from textgraft.tasks.classification.estimator import TextClassifier
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.text.tokenizer import Tokenizer

WORDS = {"good": "great wonderful superb lovely", "bad": "awful terrible boring poor", "food": "tasty salty fresh ripe"}
LINEAR: dict[str, Any] = {"method": "linear"}
RECIPE = """
name = "quick"
description = "A few fast epochs of everything."
source = "these tests"

[adapt]
batch_size = 2
bptt = 10
phases = [{ name = "all", epochs = 1, lr = 0.001 }]

[finetune]
batch_size = 4
phases = [{ name = "all", epochs = 10, lr = 0.03 }]
"""


def a_text(topic: str, generator: random.Random) -> str:
    return " ".join(generator.choice([*WORDS[topic].split(), "the", "was", "it"]) for _ in range(10))


def some_texts(topics: list[str], count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    generator = random.Random(seed)
    labels = [topics[i % len(topics)] for i in range(count)]
    return [a_text(label, generator) for label in labels], labels


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The arguments that make training a matter of a moment: a random language model of 16 dimensions, few epochs."""
    folder = tmp_path_factory.mktemp("estimators")
    (folder / "quick.toml").write_text(RECIPE)
    texts, _ = some_texts(list(WORDS), 200)
    tokenizer = Tokenizer.train(texts, kind="word", min_frequency=1)
    torch.manual_seed(0)
    size = {"vocab_size": tokenizer.vocab_size}
    encoder = {"name": "awd_lstm", **size, "embedding_dim": 16, "hidden_dim": 16, "num_layers": 2}
    head = {"name": "language_model", **size, "input_dim": 16}
    model = build({"encoder": encoder, "head": head})
    artifact.save(Artifact(model, tokenizer, None, {"name": "tiny"}), folder / "tiny")
    return {"model": str(folder / "tiny"), "recipe": str(folder / "quick.toml"), "folds": 2}


@pytest.fixture(scope="module")
def fitted(options: dict[str, Any]) -> TextClassifier:
    texts, labels = some_texts(["good", "bad"], 24)
    return TextClassifier(**options).fit(texts, labels)


@pytest.fixture
def quick_default(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments for the default method, the tests' recipe in place of "default"; the model is never rejected early."""
    quick = options["recipe"]
    monkeypatch.setattr(FinetuneOptions, "language_recipe", property(lambda self: self.recipe or quick))
    monkeypatch.setattr(early_rejection, "SIGNIFICANCE_LEVEL", 0.0)
    return {"model": options["model"]}


def write_table(path: Path, texts: list[str], labels: list[str]) -> Path:
    path.write_text("text,label\n" + "".join(f"{t},{label}\n" for t, label in zip(texts, labels, strict=True)))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("named", [{}, {"recipe": "quick"}], ids=["ensemble", "recipe"])
def test_fit_is_what_finetune_of_the_command_line_does(
    named: dict[str, str], options: dict[str, Any], quick_default: dict[str, Any], tmp_path: Path
) -> None:
    """The same probabilities to the digit, from the same data by the same seed; and the saved folders agree."""
    texts, labels = some_texts(["good", "bad"], 24)
    pool, _ = some_texts(list(WORDS), 150, seed=5)
    named = {"recipe": options["recipe"]} if named else {}
    train, unlabelled = write_table(tmp_path / "train.csv", texts, labels), tmp_path / "pool.txt"
    unlabelled.write_text("\n".join(pool))
    command = ["finetune", train, "-o", tmp_path / "cli", "-u", unlabelled, "--model", options["model"], "--seed", 3]
    command += ["--folds", 2]
    command += [word for key, value in named.items() for word in (f"--{key}", value)]
    with pytest.raises(SystemExit) as left:
        main([*map(str, command), "--quiet"])
    assert not left.value.code
    estimator = TextClassifier(**quick_default, **named, unlabelled=pool, folds=2, seed=3).fit(texts, labels)
    fresh, _ = some_texts(["good", "bad"], 20, seed=7)
    p = estimator.predict_proba(fresh)
    np.testing.assert_array_equal(p, textgraft.load(tmp_path / "cli").outputs(fresh))
    np.testing.assert_array_equal(p, TextClassifier.from_artifact(tmp_path / "cli").predict_proba(fresh))
    again = TextClassifier.from_artifact(estimator.save(tmp_path / "estimator"))
    np.testing.assert_array_equal(p, again.predict_proba(fresh))
    theirs = TextClassifier.from_artifact(tmp_path / "cli").candidates_
    assert {name: theirs[name] for name in estimator.candidates_ if name in theirs} == {
        name: one for name, one in estimator.candidates_.items() if name in theirs
    }
    for other in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        np.testing.assert_array_equal(p, other.predict_proba(fresh))


@pytest.mark.slow
def test_the_report_says_what_was_chosen_and_why(quick_default: dict[str, Any]) -> None:
    texts, labels = some_texts(["good", "bad"], 24)
    estimator = TextClassifier(**quick_default).fit(texts, labels)
    report = estimator.report_
    assert (report.method, report.metric, report.evaluated_on, report.texts) == ("ensemble", "accuracy", "folds", 24)
    assert report.interval[0] <= report.score <= report.interval[1]
    assert report.chosen.startswith("Chosen on 24 labels by 5-fold cross-validation: ")
    assert report.seconds > 0
    assert set(estimator.candidates_) == {"linear", "lsa", "co-training", "ulmfit-probe", "ulmfit"}
    assert [estimator.candidates_[name].method for name in ("lsa", "ulmfit-probe", "ulmfit")] == [
        "lsa",
        "linear-probe",
        "fine-tuned",
    ]
    assert sum(one.weight for one in estimator.candidates_.values()) == pytest.approx(1)
    assert estimator.candidates_["lsa"].score is None
    assert estimator.candidates_["lsa"].reason == "there are no unlabelled texts"
    text, page = str(report), report._repr_html_()
    for part in (report.chosen, "co-training", "there are no unlabelled texts", "out of fold"):
        assert part in text
        assert part in page
    assert "NaN" not in text
    bounded = TextClassifier(**quick_default, minutes=1e-6).fit(texts, labels)
    assert bounded.candidates_["ulmfit"].weight == 0
    assert "min are left" in bounded.candidates_["ulmfit"].reason


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "lsa", "vectors", "co-training", "linear-probe", "fine-tuned"])
def test_a_method_that_is_named_is_fitted_alone(method: str, quick_default: dict[str, Any], tmp_path: Path) -> None:
    texts, labels = some_texts(["good", "bad"], 24)
    pool, _ = some_texts(list(WORDS), 150, seed=5)
    estimator = TextClassifier(**quick_default, method=method, folds=2, unlabelled=pool).fit(texts, labels)
    name = {"linear-probe": "ulmfit-probe", "fine-tuned": "ulmfit"}.get(method, method)
    assert {key: (one.weight, one.method) for key, one in estimator.candidates_.items()} == {name: (1, method)}
    assert estimator.report_.method == method
    assert len(estimator.classifier_.members) == 1
    again = TextClassifier.from_artifact(estimator.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(texts), estimator.predict_proba(texts))
    assert again.report_ == estimator.report_


def test_too_few_labels_to_choose_by_are_refused_as_the_command_line_does() -> None:
    with pytest.raises(UserError, match=r"too few different texts to hold any out.* two different ones"):
        TextClassifier(method="linear").fit(["good film", "bad film"], ["pos", "neg"])


@pytest.mark.slow
def test_methods_in_a_grid_search() -> None:
    texts, labels = some_texts(["good", "bad"], 24)
    pool, _ = some_texts(list(WORDS), 150, seed=5)
    search = GridSearchCV(TextClassifier(unlabelled=pool), {"method": ["linear", "lsa"]}, cv=2, error_score="raise")
    assert search.fit(texts, labels).best_score_ >= 0.7


CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_fit_score_takes_y,
    estimator_checks.check_mixin_order,
    estimator_checks.check_estimators_unfitted,
]


def as_texts(X: Any) -> list[str]:
    """The numeric rows that scikit-learn's checks draw, as texts, so that more of the checks apply."""
    return [" ".join(f"w{value:.2f}" for value in row) for row in np.asarray(X).reshape(len(X), -1)]


class NumbersClassifier(TextClassifier):
    """A TextClassifier of rows of numbers."""

    def fit(self, X: Any, y: Any, *, unlabelled: Any = None) -> Any:
        return super().fit(as_texts(X), y)

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(as_texts(X))


class NumbersEmbedder(TextEmbedder):
    """A TextEmbedder of rows of numbers."""

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(as_texts(X), y)

    def transform(self, X: Any) -> Any:
        return super().transform(as_texts(X))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", [NumbersClassifier, NumbersEmbedder])
def test_scikit_learns_own_checks(kind: type, check: Callable[[str, Any], None], options: dict[str, Any]) -> None:
    made = kind(**options) if kind is NumbersClassifier else kind(options["model"])
    check(kind.__name__, made)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimators_pickle,
        estimator_checks.check_transformers_unfitted,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_set_output_transform_pandas,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_checks_of_transformers(check: Callable[[str, Any], None], options: dict[str, Any]) -> None:
    check("NumbersEmbedder", NumbersEmbedder(options["model"]))


def test_the_example_in_the_docstring_runs() -> None:
    found = doctest.testmod(estimator)
    assert found.attempted > 0
    assert found.failed == 0


def test_arguments_are_stored_and_nothing_else() -> None:
    estimator = TextClassifier("no-such-model", recipe="none", class_weights={"a": 2.0})
    assert vars(estimator) == estimator.get_params()
    assert is_classifier(estimator)
    assert clone(estimator).get_params() == estimator.get_params()


@pytest.mark.slow
def test_learns_and_predicts(fitted: TextClassifier) -> None:
    texts, labels = some_texts(["good", "bad"], 20, seed=1)
    p = fitted.predict_proba(texts)
    assert fitted.classes_.tolist() == ["bad", "good"]
    assert fitted.score(texts, labels) >= 0.9
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert fitted.predict(texts).tolist() == fitted.classes_[p.argmax(axis=1)].tolist()


@pytest.mark.parametrize("container", [list, tuple, np.array, pd.Series, pl.Series, iter])
def test_any_row_of_strings_will_do(fitted: TextClassifier, container: Callable[[list[str]], Any]) -> None:
    texts, _ = some_texts(["good", "bad"], 5, seed=2)
    np.testing.assert_array_equal(fitted.predict_proba(container(texts)), fitted.predict_proba(texts))


def test_no_texts_no_predictions(fitted: TextClassifier, options: dict[str, Any]) -> None:
    assert fitted.predict_proba([]).shape == (0, 2)
    assert fitted.predict([]).shape == (0,)
    assert TextEmbedder(options["model"], pooling="concat").fit([]).transform([]).shape == (0, 48)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [(["no", "yes"], np.str_), ([3, 11], np.integer), ([False, True], np.bool_), ([1.0, 2.0], np.floating)],
    ids=["str", "int", "bool", "float"],
)
def test_labels_come_back_as_they_came(values: list[Any], dtype: type, tmp_path: Path) -> None:
    texts, topics = some_texts(["good", "bad"], 16)
    y = np.array([values[topic == "good"] for topic in topics])
    estimator = TextClassifier(**LINEAR).fit(texts, y)
    assert estimator.classes_.tolist() == values
    assert np.issubdtype(estimator.predict(texts).dtype, dtype)
    assert estimator.score(texts, y) >= 0.9
    again = TextClassifier.from_artifact(estimator.save(tmp_path / "model"))
    assert again.classes_.dtype == estimator.classes_.dtype
    np.testing.assert_array_equal(again.predict_proba(texts), estimator.predict_proba(texts))


def test_eleven_integers_keep_their_own_order() -> None:
    """As strings, 10 comes before 2: the columns of predict_proba must not."""
    texts, topics = some_texts(["good", "bad"], 24)
    y = [2 if topic == "good" else 10 for topic in topics]
    estimator = TextClassifier(**LINEAR).fit(texts, y)
    assert estimator.classes_.tolist() == [2, 10]
    assert estimator.score(texts, y) >= 0.9
    assert estimator.predict_proba(texts)[0, 0] > 0.5


@pytest.mark.parametrize("form", ["matrix", "nested", "lists", "sets"])
def test_several_labels_a_text(form: str, tmp_path: Path) -> None:
    topics = ["good", "food"]
    generator = random.Random(0)
    truth = [[i & 1, i >> 1 & 1, 0] for i in range(4)] * 6
    texts = [" ".join(["the was it", *(a_text(t, generator) for t, on in zip(topics, row) if on)]) for row in truth]
    names = [[t for t, on in zip(topics, row) if on] for row in truth]
    y: Any = {"matrix": np.array(truth), "nested": truth, "lists": names, "sets": [set(n) for n in names]}[form]
    estimator = TextClassifier(**LINEAR).fit(texts, y)
    predicted = estimator.predict(texts)
    if form in ("matrix", "nested"):
        assert predicted.shape == (24, 3)
        assert estimator.classes_.tolist() == [0, 1, 2]
    else:
        assert isinstance(predicted[0], tuple)
        assert estimator.classes_.tolist() == ["food", "good"]
    assert estimator.score(texts, y) >= 0.8
    again = TextClassifier.from_artifact(estimator.save(tmp_path / "model"))
    assert again.score(texts, y) == estimator.score(texts, y)
    np.testing.assert_array_equal(again.predict(texts), predicted)


NAMED = [["good"], ["food"], ["good", "food"], []] * 6


@pytest.mark.parametrize(
    "y",
    [
        [str(names) for names in NAMED],
        [str(np.array(names)) for names in NAMED],
        [np.array(names) for names in NAMED],
        pd.Series([str(names) for names in NAMED]),
        [{"good": float("good" in names), "food": float("food" in names)} for names in NAMED],
        [{"choices": names} for names in NAMED],
    ],
    ids=["pandas", "numpy", "arrays", "series", "cats", "choices"],
)
def test_several_labels_a_text_in_the_shapes_of_files(y: Any) -> None:
    texts = [" ".join(["the was it", *(a_text(t, random.Random(i)) for t in names)]) for i, names in enumerate(NAMED)]
    estimator = TextClassifier(**LINEAR).fit(texts, y)
    assert estimator.classes_.tolist() == ["food", "good"]
    assert set(estimator.predict(texts)[2]) == {"food", "good"}
    assert estimator.score(texts, y) >= 0.8


def test_vectors_as_text_and_frames_of_vectors_are_a_matrix() -> None:
    texts = [" ".join(["the was it", *(a_text(t, random.Random(i)) for t in names)]) for i, names in enumerate(NAMED)]
    rows = [[int("good" in names), int("food" in names)] for names in NAMED]
    numbered = TextClassifier(**LINEAR).fit(texts, list(map(str, rows)))
    assert numbered.classes_.tolist() == [0, 1]
    assert numbered.predict(texts).tolist()[2] == [1, 1]
    named = TextClassifier(**LINEAR).fit(texts, pd.DataFrame(rows, columns=["good", "food"]))
    assert named.classes_.tolist() == ["good", "food"]
    np.testing.assert_array_equal(named.predict(texts), numbered.predict(texts))
    assert named.classifier_.labels.names == ("food", "good")


@pytest.mark.slow
@pytest.mark.parametrize(
    "y",
    [
        ["good", "bad", None] * 8,
        ["good", "bad", ""] * 8,
        pd.Series(["good", "bad", float("nan")] * 8),
        pl.Series(["good", "bad", None] * 8),
        [1.0, 0.0, np.nan] * 8,
        pd.array([1, 0, None] * 8),
    ],
)
def test_texts_without_a_label_are_unlabelled(y: Any) -> None:
    """As if they had been given apart."""
    texts, topics = some_texts(["good", "bad", "food"], 24)
    keep = [i for i, topic in enumerate(topics) if topic != "food"]
    with pytest.warns(UserWarning, match="8 of 24 texts have no label and are used as unlabelled text"):
        fitted = TextClassifier(method="co-training").fit(texts, y)
    labels = [("0", "1")[topics[i] == "good"] for i in keep]
    apart = TextClassifier(method="co-training", unlabelled=[texts[i] for i in range(24) if i not in keep])
    apart.fit([texts[i] for i in keep], labels)
    np.testing.assert_allclose(fitted.predict_proba(texts), apart.predict_proba(texts))
    assert fitted.classifier_.labels.names in (("bad", "good"), ("0", "1"))


@pytest.mark.parametrize(
    "y",
    [
        [["good"], ["bad"], None, ["good", "bad"]] * 6,
        ["['good']", "['bad']", "", "['good', 'bad']"] * 6,
        np.array([[1, 0], [0, 1], [np.nan, np.nan], [1, 1]] * 6),
    ],
)
def test_gaps_among_several_labels_are_no_empty_sets(y: Any) -> None:
    texts, _ = some_texts(["good", "bad", "food", "good"], 24)
    with pytest.warns(UserWarning, match="6 of 24 texts have no label"):
        fitted = TextClassifier(**LINEAR).fit(texts, y)
    assert len(fitted.classes_) == 2
    assert fitted.models_.run["data"]["train"]["texts"] == 18


@pytest.mark.slow
def test_whole_numbers_that_look_like_a_quantity_are_told() -> None:
    texts, _ = some_texts(["good", "bad", "food"], 150)
    with pytest.warns(UserWarning, match=r"age: the 30 different whole numbers are read as classes.*kind=\"numeric\""):
        TextClassifier(**LINEAR).fit(texts, pd.Series([*range(30)] * 5, name="age"))
    with warnings.catch_warnings(action="error"):
        assert len(TextClassifier(**LINEAR).fit(texts, pd.Series([*range(30)] * 5, name="intent")).classes_) == 30


@pytest.mark.slow
def test_cross_validation_and_grid_search(options: dict[str, Any]) -> None:
    texts, labels = some_texts(["good", "bad"], 24)
    assert cross_val_score(TextClassifier(**LINEAR), texts, labels, cv=2).mean() >= 0.7
    search = GridSearchCV(TextClassifier(**options), {"max_tokens": [1, 64]}, cv=2).fit(np.array(texts), labels)
    assert search.best_params_ == {"max_tokens": 64}  # of one token, only xxbos is left
    assert search.predict(texts[:2]).tolist() == labels[:2]


@pytest.mark.slow
def test_pairs_of_texts(options: dict[str, Any], tmp_path: Path) -> None:
    """Tuples, the rows of an array and of a frame are one thing; cross-validation and the saved folder know it too."""
    firsts, y = some_texts(["good", "bad"], 12)
    pairs = [(a, b) for a, b in zip(firsts, firsts[::-1], strict=True)]
    fitted = TextClassifier(**options).fit(pairs, y)
    p = fitted.predict_proba(pairs)
    frame = pd.DataFrame(pairs, columns=["a", "b"])
    for X in (np.array(pairs), frame, pl.DataFrame({"a": firsts, "b": firsts[::-1]})):
        assert np.array_equal(fitted.predict_proba(X), p)
    assert np.array_equal(TextClassifier(**options).fit(frame, y).predict_proba(pairs), p)
    assert (fitted.predict_proba([pair[::-1] for pair in pairs]) != p).any()
    assert len(cross_val_score(TextClassifier(**options), pairs, y, cv=2)) == 2
    loaded = TextClassifier.from_artifact(fitted.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.predict_proba(pairs), p, atol=1e-6)
    with pytest.raises(UserError, match="trained on two texts each, and here is a single text"):
        loaded.predict(firsts)
    with pytest.raises(UserError, match="trained on a single text each, and here is two texts"):
        TextClassifier(**options).fit(firsts, y).predict(pairs)
    assert TextEmbedder(options["model"]).fit(pairs).transform(pairs).shape == (12, 16)


def test_in_a_pipeline(options: dict[str, Any]) -> None:
    texts, labels = some_texts(["good", "bad"], 24)
    lower = FunctionTransformer(lambda rows: [row.lower() for row in rows])
    assert make_pipeline(lower, TextClassifier(**LINEAR)).fit(texts, labels).score(texts, labels) >= 0.9
    embedded = make_pipeline(TextEmbedder(options["model"], pooling="concat"), LogisticRegression(C=100))
    assert embedded.fit(texts, labels).score(texts, labels) >= 0.8


def test_embedder_reads_other_layers(options: dict[str, Any]) -> None:
    """The sum of both layers above the embeddings; one that is not possible is refused when fitted."""
    texts = ["the great", "it was"]
    two = ("last", "second-to-last", "sum")
    top, below, both = (TextEmbedder(options["model"], layers=name).fit(texts).transform(texts) for name in two)
    assert both.shape == (2, 16)
    np.testing.assert_allclose(both, top + below, rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="Possible with this model: first, last, second-to-last, sum, mix"):
        TextEmbedder(options["model"], layers="concat-last-4").fit(texts)


def test_embedder_says_what_its_columns_are(options: dict[str, Any]) -> None:
    embedder = TextEmbedder(options["model"]).set_output(transform="pandas").fit(["it"])
    frame = embedder.transform(["the great", "it was"])
    assert frame.shape == (2, 16)
    assert list(frame.columns[:2]) == ["textembedder0", "textembedder1"]


@pytest.mark.slow
def test_same_seed_same_bits(options: dict[str, Any]) -> None:
    texts, labels = some_texts(["good", "bad"], 12)
    before = torch.get_rng_state()
    first, second, other = (
        TextClassifier(**options, seed=s).fit(texts, labels).predict_proba(texts) for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_pickle_and_copy_keep_what_was_learned(fitted: TextClassifier) -> None:
    texts, _ = some_texts(["good", "bad"], 4, seed=3)
    for again in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(again.predict_proba(texts), fitted.predict_proba(texts))


def test_a_clone_has_learned_nothing(fitted: TextClassifier) -> None:
    with pytest.raises(NotFittedError):
        clone(fitted).predict(["it"])


@pytest.mark.slow
def test_class_weights_are_given_in_the_users_labels(options: dict[str, Any]) -> None:
    texts, topics = some_texts(["good", "bad"], 12)
    y = [int(topic == "good") for topic in topics]
    weighted = TextClassifier(**options, class_weights={1: 20.0}).fit(texts, y).predict_proba(["the was it"])
    assert weighted[0, 1] > TextClassifier(**options).fit(texts, y).predict_proba(["the was it"])[0, 1]
    with pytest.raises(UserError, match="'7' is not one of: 0, 1"):
        TextClassifier(**options, class_weights={7: 2.0}).fit(texts, y)


@pytest.mark.slow
def test_the_language_model_is_adapted_to_unlabelled_texts(options: dict[str, Any]) -> None:
    texts, labels = some_texts(["good", "bad"], 12)
    pool, _ = some_texts(list(WORDS), 150, seed=5)
    plain = TextClassifier(**options).fit(texts, labels)
    adapted = TextClassifier(**options).fit(texts, labels, unlabelled=pool)
    assert not np.array_equal(adapted.predict_proba(texts), plain.predict_proba(texts))
    assert adapted.classifier_.members[0].run["base"]["stage"] == "adapt"
    stored = clone(TextClassifier(**options, unlabelled=pool))
    assert stored.unlabelled == pool
    np.testing.assert_array_equal(stored.fit(texts, labels).predict_proba(texts), adapted.predict_proba(texts))
    with pytest.raises(UserError, match=r"nothing would be trained on them. Leave adapt at True"):
        TextClassifier(**options, adapt=False).fit(texts, labels, unlabelled=pool)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", "X: this is one text. Pass a list"),
        (np.array([["a"], ["b"]]), "this has 1 column. Pass texts in one dimension"),
        (pd.DataFrame({"text": ["a", "b"]}), "this has 1 column"),
        (np.zeros((2, 3), dtype=str), "this has 3 columns"),
        (np.zeros((2, 2, 2), dtype=str), "this has 3 dimensions"),
        ([("a", "b"), ("a", None)], r"X\[1\]: text 2 of the pair is missing"),
        ([("a", "b"), (7, "b")], r"X\[1\]: text 1 of the pair is of type int"),
        ([("a", "b"), "c"], r"X\[1\]: single texts and pairs are mixed"),
        (["c", ("a", "b")], r"X\[1\]: single texts and pairs are mixed"),
        (["a", 7], r"X\[1\]: the text is of type int"),
        (["a", None], r"X\[1\]: the text is missing"),
        (["a", float("nan")], r"X\[1\]: the text is missing"),
        ([b"a", "b"], r"X\[0\]: the text is of type bytes"),
        ([["a"], ["b"]], r"X\[0\]: the text is of type list"),
        (np.array([1.0, 2.0]), r"X\[0\]: the text is of type float"),
    ],
)
def test_texts_that_are_none(X: Any, message: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=message):
        TextClassifier(**options).fit(X, ["a", "b"])
    with pytest.raises(UserError, match=message):
        TextEmbedder(options["model"]).fit(X)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "a"], "every label is 'a'"),
        ([None, None], r"the training data row 1: the label is missing \(2 texts have none\)"),
        ([np.nan, np.nan], r"the training data row 1: the label is missing \(2 texts have none\)"),
        (["a", 1], r"of different kinds \(int, str\)"),
        ([0.5, 0.7], "continuous"),
        (["a"], "inconsistent numbers of samples"),
        ([["a", "b"], ["a", "b"]], "every text has the labels 'a', 'b'"),
    ],
)
def test_labels_that_cannot_be_learned(y: Any, message: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        TextClassifier(**options).fit(["a", "b"], y)


def test_settings_that_do_not_exist(options: dict[str, Any]) -> None:
    texts, labels = some_texts(["good", "bad"], 4)
    with pytest.raises(UserError, match="no model 'nothing'"):
        TextClassifier("nothing").fit(texts, labels)
    with pytest.raises(UserError, match=r"unknown recipe 'ulmfut'.*Did you mean 'ulmfit'"):
        TextClassifier(options["model"], recipe="ulmfut").fit(texts, labels)
    with pytest.raises(UserError, match=r"the parameter pooling is 'meen'.*Did you mean 'mean'"):
        TextEmbedder(options["model"], pooling="meen").fit(texts)
    with pytest.raises(UserError, match=r"the parameter precision is 'fp8'\. Known: auto"):
        TextClassifier(**options, precision="fp8").fit(texts, labels)
    with pytest.raises(UserError, match=r"the parameter method is 'co-traning'.*Did you mean 'co-training'"):
        TextClassifier(method="co-traning").fit(texts, labels)
    with pytest.raises(
        UserError, match=r"a recipe has no meaning for the method 'lsa'.*choose the method 'fine-tuned'"
    ):
        TextClassifier(**options, method="lsa").fit(texts, labels)
    with pytest.raises(UserError, match="class_weights has no meaning for the method 'linear'"):
        TextClassifier(method="linear", class_weights="balanced").fit(texts, labels)
    with pytest.raises(UserError, match="the method 'lsa' cannot be used here: it needs unlabelled texts"):
        TextClassifier(method="lsa").fit(texts, labels)


def test_a_language_model_is_no_classifier(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="it is a language model"):
        TextClassifier.from_artifact(options["model"])


def test_saving_needs_a_fit_and_a_free_place(fitted: TextClassifier, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        TextClassifier().save(tmp_path / "unfitted")
    fitted.save(tmp_path / "model")
    with pytest.raises(UserError, match="exists already"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "unfitted").exists()

"""Features of frozen models, given vectors, families by name: against plain loops, cut short, and asked wrongly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from made_up_reviews import reviews
from numpy.typing import NDArray
from small_comparisons import compare, examples, family_model, quick_options, write_family, write_vectors

import textgraft
from textgraft.comparison.methods import METHODS, MethodOptions, new_method
from textgraft.comparison.methods.features import Elmo, Features, drop_middle
from textgraft.comparison.methods.fine_tuned import Bert
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, Pair
from textgraft.data.labels import Labels
from textgraft.linear import pool_words
from textgraft.linear.scaling import Scale
from textgraft.linear.word_vector_features import WordVectorFeatures
from textgraft.models import artifact, model_folder
from textgraft.models.loading import load_network
from textgraft.models.model_folder import models_of
from textgraft.tasks.language_modeling import adapt as adapting
from textgraft.word_embeddings.corpus import words_of
from textgraft.word_embeddings.formats import load_vectors
from textgraft.word_embeddings.word_vectors import WordVectors

FAMILIES = [name for name, method in METHODS.items() if method.model]
TEXTS = ["The film was great, it was.", "awful", "...", " ", "the actor and the plot and the movie and I"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {name: write_family(folder, name) for name in FAMILIES} | {"vectors": str(write_vectors(folder))}


def features(name: str, tmp_path: Path, **options: Any) -> Any:
    method = new_method(name, MethodOptions(precision="fp32", show=False, **options))
    method.prepare([], tmp_path)
    return method


def rows_of(name: str, tmp_path: Path, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = features(name, tmp_path, **options)._means(texts).rows
    return rows


@pytest.mark.parametrize("family", ["bert", "gpt", "elmo", "flair", "cove"])
def test_a_texts_features_are_the_means_of_its_words_vectors(
    family: str, models: dict[str, str], tmp_path: Path
) -> None:
    rows = rows_of(f"features@{models[family]}", tmp_path, TEXTS)
    sources = [load_network(model) for model in models[family].split("+")]
    for text, row in zip(TEXTS, rows, strict=True):
        words = words_of(text, lowercase=False)
        if not words:
            assert np.isnan(row).all()
            continue
        each = [textgraft.word_vectors(source, [words], precision="fp32")[0] for source in sources]
        np.testing.assert_allclose(row, np.concatenate(each, axis=1).mean(axis=0), atol=2e-3)


def test_word_vectors_and_a_model_stand_side_by_side(models: dict[str, str], tmp_path: Path) -> None:
    both = rows_of(f"features@{models['vectors']}+{models['bert']}", tmp_path, TEXTS)
    known = load_vectors(models["vectors"])
    words = words_of(TEXTS[0], lowercase=False)
    assert both.shape == (len(TEXTS), 7 + 16)
    np.testing.assert_allclose(both[0, :7], known.vectors(words).mean(axis=0), atol=2e-3)
    np.testing.assert_array_equal(both[:, 7:], rows_of(f"features@{models['bert']}", tmp_path, TEXTS))


def test_elmo_is_its_words_beside_its_layers_unless_told(models: dict[str, str], tmp_path: Path) -> None:
    model, words = load_network(models["elmo"]), words_of(TEXTS[0], lowercase=False)
    read = [
        textgraft.word_vectors(model, [words], layer_aggregation=r, precision="fp32")[0].mean(0)
        for r in Elmo.layer_aggregations
    ]
    row = rows_of(f"elmo@{models['elmo']}", tmp_path, TEXTS[:1])[0]
    np.testing.assert_allclose(row, np.concatenate(read), atol=2e-3)
    words_alone = rows_of(f"elmo@{models['elmo']}@first", tmp_path, TEXTS[:1])
    np.testing.assert_allclose(words_alone[0], row[:16], atol=1e-6)


def test_a_pair_is_both_vectors_their_distance_and_their_product(models: dict[str, str], tmp_path: Path) -> None:
    pairs = [Pair("great film", "awful plot"), Pair("it", "it"), Pair("film", "great")]
    rows = rows_of(f"features@{models['bert']}", tmp_path, pairs)
    sides = [
        rows_of(f"features@{models['bert']}", tmp_path, [getattr(p, s) for p in pairs]) for s in ("first", "second")
    ]
    u, v = sides
    np.testing.assert_allclose(rows, np.concatenate([u, v, np.abs(u - v), u * v], axis=1), atol=1e-6)
    assert not rows[1, 32:48].any()


def test_of_a_long_text_the_middle_is_left_out(models: dict[str, str], tmp_path: Path) -> None:
    assert drop_middle("abcdefghij", 4) == ["a", "h", "i", "j"]
    assert drop_middle("abc", 3) == "abc"
    name = f"features@{models['vectors']}"
    cut = rows_of(name, tmp_path, ["great it it it awful awful awful"], max_tokens=4)
    np.testing.assert_allclose(cut, rows_of(name, tmp_path, ["great awful awful awful"]), atol=1e-6)


matrices = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.floats(-100, 100, width=32)
)


@given(matrices, st.integers(0, 7))
@settings(max_examples=60)
def test_scaled_rows_are_centred_alike_and_of_length_one(rows: NDArray, empty: int) -> None:
    rows[empty % len(rows)] = np.nan
    scaled = Scale.of(rows)(rows)
    real = ~np.isnan(rows[:, 0])
    assert np.isfinite(scaled).all()
    assert not scaled[~real].any()
    if real.any():
        varies = rows[real].astype(np.float64).std(0) > 1e-6
        np.testing.assert_allclose(scaled[real].mean(0), 0, atol=1e-6)
        assert not scaled[:, ~varies].any()
        assert (scaled[real] ** 2).sum(1).mean() == pytest.approx(float(varies.any()), abs=1e-6)


def test_texts_without_a_word_are_answered_too(models: dict[str, str], tmp_path: Path) -> None:
    method = features(f"features@{models['bert']}", tmp_path)
    train = Examples([" ", "\n", "  "], ["pos", "neg", "pos"], "single")
    outputs = method.train_and_predict(train, ["", "great"], Labels.fit(train), 0, tmp_path).outputs
    assert outputs.sum(1) == pytest.approx(np.ones(2))


def test_features_learn_what_word_vectors_know(models: dict[str, str], tmp_path: Path) -> None:
    train, test = examples(30), examples(40, seed=2)
    labels = Labels.fit(train)
    for name in (f"features@{models['vectors']}", f"features@{models['bert']}+{models['vectors']}"):
        outputs = features(name, tmp_path).train_and_predict(train, test.texts, labels, 0, tmp_path).outputs
        assert (outputs.argmax(1) == labels.encode(test)).mean() > 0.8, name


def test_means_are_computed_once_and_taken_up_again(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"features@{models['bert']}"
    first = features(name, tmp_path)._means(TEXTS)

    def refused(self: Any, texts: Sequence[str]) -> None:
        raise AssertionError(f"{len(texts)} texts are read again")

    monkeypatch.setattr(Features, "_rows", refused)
    again = features(name, tmp_path)._means(TEXTS)
    np.testing.assert_array_equal(first.rows, again.rows)
    assert again.seconds == first.seconds > 0
    for other in (TEXTS[:2], TEXTS[::-1], [Pair(*TEXTS[:2])]):
        with pytest.raises(AssertionError, match="read again"):
            features(name, tmp_path)._means(other)
    with pytest.raises(AssertionError, match="read again"):
        features(name, tmp_path, max_tokens=7)._means(TEXTS)


def settled(results: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(results, dict):
        return {k: settled(v) for k, v in results.items() if k not in ("minutes", "peak_mb", "name")}
    return [settled(v) for v in results] if isinstance(results, list) else results


@pytest.mark.slow
def test_a_comparison_of_features_cut_short_ends_with_the_same_numbers(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"test": examples(20, 2), "unlabelled": reviews(60, 3)[0], "labels": [6, "all"], "seeds": 2}
    asked["methods"] = [f"flair@{models['flair']}", f"vectors@{models['vectors']}"]
    asked["options"] = MethodOptions(show=False)
    compare(examples(), tmp_path / "whole", **asked)
    train_and_predict, answered = Features.train_and_predict, []

    def cut_short(self: Any, *given: Any) -> Any:
        answered.append(given)
        if len(answered) == 3:
            raise KeyboardInterrupt
        return train_and_predict(self, *given)

    monkeypatch.setattr(Features, "train_and_predict", cut_short)
    with pytest.raises(KeyboardInterrupt):
        compare(examples(), tmp_path / "cut", **asked)
    compare(examples(), tmp_path / "cut", **asked)
    assert len(answered) == 5
    found = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "cut")]
    assert settled(found[0]) == settled(found[1])
    assert "model" not in found[0]["run"]  # the one of the options, which nobody has read
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut", "whole"]


@pytest.mark.slow
def test_two_models_fine_tuned_are_averaged(models: dict[str, str], tmp_path: Path, tiny_lm: Path) -> None:
    options = quick_options(tmp_path, tiny_lm)
    train, texts = examples(20), examples(8, 2).texts
    labels = Labels.fit(train)

    def answered(name: str) -> Any:
        method = new_method(name, options)
        method.prepare([], tmp_path / "prepared")
        return method.train_and_predict(train, texts, labels, 3, tmp_path / "work" / str(len(name)))

    flair = models["flair"].split("+")[0]
    alone = [answered(f"no-adapt@{model}") for model in (tiny_lm, flair)]
    both = answered(f"no-adapt@{tiny_lm}+{flair}")
    np.testing.assert_allclose(both.outputs, (alone[0].outputs + alone[1].outputs) / 2, atol=1e-12)
    assert both.model_bytes == sum(one.model_bytes for one in alone)


def test_given_vectors_know_words_that_the_pool_has_not(models: dict[str, str], tmp_path: Path) -> None:
    options = MethodOptions(show=False)
    train, test = examples(30), examples(40, seed=2)
    pool = [text.replace("great", "film").replace("awful", "plot") for text in reviews(60, 3)[0]]
    method = new_method(f"vectors@{models['vectors']}", options)
    method.prepare(pool, tmp_path)
    labels = Labels.fit(train)
    outputs = method.train_and_predict(train, [*test.texts, "great", "awful"], labels, 0, tmp_path).outputs
    assert (outputs.argmax(1)[:-2] == labels.encode(test)).mean() > 0.8
    assert [labels.names[i] for i in outputs.argmax(1)[-2:]] == ["pos", "neg"]


def test_given_vectors_are_weighed_by_the_pool_and_turned_to_its_axes(models: dict[str, str]) -> None:
    pool, given_ones = reviews(80, 3)[0], load_vectors(models["vectors"])
    space = WordVectorFeatures(pretrained=given_ones).fit(pool)
    cut = [text.lower().replace(".", "").split() for text in pool]
    everything = [word for words in cut for word in words]

    def mean(words: list[str]) -> NDArray:
        rows = []
        for word in words:
            vector = given_ones.vector(word)
            if vector is not None:
                rows.append(1e-3 / (1e-3 + everything.count(word) / len(everything)) * vector / np.linalg.norm(vector))
        return np.mean(rows, axis=0)

    means = np.stack([mean(words) for words in cut])
    found = space.transform(pool)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(means - means.mean(0), axis=1), atol=1e-5)
    covariance = np.cov(found, rowvar=False)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-6)
    assert (np.diff(np.diag(covariance)) <= 1e-9).all()
    again = WordVectorFeatures.from_state(space.state())
    np.testing.assert_allclose(again.transform(pool), found, atol=2e-3)


def test_given_vectors_are_cut_where_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_words, "PRETRAINED_VOCABULARY", 4)
    given_ones = WordVectors(["zebra", "film", "plot", "yak", "x"], np.eye(5, dtype=np.float32))
    space = WordVectorFeatures(pretrained=given_ones).fit(["film plot film", "plot plot film"] * 4)
    assert space.state().documents["words"] == ["film", "plot", "zebra", "yak"]
    with pytest.raises(UserError, match=r"of 1 words in the unlabelled texts, 0 have a vector\."):
        WordVectorFeatures(pretrained=given_ones).fit(["แมว แมว", "แมว"])


def test_a_bert_is_unfrozen_from_the_top_unless_a_recipe_is_named(
    models: dict[str, str], tmp_path: Path, tiny_lm: Path
) -> None:
    usual = Bert(MethodOptions(model=models["bert"]))
    assert usual._recipe == "transformer-staged"
    assert new_method("bert", MethodOptions())._recipe == "transformer-small"  # type: ignore[attr-defined]
    assert new_method(f"ulmfit@{models['bert']}", MethodOptions()).fingerprint != usual.fingerprint
    named = quick_options(tmp_path, tiny_lm)
    assert new_method(f"bert@{models['bert']}", named)._recipe == named.recipe  # type: ignore[attr-defined]


def test_methods_that_adapt_a_model_alike_share_it_and_others_do_not(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def noted(texts: Sequence[str], out: Path, **others: Any) -> Path:
        made.append(out)
        return artifact.save(replace(family_model("bert"), run={"seconds": 0}), out / str(len(made)))

    monkeypatch.setattr("textgraft.comparison.methods.fine_tuned.adapt", noted)
    assert adapting.adapt is not noted
    for name in ("bert", "ulmfit", "default"):
        method = new_method(f"{name}@{models['bert']}", MethodOptions())
        method.prepare(reviews(30)[0], tmp_path)
    assert len(made) == 2  # `default` has its model read when a training asks for that
    method._models[0]._adapted()  # type: ignore[attr-defined]
    assert made[0] != made[1] == made[2]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_whose_model_is_not_there_says_how_it_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "MODEL_FOLDERS", ())
    with pytest.raises(UserError) as refused:
        new_method(name, MethodOptions())
    said = str(refused.value)
    missing = models_of(METHODS[name].model)[0]
    for part in (
        f"method '{name}'",
        f"'{missing}' is not installed",
        "textgraft ",
        f"--out {missing}",
        f"{name}@FOLDER",
    ):
        assert part in said, said


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_refuses_models_of_another(name: str, models: dict[str, str]) -> None:
    other = models["gpt" if name == "bert" else "bert"]
    with pytest.raises(UserError, match=f"method '{name}' supports models of the family '{name}'"):
        new_method(f"{name}@{other}", MethodOptions())


@given(st.lists(st.text("ab/.@", min_size=1), min_size=1, max_size=3))
def test_models_are_parted_by_plus(names: list[str]) -> None:
    joined = "+".join(names)
    if len(set(names)) < len(names):
        with pytest.raises(UserError, match="twice"):
            models_of(joined)
    else:
        assert models_of(joined) == names


def test_a_path_may_have_a_plus_in_it(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    assert models_of(tmp_path / "a+b") == [str(tmp_path / "a+b")]
    for wrong in ("", "+", "a++b", "a+ "):
        with pytest.raises(UserError, match="missing"):
            models_of(wrong)

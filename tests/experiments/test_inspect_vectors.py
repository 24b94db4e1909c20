"""`inspect words` and `inspect geometry` on vectors whose answer is known, and on what cannot be looked at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_up_tags import sentences, write_encoder

from textgraft import GeometryOptions, WordOptions, inspect_geometry, inspect_words, save_vectors
from textgraft.core.errors import UserError
from textgraft.data.contexts import WordPosition, read_contexts
from textgraft.experiments.geometry import Sample, measures, sampled
from textgraft.experiments.word_contexts import groups
from textgraft.word_embeddings.word_vectors import WordVectors

TEXTS = [" ".join(s.words) for s in sentences(60, 3, clauses=2).sentences]
SMALL = GeometryOptions(words=6, contexts=3, random=20, sentences=5, precision="fp32")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, and word vectors that are at right angles to each other."""
    folder = tmp_path_factory.mktemp("models")
    write_encoder(folder, "bert", num_layers=2)
    write_encoder(folder, "lstm", num_layers=2)
    words = sorted({word for text in TEXTS for word in text.split()})
    save_vectors(WordVectors(words[1:], np.eye(len(words) - 1, dtype=np.float32)), folder / "words.txt", to="glove")
    return folder


def test_figures_of_vectors_whose_cosines_are_known() -> None:
    """Every occurrence is its word's axis plus one of its own: cosines of 1/2 within a word, of 0 between words."""
    words, contexts, axes = 3, 4, np.eye(40)
    of_words = np.array([axes[w] + axes[3 + contexts * w + i] for w in range(words) for i in range(contexts)])
    random, whole = axes[20:28], axes[30:36]
    sample = Sample(
        [], list("abc"), [WordPosition(0, 0)] * 12, [WordPosition(0, 0)] * 8, [[WordPosition(0, 0)] * 3] * 2, 3
    )
    layer = np.concatenate([of_words, random, whole]).astype(np.float32)
    found, similarities = measures(sample, layer, GeometryOptions(contexts=contexts))
    np.testing.assert_allclose(similarities, 0.5, atol=1e-7)
    raw = {name: value["mean"] for name, value in found["raw"].items() if name != "cone"}
    assert raw == pytest.approx(
        {
            "anisotropy": 0.0,
            "self_similarity": 0.5,
            "self_similarity_adjusted": 0.5,
            "intra_similarity": 3**-0.5,
            "intra_similarity_adjusted": 3**-0.5,
            "explained_variance": 5 / 8,  # a Gram matrix of 2 on its diagonal and 1 beside it
            "explained_variance_baseline": 1 / 4,
            "explained_variance_adjusted": 3 / 8,
        },
        abs=1e-6,
    )
    assert found["raw"]["cone"] == pytest.approx(8**-0.5)
    shifted = measures(sample, layer + 5.0, GeometryOptions(contexts=contexts))[0]
    assert shifted["raw"]["anisotropy"]["mean"] > 0.9
    for name, value in found["centred"].items():  # where a layer lies does not matter once its mean is gone
        got = shifted["centred"][name]
        assert (got if name == "cone" else got["mean"]) == pytest.approx(
            value if name == "cone" else value["mean"], abs=1e-5
        )


def test_static_vectors_do_not_know_their_context(models: Path, tmp_path: Path) -> None:
    results = inspect_geometry(models / "words.txt", TEXTS, tmp_path / "out", options=SMALL, show=False)
    (layer,) = results["layers"]
    for name in ("self_similarity", "explained_variance"):
        assert layer["raw"][name] == pytest.approx({"mean": 1, "low": 1, "high": 1})
    assert all(values == [pytest.approx(1)] for values in results["words"].values())
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    assert "How contextual is" in (tmp_path / "out" / "report.html").read_text()


def test_the_baseline_of_orthogonal_words_is_how_often_the_same_is_drawn(models: Path, tmp_path: Path) -> None:
    known = {line.split()[0] for line in (models / "words.txt").read_text().splitlines()}
    read = [context.filter_words(known.__contains__) for context in read_contexts(TEXTS, SMALL.read)]
    drawn = [read[p.sentence].words[p.word] for p in sampled(read, SMALL).random]
    pairs = [a == b for i, a in enumerate(drawn) for j, b in enumerate(drawn) if i != j]
    results = inspect_geometry(models / "words.txt", TEXTS, tmp_path / "out", options=SMALL, show=False)
    assert results["layers"][0]["raw"]["anisotropy"]["mean"] == pytest.approx(np.mean(pairs))


@pytest.mark.slow
def test_embeddings_of_an_lstm_do_not_know_their_context_and_layers_do(models: Path, tmp_path: Path) -> None:
    results = inspect_geometry(models / "lstm", TEXTS, tmp_path / "out", options=SMALL, show=False)
    found = [layer["raw"]["self_similarity"]["mean"] for layer in results["layers"]]
    assert found[0] == pytest.approx(1, abs=1e-6)
    assert found[1] < 0.999
    again = inspect_geometry(models / "lstm", TEXTS, tmp_path / "again", options=SMALL, show=False)
    assert again["layers"] == results["layers"]
    assert again["words"] == results["words"]


def test_too_little_text_and_folders_that_exist_are_refused(models: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="occur in 3 different sentences"):
        inspect_geometry(models / "lstm", TEXTS[:1], tmp_path / "out", options=SMALL, show=False)
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="exists already"):
        inspect_geometry(models / "lstm", TEXTS, tmp_path / "out", options=SMALL, show=False)
    with pytest.raises(UserError, match="contexts is 1"):
        GeometryOptions(contexts=1)


FEW = WordOptions(occurrences=4, neighbours=3, pool=30, precision="fp32")


@pytest.mark.parametrize("family", ["bert", "lstm"])
def test_neighbours_are_the_nearest_of_all_words_in_other_sentences(models: Path, tmp_path: Path, family: str) -> None:
    from textgraft.experiments.geometry_measures import directions
    from textgraft.models.loading import load_network
    from textgraft.word_embeddings.contextual import layer_vectors

    options = WordOptions(occurrences=4, neighbours=3, pool=1000, precision="fp32")
    out = tmp_path / "out"
    results = inspect_words(models / family, TEXTS, out, words=["river", "Lamp"], options=options, show=False)
    assert [one["word"] for one in results["words"]] == ["river", "lamp"]
    read = read_contexts(TEXTS, 1000)
    vectors = layer_vectors(load_network(models / family), [c.words for c in read], precision="fp32")
    texts = [c.text for c in read]
    for word in results["words"]:
        for number, layer in enumerate(word["layers"]):
            for occurrence, near in zip(word["occurrences"], layer["neighbours"], strict=True):
                own = texts.index(occurrence["sentence"])
                place = [a for a, _ in read[own].spans].index(occurrence["start"])
                query = directions(vectors[own][number][place])
                others = [directions(vectors[i][number]) @ query for i in range(len(read)) if i != own]
                best = np.sort(np.concatenate(others))[::-1][:3]
                np.testing.assert_allclose([one["cosine"] for one in near], best, atol=1e-5)
                for one in near:
                    assert one["sentence"] != occurrence["sentence"]
                    assert one["sentence"][one["start"] : one["end"]] == one["word"]


def test_sentences_that_are_given_come_first_and_need_no_text(models: Path, tmp_path: Path) -> None:
    given = ["the RIVER sees stone .", "city bread likes river ."]
    alone = inspect_words(models / "lstm", (), tmp_path / "a", words=["river"], sentences=given, show=False)
    (word,) = alone["words"]
    assert [(one["sentence"], one["given"]) for one in word["occurrences"]] == [(text, True) for text in given]
    assert [one["word"] for one in word["occurrences"]] == ["RIVER", "river"]
    out = tmp_path / "b"
    more = inspect_words(models / "lstm", TEXTS, out, words=["river"], sentences=given, options=FEW, show=False)
    assert [one["given"] for one in more["words"][0]["occurrences"]] == [True, True, False, False]


def test_a_page_shows_users_text_harmlessly(models: Path, tmp_path: Path) -> None:
    given = ["<script>alert('river')</script> river \x00 & \ud800 .", "a river"]
    inspect_words(models / "bert", (), tmp_path / "out", words=["river"], sentences=given, show=False)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<title>") == 1 + 3 * 2  # the page's own, and a hint for each occurrence in each layer


def test_words_that_are_nowhere_and_no_words_are_refused(models: Path, tmp_path: Path) -> None:
    for words, told in ((["zebra"], "'zebra' does not occur in"), ([], "no words are given")):
        with pytest.raises(UserError, match=told):
            inspect_words(models / "lstm", TEXTS, tmp_path / "out", words=words, show=False)
    with pytest.raises(UserError, match="unknown projection 'pcaa'"):
        WordOptions(projection="pcaa")
    assert not list(tmp_path.iterdir())


def test_groups_follow_clear_clusters_and_are_one_without_any() -> None:
    axes = np.eye(8, dtype=np.float32)
    noise = 0.05 * np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32)
    labels, silhouette = groups(np.repeat(axes[[3, 1, 5]], 3, axis=0) + noise, 0)
    assert labels == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert silhouette is not None
    assert silhouette > 0.8
    assert groups(np.tile(axes[:1], (5, 1)), 0) == ([0] * 5, None)
    assert groups(axes[:2], 0) == ([0, 0], None)

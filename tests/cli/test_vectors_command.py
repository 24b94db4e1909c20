"""textgraft vectors: each verb, alone and as JSON, and what it says of mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from programs import Desk, Program, call, unchanged

from textgraft import WordVectors, embed, load_vectors, save_vectors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of five words in a plane, as a folder."""
    angles = np.radians([0, 30, 60, 90, 200])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    vectors = WordVectors(["man", "king", "woman", "queen", "rain"], rows, counts=np.array([9, 7, 5, 3, 1]))
    return save_vectors(vectors, tmp_path_factory.mktemp("vectors") / "plane")


def test_from_texts_to_scores_as_users_do(desk: Desk, tmp_path: Path) -> None:
    """In processes of their own: train, convert, evaluate."""
    command = ["vectors", "train", desk / "pool.txt", "--method", "glove", "--out", tmp_path / "v", "--half", "--json"]
    done = call(*command, "--dimensions", "8", "--epochs", "2", "--min-count", "2", "--licence", "CC0-1.0")
    assert done.code == 0, done.err
    assert "GloVe" in done.err
    assert done.json()["dimensions"] == 8
    made = load_vectors(tmp_path / "v")
    assert len(made) == done.json()["words"] >= 13
    assert made.run["data"]["files"][0]["name"] == "pool.txt"
    assert "CC0-1.0" in (tmp_path / "v" / "README.md").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v"]
    done = call("vectors", "convert", tmp_path / "v", "--to", "word2vec", "--out", tmp_path / "v.vec", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert list(load_vectors(tmp_path / "v.vec").words) == list(made.words)
    judged = tmp_path / "pairs.txt"
    judged.write_text("\n".join(f"{made.words[i]} {made.words[i + 1]} {i}" for i in range(12)) + "\nnever heard 3\n")
    done = call("vectors", "evaluate", tmp_path / "v.vec", "--similarity", judged, "--json")
    found = done.json()["similarity"]["pairs.txt"]
    assert (found["pairs"], found["unknown"]) == (12, 1)
    assert -1 <= found["low"] < found["spearman"] < found["high"] <= 1


@pytest.mark.parametrize("method", ["skipgram", "fasttext"])
def test_gensims_methods(method: str, desk: Desk, tmp_path: Path, run: Program) -> None:
    pytest.importorskip("gensim", reason="gensim trains this method")
    size = ["--dimensions", "8", "--epochs", "1", "--buckets", "100", "--quiet"]
    done = run("vectors", "train", desk / "pool.txt", "--method", method, "--out", tmp_path / "v", *size)
    assert (done.code, done.err) == (0, "")
    assert "8 dimensions" in done.out
    done = run("vectors", "convert", tmp_path / "v", "--to", "fasttext", "--out", tmp_path / "v.bin", "--quiet")
    if method == "skipgram":
        done.mistake("no n-grams")
        assert not (tmp_path / "v.bin").exists()
    else:
        assert load_vectors(tmp_path / "v.bin").vector("unheardof") is not None


def test_neighbours_and_analogies(folder: Path, run: Program) -> None:
    found = run("vectors", "neighbours", folder, "man", "queen", "-n", "2", "--json").json()["neighbours"]
    assert [near["word"] for near in found["man"]] == ["king", "woman"]
    assert found["queen"][0] == {"word": "woman", "cosine": pytest.approx(np.cos(np.radians(30)), abs=1e-6)}
    answers = run("vectors", "analogy", folder, "man", "king", "woman", "--json").json()["answers"]
    assert [answer["word"] for answer in answers] == ["queen", "rain"]
    told = run("vectors", "analogy", folder, "man", "king", "woman", "-n", "1")
    assert "queen" in told.out
    assert "0.966" in told.out  # the cosine of 15 degrees
    assert "king" in run("vectors", "neighbours", folder, "man").out
    assert len(run("vectors", "neighbours", folder, "man", "--limit", "2", "--json").json()["neighbours"]["man"]) == 1


def test_analogies_of_a_file(folder: Path, tmp_path: Path, run: Program) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text(": royal\nman king woman queen\nman king woman rain\n: gram1\nno such word here\n")
    found = run("vectors", "evaluate", folder, "--analogies", questions, "--json").json()["analogies"]
    assert found["total"] == {"right": 1, "questions": 2, "unknown": 1, "accuracy": 0.5}
    told = run("vectors", "evaluate", folder, "--analogies", questions).out
    assert "royal" in told
    assert "50.0 %" in told


def test_a_map(folder: Path, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "map.svg"
    assert run("vectors", "plot", folder, "--out", out, "--json").json() == {
        "out": str(out),
        "words": 5,
        "method": "pca",
    }
    assert ">queen<" in out.read_text()
    words = tmp_path / "words.txt"
    words.write_text("man\nking\nwoman\n\n")
    assert run("vectors", "plot", folder, "--out", out, "--words", words, "-w", "rain", "--method", "tsne").code == 0
    assert ">queen<" not in out.read_text()


def test_embed_takes_vectors(folder: Path, tmp_path: Path, run: Program) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("The man, the KING!\nnothing known\nrain\n")
    out = tmp_path / "v.npz"
    assert run("embed", folder, texts, "--out", out, "--json").json() == {"out": str(out), "texts": 3, "dimensions": 2}
    with np.load(out) as saved:
        rows = saved["vectors"]
    vectors = load_vectors(folder)
    np.testing.assert_allclose(rows[0], vectors.vectors(["man", "king"]).mean(axis=0), rtol=1e-6)
    assert not rows[1].any()
    np.testing.assert_allclose(rows[2], vectors.vector("rain"), rtol=1e-6)
    np.testing.assert_allclose(
        embed(folder, ["man king"], pooling="max"), vectors.vectors(["man", "king"]).max(0)[None]
    )
    run("embed", folder, texts, "--out", out, "--pooling", "last").mistake(
        "pooling 'last' is not defined", "mean or max"
    )


def test_mistakes(folder: Path, desk: Desk, tmp_path: Path, run: Program) -> None:
    with unchanged(tmp_path):
        run("vectors", "neighbours", folder, "quen").mistake("no word 'quen'", "Did you mean 'queen'")
        run("vectors", "neighbours", tmp_path / "no.vec", "a").mistake("no.vec")
        run("vectors", "neighbours", desk.lm, "a").mistake("has no word vectors")
        run("vectors", "evaluate", folder).mistake("nothing to evaluate on", "--similarity")
        run("vectors", "convert", folder, "--to", "word3vec", "--out", tmp_path / "x").mistake(
            "Did you mean 'word2vec'"
        )
        run("vectors", "convert", folder, "--out", folder).mistake("exists already")
        run("vectors", "plot", folder, "--out", tmp_path / "x.pdf").mistake(".png or .svg")
        run("vectors", "train", desk / "pool.txt", "--out", folder).mistake("exists already")
        run("vectors", "train", desk / "pool.txt", "--method", "lsa", "--out", tmp_path / "x").mistake("method 'lsa'")
        run("vectors", "train", tmp_path / "none.txt", "--out", tmp_path / "x").mistake("none.txt")
        run("predict", folder, desk / "test.csv").mistake("it holds word vectors", "textgraft vectors")
        tuning = ["--model", folder, "--recipe", desk / "quick.toml", "--out", tmp_path / "x"]
        run("finetune", desk / "train.csv", *tuning).mistake("these are word vectors, not a network")


def test_a_damaged_file_is_told_with_its_line_and_leaves_nothing(tmp_path: Path, run: Program) -> None:
    path = tmp_path / "v.vec"
    path.write_text("2 2\na 1 2\nb 1\n")
    with unchanged(tmp_path):
        run("vectors", "convert", path, "--out", tmp_path / "x", "--quiet").mistake("v.vec line 3", "--limit")
    assert json.loads(run("vectors", "convert", path, "--limit", "1", "--out", tmp_path / "x", "-q", "--json").out)
    assert list(load_vectors(tmp_path / "x").words) == ["a"]


def test_help_names_the_verbs_and_has_examples(run: Program) -> None:
    told = run("vectors").out
    for verb in ("train", "convert", "neighbours", "analogy", "evaluate", "plot"):
        assert verb in told
        assert f"textgraft vectors {verb}" in " ".join(run("vectors", verb, "--help").out.split())

"""Training by each method on texts in which it is known which words stand in like company."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textgraft import UserError, VectorOptions, WordVectors, load_vectors, save_vectors, train_vectors
from textgraft.word_embeddings.corpus import WordFile, words_of

SMALL = VectorOptions(dimensions=12, min_count=2, buckets=200, epochs=4, rate=0.05)
GROUPS = (("cat", "dog", "cow", "hen"), ("one", "two", "six", "ten"))
COMPANY = (("eats", "sleeps", "runs", "hides"), ("plus", "times", "minus", "over"))


def texts(number: int = 600) -> list[str]:
    """Sentences of animals among verbs and of numbers among operators; the animals never meet each other."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(number):
        kind = int(generator.integers(2))
        around = generator.choice(COMPANY[kind], 6).tolist()
        found.append(" ".join([*around[:3], str(generator.choice(GROUPS[kind])), *around[3:]]))
    return found


def grouped(vectors: WordVectors) -> bool:
    """Whether each word is nearer to those of its group, on the mean, than to those of the other."""
    for own, other in (GROUPS, GROUPS[::-1]):
        for word in own:
            near = np.mean([vectors.similarity(word, w) for w in own if w != word])
            far = np.mean([vectors.similarity(word, w) for w in other])
            if near <= far:
                return False
    return True


@pytest.fixture(autouse=True)
def needs_gensim() -> None:
    pytest.importorskip("gensim", reason="gensim trains three of the four methods")


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("skipgram", {}),
        ("skipgram", {"hierarchical": True}),
        ("cbow", {"epochs": 20}),
        ("cbow", {"hierarchical": True, "epochs": 20}),
        ("fasttext", {"epochs": 10}),
        ("glove", {"epochs": 20}),
    ],
)
def test_words_in_like_company_are_near_and_a_seed_gives_the_same_bits(method: Any, more: dict[str, Any]) -> None:
    options = VectorOptions(**{**vars(SMALL), **more, "sample": 0.0})
    first, second = (train_vectors(texts(), method, options=options) for _ in range(2))
    assert grouped(first)
    assert list(first.words) == list(second.words)
    assert first[slice(0, 16)].tobytes() == second[slice(0, 16)].tobytes()
    other = train_vectors(texts(), method, options=VectorOptions(**{**vars(options), "seed": 1}))
    assert first.vectors(["cat"]).tobytes() != other.vectors(["cat"]).tobytes()
    assert first.counts is not None
    assert first.counts.tolist() == sorted(first.counts.tolist(), reverse=True)
    assert first.run["settings"]["method"] == method
    assert first.run["tokens_seen"] == 600 * 7


def test_untrained_vectors_are_not_grouped() -> None:
    """So that `grouped` is no test that everything passes."""
    rows = np.random.default_rng(0).normal(size=(16, 12)).astype(np.float32)
    assert not grouped(WordVectors([w for group in (*GROUPS, *COMPANY) for w in group], rows))


def test_fasttext_writes_its_own_file_that_gensim_opens(tmp_path: Path) -> None:
    from gensim.models.fasttext import load_facebook_model

    vectors = train_vectors(texts(), "fasttext", options=SMALL)
    path = save_vectors(vectors, tmp_path / "v.bin", to="fasttext")
    theirs = load_facebook_model(str(path))
    for word in ("cat", "plus", "catplus", "überdog"):
        np.testing.assert_allclose(vectors.vector(word), theirs.wv.get_vector(word), rtol=1e-4, atol=1e-6)
    assert theirs.syn1neg.any()  # and could train on
    assert (theirs.wv.min_n, theirs.wv.max_n, theirs.wv.bucket, theirs.window) == (3, 6, 200, 5)
    found = load_vectors(path)
    assert np.array_equal(found.vectors(["cat", "catplus"]), vectors.vectors(["cat", "catplus"]))


def test_the_vocabulary() -> None:
    some = [*texts(50), "Rare rare RARE once"]
    found = train_vectors(some, "glove", options=VectorOptions(dimensions=4, min_count=3, epochs=1))
    assert "rare" in found
    assert "RARE" in found  # asked in lower case
    assert "once" not in found
    cased = train_vectors(some, "glove", options=VectorOptions(dimensions=4, min_count=1, epochs=1, lowercase=False))
    assert "RARE" in cased
    assert "raRE" not in cased
    few = train_vectors(some, "skipgram", options=VectorOptions(dimensions=4, min_count=1, epochs=1, vocabulary=5))
    assert sorted(few.words) == sorted(list(found.words)[:5])  # ties in any order


def test_words_are_those_of_the_project() -> None:
    assert words_of("I don't.  See https://a.b/c, OK?", lowercase=True) == [
        *("i", "do", "n't", ".", "see", "https://a.b/c", ",", "ok", "?"),
    ]


def test_long_texts_go_on_in_the_next_line(tmp_path: Path) -> None:
    corpus = WordFile.write(["a " * 25_000 + "b\nc"], tmp_path / "w", lowercase=True)
    lines = list(corpus.sentences())
    assert [len(line) for line in lines] == [10_000, 10_000, 5_002]
    assert lines[-1][-2:] == ["b", "c"]
    assert corpus.counts == {"a": 25_000, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("method", "options", "complaint"),
    [
        ("skipgrams", {}, r"unknown method 'skipgrams'.*Did you mean 'skipgram'"),
        ("glove", {"dimensions": 0}, "dimensions: 0 is out of range"),
        ("glove", {"window": -1}, "window: -1 is out of range"),
        ("glove", {"vocabulary": 0}, "vocabulary: 0 is out of range"),
        ("skipgram", {"negative": 0}, "negative: 0 is out of range"),
        ("fasttext", {"minn": 5, "maxn": 4}, "n-grams of 5 to 4 characters"),
        ("glove", {"min_count": 10_000}, "fewer than two words occur 10000 times"),
    ],
)
def test_mistakes(method: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        train_vectors(texts(50), method, options=VectorOptions(**options))


def test_no_words_at_all(tmp_path: Path) -> None:
    for nothing in ([], ["  ", "\n"]):
        with pytest.raises(UserError, match="contain no words"):
            train_vectors(nothing, "glove", work=tmp_path)
    with pytest.raises(UserError, match="no two words co-occur"):
        train_vectors(["a"] * 9 + ["b"] * 9, "glove", work=tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_gensim_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    true_import = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("gensim"):
            raise ImportError(name)
        return true_import(name, *rest, **more)

    def unread() -> Iterator[str]:
        pytest.fail("the texts were read")
        yield ""

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'textgraft\[vectors\]'"):
        train_vectors(unread(), "skipgram")
    assert len(train_vectors(texts(50), "glove", options=SMALL))

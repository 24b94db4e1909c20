"""Word vectors beside gensim: the same files, the same vectors, known words and unknown ones; the same scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft import WordVectors, load_vectors, save_vectors
from textgraft.word_embeddings.evaluation import analogies, read_analogies, read_similarities, similarity
from textgraft.word_embeddings.subwords import END_OF_SENTENCE, ngram_hashes

FIXTURES = Path(__file__).parents[2] / ".." / "shared" / "fixtures" / "vectors"
KeyedVectors: Any = pytest.importorskip("gensim.models", reason="these tests compare with gensim").KeyedVectors


def stored(name: str) -> Path:
    path = FIXTURES / name
    if not path.is_file():
        pytest.skip(f"the stored vectors are not here ({path})")
    return path


def test_word2vec_binary() -> None:
    path = stored("euclidean_vectors.bin")
    ours, theirs = load_vectors(path), KeyedVectors.load_word2vec_format(str(path), binary=True)
    assert list(ours.words) == theirs.index_to_key
    np.testing.assert_allclose(ours.rows, theirs.vectors, atol=1e-4)
    assert ours.similarity("war", "conflict") == pytest.approx(0.93305397, abs=1e-6)
    for word in ("war", "the", "fleet"):
        found, expected = ours.neighbours(word, 10), theirs.most_similar(word, topn=10)
        assert [w for w, _ in found] == [w for w, _ in expected]
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=1e-5)
    expected = theirs.most_similar(positive=["conflict", "king"], negative=["war"], topn=5)
    assert [w for w, _ in ours.analogy("war", "conflict", "king", 5)] == [w for w, _ in expected]


@pytest.mark.parametrize("name", ["test_glove.txt", "glove.6B.100d.sample.txt.gz", "fake_embeddings.5d.txt"])
def test_glove_text(name: str) -> None:
    path = stored(name)
    ours = load_vectors(path)
    theirs = KeyedVectors.load_word2vec_format(str(path), binary=False, no_header=True)
    assert list(ours.words) == theirs.index_to_key
    np.testing.assert_array_equal(ours.rows, theirs.vectors)


def test_fasttext_binary() -> None:
    from gensim.models.fasttext import ft_ngram_hashes, load_facebook_vectors

    path = stored("lee_fasttext_new.bin")
    ours, theirs = load_vectors(path), load_facebook_vectors(str(path))
    assert list(ours.words) == theirs.index_to_key
    # gensim gives the end of a sentence n-grams too; fastText (dictionary.cc, initNgrams) does not.
    same = [i for i, word in enumerate(ours.words) if word != END_OF_SENTENCE]
    assert len(same) == 1_762
    np.testing.assert_allclose(ours[np.array(same)], theirs.vectors[same], atol=1e-4)
    for word in ("rejection", "unheardof", "überraschung", "ไทย", "🙂", "a", "x" * 300):
        assert word not in theirs.key_to_index or word == "a"
        np.testing.assert_allclose(ours.vector(word), theirs.get_vector(word), rtol=1e-4, atol=1e-7)
        assert [h % 1_000 for h in ngram_hashes(word, 3, 6)] == ft_ngram_hashes(word, 3, 6, 1_000)


@given(
    word=st.text(st.characters(exclude_categories=["Cs"]), max_size=12), minn=st.integers(1, 4), more=st.integers(0, 4)
)
def test_ngrams_of_any_word(word: str, minn: int, more: int) -> None:
    from gensim.models.fasttext import ft_ngram_hashes

    ours = [code % 1_013 for code in ngram_hashes(word, minn, minn + more)]
    assert ours == ft_ngram_hashes(word, minn, minn + more, 1_013)


def test_gensim_opens_what_we_write(tmp_path: Path) -> None:
    from gensim.models.fasttext import load_facebook_model

    path = stored("lee_fasttext_new.bin")
    vectors = load_vectors(path)
    written = save_vectors(vectors, tmp_path / "v.bin", to="fasttext")
    before, after = path.read_bytes(), written.read_bytes()
    assert (before[:4], before[8:]) == (after[:4], after[8:])  # but for the version, 11 there
    load_facebook_model(str(written))
    for to, options in (("word2vec", {"binary": False}), ("word2vec-binary", {"binary": True})):
        written = save_vectors(vectors, tmp_path / to, to=to)
        theirs = KeyedVectors.load_word2vec_format(str(written), **options)
        np.testing.assert_array_equal(theirs.vectors, vectors[slice(0, len(vectors))])
        assert theirs.index_to_key == list(vectors.words)


def test_scores_are_gensims(tmp_path: Path) -> None:
    path = stored("euclidean_vectors.bin")
    ours, theirs = load_vectors(path), KeyedVectors.load_word2vec_format(str(path), binary=True)
    generator = np.random.default_rng(0)
    words = list(ours.words)
    pairs, questions = tmp_path / "pairs.tsv", tmp_path / "questions.txt"
    drawn = generator.choice(2_000, size=(80, 2))
    lines = [f"{words[a]}\t{words[b]}\t{generator.integers(10)}" for a, b in drawn.tolist() if a != b]
    pairs.write_text("\n".join([*lines, "nosuchword\tthe\t3"]), encoding="utf-8")
    found = similarity(ours, read_similarities(pairs))
    expected = theirs.evaluate_word_pairs(str(pairs), case_insensitive=False)
    assert found["spearman"] == pytest.approx(expected[1].statistic, abs=1e-6)
    assert found["unknown"] == 1

    def answered(number: int) -> list[str]:
        """Questions of which some have the right answer, because it was looked up."""
        rows = []
        for a, b, c in generator.choice(300, size=(number, 3), replace=True).tolist():
            best = theirs.most_similar(positive=[words[b], words[c]], negative=[words[a]], topn=1, restrict_vocab=1_000)
            right = best[0][0] if generator.random() < 0.5 else words[int(generator.integers(300))]
            rows.append(f"{words[a]} {words[b]} {words[c]} {right}")
        return rows

    text = [": things", *answered(30), ": gram1", *answered(30), "nosuchword the of and"]
    questions.write_text("\n".join(text), encoding="utf-8")
    scores = analogies(ours, read_analogies(questions), restrict=1_000)
    _, sections = theirs.evaluate_word_analogies(str(questions), restrict_vocab=1_000, case_insensitive=False)
    for section, expected_section in zip(scores["sections"], sections, strict=False):
        assert section["right"] == len(expected_section["correct"])
        assert section["questions"] == len(expected_section["correct"]) + len(expected_section["incorrect"])
    assert 20 < scores["total"]["right"] < 50


def test_real_words_of_other_scripts_survive_every_format(tmp_path: Path) -> None:
    vectors = load_vectors(stored("test_glove.txt"))
    for to in ("word2vec", "word2vec-binary", "glove", "textgraft"):
        found: WordVectors = load_vectors(save_vectors(vectors, tmp_path / to, to=to))
        assert list(found.words) == list(vectors.words)
        np.testing.assert_array_equal(found.rows, vectors.rows)

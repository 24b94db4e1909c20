"""fastText's binary files: hashes with known values, composed vectors by hand, and every kind of damage."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from textgraft import UserError, WordVectors, load_vectors, save_vectors
from textgraft.word_embeddings.fasttext_binary import SETTINGS
from textgraft.word_embeddings.subwords import ComposedRows, Subwords, fnv1a, ngram_hashes

HEADER = 4 * 14 + 8


def made(words: list[str] | None = None, buckets: int = 11, width: int = 3) -> WordVectors:
    words = words or ["</s>", "the", "Größe", "ab"]
    generator = np.random.default_rng(0)
    word_rows, output = (generator.normal(size=(len(words), width)).astype(np.float32) for _ in range(2))
    subwords = Subwords(2, 4, generator.normal(size=(buckets, width)).astype(np.float32))
    counts = np.arange(len(words), 0, -1) * 10
    run = {"fasttext": {"ws": 7, "neg": 3, "t": 0.5}, "tokens_seen": 1234}
    rows = ComposedRows(words, word_rows, subwords, output)
    return WordVectors(words, rows, counts=counts, subwords=subwords, lowercase=False, run=run)


def test_hashes_have_their_published_values() -> None:
    assert fnv1a(b"") == 0x811C9DC5
    assert fnv1a(b"a") == 0xE40C292C
    assert fnv1a(b"foobar") == 0xBF9CF968
    # A byte from 128 on is sign-extended: xor with 0xFFFFFFE9, not with 0xE9.
    assert fnv1a(b"\xe9") == ((0x811C9DC5 ^ 0xFFFFFFE9) * 16777619) % 2**32
    assert fnv1a(b"foo" + b"bar") == fnv1a(b"bar", fnv1a(b"foo"))


def test_ngrams_are_of_characters_and_in_fasttexts_order() -> None:
    grams = ["<é", "<éa", "éa", "éa>", "a>"]
    assert ngram_hashes("éa", 2, 3) == [fnv1a(g.encode()) for g in grams]
    assert ngram_hashes("éa", 1, 1) == [fnv1a("é".encode()), fnv1a(b"a")]  # but no lone < or >
    assert ngram_hashes("a", 4, 6) == []


def test_a_words_vector_is_the_mean_of_its_row_and_its_ngrams() -> None:
    vectors = made()
    rows = vectors.rows
    assert isinstance(rows, ComposedRows)
    for place, word in enumerate(vectors.words):
        parts = [rows.word_rows[place]]
        if word != "</s>":
            parts += [rows.subwords.table[h % 11] for h in ngram_hashes(word, 2, 4)]
        np.testing.assert_allclose(vectors.vector(word), np.mean(parts, axis=0), rtol=1e-5)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    vectors = made()
    path = save_vectors(vectors, tmp_path / "v.bin", to="fasttext")
    found = load_vectors(path)
    assert list(found.words) == list(vectors.words)
    assert isinstance(found.rows, ComposedRows)
    assert isinstance(vectors.rows, ComposedRows)
    assert not found.rows.word_rows.flags.writeable  # it is the file itself
    for name in ("word_rows", "output"):
        assert np.array_equal(getattr(found.rows, name), getattr(vectors.rows, name))
    assert found.subwords is not None
    assert vectors.subwords is not None
    assert np.array_equal(found.subwords.table, vectors.subwords.table)
    assert found.counts is not None
    assert found.counts.tolist() == [40, 30, 20, 10]
    expected = {"dim": 3, "bucket": 11, "minn": 2, "maxn": 4, "ws": 7, "neg": 3, "t": 0.5}
    assert found.run["fasttext"] == SETTINGS | expected
    assert found.run["tokens_seen"] == 1234
    again = save_vectors(found, tmp_path / "w.bin", to="fasttext")
    assert again.read_bytes() == path.read_bytes()


def test_through_our_own_folder_and_back(tmp_path: Path) -> None:
    vectors = made()
    folder = save_vectors(vectors, tmp_path / "v")
    path = save_vectors(load_vectors(folder), tmp_path / "v.bin", to="fasttext")
    found = load_vectors(path)
    for word in [*vectors.words, "unheard", "é"]:
        np.testing.assert_allclose(found.vector(word), vectors.vector(word), rtol=1e-4, atol=1e-6)


def test_few_of_the_words_and_all_of_the_ngrams(tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v.bin", to="fasttext")
    found = load_vectors(path, limit=2)
    assert list(found.words) == ["</s>", "the"]
    np.testing.assert_array_equal(found.vector("the"), made().vector("the"))
    assert found.vector("ab") is not None
    assert len(found.neighbours("ab", 5)) == 2
    short = save_vectors(found, tmp_path / "short.bin", to="fasttext")
    np.testing.assert_array_equal(load_vectors(short).vector("the"), made().vector("the"))


def test_cut_anywhere(tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v.bin", to="fasttext")
    whole = path.read_bytes()
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"v\.bin"):
            load_vectors(path, format="fasttext")


def field(name: str) -> int:
    return 8 + 4 * list(SETTINGS).index(name)


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (4, struct.pack("<i", 13), "version 13 of fastText's format"),
        (field("model"), struct.pack("<i", 3), "fastText classifier"),
        (field("dim"), struct.pack("<i", 0), "settings are impossible"),
        (field("dim"), struct.pack("<i", 4), "a matrix has the shape"),
        (field("bucket"), struct.pack("<i", -1), "settings are impossible"),
        (HEADER + 8, struct.pack("<i", 2), "has labels"),
        (HEADER + 20, struct.pack("<q", 0), "pruned"),
        (HEADER, struct.pack("<2i", 0, 0), "no words"),
        (HEADER, struct.pack("<2i", 2**31 - 1, 2**31 - 1), "ends too early"),
        (HEADER + 28, b"\xff", "is not UTF-8"),
    ],
)
def test_what_is_refused(place: int, value: bytes, complaint: str, tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v.bin", to="fasttext")
    data = bytearray(path.read_bytes())
    data[place : place + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(UserError, match=complaint):
        load_vectors(path)


def test_a_quantised_model_is_refused(tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v.bin", to="fasttext")
    data = bytearray(path.read_bytes())
    flag = HEADER + 28 + sum(len(word.encode()) + 10 for word in made().words)
    assert data[flag] == 0
    data[flag] = 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="quantised"):
        load_vectors(path)


def test_compressed_files_and_vectors_without_ngrams(tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v.bin", to="fasttext")
    packed = path.rename(tmp_path / "v.bin.gz")
    with pytest.raises(UserError, match="cannot be memory-mapped"):
        load_vectors(packed, format="fasttext")
    plain = WordVectors(["a", "b"], np.eye(2, dtype=np.float32))
    with pytest.raises(UserError, match="no n-grams"):
        save_vectors(plain, tmp_path / "w.bin", to="fasttext")
    assert [p.name for p in tmp_path.iterdir()] == ["v.bin.gz"]


def test_nine_gigabytes_open_in_the_memory_of_their_words(tmp_path: Path) -> None:
    """A file with a hole in its middle: n-grams by the million that take no room on the disk."""
    words, width, buckets = 1_000, 300, 7_500_000
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        settings = SETTINGS | {"dim": width, "bucket": buckets}
        file.write(struct.pack("<2i12id", 793712314, 12, *settings.values()))
        file.write(struct.pack("<3i2q", words, words, 0, 10**6, -1))
        for number in range(words):
            file.write(f"word{number}".encode() + b"\0" + struct.pack("<qb", words - number, 0))
        file.write(struct.pack("<B2q", 0, words + buckets, width))
        file.write(np.ones((words, width), dtype="<f4").tobytes())
        file.seek(4 * buckets * width, 1)
        file.write(struct.pack("<B2q", 0, words, width))
        file.truncate(file.tell() + 4 * words * width)
    assert path.stat().st_size > 9e9
    tracemalloc.start()
    vectors = load_vectors(path)
    known, unknown = vectors.vector("word7"), vectors.vector("unheard")
    near = vectors.neighbours("word7", 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert known is not None
    assert known[0] == pytest.approx(1 / (1 + len(ngram_hashes("word7", 3, 6))))
    assert unknown is not None
    assert not unknown.any()
    assert len(near) == 3

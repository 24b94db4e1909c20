"""Files of word vectors: written and read back to the bit, told from one another, and damaged in every way."""

from __future__ import annotations

import codecs
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from textgraft import UserError, VectorSource, WordVectors, convert_vectors, load_vectors, save_vectors
from textgraft.word_embeddings import lines, word2vec_binary
from textgraft.word_embeddings.formats import detect
from textgraft.word_embeddings.subwords import Subwords

FLAT = ("word2vec", "word2vec-binary", "glove")
WORDS = ["the", "Größe", "ไทย", "1.5", "</s>", "a_b", "\u3000wide", "naïve"]


def made(words: list[str] = WORDS, width: int = 3, seed: int = 0) -> WordVectors:
    rows = np.random.default_rng(seed).normal(size=(len(words), width)).astype(np.float32)
    return WordVectors(words, rows, counts=np.arange(len(words), 0, -1))


def same(found: WordVectors, expected: WordVectors) -> None:
    assert list(found.words) == list(expected.words)
    assert np.asarray(found.rows).tobytes() == np.asarray(expected.rows, dtype=np.float32).tobytes()


@pytest.mark.parametrize("to", FLAT)
def test_what_is_written_comes_back_to_the_bit(to: str, tmp_path: Path) -> None:
    vectors = made()
    vectors.rows[0] = [1e-38, -3.4e38, 0.1]
    path = save_vectors(vectors, tmp_path / "v", to=to)
    assert detect(path) == to
    same(load_vectors(path), vectors)
    assert [p.name for p in tmp_path.iterdir()] == ["v"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=arrays(np.float32, (5, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    words=st.lists(
        st.text(st.characters(exclude_characters=" \t\n\r\v\f\0", exclude_categories=["Cs"]), min_size=1),
        min_size=5,
        max_size=5,
        unique=True,
    ),
    to=st.sampled_from([*FLAT, "textgraft"]),
)
def test_any_finite_numbers_and_words_come_back(rows: np.ndarray, words: list[str], to: str, tmp_path: Path) -> None:
    vectors = WordVectors(words, rows)
    path = save_vectors(vectors, tmp_path / "v", to=to, overwrite=True)
    same(load_vectors(path, format=to), vectors)
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    else:
        path.unlink()


@pytest.mark.parametrize("to", FLAT)
def test_more_words_than_a_block(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINES", 7)
    monkeypatch.setattr(word2vec_binary, "ROWS", 7)
    vectors = made([f"word{i}" for i in range(50)], width=5)
    path = save_vectors(vectors, tmp_path / "v", to=to)
    same(load_vectors(path), vectors)
    same(load_vectors(path, limit=9), vectors.truncated(9))
    assert len(load_vectors(path, limit=1_000)) == 50
    with pytest.raises(UserError, match="0 is out of range"):
        load_vectors(path, limit=0)


@pytest.mark.parametrize("to", FLAT)
def test_compressed_files(to: str, tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v", to=to)
    packed = tmp_path / "v.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert detect(packed) == to
    same(load_vectors(packed), made())
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(UserError, match="damaged or cut short"):
        load_vectors(packed)


def test_line_ends_and_trailing_spaces_as_fasttext_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "v.vec"
    path.write_bytes(b"2 3\r\na 1 2 3 \r\nb 4 5 6 \r\n")
    found = load_vectors(path)
    assert list(found.words) == ["a", "b"]
    assert np.asarray(found.rows).tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"2 3\na -1 -2 -3\nb 1 2 3\n", "word2vec"),
        (b"2 9\na -1 -2 -3\nb 1 2 3\n", "word2vec"),  # and wrong
        (b"2 3\n\xff -1 -2 -3\n", "word2vec"),
        (b"2 3\n", "word2vec"),
        (b"2 1\na \0\0\0\0b \0\0\0\0", "word2vec-binary"),
        (b"the 1 2 3\n", "glove"),
        (b"2 3 4\n5 6 7\n", "glove"),
    ],
)
def test_which_format_a_file_is(text: bytes, found: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(text)
    assert detect(tmp_path / "v") == found


@pytest.mark.parametrize("header", [b"", b"3 3\n"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a\t1 2 3\nb\t4 5 6\nc\t7 8 9\n", ["a", "b", "c"]),
        (b"a\t1\t2\t3\nb\t4\t5\t6\nc\t7\t8\t9\t\n", ["a", "b", "c"]),
        (b"a  1  2 3\nb 4 5   6\nc 7 8 9\n", ["a", "b", "c"]),
        (b"  1 2 3\nb 4 5 6\nc 7 8 9\n", [" ", "b", "c"]),
        (b"a 1 2 3\n 4 5 6\nc 7 8 9\n", ["a", " ", "c"]),
        (b"a 1 2 3\n\t 4 5 6\nc\t7 8 9\n", ["a", " ", "c"]),
        ("a 1 2 3\n\u00a0 4 5 6\nc 7 8 9\n".encode(), ["a", "\u00a0", "c"]),
    ],
)
def test_spaces_and_tabs_lose_no_number(header: bytes, text: bytes, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(header + text)
    found = load_vectors(path)
    assert list(found.words) == words
    assert np.asarray(found.rows).tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    same(load_vectors(convert_vectors(path, tmp_path / "folder")), found)


@pytest.mark.parametrize("header", [b"", b"5 3\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_words_with_spaces_in_them_and_a_byte_order_mark(header: bytes, mark: bytes, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(mark + header + b". . . 1 2 3\nthe 4 5 6\nat name@domain.com 7 8 9\n 1 1 1\n1 1 1 1\n")
    found = load_vectors(path)
    assert list(found.words) == [". . .", "the", "at name@domain.com", " ", "1"]
    assert np.asarray(found.rows).tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1], [1, 1, 1]]
    same(load_vectors(convert_vectors(path, tmp_path / "folder")), found)
    with pytest.raises(UserError, match=r"has a space in it. Leave it out"):
        convert_vectors(path, tmp_path / "v.vec", to="word2vec")


@pytest.mark.parametrize("to", ["word2vec", "glove", "word2vec-binary", "fasttext"])
def test_words_that_are_not_utf_8_can_be_replaced(to: str, tmp_path: Path) -> None:
    vectors = made(["the", "mark", "naïve"])
    if to == "fasttext":
        table = np.ones((4, 3), dtype=np.float32)
        vectors = WordVectors(list(vectors.words), vectors.rows, counts=vectors.counts, subwords=Subwords(3, 4, table))
    path = save_vectors(vectors, tmp_path / "v", to=to)
    path.write_bytes(path.read_bytes().replace(b"mark", b"m\xe4\xffk"))
    with pytest.raises(UserError, match=r"is not UTF-8 \(byte 0xe4\).*errors=\"replace\"") as caught:
        load_vectors(path)
    assert caught.value.where.startswith(f"{path} ")
    with pytest.warns(UserWarning, match=r"1 words have U\+FFFD in place of bytes that are not UTF-8; the first: "):
        found = load_vectors(path, errors="replace")
    assert list(found.words) == ["the", "m\ufffd\ufffdk", "naïve"]
    with pytest.warns(UserWarning, match="1 words have"):
        convert_vectors(VectorSource(path, errors="replace"), tmp_path / "folder")
    assert list(load_vectors(tmp_path / "folder").words) == list(found.words)
    with pytest.raises(UserError, match="errors is 'skip'"):
        load_vectors(path, errors="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"2 3\na 1 2 3\nb 4 5\n", "line 3: 2 numbers; other lines have 3"),
        (b"2 3\na 1 2 3\nb 4 5 6 7\n", "line 3: 4 numbers; other lines have 3"),
        (b"2 3\na 1 2 3\nb c x 5 6\n", "line 3: the word has a space in it"),
        (b"2 3\na b 1 2 3\n c 4 5 6\n", "line 3: the word has a space in it"),
        (b"2 3\na 1 2 3\nb 4 c 7 8 9\n", "line 3: the word has a space in it"),  # two lines without an end between
        (b"2 3\na 1 2 3\nb c 5 nan 7\n", "line 3: 'nan' is not a finite number"),
        (b"2 3\na 1 2 x\nb 4 5 6\n", "line 2: 'x' is not a finite number"),
        (b"2 3\na 1 2 nan\nb 4 5 6\n", "line 2: 'nan' is not a finite number"),
        (b"2 3\na 1 2 3\nb 4 5 1e39\n", "line 3: '1e39' is not a finite number"),
        (b"2 3\na 1 2 3\n\xff\xfe 4 5 6\n", r"line 3: the word .* is not UTF-8 \(byte 0xff\)"),
        (b"2 3\na 1 2 3\n\n", "line 3: there is no word before"),
        (b"3 3\na 1 2 3\nb 4 5 6\n", "line 1: the first line announces 3 vectors, and 2 lines follow"),
        (b"1 3\na 1 2 3\nb 4 5 6\n", "line 1: the first line announces 1 vectors, and 2 lines follow"),
        (b"999999999999 300\na 1 2 3\n", "announces 999,999,999,999 vectors"),
        (b"0 3\n", "line 1: it announces no vectors"),
        (b"two 3\na 1 2 3\n", "line 1: 'two 3' is not the number of words"),
        (b"", "the file has no vectors"),
    ],
)
def test_a_malformed_word2vec_text(text: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "v.vec"
    path.write_bytes(text)
    with pytest.raises(UserError, match=complaint):
        load_vectors(path, format="word2vec")
    with pytest.raises(UserError, match=complaint):
        convert_vectors(VectorSource(path, format="word2vec"), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["v.vec"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"a 1 2 3\nb 4 5\n", "line 2: 2 numbers; other lines have 3"),
        (b"a 1 2 3\nb 4 5 6 7\nc 1 2\n", "line 2: 4 numbers; other lines have 3"),
        (b"a 1 2 3\nb 4 five 6\n", "line 2: 'five' is not a finite number"),
        (b"a oops 2 3\nb 4 5 6\n", "line 1: 'oops' is not a finite number"),
        (b"a 0,1 0,2 1\nb 0,1 0,2 0\n", "line 1: '0,1' is not a finite number"),
        (b"a\nb\n", "line 1: there is no number after the word"),
        (b"", "the file has no vectors"),
    ],
)
def test_a_malformed_glove_text(text: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(text)
    with pytest.raises(UserError, match=complaint):
        load_vectors(path)


def test_a_word2vec_binary_cut_anywhere(tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v.bin", to="word2vec-binary")
    whole = path.read_bytes()
    for length in range(5, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"v\.bin"):
            load_vectors(path, format="word2vec-binary")


def test_a_malformed_word2vec_binary(tmp_path: Path) -> None:
    path = tmp_path / "v.bin"
    record = struct.pack("<2f", 1, 2)
    path.write_bytes(b"2 2\na " + record + b"\xff\xff " + record)
    with pytest.raises(UserError, match=r"byte 14: the word .* is not UTF-8"):
        load_vectors(path, format="word2vec-binary")
    path.write_bytes(b"2 2\na " + record + b"b " + struct.pack("<2f", 1, np.nan))
    with pytest.raises(UserError, match="'b', word 2, is not finite"):
        load_vectors(path, format="word2vec-binary")
    path.write_bytes(b"90000000 3000\na " + record)
    with pytest.raises(UserError, match="90,000,000 vectors of 3,000 dimensions are announced"):
        load_vectors(path, format="word2vec-binary")
    path.write_bytes(b"2 2\na " + record + b"b " + record)  # as gensim writes it, without line ends
    assert list(load_vectors(path, format="word2vec-binary").words) == ["a", "b"]


@pytest.mark.parametrize("to", [*FLAT, "textgraft"])
def test_a_word_with_a_separator_is_not_written(to: str, tmp_path: Path) -> None:
    for word in ("a\nb", "", *(["new york", " "] if to in FLAT else [])):
        with pytest.raises(UserError, match="is empty or has a space"):
            save_vectors(made(["a", word]), tmp_path / "v", to=to)
    assert not list(tmp_path.iterdir())


def test_from_any_format_to_any_other(tmp_path: Path) -> None:
    vectors = made()
    path = save_vectors(vectors, tmp_path / "start", to="glove")
    for number, to in enumerate(("textgraft", "word2vec-binary", "word2vec", "textgraft", "glove")):
        seen: list[int] = []
        path = convert_vectors(path, tmp_path / f"{number}", to=to, seen=seen.append)
        assert sum(seen) == len(vectors)
        same(load_vectors(path), vectors)
    assert path.read_bytes() == (tmp_path / "start").read_bytes()


def test_what_is_there_is_not_overwritten_without_being_told(tmp_path: Path) -> None:
    path = save_vectors(made(), tmp_path / "v", to="word2vec")
    for to in FLAT:
        with pytest.raises(UserError, match="exists already"):
            save_vectors(made(), path, to=to)
    with pytest.raises(UserError, match="exists already"):
        convert_vectors(path, path, to="textgraft")
    with pytest.raises(UserError, match=r"not written as \.gz"):
        save_vectors(made(), tmp_path / "v.txt.gz", to="glove")
    assert [p.name for p in tmp_path.iterdir()] == ["v"]
    save_vectors(made(seed=1), path, to="word2vec", overwrite=True)
    same(load_vectors(path), made(seed=1))


def test_a_folder_is_mapped_and_knows_its_counts_and_ngrams(tmp_path: Path) -> None:
    vectors = made()
    vectors.subwords = Subwords(3, 5, np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32))
    vectors.lowercase = True
    folder = save_vectors(vectors, tmp_path / "v")
    found = load_vectors(folder)
    same(found, vectors)
    assert isinstance(found.rows, np.memmap)
    assert found.counts is not None
    assert vectors.counts is not None
    assert found.counts.tolist() == vectors.counts.tolist()
    assert found.lowercase
    assert found.subwords is not None
    assert (found.subwords.minn, found.subwords.maxn) == (3, 5)
    np.testing.assert_array_equal(found.vector("unheard"), vectors.vector("unheard"))
    assert {p.name for p in folder.iterdir()} == {
        *("config.json", "run.json", "words.txt", "vectors.safetensors", "README.md"),
    }
    assert len(load_vectors(folder, limit=2)) == 2


def test_safetensors_own_library_reads_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    folder = save_vectors(made(), tmp_path / "v", half=True)
    tensors = load_file(folder / "vectors.safetensors")
    assert tensors["vectors"].dtype == np.float16
    assert (tensors["vectors"] == np.asarray(made().rows).astype(np.float16)).all()
    assert tensors["counts"].tolist() == list(range(len(WORDS), 0, -1))


def test_half_is_float16_and_nothing_larger(tmp_path: Path) -> None:
    vectors = made()
    found = load_vectors(save_vectors(vectors, tmp_path / "v", half=True))
    np.testing.assert_allclose(np.asarray(found.rows, dtype=np.float32), vectors.rows, rtol=1e-3)
    vectors.rows[0, 0] = 70_000
    with pytest.raises(UserError, match="too large for float16"):
        save_vectors(vectors, tmp_path / "w", half=True)
    with pytest.raises(UserError, match="only textgraft's own format has float16"):
        save_vectors(vectors, tmp_path / "w", to="glove", half=True)
    assert [p.name for p in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize("name", ["words.txt", "vectors.safetensors", "run.json", "config.json"])
def test_a_folder_that_was_altered(name: str, tmp_path: Path) -> None:
    folder = save_vectors(made(), tmp_path / "v")
    whole = (folder / name).read_bytes()
    for damaged in (whole[:-3], whole.replace(b"e", b"f", 1), b""):
        (folder / name).write_bytes(damaged)
        with pytest.raises(UserError, match=name):
            load_vectors(folder)
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        load_vectors(folder)


def test_other_models_and_other_files(tiny_lm: Path, tmp_path: Path) -> None:
    from textgraft.models import loading

    with pytest.raises(UserError, match="has no word vectors"):
        load_vectors(tiny_lm)
    with pytest.raises(UserError, match="no model 'nowhere'"):
        load_vectors("nowhere")
    with pytest.raises(UserError, match=r"unknown format 'word2vek'.*Did you mean 'word2vec'"):
        load_vectors(tmp_path, format="word2vek")
    folder = save_vectors(made(), tmp_path / "v")
    with pytest.raises(UserError, match="word vectors, not a network"):
        loading.load_network(folder)


def test_a_header_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"1 " + b"9" * 5_000 + b"\na 1 2 3\n")
    with pytest.raises(UserError, match="is not the number of words and of dimensions"):
        load_vectors(path)

"""Two files whose lines go together: read, refused, parted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.parallel import HELD_OUT_EVERY, MAX_HELD_OUT, Parallel, read_parallel


def written(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    files = folder / "a.en", folder / "a.de"
    for path, data in zip(files, (source, target), strict=True):
        path.write_bytes(data)
    return files


def test_lines_go_together_and_blank_ones_are_left_out(tmp_path: Path) -> None:
    files = written(tmp_path, b"a dog\r\n\r\na cat\r\n  \r\nlast", b"ein Hund\nnichts\neine Katze\n\nletzte\n")
    read = read_parallel(*files)
    assert read.source == ("a dog", "a cat", "last")
    assert read.target == ("ein Hund", "eine Katze", "letzte")
    assert (read.blank, len(read), read.names) == (2, 3, (str(files[0]), str(files[1])))


def test_a_line_separator_inside_a_sentence_parts_nothing(tmp_path: Path) -> None:
    """U+2028 and U+0085 are no line ends: a file with them would slip against its partner."""
    read = read_parallel(*written(tmp_path, "a\u2028b\nc\x85d\n".encode(), b"x\ny\n"))
    assert read.source == ("a\u2028b", "c\x85d")


def test_compressed_files(tmp_path: Path) -> None:
    for name, text in (("t.en.gz", "a dog\n"), ("t.de.gz", "ein Hund\n")):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    assert read_parallel(tmp_path / "t.en.gz", tmp_path / "t.de.gz").target == ("ein Hund",)


@pytest.mark.parametrize(
    ("source", "target", "longer", "line", "shorter", "last"),
    [(b"a\nb\nc\n", b"x\ny\n", "a.en", 3, "a.de", 2), (b"a\n", b"x\n\n\n", "a.de", 2, "a.en", 1)],
)
def test_unequal_files_are_told_with_the_line(
    tmp_path: Path, source: bytes, target: bytes, longer: str, line: int, shorter: str, last: int
) -> None:
    with pytest.raises(UserError) as refused:
        read_parallel(*written(tmp_path, source, target))
    assert refused.value.where == f"{tmp_path / longer} line {line}"
    assert f"{shorter} ends with line {last}" in refused.value.message


@pytest.mark.parametrize(("source", "target"), [(b"", b""), (b"\n\n", b"x\n\n")])
def test_files_without_a_pair(tmp_path: Path, source: bytes, target: bytes) -> None:
    with pytest.raises(UserError, match="no pair of sentences"):
        read_parallel(*written(tmp_path, source, target))


def test_a_missing_and_a_damaged_file(tmp_path: Path) -> None:
    source, target = written(tmp_path, b"a\n", b"x\n")
    with pytest.raises(UserError, match="no such file"):
        read_parallel(source, tmp_path / "b.de")
    (tmp_path / "c.de.gz").write_bytes(gzip.compress(b"x\n" * 1000)[:-9])
    with pytest.raises(UserError, match="damaged or cut short"):
        read_parallel(source, tmp_path / "c.de.gz")
    target.write_bytes(b"good\n\xff\xfe\xfa bad\n")
    with pytest.raises(UserError):
        read_parallel(source, target)


def test_sentences_in_memory_of_unequal_number() -> None:
    with pytest.raises(UserError, match="2 sentences have 1 translations"):
        Parallel.of(["a", "b"], ["x"])


@given(st.integers(2, 300))
def test_held_out_pairs_are_some_of_all_and_no_others(count: int) -> None:
    pairs = Parallel.of([f"s{i}" for i in range(count)], [f"t{i}" for i in range(count)])
    train, held = pairs.held_out()
    assert len(held) == max(1, count // HELD_OUT_EVERY)
    assert sorted((*train.source, *held.source)) == sorted(pairs.source)
    assert [s[1:] for s in held.source] == [t[1:] for t in held.target]
    assert pairs.held_out() == (train, held)


def test_of_many_pairs_no_more_than_enough_are_held_out() -> None:
    count = HELD_OUT_EVERY * (MAX_HELD_OUT + 50)
    train, held = Parallel.of(["s"] * count, ["t"] * count).held_out()
    assert (len(train), len(held)) == (count - MAX_HELD_OUT, MAX_HELD_OUT)


def test_one_pair_cannot_be_parted() -> None:
    with pytest.raises(UserError, match="one pair is too few"):
        Parallel.of(["s"], ["t"]).held_out()


def test_the_hash_tells_what_is_read_and_not_where_it_lay() -> None:
    one = Parallel.of(["a", "b"], ["x", "y"], ("here", "there"))
    assert one.content_hash() == Parallel.of(["a", "b"], ["x", "y"]).content_hash()
    assert one.content_hash() != Parallel.of(["a", "b"], ["y", "x"]).content_hash()
    assert one.content_hash() != Parallel.of(["x", "y"], ["a", "b"]).content_hash()

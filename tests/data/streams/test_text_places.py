"""Texts of one file from any place in it, by format, local and behind a URL."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from textgraft.core.errors import UserError
from textgraft.data.examples import MAX_CHARACTERS
from textgraft.data.streams import text_places
from textgraft.data.streams.text_places import Place, text_column, texts_from

TEXTS = ["first", "", "zweite Zeile: für", "   ", *(f"text {i} " + "x" * (i % 7) for i in range(60)), "last"]
WANTED = [text.rstrip("\r\n") for text in TEXTS if text.strip()]


def plain(texts: list[str]) -> bytes:
    return ("\ufeff" + "\r\n".join(texts) + "\r\n").encode()


def json_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()


def parquet(texts: list[str]) -> bytes:
    out = io.BytesIO()
    table = pyarrow.table({"text": [text or None for text in texts], "number": list(range(len(texts)))})
    pyarrow.parquet.write_table(table, out, row_group_size=10)
    return out.getvalue()


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "a.txt": plain,
    "a.txt.gz": lambda texts: gzip.compress(plain(texts)),
    "a.jsonl": json_lines,
    "a.ndjson.xz": lambda texts: lzma.compress(json_lines(texts)),
    "a.parquet": parquet,
}


@pytest.mark.parametrize("url", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_from_every_place_the_rest_is_read(name: str, url: bool, tmp_path: Path) -> None:
    file = f"memory://places/{name}" if url else str(tmp_path / name)
    with fsspec.open(file, "wb") as out:
        out.write(FORMATS[name](TEXTS))
    column = text_column(file, None)
    assert column == (None if ".txt" in name else "text")
    whole = list(texts_from(file, column))
    assert [text for text, _ in whole] == WANTED
    for index in (0, 1, 7, 8, 30, len(whole) - 1):
        assert list(texts_from(file, column, whole[index][1])) == whole[index + 1 :]


def test_rows_before_a_place_are_not_read(tmp_path: Path) -> None:
    """The first row group is damaged, and nobody sees it who begins after it."""
    path = tmp_path / "a.parquet"
    data = bytearray(parquet([f"text {i}" for i in range(30)]))
    data[4:40] = b"\xff" * 36
    path.write_bytes(data)
    assert next(texts_from(str(path), "text", Place(10)))[0] == "text 10"
    with pytest.raises(UserError, match=r"a\.parquet: not a Parquet file, or a damaged one"):
        next(texts_from(str(path), "text"))


def test_a_file_that_cannot_seek_is_read_up_to_the_place() -> None:
    class Forward(io.BytesIO):
        def seek(self, *_: int) -> int:
            raise ValueError("Cannot seek streaming HTTP file")

    stream = Forward(b"0123456789")
    text_places._advance(stream, 4)
    assert stream.read() == b"456789"


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("a.txt", "fine\nfür".encode("latin-1"), ("line 2", "0xfc is not UTF-8")),
        ("a.txt", "fine".encode("utf-16"), ("UTF-16", "Save it as UTF-8")),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', ("line 2", "a JSON list")),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', ("line 2", "not valid JSON")),
        ("a.jsonl", b'{"text": {"b": 1}}\n', ("line 1", "the text is a dict")),
        ("a.parquet", b"PAR1", ("not a Parquet file, or a damaged one",)),
        ("a.parquet", parquet(TEXTS)[:-30], ("not a Parquet file, or a damaged one", "write it again")),
        ("a.txt.gz", gzip.compress(plain(TEXTS))[:-20], ("damaged or cut short",)),
        ("a.csv", b"text\na\n", ("the suffix '.csv' cannot be streamed", ".parquet")),
        ("README", b"text\n", ("no suffix",)),
    ],
)
def test_damaged_files(name: str, data: bytes, parts: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UserError) as raised:
        list(texts_from(str(path), "text"))
    assert all(part in str(raised.value) for part in (str(path), *parts))


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CHARACTERS == text_places.MAX_CHARACTERS
    monkeypatch.setattr(text_places, "MAX_CHARACTERS", 100)
    (tmp_path / "a.txt").write_text("short\n" + "x" * 101)
    with pytest.raises(UserError, match=r"a\.txt line 2: a line has more than 100 bytes"):
        list(texts_from(str(tmp_path / "a.txt"), None))


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_columns_are_named_or_guessed(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    Path(path).write_bytes(FORMATS[name](TEXTS))
    assert text_column(path, "Text") == "text"
    with pytest.raises(UserError, match="no column 'body' for the text"):
        text_column(path, "body")


def test_a_later_file_without_the_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(TEXTS))
    with pytest.raises(UserError, match=r"a\.parquet: no column 'body'"):
        next(texts_from(str(path), "body"))

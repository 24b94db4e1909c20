"""Temporary files on a full disk: a clear word, and nothing left behind."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from textgraft.cli import main
from textgraft.core.errors import UserError
from textgraft.core.files import temporary_folder
from textgraft.data.readers import read
from textgraft.word_embeddings.options import VectorOptions
from textgraft.word_embeddings.training import train_vectors

FULL = [errno.ENOSPC, errno.EDQUOT]


@pytest.mark.parametrize("code", FULL)
def test_a_full_disk_is_named_with_the_folder(tmp_path: Path, code: int) -> None:
    def write() -> None:
        with temporary_folder("x-", tmp_path) as folder:
            (folder / "a").write_text("a")
            raise OSError(code, os.strerror(code))

    with pytest.raises(UserError, match="full: make room") as caught:
        write()
    assert caught.value.where == str(tmp_path)
    assert not list(tmp_path.iterdir())


def test_other_errors_are_not_its_business(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError), temporary_folder("x-", tmp_path):
        raise ConnectionError
    assert not list(tmp_path.iterdir())


def test_unpacking_a_table_onto_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called a file that cannot be read, whose permissions were to be checked."""
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE reviews (text TEXT)")
    connection.execute("INSERT INTO reviews VALUES ('fine')")
    connection.commit()
    connection.close()
    packed = tmp_path / "a.db.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.db").read_bytes()))
    assert read(packed).texts == ["fine"]
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(UserError, match="The disk is full"):
        read(packed)


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_word_vectors_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of counting pairs of words; the same call again gives the same vectors."""
    texts = [f"the {noun} sees the {other}" for noun in ("river", "lamp", "stone") for other in ("bread", "music")] * 20
    options = VectorOptions(dimensions=4, min_count=1, epochs=2)
    expected = train_vectors(texts, "glove", options=options, work=tmp_path / "expected")
    real = Path.open

    def fails(self: Path, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        return full() if "w" in mode else real(self, mode, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fails)
        with pytest.raises(UserError, match="The disk is full"):
            train_vectors(texts, "glove", options=options, work=tmp_path / "work")
        assert not list((tmp_path / "work").iterdir())
    again = train_vectors(texts, "glove", options=options, work=tmp_path / "work")
    assert (again.vectors(["river"]) == expected.vectors(["river"])).all()


def test_the_command_line_calls_no_full_disk_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("textgraft.cli.app._run", full)
    with pytest.raises(SystemExit):
        main(["models"])
    assert "The disk is full: make room" in capsys.readouterr().err

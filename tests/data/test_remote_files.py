"""Files behind URLs: names, listings, and what is said where they cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from textgraft.core.errors import UserError
from textgraft.data.readers import read_texts
from textgraft.data.remote_files import files_below, is_url, open_url


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    system.pipe({"/shelf/b.txt": b"two", "/shelf/deep/a.txt": b"one", "/shelf/_SUCCESS": b""})
    yield system
    system.rm("/shelf", recursive=True)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/x", True),
        (Path("https://host/x"), True),
        ("hf://datasets/imdb", True),
        ("hf:imdb", False),
        (Path("hf:/home/data"), False),
        ("C:/texts", False),
        ("texts/a.txt", False),
    ],
)
def test_urls_are_told_from_paths(path: str | Path, expected: bool) -> None:
    assert is_url(path) is expected


def test_a_folder_a_pattern_and_a_file(memory: object) -> None:
    assert [file.url for file in files_below("memory://shelf")] == [
        "memory:///shelf/_SUCCESS",
        "memory:///shelf/b.txt",
        "memory:///shelf/deep/a.txt",
    ]
    assert [file.url for file in files_below("memory://shelf/*.txt")] == ["memory:///shelf/b.txt"]
    (file,) = files_below("memory://shelf/b.txt")
    assert file.size == 3
    assert open_url(file.url).read() == b"two"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("memory://nowhere/a.txt", ("no such file", "the same command continues")),
        ("xyz://bucket/a.txt", ("unknown protocol 'xyz'", "s3")),
    ],
)
def test_what_is_not_there(url: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as raised:
        files_below(url)
    assert all(part in str(raised.value) for part in (url, *parts))


def test_the_package_of_a_protocol_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match="pip install s3fs"):
        files_below("s3://bucket/a.txt")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UserError, match=r"textgraft\[stream\]"):
        files_below("memory://shelf")


def test_errors_of_a_store_name_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Expired(Exception):
        pass

    def fail(*_: object, **__: object) -> None:
        raise Expired("the token has expired")

    monkeypatch.setattr(fsspec.filesystem("memory"), "isdir", fail)
    with pytest.raises(UserError, match=r"memory://shelf: cannot be read \(Expired: the token has expired\)"):
        files_below("memory://shelf")


def test_other_commands_say_that_they_read_no_urls() -> None:
    with pytest.raises(UserError, match="pretrain --streaming"):
        read_texts(["s3://bucket/a.txt"])

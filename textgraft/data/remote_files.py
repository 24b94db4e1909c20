"""Files behind URLs, such as s3://bucket/folder and hf://datasets/NAME, through fsspec: opened, never copied to disk.

A URL is the user's explicit wish to read from elsewhere. This is the only module that knows fsspec, which is installed
with the extra `[stream]`; each store needs a package of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from textgraft.core.errors import UserError, did_you_mean

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_COLLAPSED = re.compile(r"(?!hf:)[A-Za-z][A-Za-z0-9+.-]+:/")
"""hf:/folder is a data set on this machine (data.huggingface_datasets)."""
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "'textgraft[hub]'",
    "http": "aiohttp requests",
    "https": "aiohttp requests",
    "abfs": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
}
"""What pip installs for each protocol."""
_BUFFER = 1 << 20
_VERSIONS = ("ETag", "etag", "sha256", "blob_id", "md5Hash", "checksum")
"""Entries in which stores describe the content of a file."""


class RemoteFile(NamedTuple):
    """A file, its size in bytes, and what the store says of its content ("" where it says nothing)."""

    url: str
    size: int
    version: str


def is_url(path: str | os.PathLike[str]) -> bool:
    """True for PROTOCOL://…, also where `Path` has made one slash of two.

    >>> is_url("s3://bucket/x.parquet"), is_url(Path("s3://bucket")), is_url("hf:imdb"), is_url("C:/x.txt")
    (True, True, False, False)
    """
    return bool((_COLLAPSED if isinstance(path, Path) else _URL).match(str(path)))


def name_of(url: str) -> PurePosixPath:
    """The path in a URL or of a local file, whose suffixes name the format.

    >>> name_of("https://example.org/a/b.jsonl.gz?download=1").name
    'b.jsonl.gz'
    """
    return PurePosixPath(url.partition("?")[0] if is_url(url) else url)


def files_below(url: str) -> list[RemoteFile]:
    """The file, the files of a folder, or those that match a pattern, sorted.

    Raises:
        UserError: There is none, it cannot be reached, or the package for the protocol is missing.
    """
    with reading(url):
        system, path = _system(url)
        by_suffix = url.startswith(("http://", "https://")) and bool(name_of(url).suffix)
        if not by_suffix and has_magic(path):
            entries = system.glob(path, detail=True)
        elif not by_suffix and system.isdir(path):
            entries = system.find(path, detail=True)
        else:
            entries = {path: system.info(path)}
        found = {name: entry for name, entry in sorted(entries.items()) if entry.get("type") != "directory"}
        return [
            RemoteFile(system.unstrip_protocol(name), int(entry.get("size") or 0), _version(entry))
            for name, entry in found.items()
        ]


def open_url(url: str) -> BufferedReader:
    """Open a file for reading bytes in order; what is not read is not transferred, but for some read ahead."""
    with reading(url):
        system, path = _system(url)
        in_parts = not url.startswith(("http://", "https://")) or _sends_parts(system, path)
        file = system.open(path, "rb") if in_parts else _Forward(system.open(path, "rb", block_size=0))
        return BufferedReader(file, _BUFFER)


def open_url_at_random(url: str) -> Any:
    """Open a file for reading parts of it: exactly those are transferred, each by a request."""
    with reading(url):
        system, path = _system(url)
        return system.open(path, "rb", cache_type="none")


def _sends_parts(system: Any, path: str) -> bool:
    """True if a web server sends the second byte alone."""
    try:
        with system.open(path, "rb", cache_type="none") as file:
            file.seek(1)
            file.read(1)
    except ValueError:
        return False
    return True


class _Forward(RawIOBase):
    """A file that is read from its beginning to its end, and not asked again after that."""

    def __init__(self, file: Any) -> None:
        self._file, self._ended = file, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b"" if self._ended else self._file.read(len(buffer))
        self._ended = not data
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Convert every error inside to a UserError about `url`: each store's library has errors of its own."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        remedy = "Check the address. If it was there when the run began, restore it: the same command continues."
        raise UserError("no such file or folder.", where=url, remedy=remedy) from error
    except ImportError as error:
        protocol = url.partition(":")[0]
        package = _PACKAGES.get(protocol)
        remedy = f"Install it: pip install {package}." if package else "Install the package that it names."
        raise UserError(f"reading {protocol}:// needs a package ({error}).", where=url, remedy=remedy) from error
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        remedy = "Check the address, the network and your credentials; the same command continues where it stopped."
        raise UserError(f"cannot be read ({type(error).__name__}: {reason}).", where=url, remedy=remedy) from error


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        fsspec: Any = import_module("fsspec")
    except ImportError as error:
        remedy = "Install it: pip install 'textgraft[stream]'."
        raise UserError("reading from a URL needs the package fsspec.", where=url, remedy=remedy) from error
    protocol = url.partition(":")[0]
    known = fsspec.available_protocols()
    if protocol not in known:
        remedy = did_you_mean(protocol, ("s3", "hf", "gs", "https", "file", *sorted(known)))
        raise UserError(f"unknown protocol '{protocol}'.", where=url, remedy=remedy)
    system, path = fsspec.core.url_to_fs(url)
    return system, str(path)


def _version(entry: dict[str, Any]) -> str:
    return next((str(entry[name]) for name in _VERSIONS if entry.get(name)), "")

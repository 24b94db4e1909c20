"""Atomic file writes."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from textgraft.core.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the errors of a disk, or of a user's share of it, that is full; only writing has them."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary file, fsync, rename: after a crash either the old or the new file exists, complete.

    Raises UserError if the disk is full or the folder cannot be written; the old file is kept.
    """
    with writing_atomically(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """`write_atomically` for data written in parts: the file is replaced when the block ends without an error."""
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


@contextlib.contextmanager
def temporary_folder(prefix: str = "textgraft-", inside: Path | None = None) -> Iterator[Path]:
    """A folder for temporary files, removed at the end of the block.

    Args:
        prefix: Beginning of its name.
        inside: The folder in which it is made (None: the system's).

    Raises:
        UserError: The disk is full, in the block too, or the folder cannot be written.
    """
    place = Path(tempfile.gettempdir()) if inside is None else inside
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno not in (*FULL, errno.EROFS, errno.EACCES):
            raise
        raise cannot_write(place, error) from error


def relative_path(path: str) -> str:
    """A path as seen from the working directory where it is inside; the last name of another absolute path.

    >>> relative_path("data/train.csv"), relative_path("/nowhere/here/test.csv")
    ('data/train.csv', 'test.csv')
    """
    if not os.path.isabs(path):
        return path
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else Path(path).name


def cannot_write(path: Path, error: OSError) -> UserError:
    """A UserError with a remedy for an OSError while writing `path`."""
    remedies = {
        errno.ENOENT: "The folder was removed in the meantime, as another run on the same path may do: start it again.",
        errno.ENOSPC: "The disk is full: make room and run the same command again.",
        errno.EDQUOT: "Your share of the disk is full: make room and run the same command again.",
        errno.EFBIG: "Files may not become as large here: see `ulimit -f`.",
        errno.EACCES: "Choose a folder that you may write to.",
        errno.EROFS: "Choose a folder that you may write to.",
        errno.EEXIST: "A file has the name of a folder: choose another path.",
        errno.ENOTDIR: "A file has the name of a folder: choose another path.",
    }
    remedy = remedies.get(error.errno or 0, "Check the path and run the same command again.")
    return UserError(f"cannot write ({error.strerror or error}).", where=str(path), remedy=remedy)


def validate_writable(path: Path) -> None:
    """Raise UserError if no file or folder can be created at `path`; nothing is created."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UserError("this is a file, not a folder.", where=str(folder), remedy="Choose another path.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise cannot_write(path, PermissionError(13, os.strerror(13)))

"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from textgraft.core.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, fsync, rename: after a crash the old file or the new one is there, whole.

    Raises UserError when the disk is full or the folder cannot be written; what was there stays.
    """
    with writing_atomically(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """`write_atomically` for data that comes bit by bit: the file is in place once the block ends without an error."""
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def cannot_write(path: Path, error: OSError) -> UserError:
    """What a person can do about an OSError met while writing `path`."""
    remedies = {
        errno.ENOSPC: "The disk is full: make room and run the same command again.",
        errno.EACCES: "Choose a folder that you may write to.",
        errno.EROFS: "Choose a folder that you may write to.",
        errno.EEXIST: "A file stands where a folder is wanted: choose another path.",
        errno.ENOTDIR: "A file stands where a folder is wanted: choose another path.",
    }
    remedy = remedies.get(error.errno or 0, "Check the path and run the same command again.")
    return UserError(f"cannot write ({error.strerror or error}).", where=str(path), remedy=remedy)


def validate_writable(path: Path) -> None:
    """Raises UserError if no file or folder could be made at `path`; leaves nothing behind."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UserError("a file stands where a folder is wanted.", where=str(folder), remedy="Choose another path.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise cannot_write(path, PermissionError(13, os.strerror(13)))

"""Where `fetch` puts a model: a plain folder, or the user's Hugging Face cache.

Each target has a path for the bytes so far and for the whole of every file, and makes a model of the files when all
have come. Until then nothing is where a model would be looked for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.conversion.downloads import RemoteFile, is_intact
from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write, write_atomically
from textgraft.models import hub_cache
from textgraft.models.model_folder import put_in_place, to_json

RECORD = "run.json"


@dataclass(frozen=True)
class PlainFolder:
    """The folder `out`; files are collected in `.OUT.fetch` beside it."""

    out: Path

    @property
    def work(self) -> Path:
        """The folder of unfinished downloads."""
        return self.out.with_name(f".{self.out.name}.fetch")

    def whole(self, file: RemoteFile) -> Path:
        """Path of a complete file."""
        return self.work / file.name

    def part(self, file: RemoteFile) -> Path:
        """Path of a partial file: other content has another name."""
        return self.work / f"{file.name}.{file.digest[:16]}.part"

    def keep_only(self, files: Sequence[RemoteFile]) -> None:
        """Remove files of another commit or model."""
        expected = {path for file in files for path in (self.whole(file), self.part(file))}
        for path in sorted(self.work.rglob("*"), reverse=True):
            if path.is_dir():
                with contextlib.suppress(OSError):  # not empty
                    path.rmdir()
            elif path not in expected:
                path.unlink()

    def give_up(self, files: Sequence[RemoteFile]) -> None:
        """Remove unfinished downloads if they are of these files only, which are not worth resuming."""
        if {path.name for path in self.work.iterdir()} <= {file.name for file in files}:
            shutil.rmtree(self.work)

    def finish(self, files: Sequence[RemoteFile], record: Mapping[str, Any]) -> Path:
        """Put the folder in its place, with its record. Raises UserError if it cannot be written."""
        try:
            write_atomically(self.work / RECORD, to_json(record))
            put_in_place(self.work, self.out)
        except OSError as error:
            raise cannot_write(self.out, error) from error
        return self.out


@dataclass(frozen=True)
class Cache:
    """The model `name` at one commit in the user's Hugging Face cache, in the layout of `huggingface_hub`."""

    name: str
    revision: str
    commit: str

    @property
    def work(self) -> Path:
        """The folder of contents."""
        return hub_cache.model_folder(self.name) / "blobs"

    def whole(self, file: RemoteFile) -> Path:
        """Path of a complete content, by its hash, which is the hub's ETag."""
        return self.work / file.digest

    def part(self, file: RemoteFile) -> Path:
        """Path of a partial content: one that no other program appends to, and that `hf cache` lists and clears."""
        return self.work / f"{file.digest}.textgraft.incomplete"

    def keep_only(self, files: Sequence[RemoteFile]) -> None:
        """Nothing: contents of other commits and of other programs stay."""

    def give_up(self, files: Sequence[RemoteFile]) -> None:
        """Remove contents of these files that no snapshot has, and the model's folder if it is then empty."""
        folder = hub_cache.model_folder(self.name)
        for file in files:
            linked = (path.resolve() for path in folder.glob(f"snapshots/*/{file.name}"))
            if self.whole(file).resolve() not in linked:
                self.whole(file).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            self.work.rmdir()
            folder.rmdir()

    def finish(self, files: Sequence[RemoteFile], record: Mapping[str, Any]) -> Path:
        """Link the files of the commit; the revision names it last. Raises UserError if that cannot be written."""
        folder = hub_cache.model_folder(self.name)
        snapshot = folder / "snapshots" / self.commit
        try:
            for file in files:
                _link(self.whole(file), snapshot / file.name, file)
            if self.revision != self.commit:
                write_atomically(folder / "refs" / self.revision, self.commit.encode())
        except OSError as error:
            raise cannot_write(snapshot, error) from error
        return snapshot


Target = PlainFolder | Cache


@contextlib.contextmanager
def exclusive(work: Path) -> Iterator[None]:
    """Context with exclusive use of `work` by this process. Raises UserError if another process uses it."""
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(work, error) from error
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        remedy = "Wait until it is done."
        raise UserError("another process is fetching here.", where=str(work), remedy=remedy) from error
    finally:
        os.close(folder)


def _link(content: Path, path: Path, file: RemoteFile) -> None:
    """Make `path` a relative link to `content`, or a copy where the system has no links."""
    if path.is_file() and (path.resolve() == content.resolve() or (not path.is_symlink() and is_intact(path, file))):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.unlink(missing_ok=True)
    try:
        beside.symlink_to(os.path.relpath(content, path.parent))
    except (OSError, NotImplementedError):
        shutil.copyfile(content, beside)
    os.replace(beside, path)

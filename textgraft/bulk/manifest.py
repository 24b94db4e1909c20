"""The record of a folder of results: what it was made from, which files are finished, and that it is complete."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textgraft.bulk.blocks import FileEnd, SourceFile
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.core.identity import changed_keys, identity_text
from textgraft.data.fingerprint import difference

NAME = "_textgraft.json"
"""Programs that read a folder of Parquet or JSON files skip names that begin with an underscore."""
FORMAT = 1
SAVE_SECONDS = 10.0
"""The ends of files are written this often: there may be a hundred thousand of them."""


@dataclass
class Manifest:
    """The record in `folder`.

    Attributes:
        folder: The folder of results.
        identity: Everything that results depend on, as JSON.
        ends: Blocks and rows of each file that has been read to its end, by its number.
        complete: All results are there.
        saved: When the record was written last, in seconds of time.monotonic.
    """

    folder: Path
    identity: dict[str, Any]
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    complete: bool = False
    saved: float = field(default=0.0, repr=False)

    @classmethod
    def open(cls, folder: Path, identity: dict[str, Any]) -> Manifest:
        """Open the record of a folder, or make that of a new one.

        Raises:
            UserError: The folder has results of another run, or other files.
        """
        path = folder / NAME
        if not path.exists():
            if folder.exists() and any(folder.iterdir()):
                remedy = "Name a new folder, or that of the run to go on with."
                raise UserError("this folder has other files in it.", where=str(folder), remedy=remedy)
            manifest = cls(folder, identity)
            manifest.save()
            return manifest
        stored = _read(path)
        changed = _changed(identity, stored["identity"])
        if changed:
            message = f"the results here are of another run, which differs in: {', '.join(changed)}."
            remedy = "Repeat that run to finish it, name another folder, or delete this one to start anew."
            raise UserError(message, where=str(folder), remedy=remedy)
        ends = {int(number): (int(end[0]), int(end[1])) for number, end in stored["ends"].items()}
        return cls(folder, identity, ends, bool(stored["complete"]))

    @property
    def run_hash(self) -> str:
        """The identity in short."""
        return run_hash(self.identity)

    def save(self) -> None:
        """Write the record."""
        content = {
            "format": FORMAT,
            "complete": self.complete,
            "ends": dict(sorted(self.ends.items())),
            "identity": self.identity,
        }
        write_atomically(self.folder / NAME, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        self.saved = time.monotonic()

    def note(self, end: FileEnd) -> None:
        """Record the end of a file, which is written within SAVE_SECONDS or with the next one."""
        self.ends[end.source.number] = (end.blocks, end.rows)
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save()

    def unfinished(self, sources: Sequence[SourceFile]) -> list[SourceFile]:
        """The files of which results are missing, each with the blocks that are done."""
        suffix = self.identity["format"]
        names = {path.name for path in self.folder.iterdir()}
        by_prefix: dict[str, set[int]] = {}
        for name in names:
            prefix, _, block = name.removesuffix(f".{suffix}").rpartition("-")
            if name.endswith(f".{suffix}") and block.isdecimal():
                by_prefix.setdefault(f"{prefix}-", set()).add(int(block))
        unfinished = []
        for source in sources:
            done = frozenset(by_prefix.get(source.prefix, ()))
            blocks = self.ends.get(source.number, (None,))[0]
            if blocks is None or not done.issuperset(range(blocks)):
                unfinished.append(SourceFile(source.number, source.path, source.name, done))
        return unfinished


def run_hash(identity: Mapping[str, Any]) -> str:
    """An identity in short."""
    return hashlib.sha256(identity_text(identity).encode()).hexdigest()


def stored_run_hash(folder: Path) -> str | None:
    """The identity, in short, of the run that writes into a folder; None where there is no such folder."""
    path = folder / NAME
    return run_hash(_read(path)["identity"]) if path.exists() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] != FORMAT:
            remedy = "Use the version of textgraft that wrote it, or name another folder."
            raise UserError(f"this record has format {stored['format']}, not {FORMAT}.", where=str(path), remedy=remedy)
        return {"identity": dict(stored["identity"]), "ends": dict(stored["ends"]), "complete": stored["complete"]}
    except (ValueError, KeyError, TypeError) as error:
        remedy = "Delete the folder and start anew, or name another."
        raise UserError("this file is not the record of a run.", where=str(path), remedy=remedy) from error


def _changed(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What differs: names of settings, and of files."""
    plain = json.loads(json.dumps(now))
    here, there = ({key: value for key, value in of.items() if key != "sources"} for of in (plain, before))
    files = difference(plain["sources"], before.get("sources", []))
    return changed_keys(here, there) + ([f"sources ({files})"] if files else [])

"""Sentences and their translations, from two files of which each line is the other's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.data.text_files import lines

HELD_OUT_EVERY, HELD_OUT_MOST = 50, 1000
"""Of pairs that come without others to measure on, every so many-th is held out, and no more than so many."""


@dataclass(frozen=True)
class Parallel:
    """N sentences in one language and in another; `blank` pairs, of which a side was empty, are left out of them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    blank: int = 0
    names: tuple[str, str] = ("", "")

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, source: Sequence[str], target: Sequence[str], names: tuple[str, str] = ("", "")) -> Parallel:
        """From sentences in memory. Raises UserError for unequal numbers, and where no pair is left."""
        if len(source) != len(target):
            message = f"{len(source):,} sentences have {len(target):,} translations."
            raise UserError(message, where=" and ".join(filter(None, names)), remedy="Give one for each.")
        kept = [(a, b) for a, b in zip(source, target, strict=True) if a.strip() and b.strip()]
        if not kept:
            where = " and ".join(filter(None, names))
            raise UserError("there is no pair of sentences.", where=where, remedy="Check that the files hold text.")
        return cls(tuple(a for a, _ in kept), tuple(b for _, b in kept), len(source) - len(kept), names)

    def content_hash(self) -> str:
        """sha256 of all that is read."""
        digest = hashlib.sha256()
        for text in (*self.source, *self.target):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()

    def held_out(self) -> tuple[Parallel, Parallel]:
        """The pairs to learn from and those to measure on, the same ones each time.

        Raises UserError where that leaves none for one of them.
        """
        every = min(HELD_OUT_EVERY, len(self))
        measured = range(every - 1, len(self), every)[:HELD_OUT_MOST]
        if len(self) < 2:
            raise UserError("one pair is too few to hold some out.", where=self.names[0], remedy="Name a --valid pair.")
        kept = [i for i in range(len(self)) if i not in measured]
        return self._some(kept), self._some(measured)

    def _some(self, indices: Sequence[int]) -> Parallel:
        source, target = (tuple(side[i] for i in indices) for side in (self.source, self.target))
        return replace(self, source=source, target=target)


def read_parallel(source: str | Path, target: str | Path) -> Parallel:
    """The pairs of two text files, plain or compressed, whose lines go together.

    Pairs of which a line is blank are left out and counted. Raises UserError for a file that cannot be read, with the
    line where one file ends before the other, and for files without a pair.
    """
    files = Path(source), Path(target)
    sides: tuple[list[str], list[str]] = ([], [])
    for number, pair in enumerate(zip_longest(*map(_stripped, files)), start=1):
        for one, line in enumerate(pair):
            if line is None:
                raise UserError(
                    f"this line has no partner: {files[one].name} ends with line {number - 1}.",
                    where=f"{files[1 - one]} line {number}",
                    remedy="Give two files of which each line is the other's translation.",
                )
            sides[one].append(line)
    return Parallel.of(*sides, (str(source), str(target)))


def _stripped(path: Path) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines(path))

"""Sentences and their translations, from two files aligned by line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.data.text_files import lines

HELD_OUT_EVERY, MAX_HELD_OUT = 50, 1000
"""Without separate evaluation pairs every HELD_OUT_EVERY-th pair is held out, up to MAX_HELD_OUT."""


@dataclass(frozen=True, repr=False)
class Parallel(Brief):
    """N sentences and their translations; `blank` counts pairs that were dropped because one text was empty."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    blank: int = 0
    names: tuple[str, str] = ("", "")

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, source: Sequence[str], target: Sequence[str], names: tuple[str, str] = ("", "")) -> Parallel:
        """From sentences in memory. Raises UserError for unequal numbers, and if no pair remains."""
        if len(source) != len(target):
            message = f"{len(source):,} sentences have {len(target):,} translations."
            raise UserError(message, where=" and ".join(filter(None, names)), remedy="Pass one for each.")
        pairs = [(a, b) for a, b in zip(source, target, strict=True) if a.strip() and b.strip()]
        if not pairs:
            where = " and ".join(filter(None, names))
            raise UserError("there is no pair of sentences.", where=where, remedy="Check that the files hold text.")
        return cls(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), len(source) - len(pairs), names)

    def content_hash(self) -> str:
        """SHA-256 of all sentences."""
        digest = hashlib.sha256()
        for text in (*self.source, *self.target):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()

    def held_out(self) -> tuple[Parallel, Parallel]:
        """Deterministic split into training and evaluation pairs. Raises UserError if either is empty."""
        every = min(HELD_OUT_EVERY, len(self))
        evaluation = range(every - 1, len(self), every)[:MAX_HELD_OUT]
        if len(self) < 2:
            raise UserError(
                "one pair is too few to hold some out.",
                where=self.names[0],
                remedy="Name a pair of validation files with valid=….",
            )
        training = [i for i in range(len(self)) if i not in evaluation]
        return self._subset(training), self._subset(evaluation)

    def _subset(self, indices: Sequence[int]) -> Parallel:
        source, target = (tuple(sentences[i] for i in indices) for sentences in (self.source, self.target))
        return replace(self, source=source, target=target)


def read_parallel(source: str | Path, target: str | Path) -> Parallel:
    """Read the pairs of two text files, plain or compressed, aligned by line.

    Pairs with a blank line are dropped and counted.

    Args:
        source, target: The two files.

    Raises:
        UserError: A file cannot be read, one is longer than the other (with the line), or there is no pair.
    """
    files = Path(source), Path(target)
    columns: tuple[list[str], list[str]] = ([], [])
    for number, pair in enumerate(zip_longest(*map(_stripped, files)), start=1):
        for column, line in enumerate(pair):
            if line is None:
                raise UserError(
                    f"this line has no translation: {files[column].name} ends with line {number - 1}.",
                    where=f"{files[1 - column]} line {number}",
                    remedy="Use two files aligned by line.",
                )
            columns[column].append(line)
    return Parallel.of(*columns, (str(source), str(target)))


def _stripped(path: Path) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines(path))

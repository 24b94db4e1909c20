"""Texts in a temporary file instead of memory, for what needs each of them once or a few of them again."""

from __future__ import annotations

import os
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import overload

from textgraft.core.files import cannot_write
from textgraft.data.examples import Pair

_CHUNK = 1 << 20


class TextsOnDisk(Sequence[str]):
    """N texts or pairs, at 8 bytes of memory each (16 for a pair), in a file that disappears with the process.

    Args:
        pairs: The texts are pairs.
    """

    def __init__(self, *, pairs: bool = False) -> None:
        self._pairs = pairs
        self._file = tempfile.TemporaryFile(buffering=_CHUNK)  # noqa: SIM115 (it is closed with this object)
        self._ends = array("Q", [0])

    def append(self, text: str) -> None:
        """Add a text, or a Pair."""
        with _writing():
            for part in (text.first, text.second) if isinstance(text, Pair) else (text,):
                self._ends.append(self._ends[-1] + self._file.write(part.encode("utf-8")))

    def __len__(self) -> int:
        return (len(self._ends) - 1) // (2 if self._pairs else 1)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        self._flush()
        if not self._pairs:
            return self._part(index)
        return Pair(self._part(2 * index), self._part(2 * index + 1))

    def __iter__(self) -> Iterator[str]:
        parts = self._parts()
        while (first := next(parts, None)) is not None:
            yield Pair(first, next(parts)) if self._pairs else first

    def _flush(self) -> None:
        with _writing():
            self._file.flush()

    def _part(self, number: int) -> str:
        return self._read(number, number + 1).decode("utf-8")

    def _parts(self) -> Iterator[str]:
        """Texts, and both of each pair, in order, read many at a time."""
        self._flush()
        ends, number = self._ends, 0
        while number < len(ends) - 1:
            last = max(number + 1, bisect_right(ends, ends[number] + _CHUNK) - 1)
            data, start = self._read(number, last), ends[number]
            for one in range(number, last):
                yield data[ends[one] - start : ends[one + 1] - start].decode("utf-8")
            number = last

    def _read(self, first: int, last: int) -> bytes:
        return os.pread(self._file.fileno(), self._ends[last] - self._ends[first], self._ends[first])


@contextmanager
def _writing() -> Iterator[None]:
    """Context in which an OSError names the folder of temporary files, whose disk may be another one."""
    try:
        yield
    except OSError as error:
        raise cannot_write(Path(tempfile.gettempdir()), error) from error

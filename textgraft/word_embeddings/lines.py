"""What the text formats share: lines of a word and D numbers, parted by single spaces, in UTF-8."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.data.text_files import explained, open_binary
from textgraft.word_embeddings.word_vectors import Block, VectorStream

LINES = 1_024
LONGEST = 1 << 24
"""Bytes of a line; more is no line of vectors."""
LARGEST = float(np.finfo(np.float32).max)
_PART = 1 << 20
_CUT = "The file is damaged or not what its name says; limit=… reads no further than the words you want."


def count_lines(path: Path) -> int:
    """How many lines a file has that are not empty at its end."""
    count, last = 0, b"\n"
    with explained(path), open_binary(path) as file:
        while part := file.read(_PART):
            count, last = count + part.count(b"\n"), part[-1:]
    return count + (last != b"\n")


def first_line(path: Path) -> bytes:
    """Without its line end. Raises UserError for an empty file."""
    with explained(path), open_binary(path) as file:
        line = file.readline(LONGEST)
    if not line.strip():
        raise UserError("there are no vectors in it.", where=str(path), remedy="Is it the right file?")
    return line.rstrip(b"\r\n ")


def read_blocks(path: Path, count: int, dimensions: int, *, skip: int) -> Iterator[Block]:
    """`count` lines as blocks of words and numbers, after the `skip` first ones.

    Raises UserError, with file and line, for a line that is missing, of another width, not UTF-8, or with something
    that is no finite number.
    """
    with explained(path), open_binary(path) as file:
        for _ in range(skip):
            file.readline(LONGEST)
        done = 0
        while done < count:
            lines = list(islice(_lines(file), min(LINES, count - done)))
            if not lines:
                message = f"there are {done:,} vectors where {count:,} are announced."
                raise UserError(message, where=f"{path} line {skip + done + 1}", remedy=_CUT)
            yield _parsed(lines, dimensions, path, skip + done + 1)
            done += len(lines)


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    while line := file.readline(LONGEST):
        yield line.rstrip(b"\r\n ")


def _parsed(lines: list[bytes], dimensions: int, path: Path, first: int) -> Block:
    """A block read at once; where that fails, line by line, to say which it is."""
    parts = [line.partition(b" ") for line in lines]
    if all(numbers.count(b" ") == dimensions - 1 for _, _, numbers in parts):
        rows = _numbers(b" ".join(numbers for _, _, numbers in parts))
        if rows is not None and rows.size == len(lines) * dimensions and np.isfinite(rows).all():
            words = [_word(word, f"{path} line {first + i}") for i, (word, _, _) in enumerate(parts)]
            return words, rows.reshape(len(lines), dimensions)
    for number, line in enumerate(lines, start=first):
        _complain(line, dimensions, f"{path} line {number}")
    raise AssertionError("a block is wrong and each of its lines is right")


def _numbers(text: bytes) -> NDArray[np.float32] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # what NumPy says of text that is no number
        try:
            return np.fromstring(text, dtype=np.float32, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


def _complain(line: bytes, dimensions: int, where: str) -> None:
    """Raise the UserError that a line deserves, if it does."""
    fields = line.split(b" ")
    _word(fields[0], where)
    numbers = [_number(field) for field in fields[1:]]
    if len(numbers) != dimensions:
        message = f"{len(numbers)} numbers where there are {dimensions} elsewhere."
        extra = len(numbers) - dimensions
        if extra > 0 and any(value is None for value in numbers[:extra]):
            message = "the word has a space in it, or what stands behind it is no number."
        raise UserError(message, where=where, remedy=_CUT)
    for field, value in zip(fields[1:], numbers, strict=True):
        if value is None or not abs(value) <= LARGEST:
            shown = field[:40].decode("utf-8", "replace")
            raise UserError(f"'{shown}' is no finite number.", where=where, remedy=_CUT)


def _number(field: bytes) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def _word(raw: bytes, where: str) -> str:
    if not raw:
        raise UserError("there is no word before the numbers.", where=where, remedy=_CUT)
    return decoded(raw, where)


def decoded(raw: bytes, where: str) -> str:
    """A word's bytes as text. Raises UserError where they are not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        _bad_word(raw, error, where)


def _bad_word(raw: bytes, error: UnicodeDecodeError, where: str) -> NoReturn:
    shown = raw[:40].decode("utf-8", "backslashreplace")
    message = f"the word '{shown}' is not UTF-8 (byte 0x{raw[error.start]:02x})."
    raise UserError(message, where=where, remedy=_CUT) from None


def written_lines(blocks: Iterable[Block], where: Path) -> Iterator[bytes]:
    """The blocks as lines; each number has as many digits as tell it from every other float32.

    Raises UserError for a word that cannot stand in such a line.
    """
    for words, rows in blocks:
        for word, numbers in zip(words, rows.astype("U32").tolist(), strict=True):
            yield f"{sound(word, where)} {' '.join(numbers)}\n".encode()


def sound(word: str, where: Path) -> str:
    """A word that formats parting words by white space can hold. Raises UserError for any other."""
    if not word or any(c in " \t\n\r\v\f\0" for c in word):
        raise UserError(f"the word {word!r} is empty or has a space in it.", where=str(where), remedy="Leave it out.")
    return word


def limited(count: int, limit: int | None) -> int:
    """The number of words to read. Raises UserError for a limit below 1."""
    if limit is not None and limit < 1:
        raise UserError(f"{limit} is out of range.", where="limit", remedy="Give 1 or more.")
    return count if limit is None else min(count, limit)


def stream_of_lines(path: Path, count: int, dimensions: int, *, skip: int) -> VectorStream:
    """What the text formats have in common, as a stream."""
    return VectorStream(count, dimensions, read_blocks(path, count, dimensions, skip=skip))

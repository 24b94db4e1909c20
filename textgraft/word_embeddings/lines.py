"""Common parts of the text formats: lines of a word and D numbers, separated by spaces or tabs, in UTF-8.

A word may have spaces in it, as ". . ." of GloVe's 840B vectors has, where no part of it but the first is a number.
"""

from __future__ import annotations

import codecs
import gzip
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.text_files import explained, open_binary
from textgraft.word_embeddings.word_vectors import Block, VectorStream

Errors = Literal["strict", "replace"]
"""Policy for words that are not UTF-8."""
LINES = 1_024
MAX_LINE_BYTES = 1 << 24
"""Maximum length of a line in bytes."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)
_PART = 1 << 20
_CUT = "The file is damaged or not what its name says; limit=… reads no further than the words you want."


def count_lines(path: Path) -> int:
    """Number of lines of a file, a last line without line end included."""
    count, last = 0, b"\n"
    with explained(path), open_binary(path) as file:
        while part := file.read(_PART):
            count, last = count + part.count(b"\n"), part[-1:]
    return count + (last != b"\n")


def first_line(path: Path) -> bytes:
    """The first line without its line end. Raises UserError for an empty file."""
    with explained(path), open_binary(path) as file:
        line = file.readline(MAX_LINE_BYTES)
    if not line.strip():
        raise UserError("the file has no vectors.", where=str(path), remedy="Is it the right file?")
    return line.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n\t ")


def read_blocks(path: Path, count: int, dimensions: int, decoder: WordDecoder, *, skip: int) -> Iterator[Block]:
    """Yield `count` lines as blocks of words and numbers, after `skip` lines.

    Raises:
        UserError: A line is missing, of another width, not UTF-8, or has a field that is not a finite number; the
            message has file and line.
    """
    with explained(path), open_binary(path) as file:
        for _ in range(skip):
            file.readline(MAX_LINE_BYTES)
        following, done = _lines(file), 0
        while done < count:
            lines = list(islice(following, min(LINES, count - done)))
            if not lines:
                message = f"there are {done:,} vectors; the header announces {count:,}."
                raise UserError(message, where=f"{path} line {skip + done + 1}", remedy=_CUT)
            yield _parsed(lines, dimensions, path, skip + done + 1, decoder)
            done += len(lines)
    decoder.finish()


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Lines without their ends, and without a byte order mark where they begin with the file."""
    at_start = file.tell() == 0
    while line := file.readline(MAX_LINE_BYTES):
        yield (line.removeprefix(codecs.BOM_UTF8) if at_start else line).rstrip(b"\r\n\t ")
        at_start = False


def _parsed(lines: list[bytes], dimensions: int, path: Path, first: int, decoder: WordDecoder) -> Block:
    """Parse a block at once: as single spaces separate it, else as any do, else with words that have spaces in them; on
    failure line by line, to find the wrong line.
    """
    for split in (_at_first_space, _at_any_space, _before_numbers):
        parts = [split(line, dimensions) for line in lines]
        if not all(word and numbers.count(b" ") == dimensions - 1 for word, numbers in parts):
            continue
        rows = _numbers(b" ".join(numbers for _, numbers in parts))
        if rows is not None and rows.size == len(lines) * dimensions and np.isfinite(rows).all():
            words = [decoder.word(word, f"{path} line {first + i}") for i, (word, _) in enumerate(parts)]
            return words, rows.reshape(len(lines), dimensions)
    for number, line in enumerate(lines, start=first):
        _raise_for_line(line, dimensions, f"{path} line {number}", decoder)
    raise AssertionError("a block is wrong and each of its lines is right")


def _at_first_space(line: bytes, dimensions: int) -> tuple[bytes, bytes]:
    word, _, numbers = line.partition(b" ")
    return word, numbers


def _at_any_space(line: bytes, dimensions: int) -> tuple[bytes, bytes]:
    """Word and numbers with a single space between them, however many spaces and tabs the line has."""
    word, *numbers = fields(line)
    return word, b" ".join(numbers)


def _before_numbers(line: bytes, dimensions: int) -> tuple[bytes, bytes]:
    """The last D fields, and before them a word that may have spaces in it; nothing where it has a number in it, so
    that the line has rather too many numbers, or lacks an end.
    """
    word, *numbers = line.rsplit(None, dimensions) or [b""]
    if line[:1].isspace():  # the word is a space, or nothing that begins with one
        return (b" ", b" ".join([word, *numbers])) if len(numbers) == dimensions - 1 else (b"", b"")
    if any(_number(part) is not None for part in word.split()[1:]):
        return b"", b""
    return word, b" ".join(numbers)


def width(path: Path) -> int:
    """The number of numbers in a line of a file without a header. Raises UserError for an empty file.

    It is that of the first line, unless the first word has spaces in it: then the second line decides.
    """
    first = fields(first_line(path))[1:]
    with explained(path), open_binary(path) as file:
        second = fields(next(islice(_lines(file), 1, 2), b""))[1:]
    if any(_number(part) is None for part in first) and 0 < len(second) < len(first):
        return len(second)
    return len(first)


def fields(line: bytes) -> list[bytes]:
    """Word and numbers of a line; a word that is white space, before the numbers, is a space."""
    parts = line.split()
    return [b" ", *parts] if line[:1].isspace() and parts else parts or [b""]


def _numbers(text: bytes) -> NDArray[np.float32] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # raised by NumPy for text that is not a number
        try:
            return np.fromstring(text, dtype=np.float32, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


def _raise_for_line(line: bytes, dimensions: int, where: str, decoder: WordDecoder) -> None:
    """Raise the UserError for a line, if it is wrong."""
    word, *parts = fields(line)
    split, after = _before_numbers(line, dimensions)
    if b" " in split.strip() and None not in map(_number, after.split()):
        word, parts = split, after.split()
    if not word:
        raise UserError("there is no word before the numbers.", where=where, remedy=_CUT)
    decoder.word(word, where)
    numbers = [_number(part) for part in parts]
    if len(numbers) != dimensions:
        message = f"{len(numbers)} numbers; other lines have {dimensions}."
        extra = len(numbers) - dimensions
        if extra > 0 and any(value is None for value in numbers[:extra]):
            message = "the word has a space in it, or a field after it is not a number."
        raise UserError(message, where=where, remedy=_CUT)
    for part, value in zip(parts, numbers, strict=True):
        if value is None or not abs(value) <= MAX_FLOAT32:
            shown = part[:40].decode("utf-8", "replace")
            raise UserError(f"'{shown}' is not a finite number.", where=where, remedy=_CUT)


def _number(field: bytes) -> float | None:
    try:
        return None if b"_" in field else float(field)  # Python reads 1_000, as no other program does
    except ValueError:
        return None


@dataclass
class WordDecoder:
    """Decoding of words from UTF-8.

    Args:
        errors: "strict" raises for a word that is not UTF-8; "replace" puts U+FFFD for each wrong byte, and `finish`
            warns with the number of such words.
        replaced: Number of words so far that were not UTF-8.
        first: The first of them, with its location.
    """

    errors: Errors = "strict"
    replaced: int = 0
    first: str = ""

    def __post_init__(self) -> None:
        if self.errors not in get_args(Errors):
            raise UserError(f"errors is '{self.errors}'.", remedy=did_you_mean(self.errors, get_args(Errors)))

    def word(self, raw: bytes, where: str) -> str:
        """Decode a word. Raises UserError, with "strict", where it is not UTF-8."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            shown = f"the word '{raw[:40].decode('utf-8', 'backslashreplace')}' is not UTF-8"
            if self.errors == "strict":
                message = f"{shown} (byte 0x{raw[error.start]:02x})."
                raise UserError(message, where=where, remedy=f'{_CUT} errors="replace" reads such words.') from None
            self.replaced += 1
            self.first = self.first or f"{where}: {shown}"
            return raw.decode("utf-8", "replace")

    def finish(self) -> None:
        """Warn about words that were not UTF-8."""
        if self.replaced:
            count = f"{self.replaced:,} words have U+FFFD in place of bytes that are not UTF-8"
            warnings.warn(f"{count}; the first: {self.first}.", stacklevel=2)


def written_lines(blocks: Iterable[Block], where: Path) -> Iterator[bytes]:
    """Yield blocks as lines; numbers have enough digits to restore each float32 exactly.

    Raises:
        UserError: A word cannot be represented.
    """
    for words, rows in blocks:
        for word, numbers in zip(words, rows.astype("U32").tolist(), strict=True):
            yield f"{sound(word, where)} {' '.join(numbers)}\n".encode()


def sound(word: str, where: Path, separators: str = " \t\n\r\v\f\0") -> str:
    """Return a word that a format with these separators can represent. Raises UserError for any other."""
    if not word or any(c in separators for c in word):
        remedy = "Leave it out, or write textgraft's own format."
        raise UserError(f"the word {word!r} is empty or has a space in it.", where=str(where), remedy=remedy)
    return word


def limited(count: int, limit: int | None) -> int:
    """Number of words to load. Raises UserError for a limit below 1."""
    if limit is not None and limit < 1:
        raise UserError(f"{limit} is out of range.", where="limit", remedy="Give 1 or more.")
    return count if limit is None else min(count, limit)


def stream_of_lines(path: Path, count: int, dimensions: int, decoder: WordDecoder, *, skip: int) -> VectorStream:
    """The lines of a text format as a stream."""
    return VectorStream(count, dimensions, read_blocks(path, count, dimensions, decoder, skip=skip))

"""Texts from a file, stdin or options, as a stream, each with its id or place and the columns beside it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.core.errors import UserError
from textgraft.data.examples import InputKind, Pair
from textgraft.data.output_rows import Kept

if TYPE_CHECKING:
    from textgraft.data.examples import Examples
    from textgraft.data.text_rows import TextRow

Classifier = Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")]


InputTexts = Annotated[
    list[str] | None, typer.Option("--input-text", "-i", help="A text itself, in place of a file; may be repeated.")
]


SecondInputTexts = Annotated[
    list[str] | None,
    typer.Option("--input-text2", help="The second text of a pair; one for each --input-text."),
]


KeptColumns = Annotated[
    str,
    typer.Option(
        "--keep", help="Columns of FILE in the output: all, none, or names with commas.", rich_help_panel=o.DATA
    ),
]


def texts_from_options(texts: list[str] | None, second: list[str] | None) -> list[str] | None:
    """Return the texts of options, as pairs with second texts. Raises UserError for unequal numbers."""
    if not second:
        return texts
    if len(second) != len(texts or ()):
        message = f"there are {len(texts or ())} first texts and {len(second)} second ones."
        raise UserError(message, where="--input-text2", remedy="Give an --input-text2 for each --input-text.")
    return [Pair(a, b) for a, b in zip(texts or (), second, strict=True)]


def keyed_texts(
    file: Path | None,
    option_texts: list[str] | None,
    reads: InputKind,
    columns: Mapping[str, str | None],
    kept: Kept | None = None,
) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    """Return the beginnings of rows of the output, and the texts; stdin is a stream.

    Args:
        file: The file, - for stdin, or None for `option_texts`.
        option_texts: Texts that were given as options.
        reads: Kind of input of the model.
        columns: Named columns, encoding and delimiter, as for `read`.
        kept: Columns of the file to repeat; by default none.

    Returns:
        A dictionary for each text, of its kept columns and, where its id is not among them, its id or place; the texts.
    """
    if (file is None) == (not option_texts):
        if file is None and (columns["text"] or columns["text2"]):
            remedy = "Give the text itself with --input-text, or a file before --text."
            raise UserError("this names a column, and there is no file.", where="--text", remedy=remedy)
        remedy = "Give a file such as reviews.csv, or --input-text 'A fine film.'"
        raise UserError("name either a file or texts.", remedy=remedy)
    kept = kept or Kept()
    numbered: Iterator[dict[str, Any]] = ({"line": number} for number in count(1))
    if file is None:
        return numbered, option_texts or []
    if str(file) == "-":
        lines = stdin_lines(columns["encoding"])
        return numbered, _stdin_pairs(lines) if reads == "pairs" else lines
    if reads == "choices" or file.is_dir():
        examples = o.read_file(file, **columns, kind="choice" if reads == "choices" else None)
        return examples_keys(examples, file, columns, kept), examples.texts
    from textgraft.data.text_rows import read_rows

    keys, texts = tee(read_rows(file, **columns))  # both are consumed in step, so that tee buffers little
    return _begun(keys, kept), (row.text for row in texts)


def examples_keys(examples: Examples, file: Path, columns: Mapping[str, Any], kept: Kept) -> Iterator[dict[str, Any]]:
    """Yield what `keyed_texts` returns first, for examples that were read from `file` at once."""
    if file.is_dir():
        for index in range(len(examples)):
            yield {examples.unit: examples.line(index)} if examples.ids is None else {"id": examples.ids[index]}
        return
    from textgraft.data.text_rows import read_cells

    rows = read_cells(file, **{name: columns.get(name) for name in ("id", "encoding", "delimiter")})
    lines = (examples.line(index) for index in range(len(examples)))
    yield from _begun((next(row for row in rows if row.number == line) for line in lines), kept)


def _begun(rows: Iterable[TextRow], kept: Kept) -> Iterator[dict[str, Any]]:
    """Yield the beginnings of rows of the output: columns to keep, after the id or place if it is not among them."""
    for number, row in enumerate(rows):
        if number == 0:
            kept.validate(row.cells)
        cells = kept.of(row.cells)
        yield cells if row.id_column in cells else row.key | cells


def stdin_lines(encoding: str | None) -> Iterator[str]:
    """Yield the lines of stdin, in UTF-16 where they begin as such. Raises UserError for bytes of another encoding."""
    from textgraft.data.text_files import encoding_from_start, validate_encoding

    source: Any = sys.stdin.buffer
    source = source if hasattr(source, "peek") else io.BufferedReader(source)
    encoding = validate_encoding(encoding or encoding_from_start(source.peek(1)) or "utf-8")
    wide = len("\n".encode(encoding.removesuffix("-sig"))) > 1
    lines = io.TextIOWrapper(source, encoding=encoding, newline="\n") if wide else _decoded(source, encoding)
    try:
        yield from (line.rstrip("\r\n") for line in lines)
    except UnicodeDecodeError as error:
        message = f"these bytes are not {encoding} ({error.reason})."
        raise UserError(message, where="stdin", remedy="Name it with encoding=….") from error


def _decoded(lines: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Yield lines as soon as they are there. Raises UserError, with the line, for one that is not in `encoding`."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError as error:
            message = f"byte 0x{line[error.start]:02x} is not {encoding.removesuffix('-sig')}."
            raise UserError(message, where=f"stdin line {number}", remedy="Name it with encoding=….") from error


def _stdin_pairs(lines: Iterable[str]) -> Iterator[str]:
    """Yield pairs, which are lines of two texts with a tab between them. Raises UserError for a line without one."""
    for number, line in enumerate(lines, start=1):
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError("no tab between two texts.", where=f"stdin line {number}", remedy="Write one there.")
        yield Pair(first, second)

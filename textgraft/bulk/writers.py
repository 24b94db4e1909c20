"""Files of a block's results, in each of the formats; a file is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from textgraft.bulk.blocks import TEXT_TYPE, SourceFile
from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write
from textgraft.core.json_text import encode, serializable
from textgraft.data.members import format_of
from textgraft.data.output_rows import as_csv, as_json_lines
from textgraft.data.tables import CSV_SUFFIXES, JSON_SUFFIXES

Types = Mapping[str, str]
"""DuckDB's types of columns by name."""


class Rows(NamedTuple):
    """Rows to write: columns of the input, then those of the results, each with its type."""

    rows: Sequence[Mapping[str, Any]]
    types: Types


def write_csv(path: Path, table: Rows) -> None:
    """Write CSV in UTF-8, with a header."""
    header = dict.fromkeys(table.types)
    lines = as_csv(header | dict(_without_more(row, table.types)) for row in table.rows)
    path.write_bytes("".join(lines).encode("utf-8", "replace"))


def write_jsonl(path: Path, table: Rows) -> None:
    """Write an object a line; values of JSON and Parquet files keep their types."""
    path.write_bytes("".join(as_json_lines(map(_plain, table.rows))).encode())


def write_parquet(path: Path, table: Rows) -> None:
    """Write Parquet with the types of the columns; values of columns without a type of their own become text."""
    import duckdb

    texts = {name for name, kind in table.types.items() if kind == TEXT_TYPE}
    rows = [_without_more(row, table.types) for row in table.rows]
    columns: dict[str, np.ndarray] = {}
    for name in table.types:
        column = np.empty(len(rows), dtype=object)
        column[:] = [_text(row.get(name)) if name in texts else row.get(name) for row in rows]
        columns[name] = column
    chosen = ", ".join(f"CAST({_quoted(name)} AS {kind}) AS {_quoted(name)}" for name, kind in table.types.items())
    with duckdb.connect(config={"autoinstall_known_extensions": False, "threads": 1}) as connection:
        connection.execute("SET pandas_analyze_sample = 1000000000")  # every value decides the type, not the first few
        connection.register("columns", columns)
        target = str(path).replace("'", "''")
        connection.execute(f"COPY (SELECT {chosen} FROM columns) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


WRITERS: Mapping[str, Callable[[Path, Rows], None]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "csv": write_csv,
}
"""Writers by the name and suffix of their format."""


def write_block(path: Path, output_format: str, table: Rows) -> None:
    """Write a file atomically.

    The temporary file has a name of its own: after a lost connection two processes may write the same block.

    Raises:
        UserError: The disk is full or cannot be written, or a later row has columns that the first has not.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        WRITERS[output_format](temporary, table)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files that killed processes have left."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


def default_format(sources: Iterable[SourceFile], formats: Sequence[str]) -> str:
    """The format of the sources where all have the same one and it is among `formats`, else the first of these."""
    names = {_format_name(format_of(Path(source.path))) for source in sources}
    (name,) = names if len(names) == 1 else ("",)
    return name if name in formats else formats[0]


def _format_name(suffix: str) -> str:
    return "csv" if suffix in CSV_SUFFIXES else "jsonl" if suffix in JSON_SUFFIXES else suffix.removeprefix(".")


def _without_more(row: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
    """The row; raises UserError for a column that the first row of the file lacks, as JSON may have."""
    if more := [name for name in row if name not in types]:
        message = f"the first row of this file has no '{more[0]}', and a later one has."
        raise UserError(message, where="format", remedy="Write jsonl, or name the columns with keep=….")
    return row


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with lists in place of arrays, in the fewest digits that mean the same float32."""
    return {name: _numbers(value) if isinstance(value, np.ndarray) else value for name, value in row.items()}


def _numbers(vector: np.ndarray) -> list[float]:
    return [float(str(number)) for number in vector]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else encode(serializable(value)).decode()
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""Files that store tables by column: Parquet, and Feather or Arrow (extra `[arrow]`)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.damaged import as_user_errors
from textgraft.data.text_files import plain_file

_BATCH_ROWS = 1000


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a Parquet file as (row, {column: value}). Raises UserError for another or damaged file."""
    import duckdb

    with (
        plain_file(path) as plain,
        # Several threads decode row groups ahead, and hold twice the memory by the end of a large file.
        duckdb.connect(config={"autoinstall_known_extensions": False, "threads": 1}) as connection,
        as_user_errors(path, "not a Parquet file"),
    ):
        result = connection.execute("SELECT * FROM read_parquet(?)", [str(plain)])
        names = [column[0] for column in result.description]
        number = 0
        while batch := result.fetchmany(_BATCH_ROWS):
            for values in batch:
                number += 1
                yield number, dict(zip(names, values))


def parquet_types(path: Path) -> dict[str, str]:
    """DuckDB's type of each column of a Parquet file. Raises UserError for another or damaged file."""
    return {name: kind for name, kind, *_ in _ask_parquet(path, "DESCRIBE SELECT * FROM read_parquet(?)")}


def parquet_count(path: Path) -> int:
    """Number of rows of a Parquet file, from its footer. Raises UserError for another or damaged file."""
    return int(_ask_parquet(path, "SELECT num_rows FROM parquet_file_metadata(?)")[0][0])


def _ask_parquet(path: Path, question: str) -> list[tuple[Any, ...]]:
    import duckdb

    with (
        plain_file(path) as plain,
        duckdb.connect(config={"autoinstall_known_extensions": False}) as connection,
        as_user_errors(path, "not a Parquet file"),
    ):
        answer: list[tuple[Any, ...]] = connection.execute(question, [str(plain)]).fetchall()
        return answer


def arrow_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a Feather file (version 1 or 2) or an Arrow stream as (row, {column: value}).

    Raises UserError for another or damaged file, or where pyarrow is missing.
    """
    try:
        pyarrow: Any = import_module("pyarrow")
        feather: Any = import_module("pyarrow.feather")
    except ImportError as error:
        remedy = "Install it (pip install 'textgraft[arrow]'), or save the table as Parquet, which needs no package."
        raise UserError("reading Feather files needs the package pyarrow.", where=str(path), remedy=remedy) from error
    number = 0
    with plain_file(path) as plain, as_user_errors(path, "not a Feather file, or a damaged one"):
        for batch in _batches(plain, pyarrow, feather):
            batch.validate(full=True)  # the library reads where the file says, outside of memory too
            for row in batch.to_pylist():
                number += 1
                yield number, row


def _batches(path: Path, pyarrow: Any, feather: Any) -> Iterator[Any]:
    """Batches of at most `_BATCH_ROWS` rows, from the file as it is mapped into memory."""
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"ARROW1":
        with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as reader:
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            yield from _sliced(batches)
    elif start[:4] == b"FEA1":
        yield from feather.read_table(str(path)).to_batches(max_chunksize=_BATCH_ROWS)
    else:
        with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_stream(source) as reader:
            yield from _sliced(reader)


def _sliced(batches: Any) -> Iterator[Any]:
    for batch in batches:
        yield from (batch.slice(at, _BATCH_ROWS) for at in range(0, batch.num_rows, _BATCH_ROWS))

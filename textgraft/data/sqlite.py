"""Tables of SQLite databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from textgraft.data.damaged import as_user_errors
from textgraft.data.members import chosen_table, is_in_zip, split_member
from textgraft.data.text_files import plain_file

_TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


def sqlite_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a table or view as (row, {column: value}), in the order that the database gives them.

    Args:
        path: The file, as reviews.db::reviews for one of several tables that are not empty. It is not written to.

    Raises:
        UserError: The file is no database or is damaged, or the table is not there or unclear.
    """
    file, wanted = split_member(path)
    with plain_file(path) as plain:
        address = f"{plain.absolute().as_uri()}?mode=ro"
        message, remedy = "not an SQLite database that can be read", "Check that it is the right file, and whole."
        with (
            as_user_errors(file, message, remedy),
            closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as connection,
        ):
            names = [str(name) for (name,) in connection.execute(_TABLES)]
            filled = [name for name in names if connection.execute(f"SELECT 1 FROM {_quoted(name)}").fetchone()]
            table = chosen_table(path, None if is_in_zip(path) else wanted, names, filled, "table")
            cursor = connection.execute(f"SELECT * FROM {_quoted(table)}")
            columns = [column[0] for column in cursor.description]
            yield from ((number, dict(zip(columns, values))) for number, values in enumerate(cursor, start=1))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""Headers of tables: names of columns, and the rows below them as dictionaries."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from textgraft.core.errors import UserError


class Header:
    """The names above a table.

    Columns without a name are what spreadsheets leave behind, and are not read; the first column may be without one
    where it holds an index, as pandas writes it.
    """

    def __init__(self, names: Sequence[str], where: str) -> None:
        """Take the names of all columns. Raises UserError for a name that is there twice."""
        if names:
            names = [names[0].lstrip("\ufeff"), *names[1:]]
        named = [name for name in names if name.strip()]
        if repeated := sorted({name for name in named if named.count(name) > 1}):
            raise UserError(f"the header names {', '.join(map(repr, repeated))} twice.", where=where)
        self.width = len(names)
        self._source = where
        self._columns = [(i, name) for i, name in enumerate(names) if name.strip() or (i == 0 and named)]
        self._nameless = [i for i, name in enumerate(names) if i and not name.strip()]
        self._overflowing: list[int] = []

    def row(self, number: int, values: Sequence[Any]) -> dict[str, Any]:
        """The values of one row by column; `number` is its line or row."""
        without_name = [*(values[i] for i in self._nameless), *values[self.width :]]
        if any(value not in ("", None) for value in without_name):
            self._overflowing.append(number)
        return {name: values[i] for i, name in self._columns}

    def warn_of_values_without_name(self) -> None:
        """Warn of rows that had values in columns without a name."""
        if self._overflowing:
            shown = ", ".join(map(str, self._overflowing[:8])) + (", …" if len(self._overflowing) > 8 else "")
            message = (
                f"{len(self._overflowing):,} rows ({shown}) have values in columns without a name, which are not read"
            )
            why = "Is a text without double quotes cut in two, or is there a title above the names?"
            warnings.warn(f"{self._source}: {message}. {why}", stacklevel=2)

"""Results that are short where they are shown: one line as `repr`, a table in a notebook."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from html import escape
from numbers import Number
from pathlib import Path
from typing import Any

from textgraft.core import formatting

LONGEST = 160
"""Characters of a value that are shown."""
FEW = 12
"""Items of a collection that are shown, where they are short."""


COLLECTIONS = (list, tuple, set, frozenset, dict)


class Brief:
    """A dataclass (with repr=False) that shows its fields, and of long values their type and size.

    With short values only, the `repr` is that of any dataclass.
    """

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        return html_table([["", type(self).__name__], *([name, value] for name, value in self._shown().items())])

    def _shown(self) -> dict[str, str]:
        """The fields that a `repr` has, each briefly."""
        return {f.name: brief(getattr(self, f.name)) for f in fields(self) if f.repr}  # type: ignore[arg-type]


def brief(value: Any) -> str:
    """The `repr` of a short value; of others the type and size.

    >>> brief("short"), brief([1, 2]), brief(list(range(50_000))), brief({"a": "x" * 500})
    ("'short'", '[1, 2]', '<list of 50,000>', '<dict of 1>')
    """
    if isinstance(value, str):
        whole = repr(value[:LONGEST])
        return whole if len(value) <= LONGEST else f"{whole[:-1]}…{whole[-1]}"
    if _is_plain(value) or isinstance(value, Brief) or (isinstance(value, COLLECTIONS) and _is_plain_collection(value)):
        whole = repr(value)
        if len(whole) <= LONGEST:
            return whole
    if (shape := getattr(value, "shape", None)) is not None:
        return f"<{type(value).__name__} {' × '.join(map(str, shape)) or 'of one number'}>"
    if isinstance(value, Collection):
        return f"<{type(value).__name__} of {len(value):,}>"
    return f"<{type(value).__name__}>"


def html_table(rows: Iterable[Sequence[str]], *paragraphs: str) -> str:
    """Paragraphs and a table, whose first row is its head, as HTML; everything is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{_html(cell)}</{tag}>' for cell in cells)}</tr>"

    head, *body = rows
    opening = "".join(f"<p>{_html(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    lines = "".join(line(row, "td") for row in body)
    return f"{opening}<table><thead>{line(head, 'th')}</thead><tbody>{lines}</tbody></table>"


def _html(value: str) -> str:
    return escape(formatting.printable(value), quote=True)


def _is_plain_collection(value: Any) -> bool:
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return len(value) <= FEW and all(map(_is_plain, items))


def _is_plain(item: Any) -> bool:
    return item is None or isinstance(item, Number | Path) or (isinstance(item, str) and len(item) <= LONGEST)

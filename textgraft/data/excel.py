"""Sheets of Excel workbooks (.xlsx), by openpyxl (extra `[excel]`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.damaged import as_user_errors
from textgraft.data.headers import Header
from textgraft.data.members import chosen_table, is_in_zip, split_member
from textgraft.data.text_files import plain_file

_MESSAGE = "not an Excel workbook that can be read"
_ROWS = 1_048_576
"""A sheet of Excel has no more rows; before one of a higher number openpyxl makes up all that are missing."""
_REMEDY = "If it opens in Excel, save it again as .xlsx, without a password, or as CSV."


def excel_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a sheet as (row, {column: value}); the first row with something in it names the columns.

    Formulas give the value that Excel saved with them.

    Args:
        path: The file, as book.xlsx::Sheet2 for one of several sheets that are not empty.

    Raises:
        UserError: openpyxl is missing, the file is no workbook or has a password, or the sheet is not there or unclear.
    """
    file, wanted = split_member(path)
    with _workbook(path) as workbook, as_user_errors(file, _MESSAGE, _REMEDY):
        sheets = {sheet.title: sheet for sheet in workbook.worksheets}
        filled = [name for name, sheet in sheets.items() if sheet.sheet_state == "visible" and _has_cells(sheet)]
        name = chosen_table(path, None if is_in_zip(path) else wanted, list(sheets), filled, "sheet")
        header = None
        for number, cells in _cells(sheets[name]):
            if all(cell is None for cell in cells):
                continue
            if header is None:
                header = Header(["" if cell is None else str(cell) for cell in cells], f"{path} row {number}")
                continue
            values = [*cells, *[None] * (header.width - len(cells))]
            yield number, header.row(number, values)
        if header is not None:
            header.warn_of_values_without_name()


def _cells(sheet: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The number and the values of each row, empty ones too."""
    sheet.reset_dimensions()  # some programs write a wrong size, and openpyxl would believe it
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > _ROWS:
            raise ValueError(f"sheet '{sheet.title}' has rows after {_ROWS:,}")
        yield number, cells


def _has_cells(sheet: Any) -> bool:
    return any(cell is not None for _, cells in _cells(sheet) for cell in cells)


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    try:
        openpyxl = import_module("openpyxl")
    except ImportError as error:
        remedy = "Install it (pip install 'textgraft[excel]'), or save the sheet as CSV."
        raise UserError("reading .xlsx needs the package openpyxl.", where=str(path), remedy=remedy) from error
    with plain_file(path) as plain:
        with as_user_errors(path, _MESSAGE, _REMEDY):
            workbook = openpyxl.load_workbook(plain, read_only=True, data_only=True)
        try:
            yield workbook
        finally:
            workbook.close()

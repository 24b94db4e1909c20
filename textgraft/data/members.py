"""Tables inside a file that can hold several: sheets of a workbook, tables of a database, files of a zip archive.

`book.xlsx::Sheet2`, `reviews.db::reviews` and `data.zip::train.csv` name one of them wherever a file is named.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from textgraft.core.errors import UserError, did_you_mean

SEPARATOR = "::"
WORKBOOKS = (".xlsx", ".xlsm")
DATABASES = (".db", ".sqlite", ".sqlite3")
ZIP = ".zip"
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
_CONTAINERS = (ZIP, *WORKBOOKS, *DATABASES)


def split_member(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The file, and the name of the table in it if there is one.

    >>> split_member("data.zip::en/train.csv")
    (PosixPath('data.zip'), 'en/train.csv')
    >>> split_member("hf:imdb::test")
    (PosixPath('hf:imdb::test'), None)
    """
    name, separator, member = str(path).partition(SEPARATOR)
    if not separator or _suffix(Path(name)) not in _CONTAINERS or Path(path).exists():
        return Path(path), None
    return Path(name), member


def is_in_zip(path: Path) -> bool:
    """True for a file inside a zip archive, such as data.zip::train.csv."""
    file, member = split_member(path)
    return member is not None and file.suffix.lower() == ZIP


def format_of(path: Path) -> str:
    """The suffix that decides the format, without the suffix of a compression, or the name of a table inside.

    >>> format_of(Path("reviews.CSV.gz")), format_of(Path("a.db::reviews")), format_of(Path("a.zip::train.tsv"))
    ('.csv', '.db', '.tsv')
    """
    file, member = split_member(path)
    return _suffix(Path(member) if member is not None and file.suffix.lower() == ZIP else file)


def chosen_table(path: Path, wanted: str | None, names: Sequence[str], filled: Sequence[str], noun: str) -> str:
    """The table to read: the one that is named, else the only one that holds something.

    Args:
        path: The file, for messages.
        wanted: The name in `path`, if any.
        names: All tables in the file.
        filled: Those that hold something.
        noun: What a table is called there, such as "sheet".

    Raises:
        UserError: The named one does not exist, or none is named and there are several or none.
    """
    if wanted is not None:
        if wanted in names:
            return wanted
        remedy = did_you_mean(wanted, names)
        raise UserError(f"there is no {noun} '{wanted}'.", where=str(split_member(path)[0]), remedy=remedy)
    if not filled:
        raise UserError(
            f"there is no {noun} with rows in it.", where=str(path), remedy="Check that it is the right file."
        )
    if len(filled) > 1:
        shown = ", ".join(filled[:20]) + (", …" if len(filled) > 20 else "")
        remedy = f"Name one, as in {path}{SEPARATOR}{filled[0]}."
        raise UserError(f"there are {len(filled)} {noun}s in it: {shown}.", where=str(path), remedy=remedy)
    return filled[0]


def zip_names(path: Path) -> list[str]:
    """Names of the files in a zip archive, without those that operating systems add. Raises OSError or BadZipFile."""
    with _archive(path) as archive:
        names = [one.filename for one in archive.infolist() if one.filename and not one.is_dir()]
    return [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in Path(name).parts)]


def open_in_zip(path: Path) -> IO[bytes]:
    """Open data.zip::train.csv for reading bytes. Raises UserError for a file that is not there or has a password."""
    file, member = split_member(path)
    assert member is not None
    with _archive(file) as archive:  # what is open in it stays open
        try:
            return archive.open(member)
        except KeyError as error:
            remedy = did_you_mean(member, zip_names(file))
            raise UserError(f"there is no file '{member}' in the archive.", where=str(file), remedy=remedy) from error
        except (RuntimeError, NotImplementedError) as error:  # a password, or a compression that Python lacks
            raise UserError(f"cannot be read ({error}).", where=str(path), remedy="Unpack it first.") from error


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive. Raises BadZipFile for whatever Python finds wrong with one."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (UserError, OSError):
        raise
    except Exception as error:
        raise zipfile.BadZipFile(str(error) or type(error).__name__) from error


def _suffix(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower()

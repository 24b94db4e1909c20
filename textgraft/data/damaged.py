"""Errors of libraries that read files, as UserError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from textgraft.core.errors import UserError


@contextmanager
def as_user_errors(path: Path | str, message: str, remedy: str = "") -> Iterator[None]:
    """Convert every error inside to a UserError about `path`.

    Libraries raise whatever they come upon in a damaged file, and seldom errors of their own: nothing but their code
    belongs into the block.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = (str(error).strip("'\" \n") or type(error).__name__).splitlines()[0]
        raise UserError(f"{message} ({reason}).", where=str(path), remedy=remedy) from error

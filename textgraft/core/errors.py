"""The error type for users: what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable

PACKAGE = __name__.split(".")[0]
LONGEST = 1200
"""Characters of a message or a remedy; of a longer one, which quotes a file, the middle is left out."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class UserError(ValueError):
    """An error in the user's input or environment; the command line prints it and exits with 2.

    Attributes:
        message: What is wrong.
        where: The location, such as `train.csv line 37`.
        remedy: What to do.
    """

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        self.message, self.where, self.remedy = _shown(message), _shown(where), _shown(remedy)
        super().__init__(self.message, self.where, self.remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} {self.remedy}" if self.remedy else text


def _shown(text: str) -> str:
    """The text as a terminal can show it: what it quotes may be long, or hold control characters and surrogates."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} […] {text[-LONGEST // 4 :]}"
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


class DataWarning(UserWarning):
    """A warning about the data: training on them would go wrong, or a result on them would mislead."""


def warn_of_data(message: str) -> None:
    """Issue a DataWarning that names the line outside this package from which it was called, however deep."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A remedy that lists known names and suggests the nearest to `name`; empty if there are none.

    >>> did_you_mean("luong", ["long", "short"])
    "Known: long, short. Did you mean 'long'?"
    """
    names = [str(candidate) for candidate in candidates]
    if not names:
        return ""
    shown = ", ".join(names[:20]) + (f", … ({len(names)} in all)" if len(names) > 20 else "")
    nearest = difflib.get_close_matches(name, names, n=1)
    return f"Known: {shown}." + (f" Did you mean '{nearest[0]}'?" if nearest else "")

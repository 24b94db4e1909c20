"""The one error that a user meets: what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something in the user's input or surroundings is wrong; the command line prints it and exits with 2.

    `message` says what is wrong, `where` the place (`train.csv line 37`), `remedy` what to do.
    """

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        self.message, self.where, self.remedy = message, where, remedy
        super().__init__(message, where, remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} {self.remedy}" if self.remedy else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy sentence that lists `known` names and suggests the nearest to `name`; empty if none is known."""
    names = [str(k) for k in known]
    if not names:
        return ""
    shown = ", ".join(names[:20]) + (f", … ({len(names)} in all)" if len(names) > 20 else "")
    near = difflib.get_close_matches(name, names, n=1)
    return f"Known: {shown}." + (f" Did you mean '{near[0]}'?" if near else "")

"""Keyword arguments that are described by a typed dictionary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def check_keywords(function: str, given: Mapping[str, Any], names: Collection[str]) -> None:
    """Raises TypeError, as Python does for a function with these parameters, for a keyword that is none of `names`."""
    for name in given:
        if name not in names:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")

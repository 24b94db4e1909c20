"""TOML files, whose errors are all of one kind."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_toml_table(path: Path) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not UTF-8, not TOML, or nested too deeply.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error

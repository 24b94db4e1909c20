"""A command that torchrun has started on several processes; found out without importing torch."""

from __future__ import annotations

import os
from collections.abc import Mapping


def launched(environment: Mapping[str, str] | None = None) -> bool:
    """True if torchrun started this process as one of several."""
    values = os.environ if environment is None else environment
    return values.get("WORLD_SIZE", "1") not in ("", "0", "1") and "RANK" in values

"""What identifies a run: explicit, versioned dictionaries, compared key by key when an unfinished run goes on."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from typing import Any


def identity_of(settings: Any, *, version: int = 1, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass that its results depend on, as plain JSON.

    Args:
        settings: An instance of a dataclass; dataclasses inside it give their own `identity()` where they have one.
        version: Raised whenever the same fields come to mean something else.
        without: Names of fields that change no result, such as how often an unfinished run is saved.

    Returns:
        A dictionary that JSON holds, with the key "version".
    """
    kept = {
        field.name: _plain(getattr(settings, field.name)) for field in fields(settings) if field.name not in without
    }
    return {"version": version, **kept}


def identity_text(identity: Any) -> str:
    """An identity as text, the same for equal identities; what hashes and file names are made from."""
    return json.dumps(identity, sort_keys=True, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return value.identity() if hasattr(value, "identity") else identity_of(value)
    if isinstance(value, dict):
        return {str(key): _plain(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)

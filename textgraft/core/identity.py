"""Run identity: explicit, versioned dictionaries, compared key by key when an unfinished run is resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def identity_of(settings: Any, *, version: int = 1, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass that its results depend on, as plain JSON.

    Args:
        settings: An instance of a dataclass; dataclasses inside it use their own `identity()` if they have one.
        version: Increased whenever the same fields change their meaning.
        without: Names of fields that do not change results, such as how often an unfinished run is saved.

    Returns:
        A JSON-serialisable dictionary with the key "version".
    """
    values = {
        field.name: _plain(getattr(settings, field.name)) for field in fields(settings) if field.name not in without
    }
    return {"version": version, **values}


def identity_text(identity: Any) -> str:
    """An identity as text, equal for equal identities; used for hashes and file names."""
    return json.dumps(identity, sort_keys=True, ensure_ascii=False, default=str)


def changed_keys(now: Any, before: Any, key: str = "") -> list[str]:
    """The keys under which two identities differ, such as "options.max_tokens" or "recipe.phases[1].lr".

    Args:
        now: An identity, or any part of one.
        before: Another, as JSON gives it back.
        key: The key that both parts stand under, "" for whole identities.

    Returns:
        Dotted keys in alphabetical order, none for equal identities. A dictionary with a "sha256" describes data and
        is compared as a whole; so is a list whose length has changed.
    """
    if now == before:
        return []
    if isinstance(now, Mapping) and isinstance(before, Mapping) and "sha256" not in now:
        inside = sorted(now.keys() | before.keys())
        return [
            changed
            for name in inside
            for changed in changed_keys(now.get(name), before.get(name), f"{key}.{name}" if key else name)
        ]
    if _dictionaries(now) and _dictionaries(before) and len(now) == len(before):
        keys = [key] if len(now) == 1 else [f"{key}[{i}]" for i in range(len(now))]
        parts = zip(now, before, keys, strict=True)
        return [changed for one, other, name in parts for changed in changed_keys(one, other, name)]
    return [key]


def _dictionaries(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _plain(value: Any) -> Any:
    """A value as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return value.identity() if hasattr(value, "identity") else identity_of(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def content_hash(parts: Iterable[Any]) -> str:
    """SHA-256 of the parts' text, each with its length, so that no two lists of parts collide."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(str(len(data)).encode() + b":" + data)
    return digest.hexdigest()

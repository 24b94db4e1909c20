"""JSON without half surrogate pairs, which it may contain as escapes (`"\\ud800"`) and UTF-8 cannot encode."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def parse(text: str | bytes) -> Any:
    r"""The value of a JSON text whose strings can be hashed, printed and written.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has half a surrogate pair.

    >>> parse('{"name": "\\ud800"}')
    Traceback (most recent call last):
        ...
    ValueError: half of a surrogate pair (as \ud800) is no character
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
    if escape in text.lower():  # type: ignore[operator]
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("half of a surrogate pair (as \\ud800) is no character") from error
    return value


def encode(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> bytes:
    r"""JSON in UTF-8; all but ASCII is escaped where a string has half a surrogate pair.

    >>> encode({"a": "é"}), encode({"a": "\ud800"})
    (b'{"a": "\xc3\xa9"}', b'{"a": "\\ud800"}')
    """
    options: dict[str, Any] = {"indent": indent, "sort_keys": sort_keys}
    try:
        return json.dumps(value, ensure_ascii=False, **options).encode()
    except UnicodeEncodeError:
        return json.dumps(value, **options).encode()


def serializable(value: Any) -> Any:
    """Return a value with null for numbers that JSON lacks, and strings for what it has no form of, such as dates."""
    if isinstance(value, Mapping):
        return {str(k): serializable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [serializable(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)

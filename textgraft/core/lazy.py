"""Names of things that are imported once they are needed, as registries hold them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def resolve(path: str) -> Any:
    """The attribute that a registry names.

    Args:
        path: "package.module:attribute"; the attribute may have dots.

    Example:
        >>> resolve("math:sqrt")(9)
        3.0
    """
    module, _, attribute = path.partition(":")
    value: Any = import_module(module)
    for name in attribute.split("."):
        value = getattr(value, name)
    return value

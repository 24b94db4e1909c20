"""Validation and test sets, read as the training texts were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textgraft.data.examples import Examples
from textgraft.data.readers import read
from textgraft.data.targets import target_of


def read_held_out(source: Any, train: Examples, *, reader: Callable[..., Examples] = read, **columns: Any) -> Examples:
    """`read` with the kind of label that the training texts have, so that a smaller part is not guessed otherwise.

    Args:
        source: Anything that `read` accepts.
        train: The training texts.
        reader: `read` or `read_large`.
        columns: Further arguments of `read`; a `kind` among them is used instead.

    Raises:
        UserError: As `read`.
    """
    if train.labels is not None and columns.get("kind") is None and not target_of(train).has_sets:
        columns["kind"] = train.kind
    return reader(source, **columns)

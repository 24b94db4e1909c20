"""A process that dies in the middle, for tests of going on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """As sudden as a signal."""


@contextmanager
def killed_at(at: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, what runs is killed as it puts its `at`-th file in place; it fails where that many are never put."""
    real, calls = os.replace, [0]

    def replace_until(*places: Any) -> None:
        calls[0] += 1
        if calls[0] == at:
            raise Killed
        real(*places)

    with monkeypatch.context() as patch:
        patch.setattr("textgraft.core.files.os.replace", replace_until)
        with pytest.raises(Killed):
            yield

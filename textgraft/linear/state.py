"""What a fitted thing is, as plain data and no code: JSON settings, arrays, and documents such as a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class State:
    """Enough to make a fitted thing again: what its `state()` gives and its `from_state` takes.

    `settings` are small and JSON-able, `documents` JSON-able and long (each becomes a file of its own). What a part
    holds has the part's name before it, with a dot.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)

    def having(self, parts: Mapping[str, State]) -> Self:
        """This with parts in it, which `part` gives back."""
        settings, arrays, documents = dict(self.settings), dict(self.arrays), dict(self.documents)
        for name, part in parts.items():
            settings[name] = part.settings
            arrays |= {f"{name}.{key}": value for key, value in part.arrays.items()}
            documents |= {f"{name}.{key}": value for key, value in part.documents.items()}
        return type(self)(settings, arrays, documents)

    def part(self, name: str) -> State:
        """The part that `having` put in. Raises ValueError if it is not there."""
        settings = self.setting(name, dict)
        inside = f"{name}."
        arrays = {key.removeprefix(inside): value for key, value in self.arrays.items() if key.startswith(inside)}
        documents = {key.removeprefix(inside): value for key, value in self.documents.items() if key.startswith(inside)}
        return State(settings, arrays, documents)

    def setting(self, name: str, kind: type) -> Any:
        """A setting. Raises ValueError where it is missing or of another type."""
        value = self.settings.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"'{name}' is missing, or no {kind.__name__}")
        return value

    def array(self, name: str, *shape: int | None) -> NDArray:
        """A copy of an array, half precision as float32. Raises ValueError for a shape other than `shape` (None: any).

        Raises ValueError where it is missing, too.
        """
        if name not in self.arrays:
            raise ValueError(f"missing: {name}")
        value = self.arrays[name]
        if value.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, value.shape)):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"{name} is {value.shape}, not ({wanted})")
        return np.array(value, dtype=np.float32 if value.dtype == np.float16 else value.dtype, order="C")

    def words(self, name: str) -> list[str]:
        """A document that is a list of different strings. Raises ValueError where it is not."""
        words = self.documents.get(name)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{name} is missing, or no list of words")
        if len(set(words)) != len(words):
            raise ValueError(f"{name} holds a word twice")
        return words

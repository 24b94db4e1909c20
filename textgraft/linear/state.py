"""Serialisable state of fitted models: JSON settings, arrays, and documents such as a vocabulary; no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class State:
    """The return value of a model's `state()` and the argument of its `from_state()`.

    The entries of a part are prefixed by the part's name and a dot.

    Attributes:
        settings: Small JSON values.
        arrays: Arrays by name.
        documents: Long JSON values, each of which becomes a file of its own.
        files: Contents of further files, such as a graph.

    >>> state = State().with_parts({"layer": State({"width": 3})})
    >>> state.settings, state.part("layer").setting("width", int)
    ({'layer': {'width': 3}}, 3)
    """

    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def with_parts(self, parts: Mapping[str, State]) -> Self:
        """A copy with further named parts, which `part` returns."""
        settings, arrays, documents = dict(self.settings), dict(self.arrays), dict(self.documents)
        files = dict(self.files)
        for name, part in parts.items():
            settings[name] = part.settings
            arrays |= {f"{name}.{key}": value for key, value in part.arrays.items()}
            documents |= {f"{name}.{key}": value for key, value in part.documents.items()}
            files |= {f"{name}.{key}": value for key, value in part.files.items()}
        return type(self)(settings, arrays, documents, files)

    def part(self, name: str) -> State:
        """The named part. Raises ValueError if it is missing."""
        settings = self.setting(name, dict)
        prefix = f"{name}."

        def of_part(values: Mapping[str, Any]) -> dict[str, Any]:
            return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}

        return State(settings, of_part(self.arrays), of_part(self.documents), of_part(self.files))

    def setting(self, name: str, kind: type) -> Any:
        """A setting. Raises ValueError if it is missing or of another type."""
        value = self.settings.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"'{name}' is missing or not of type {kind.__name__}")
        return value

    def array(self, name: str, *shape: int | None) -> NDArray:
        """A copy of an array, half precision converted to float32.

        Args:
            name: Key in `arrays`.
            shape: Expected size of each dimension; None for any.

        Raises:
            ValueError: The array is missing or has another shape.
        """
        if name not in self.arrays:
            raise ValueError(f"missing: {name}")
        value = self.arrays[name]
        if value.ndim != len(shape) or any(expected not in (None, size) for expected, size in zip(shape, value.shape)):
            expected_shape = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"{name} is {value.shape}, not ({expected_shape})")
        return np.array(value, dtype=np.float32 if value.dtype == np.float16 else value.dtype, order="C")

    def word_list(self, name: str) -> list[str]:
        """A document that is a list of distinct strings. Raises ValueError if it is not."""
        words = self.documents.get(name)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{name} is missing or not a list of words")
        if len(set(words)) != len(words):
            raise ValueError(f"{name} contains a word twice")
        return words

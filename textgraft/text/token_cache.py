"""Ids of the parts of a text, remembered: most words of a text were in another one before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

MOST, LONGEST = 100_000, 40
"""Chunks that are remembered, and how many characters such a one may have: some 20 MB."""

Cut = Callable[[list[str]], Iterable[Sequence[int] | np.ndarray]]
"""Chunks to the ids of each."""


class TokenCache:
    """For a tokenizer that reads each chunk of a text, as `split` finds them, whatever stands beside it."""

    def __init__(self, split: Callable[[str], list[str]], cut: Cut) -> None:
        self._split, self._cut = split, cut
        self._known: dict[str, bytes] = {}

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32."""
        known, split = self._known, [self._split(text) for text in texts]
        new = dict.fromkeys(chunk for chunks in split for chunk in chunks if chunk not in known)
        found = zip(new, (np.asarray(ids, dtype=np.int32).tobytes() for ids in self._cut(list(new))), strict=True)
        long: dict[str, bytes] = {}
        for chunk, ids in found:
            (known if len(chunk) <= LONGEST else long)[chunk] = ids
        of = known.__getitem__ if not long else lambda chunk: known[chunk] if chunk in known else long[chunk]
        joined = [b"".join(map(of, chunks)) for chunks in split]
        if len(known) > MOST:
            self._known = {}  # a new one: another thread may still read this one
        return [np.frombuffer(bytearray(ids), dtype=np.int32) for ids in joined]

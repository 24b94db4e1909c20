"""Cache of token ids by chunk of text: most words of a text occurred before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

MAX_CHUNKS, MAX_CHUNK_CHARACTERS = 100_000, 40
"""Chunks that are cached, and characters of such a chunk: about 20 MB."""

EncodeChunks = Callable[[list[str]], Iterable[Sequence[int] | np.ndarray]]
"""Function from chunks to the ids of each."""


class TokenCache:
    """Cache for tokenizers that encode each chunk of a text, as found by `split`, independently of its neighbours."""

    def __init__(self, split: Callable[[str], list[str]], encode: EncodeChunks) -> None:
        self._split, self._encode = split, encode
        self._cache: dict[str, bytes] = {}

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32."""
        cache, split = self._cache, [self._split(text) for text in texts]
        new = dict.fromkeys(chunk for chunks in split for chunk in chunks if chunk not in cache)
        encoded = zip(new, (np.asarray(ids, dtype=np.int32).tobytes() for ids in self._encode(list(new))), strict=True)
        long: dict[str, bytes] = {}
        for chunk, ids in encoded:
            (cache if len(chunk) <= MAX_CHUNK_CHARACTERS else long)[chunk] = ids
        lookup = cache.__getitem__ if not long else lambda chunk: cache[chunk] if chunk in cache else long[chunk]
        joined = [b"".join(map(lookup, chunks)) for chunks in split]
        if len(cache) > MAX_CHUNKS:
            self._cache = {}  # a new dict: another thread may still read the old one
        return [np.frombuffer(bytearray(ids), dtype=np.int32) for ids in joined]

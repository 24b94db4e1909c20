"""fastText's character n-grams, the vectors of out-of-vocabulary words.

Source: Bojanowski et al. 2017 (arXiv:1607.04606), §3.2; hashing and bounds as in fastText's dictionary.cc, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

END_OF_SENTENCE = "</s>"
"""The only word without n-grams in fastText."""

_OFFSET, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


def fnv1a(data: bytes, state: int = _OFFSET) -> int:
    """fastText's 32-bit FNV-1a, in which a byte from 128 on is negative and so flips the upper 24 bits as well.

    `state` is the hash of the bytes before `data`.
    """
    for byte in data:
        state = ((state ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * _PRIME) & _MASK
    return state


def ngram_hashes(word: str, minn: int, maxn: int) -> list[int]:
    """Hashes of the n-grams of `<word>` with minn to maxn characters, in fastText's order; no lone < or >."""
    parts = [character.encode("utf-8", "surrogatepass") for character in f"<{word}>"]
    hashes = []
    for start in range(len(parts)):
        state = _OFFSET
        for n, part in enumerate(parts[start : start + maxn], start=1):
            state = fnv1a(part, state)
            if n >= minn and not (n == 1 and start in (0, len(parts) - 1)):
                hashes.append(state)
    return hashes


@dataclass(frozen=True)
class Subwords:
    """The n-gram table (B, D) of a fastText model, and the lengths of its n-grams in characters."""

    minn: int
    maxn: int
    table: NDArray

    def ids(self, word: str) -> list[int]:
        """Rows of the table for a word; several n-grams may share one."""
        if not len(self.table) or word == END_OF_SENTENCE:
            return []
        return [code % len(self.table) for code in ngram_hashes(word, self.minn, self.maxn)]

    def vector(self, word: str) -> NDArray[np.float32] | None:
        """Mean (D,) over the n-grams of an out-of-vocabulary word; None if it has none."""
        ids = self.ids(word)
        return self.table[ids].astype(np.float32).mean(axis=0) if ids else None

    def sums(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Sums (N, D) of the n-gram vectors of each word, and the numbers of n-grams (N,)."""
        ids = [self.ids(word) for word in words]
        sizes = np.array([len(word_ids) for word_ids in ids], dtype=np.int64)
        totals = np.zeros((len(words), self.table.shape[1]), dtype=np.float32)
        if sizes.any():
            rows = self.table[np.concatenate([np.array(word_ids, dtype=np.int64) for word_ids in ids])].astype(
                np.float32
            )
            starts = (np.cumsum(sizes) - sizes)[sizes > 0]
            totals[sizes > 0] = np.add.reduceat(rows, starts, axis=0)
        return totals, sizes


class ComposedRows:
    """Vectors (V, D) composed on access: the mean of a word's own row and of its n-grams' rows.

    A model of many gigabytes stays on disk; only the rows in use are loaded. `output` (V, D) is the output matrix of
    skip-gram, which only further training needs; it is kept for the file.
    """

    def __init__(
        self, words: Sequence[str], word_rows: NDArray, subwords: Subwords, output: NDArray | None = None
    ) -> None:
        self.words, self.word_rows, self.subwords, self.output = words, word_rows, subwords, output
        self.shape = (len(words), int(word_rows.shape[1]))

    def __getitem__(self, index: slice | NDArray) -> NDArray[np.float32]:
        """Rows (N, D) by a slice or an array of indices."""
        selected = self.words[index] if isinstance(index, slice) else [self.words[i] for i in index.tolist()]
        totals, sizes = self.subwords.sums(selected)
        composed: NDArray[np.float32] = (totals + self.word_rows[index]) / (sizes + 1).astype(np.float32)[:, None]
        return composed

    def first(self, count: int) -> ComposedRows:
        """The first `count` rows."""
        output = None if self.output is None else self.output[:count]
        return ComposedRows(self.words[:count], self.word_rows[:count], self.subwords, output)

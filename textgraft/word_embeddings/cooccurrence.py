"""Co-occurrence counts of words, in memory that does not grow with the text.

GloVe's X (Pennington, Socher & Manning 2014, §3 and 4.2): words at distance d add 1 / d, on both sides equally. Counts
are kept for one order of each pair, sorted and spilled to disk for each part of the text, and then merged range by
range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PAIR = np.dtype([("word", "<i4"), ("context", "<i4"), ("count", "<f4")])
_RUN = np.dtype([("key", "<i8"), ("count", "<f8")])
PAIRS_IN_MEMORY = 16_000_000
"""Number of pairs that are sorted, merged or shuffled at once: about 0.6 GB at the peak."""


class Pairs:
    """The non-zero entries of X, in random order, in files that each fit into memory.

    X is symmetric; each pair of different words is stored in both orders.
    """

    def __init__(self, files: Sequence[Path], total: int) -> None:
        self.files, self.total = files, total

    def shuffled(self, generator: np.random.Generator) -> Iterator[NDArray]:
        """Yield all entries once as arrays of PAIR, file by file, with files and their contents in a
        new random order.
        """
        for number in generator.permutation(len(self.files)):
            pairs = np.fromfile(self.files[number], dtype=PAIR)
            yield pairs[generator.permutation(len(pairs))]


def count_pairs(
    documents: Iterable[NDArray[np.int32]],
    size: int,
    folder: Path,
    *,
    window: int,
    seed: int = 0,
    in_memory: int = PAIRS_IN_MEMORY,
) -> Pairs:
    """Count X for documents of word ids.

    Args:
        documents: Word ids, 0 to `size` - 1; -1 is an uncounted word that keeps its position.
        size: Size of the vocabulary.
        folder: Folder for the files.
        window: Maximum distance of a pair within a document.
        seed: Seed of the order of the pairs.
        in_memory: Number of pairs in memory.
    """
    runs = []
    for number, tokens in enumerate(_token_blocks(documents, window, max(1, in_memory // window))):
        path = folder / f"run-{number:05d}.bin"
        _block_counts(tokens, size, window).tofile(path)
        runs.append(path)
    return _merged(runs, size, folder, np.random.default_rng(seed), in_memory)


def _token_blocks(documents: Iterable[NDArray[np.int32]], window: int, most: int) -> Iterator[NDArray[np.int32]]:
    """Concatenated documents, separated by gaps of `window`, about `most` words at a time."""
    gap = np.full(window, -1, dtype=np.int32)
    pending: list[NDArray[np.int32]] = []
    length = 0
    for ids in documents:
        pending += [ids, gap]
        length += len(ids) + window
        if length >= most:
            yield np.concatenate(pending)
            pending, length = [], 0
    if pending:
        yield np.concatenate(pending)


def _block_counts(tokens: NDArray[np.int32], size: int, window: int) -> NDArray:
    """Counts of one block, sorted by key: the smaller word id times `size` plus the larger."""
    keys = []
    for distance in range(1, window + 1):
        before, after = tokens[:-distance], tokens[distance:]
        both = (before >= 0) & (after >= 0)
        lesser, greater = np.minimum(before, after)[both], np.maximum(before, after)[both]
        # The distance is part of the key, so that one plain sort is enough.
        keys.append((lesser.astype(np.int64) * size + greater) * window + (distance - 1))
    merged = np.concatenate(keys)
    merged.sort()
    return _summed(merged // window, 1.0 / (merged % window + 1))


def _summed(keys: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray:
    """Sorted keys with the counts of equal ones added."""
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, dtype=np.int64)
    run = np.empty(len(starts), dtype=_RUN)
    run["key"] = keys[starts]
    run["count"] = np.add.reduceat(counts, starts) if len(starts) else 0
    return run


def _merged(runs: Sequence[Path], size: int, folder: Path, generator: np.random.Generator, in_memory: int) -> Pairs:
    """The runs added up, one range of keys after another, and distributed at random over files."""
    opened = [np.memmap(path, dtype=_RUN, mode="r") for path in runs if path.stat().st_size]
    most = 2 * sum(len(run) for run in opened)
    paths = [folder / f"pairs-{number:05d}.bin" for number in range(max(1, -(-most // in_memory)))]
    total = 0
    files = [path.open("wb") for path in paths]
    try:
        for low, high in _ranges(opened, in_memory):
            parts = [run[slice(*np.searchsorted(run["key"], [low, high]))] for run in opened]
            merged = np.concatenate(parts)
            merged = merged[np.argsort(merged["key"], kind="stable")]
            pairs = _symmetric(_summed(merged["key"], merged["count"]), size)
            total += len(pairs)
            file_numbers = generator.integers(len(files), size=len(pairs))
            for number, file in enumerate(files):
                file.write(pairs[file_numbers == number].tobytes())
    finally:
        for file in files:
            file.close()
    del opened
    for path in runs:
        path.unlink()
    return Pairs(paths, total)


def _ranges(runs: Sequence[NDArray], in_memory: int) -> list[tuple[int, int]]:
    """Ranges of keys (low, high) that contain at most about `in_memory` entries of all runs together."""
    total = sum(len(run) for run in runs)
    if not total:
        return []
    parts = -(-total // in_memory)
    step = max(1, total // (parts * 1_000))
    sample = np.sort(np.concatenate([np.asarray(run["key"][::step]) for run in runs]))
    cuts = np.unique(sample[np.arange(1, parts) * len(sample) // parts])
    boundaries = [0, *cuts[cuts > 0].tolist(), np.iinfo(np.int64).max]
    return list(pairwise(boundaries))


def _symmetric(run: NDArray, size: int) -> NDArray:
    """Entries of X for these counts: (a, b) and (b, a); a word beside itself counts for both at once."""
    lesser, greater = np.divmod(run["key"], size)
    different = lesser != greater
    pairs = np.empty(len(run) + int(different.sum()), dtype=PAIR)
    pairs["word"] = np.concatenate([lesser, greater[different]])
    pairs["context"] = np.concatenate([greater, lesser[different]])
    counts = np.where(different, run["count"], 2 * run["count"])
    pairs["count"] = np.concatenate([counts, counts[different]])
    return pairs

"""How often words stand near one another, counted in memory that does not grow with the text.

GloVe's X (Pennington, Socher & Manning 2014, §3 and 4.2): words d apart add 1 / d, on both sides alike. Counts are kept
for one order of each two words, sorted and spilled to disk whenever a part of the text has been read, and then merged
range by range.
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
"""Pairs that are sorted, merged or shuffled at once: about 0.6 GB at the peak."""


class Pairs:
    """The entries of X that are not 0, in random order, in files of at most so many as fit into memory.

    X is symmetric; each two different words stand there both ways round.
    """

    def __init__(self, files: Sequence[Path], total: int) -> None:
        self.files, self.total = files, total

    def shuffled(self, generator: np.random.Generator) -> Iterator[NDArray]:
        """All of them once, file by file, files and what is in them in a new random order; arrays of PAIR."""
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
    """X of documents of word ids (0 to `size` - 1; -1 is a word that is not counted but takes its place).

    A pair lies inside one document, at most `window` apart. Files are written to `folder`.
    """
    runs = []
    for number, tokens in enumerate(_stretches(documents, window, max(1, in_memory // window))):
        path = folder / f"run-{number:05d}.bin"
        _counted(tokens, size, window).tofile(path)
        runs.append(path)
    return _merged(runs, size, folder, np.random.default_rng(seed), in_memory)


def _stretches(documents: Iterable[NDArray[np.int32]], window: int, most: int) -> Iterator[NDArray[np.int32]]:
    """Documents one after the other with a gap of `window` between, about `most` words at a time."""
    gap = np.full(window, -1, dtype=np.int32)
    waiting: list[NDArray[np.int32]] = []
    length = 0
    for ids in documents:
        waiting += [ids, gap]
        length += len(ids) + window
        if length >= most:
            yield np.concatenate(waiting)
            waiting, length = [], 0
    if waiting:
        yield np.concatenate(waiting)


def _counted(tokens: NDArray[np.int32], size: int, window: int) -> NDArray:
    """The counts of one stretch, sorted by key: the lesser word times `size` plus the greater."""
    keys = []
    for distance in range(1, window + 1):
        before, after = tokens[:-distance], tokens[distance:]
        both = (before >= 0) & (after >= 0)
        lesser, greater = np.minimum(before, after)[both], np.maximum(before, after)[both]
        # The distance goes along in the key, so that one plain sort will do.
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
    """The runs added up, one range of keys after another, and dealt at random into files."""
    opened = [np.memmap(path, dtype=_RUN, mode="r") for path in runs if path.stat().st_size]
    most = 2 * sum(len(run) for run in opened)
    paths = [folder / f"pairs-{number:05d}.bin" for number in range(max(1, -(-most // in_memory)))]
    total = 0
    files = [path.open("wb") for path in paths]
    try:
        for low, high in _ranges(opened, in_memory):
            parts = [run[slice(*np.searchsorted(run["key"], [low, high]))] for run in opened]
            together = np.concatenate(parts)
            together = together[np.argsort(together["key"], kind="stable")]
            pairs = _both_ways(_summed(together["key"], together["count"]), size)
            total += len(pairs)
            dealt = generator.integers(len(files), size=len(pairs))
            for number, file in enumerate(files):
                file.write(pairs[dealt == number].tobytes())
    finally:
        for file in files:
            file.close()
    del opened
    for path in runs:
        path.unlink()
    return Pairs(paths, total)


def _ranges(runs: Sequence[NDArray], in_memory: int) -> list[tuple[int, int]]:
    """Ranges of keys (low, high) that hold about `in_memory` entries of all runs together, or fewer."""
    total = sum(len(run) for run in runs)
    if not total:
        return []
    parts = -(-total // in_memory)
    step = max(1, total // (parts * 1_000))
    sample = np.sort(np.concatenate([np.asarray(run["key"][::step]) for run in runs]))
    cuts = np.unique(sample[np.arange(1, parts) * len(sample) // parts])
    borders = [0, *cuts[cuts > 0].tolist(), np.iinfo(np.int64).max]
    return list(pairwise(borders))


def _both_ways(run: NDArray, size: int) -> NDArray:
    """X's entries of these counts: (a, b) and (b, a); a word beside itself counts for both at once."""
    lesser, greater = np.divmod(run["key"], size)
    other = lesser != greater
    pairs = np.empty(len(run) + int(other.sum()), dtype=PAIR)
    pairs["word"] = np.concatenate([lesser, greater[other]])
    pairs["context"] = np.concatenate([greater, lesser[other]])
    counts = np.where(other, run["count"], 2 * run["count"])
    pairs["count"] = np.concatenate([counts, counts[other]])
    return pairs

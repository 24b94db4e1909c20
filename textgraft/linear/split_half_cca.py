"""Split-half CCA: directions along which the two halves of a text correlate, found without labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

MAX_CHUNK = {True: 20, False: 100}
"""Most words (key True) or characters (False: scripts without spaces between words) of a chunk; chunks alternate
between halves.
"""
MIN_TEXTS = 1_000
"""Texts below which halves correlate by chance: with 300 questions of TREC CCA costs three points."""
RIDGE = 1.0
"""Share of the mean variance that is added to every variance: a tenth of it costs 4 points on 1,000 long reviews."""
_SEPARATOR = "\uffff"


def split_halves(ids: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Split word ids (L,) into their even and their odd chunks."""
    chunk = np.arange(len(ids)) // _chunk_length(len(ids), MAX_CHUNK[True])
    return ids[chunk % 2 == 0], ids[chunk % 2 == 1]


def _chunk_length(length: int, limit: int) -> int:
    return max(1, min(limit, (length + 1) // 2))


def first_half(text: str, *, spaced: bool) -> str:
    """Every other chunk of a text, or the first half of a short one, joined by a separator that occurs in no text.

    The n-grams of the other half are those of the text less those of this one, except the few that cross a cut.

    Args:
        text: A raw text.
        spaced: Chunk at spaces; False to chunk by character.
    """
    units, separator = (text.split(), " ") if spaced else (list(text), "")
    length = _chunk_length(len(units), MAX_CHUNK[spaced])
    joint = f"{separator}{_SEPARATOR}{separator}"
    return joint.join(separator.join(units[start : start + length]) for start in range(0, len(units), 2 * length))


def cca_directions(first: NDArray, second: NDArray) -> NDArray[np.float64]:
    """Directions of highest correlation between the halves of N texts, sorted by correlation.

    A direction is scaled to a variance of 1 within halves, the ridge included, times its correlation between halves; to
    0 where that is negative. This is canonical correlation analysis (Hotelling 1936) with a ridge and one set of
    weights for both halves, which are exchangeable. If the halves share nothing but the label, the directions keep all
    that either half tells of it (Foster, Kakade & Zhang 2008); if they share more, the label's directions are among
    them.

    Args:
        first, second: Coordinates (N, D) of the halves.

    Returns:
        Directions (D, D), one in each column.
    """
    first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    within = (first.T @ first + second.T @ second) / 2
    between = first.T @ second
    within += RIDGE * np.trace(within) / len(within) * np.eye(len(within)) + 1e-12 * np.eye(len(within))
    correlations, directions = eigh((between + between.T) / 2, within)
    correlations, directions = correlations[::-1], directions[:, ::-1] * np.sqrt(len(first))
    return np.asarray(directions * np.maximum(correlations, 0))

"""How evenly a word is spread over texts: what a text is about comes back in it, what it thinks of that does not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

POWER = 8.0
"""Of residual-IDF weighting in a weight. IMDb, 100 labels, LSA: 82.1 % without, 82.9, 83.5, 84.4 and 82.1 with 3, 6, 12
and 23.
"""


def residual_idf_shares(counts: csr_matrix) -> NDArray[np.float64]:
    """For each word (V,) the texts that it is in, as a share of those that it would be in by chance; at most 1.

    `counts` (N, V) are of words in texts. A word that falls anywhere equally often is in N (1 - exp(-n / N)) texts, n
    being how often it occurs. The logarithm of the share to base 2 is minus the residual inverse document frequency of
    Church & Gale 1995, who look for words that have much of it, names and topics; here those with little are sought,
    which judge and remark. A word that never occurs has 1.
    """
    texts = counts.shape[0]
    occurrences = np.asarray(counts.sum(axis=0, dtype=np.float64)).ravel()
    found = np.bincount(counts.indices[counts.data > 0], minlength=counts.shape[1])
    by_chance = -texts * np.expm1(-occurrences / max(texts, 1))
    return np.minimum(1.0, np.divide(found, by_chance, out=np.ones(len(found)), where=by_chance > 0))

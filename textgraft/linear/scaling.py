"""Features of equal weight: each centred and scaled by what it is over the training texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONSTANT = 1e-6
"""A feature that varies less over the training texts says nothing of them but how it was rounded."""


@dataclass(frozen=True)
class Scale:
    """Features to zero mean and unit variance over the training texts, and rows to a mean squared length of 1.

    So long are the rows of other linear classifiers too, and the same strengths are tried.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray) -> Scale:
        """Of (N, D); a row of no numbers does not count."""
        real = rows[np.isfinite(rows).all(axis=1)].astype(np.float64)
        real = real if len(real) else np.zeros((1, rows.shape[1]))
        return cls(real.mean(axis=0), real.std(axis=0))

    @property
    def factors(self) -> NDArray[np.float64]:
        """(D,) what a centred row is multiplied with; zero for a feature that never varied."""
        varies = self.deviation > CONSTANT
        return 1 / np.where(varies, self.deviation, np.inf) / np.sqrt(max(1, varies.sum()))

    def __call__(self, rows: NDArray) -> NDArray[np.float64]:
        """(N, D) -> (N, D); a text without words lies at the centre."""
        return np.nan_to_num((rows - self.mean) * self.factors, nan=0.0)

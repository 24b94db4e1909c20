"""Standardised features: centred and scaled by their spread over the training texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONSTANT = 1e-6
"""Standard deviation below which a feature's variation over the training texts is rounding error."""


@dataclass(frozen=True)
class Scale:
    """Standardisation to zero mean and unit variance per feature, and to a mean squared row length of 1.

    Rows of the other linear classifiers have length 1 too, so the same regularisation strengths apply.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray) -> Scale:
        """Statistics of rows (N, D); rows that contain a non-finite number are ignored."""
        finite = rows[np.isfinite(rows).all(axis=1)].astype(np.float64)
        finite = finite if len(finite) else np.zeros((1, rows.shape[1]))
        return cls(finite.mean(axis=0), finite.std(axis=0))

    @property
    def factors(self) -> NDArray[np.float64]:
        """Factors (D,) of centred features; zero for a constant feature."""
        varies = self.deviation > CONSTANT
        return 1 / np.where(varies, self.deviation, np.inf) / np.sqrt(max(1, varies.sum()))

    def __call__(self, rows: NDArray) -> NDArray[np.float64]:
        """Standardise rows (N, D); a text without words (NaN) maps to zeros."""
        return np.nan_to_num((rows - self.mean) * self.factors, nan=0.0)

"""Permutation language modelling data: a random factorisation order for each text (Yang et al. 2019, XLNet, §2.2-2.3).

Only the last tokens of the order are predicted (partial prediction), a share 1/K of the text. All others are context.
"""

from __future__ import annotations

import numpy as np
import torch

from textgraft.data.batch import IGNORE
from textgraft.data.streams.masking import MaskedStream, MaskingTokens, choose_tokens

PREDICTED = 1 / 6
"""Share of tokens to predict, 1/K (§3.1: K = 6)."""


def permute_tokens(
    ids: np.ndarray,
    tokens: MaskingTokens,
    *,
    generator: np.random.Generator,
    rate: float = PREDICTED,
    whole_words: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the end of a factorisation order for each row.

    The last round(rate * n) of a row's n ordinary tokens in a random order, at least one, are predicted. The order of
    the tokens before them does not matter, as they are all seen together; special tokens are among these.

    Args:
        ids: Token ids (B, T).
        tokens: The vocabulary.
        generator: Source of randomness.
        rate: Share of tokens to predict.
        whole_words: Predict all subwords of a word or none.

    Returns:
        Places (B, T) in the order, `Batch.order`: 1, 2, ... for the tokens to predict, 0 for context; and targets
        (B, T): the ids of the former, IGNORE elsewhere.
    """
    chosen = choose_tokens(ids, tokens, generator=generator, rate=rate, whole_words=whole_words)
    draws = np.where(chosen, generator.random(ids.shape), np.inf)
    ranks = draws.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return np.where(chosen, ranks + 1, 0), np.where(chosen, ids, IGNORE)


class PermutedStream(MaskedStream):
    """Rows as of MaskedStream, of which no token is masked: the model sees those before a token in the row's order."""

    def _hidden(self, ids: np.ndarray, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        order, targets = permute_tokens(
            ids, self.tokens, generator=generator, rate=self.rate, whole_words=self.whole_words
        )
        return {name: torch.from_numpy(value) for name, value in (("ids", ids), ("targets", targets), ("order", order))}

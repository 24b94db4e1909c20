"""Replaced-token detection data: texts of which some tokens are drawn anew (Clark et al. 2020, ELECTRA, §3.1).

The paper's generator is a small masked language model that is trained along and thrown away. Published discriminators
come without it, so that replacements are drawn here by the frequencies of the corpus: the paper's smallest generator,
which it calls a unigram generator (§3.2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from textgraft.data.streams.base import TokenSource
from textgraft.data.streams.masking import MaskedStream, MaskingTokens, choose_tokens

COUNTED = 10_000_000
"""Tokens from the beginning of a corpus by which frequencies are estimated."""


def frequencies(corpus: TokenSource, tokens: MaskingTokens) -> np.ndarray:
    """Share (V,) of each token among the ordinary ones of a corpus; of all if it has only special ones."""
    counts = np.bincount(corpus.read(0, min(COUNTED, corpus.num_tokens)), minlength=len(tokens.special))
    counts[tokens.special] = 0
    if not counts.any():
        counts = (~tokens.special).astype(np.int64)
    shares: np.ndarray = counts / counts.sum()
    return shares


def replace_tokens(
    ids: np.ndarray,
    tokens: MaskingTokens,
    shares: np.ndarray,
    *,
    generator: np.random.Generator,
    rate: float = 0.15,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a share of the tokens anew.

    In each row round(rate * n) of its n ordinary tokens are chosen, at least one. A token that is drawn for itself
    counts as original, as in the paper.

    Args:
        ids: Token ids (B, T).
        tokens: The vocabulary.
        shares: Probability (V,) of each token to be drawn.
        generator: Source of randomness.
        rate: Share of tokens to draw anew.

    Returns:
        Ids (B, T), and targets (B, T): 1 where the id has changed, 0 elsewhere.
    """
    chosen = choose_tokens(ids, tokens, generator=generator, rate=rate)
    drawn = generator.choice(len(shares), size=ids.shape, p=shares)
    replaced = np.where(chosen, drawn, ids)
    return replaced, (replaced != ids).astype(np.int64)


class ReplacedStream(MaskedStream):
    """Rows as of MaskedStream, of which no token is masked and some are others than were written."""

    def __init__(self, corpus: TokenSource, tokens: MaskingTokens, **settings: Any) -> None:
        super().__init__(corpus, tokens, **settings)
        self._shares = frequencies(corpus, tokens)

    def _hidden(self, ids: np.ndarray, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        replaced, targets = replace_tokens(ids, self.tokens, self._shares, generator=generator, rate=self.rate)
        return {"ids": torch.from_numpy(replaced), "targets": torch.from_numpy(targets)}

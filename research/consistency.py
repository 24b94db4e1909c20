"""What unlabelled texts teach by being changed: UDA (Xie et al. 2020, arXiv:1904.12848), for research/ablations.py.

A text and the same text with words replaced should get the same label. Beside each batch of labelled texts a batch of
unlabelled ones is read as it is and changed, and the Kullback-Leibler divergence between the two answers is added to
the loss (equation 1, weight 1). The answer for the text as it is has no gradient, is sharpened, and counts where it is
sure. The paper changes texts by translating them there and back, which needs translators, or by replacing words
that say little (appendix: TF-IDF based word replacing), which is what is here; its annealing of the training signal is
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from textgraft.data.batch import Batch, pad
from textgraft.encoders.base import State
from textgraft.heads.base import Loss
from textgraft.models.model import Model

TEMPERATURE, SURE = 0.85, 0.45
"""As the paper's code has them for texts (for pictures 0.4 and 0.8)."""
REPLACED = 0.3
"""The share of a text's tokens that go, on the mean; of our choice."""


class Replacing:
    """Texts of token ids in which tokens that say little give way to others that say little.

    A text's token i goes with probability min(1, rate (C - tfidf_i) / Z), where C is the highest TF-IDF of the text and
    Z the mean of C - tfidf; what comes is drawn by max S - S(w), S(w) = frequency times IDF. `kept` are ids that
    neither go nor come.
    """

    def __init__(
        self, texts: Sequence[np.ndarray], vocab_size: int, kept: Sequence[int] = (), rate: float = REPLACED
    ) -> None:
        counts = np.bincount(np.concatenate(texts), minlength=vocab_size).astype(float)
        held = np.bincount(np.concatenate([np.unique(text) for text in texts]), minlength=vocab_size)
        self.idf = np.log(len(texts) / np.maximum(held, 1))
        said = counts * self.idf
        self.kept, self.rate = np.array(sorted(kept), dtype=int), rate
        weights = np.where(counts > 0, said.max() - said, 0.0)
        weights[self.kept] = 0.0
        self.arriving = weights / weights.sum()

    def __call__(self, text: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """One text (T,) of ids changed, as long as it was."""
        _, places, counts = np.unique(text, return_inverse=True, return_counts=True)
        tfidf = counts[places] / len(text) * self.idf[text]
        room = tfidf.max() - tfidf
        mean = room.mean()
        leaving = np.minimum(1.0, self.rate * room / mean) if mean > 0 else np.full(len(text), self.rate)
        gone = (generator.random(len(text)) < leaving) & ~np.isin(text, self.kept)
        changed = text.copy()
        changed[gone] = generator.choice(len(self.arriving), size=int(gone.sum()), p=self.arriving)
        return changed


def pairs_of(
    texts: Sequence[np.ndarray], replacing: Replacing, pad_id: int, rows: int, seed: int
) -> Iterator[tuple[Batch, Batch]]:
    """Batches of `rows` texts drawn at random, (B, T) as they are and (B, T) changed, without end."""
    generator = np.random.default_rng(seed)
    while True:
        chosen = [texts[i] for i in generator.choice(len(texts), size=min(rows, len(texts)), replace=False)]
        yield pad(chosen, pad_id), pad([replacing(text, generator) for text in chosen], pad_id)


class Consistent(Model):
    """A classifier whose loss asks for the same answer to a text and to the text changed, where its encoder learns."""

    def __init__(self, classifier: Model, unlabelled: Iterator[tuple[Batch, Batch]]) -> None:
        super().__init__(classifier.encoder, classifier.head)
        self.unlabelled = unlabelled

    def loss(self, batch: Batch, state: State | None = None) -> Loss:
        """The labelled batch's, and the unlabelled one's as often as there are labels, for it is divided by these."""
        own = super().loss(batch, state)
        if batch.features is not None:  # only the head learns, from what was read once
            return own
        clean, changed = next(self.unlabelled)
        with torch.no_grad():
            logits = self(clean).float()
            sure = logits.softmax(dim=1).amax(dim=1) > SURE
            said = (logits / TEMPERATURE).log_softmax(dim=1)
        divergence = F.kl_div(self(changed).float().log_softmax(dim=1), said, log_target=True, reduction="none").sum(1)
        return Loss(own.total + own.count * (divergence * sure).mean(), own.count)

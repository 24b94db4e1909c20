"""fastText's classifier (Joulin et al. 2016, arXiv:1607.01759): averaged n-gram embeddings into a linear layer.

As there: word 1-2-grams in one table of vectors, their mean into a softmax, SGD whose rate falls linearly to zero,
table drawn from U(-1/D, 1/D), output layer from zero; the rate is chosen on held-out training texts. Where we differ:
words are hashed as well as bigrams, and only bins that training texts fall into have a vector, so an n-gram that was
never seen is left out of the mean instead of adding noise; a step sums the gradients of a few texts where theirs
takes one at a time on every thread; few texts are read more often than 5 times, for 5 readings of 50 texts teach
nothing. Scripts that run words together give character 1-3-grams. Label sets get a sigmoid a label, numbers a squared
error, which the paper does not have.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from textgraft.data.examples import TargetKind
from textgraft.linear.ngrams import WORD, is_space_separated
from textgraft.metrics.classification import document_scores
from textgraft.training.uncompiled_optimizers import SGD

DIMENSIONS = 10
BINS = 2_000_000
"""Both as in the paper's experiments on sentiment and in its tool."""
RATES = (0.25, 0.5, 1.0)
"""The paper tries 0.05 to 0.5. With the few steps that a thousand texts allow, 0.1 has not left its starting point."""
EPOCHS = 5
LEAST_READ = 20_000
"""Texts read at least, repeats counted: 20 epochs of 1,000 texts."""
MOST_EPOCHS = 100
ROWS = 8
HELD_OUT = 0.2
HELD_OUT_AT_MOST = 2_000
_MIX = np.uint64(116049371)
"""What fastText multiplies a word's hash by to make its bigrams'."""


class BagOfNgrams(nn.Module):
    """The mean of a text's n-gram vectors, into C outputs. A text without a known n-gram has the mean zero."""

    def __init__(self, ngrams: int, outputs: int, dimensions: int = DIMENSIONS) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(ngrams, dimensions, mode="mean", sparse=True)
        self.output = nn.Linear(dimensions, outputs)
        nn.init.uniform_(self.table.weight, -1 / dimensions, 1 / dimensions)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Logits (B, C) of B texts: ids (positions,) of all their n-grams, offsets (B,) where each text begins."""
        return self.output(self.table(ids, offsets))


class FastTextClassifier:
    """`fit` and `predict_proba` as linear.baselines.Baseline has them; the same seed gives the same answers."""

    name = "fasttext"
    about = ""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "single",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self:
        self.kind = kind
        self.outputs = num_classes or _count_outputs(targets, kind)
        self._words = is_space_separated(texts)
        bags = [hashed_ngrams(text, words=self._words) for text in texts]
        self._known = np.unique(np.concatenate([*bags, np.zeros(1, np.uint64)]))
        rows = [self._rows(bag) for bag in bags]
        rate = self._chosen_rate(rows, targets)
        self.model = self._trained(rows, targets, rate)
        grams = "word 1-2-grams" if self._words else "character 1-3-grams"
        epochs = epochs_for(len(texts))
        self.about = f"fastText: {len(self._known):,} {grams}, {DIMENSIONS} dimensions, rate {rate:g}, {epochs} epochs"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, C) probabilities, or (N,) values for a numeric target."""
        rows = [self._rows(hashed_ngrams(text, words=self._words)) for text in texts]
        return self._answers(self._logits(self.model, rows))

    def size_in_bytes(self) -> int:
        """The vectors, the output layer and the hashes that find a vector."""
        return sum(p.nbytes for p in self.model.parameters()) + self._known.nbytes

    def _rows(self, bag: NDArray[np.uint64]) -> Tensor:
        """The table's rows for a text's n-grams; those that no training text has are left out."""
        places = np.searchsorted(self._known, bag).clip(max=len(self._known) - 1)
        return torch.from_numpy(places[self._known[places] == bag])

    def _chosen_rate(self, rows: Sequence[Tensor], targets: NDArray) -> float:
        """The rate with the best headline metric on a fifth of the training texts; on ties the lowest loss."""
        order = np.random.default_rng(self.seed).permutation(len(rows))
        held = order[: min(HELD_OUT_AT_MOST, int(len(rows) * HELD_OUT))]
        if not len(held):
            return RATES[1]
        kept = order[len(held) :]
        sign = -1 if self.kind == "numeric" else 1
        found = []
        for rate in RATES:
            model = self._trained([rows[i] for i in kept], targets[kept], rate)
            logits = self._logits(model, [rows[i] for i in held])
            score = document_scores(self.kind, targets[held], self._answers(logits)).mean()
            if np.isfinite(score):  # too high a rate can lead anywhere
                found.append((sign * score, -self._loss(logits, targets[held]).item(), rate))
        return max(found, default=(0, 0, RATES[0]))[2]

    def _trained(self, rows: Sequence[Tensor], targets: NDArray, rate: float) -> BagOfNgrams:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = BagOfNgrams(len(self._known), self.outputs)
        generator = np.random.default_rng(self.seed)
        optimizer = SGD(model.parameters(), lr=rate)
        epochs = epochs_for(len(rows))
        steps, step = epochs * math.ceil(len(rows) / ROWS), 0
        for _ in range(epochs):
            order = generator.permutation(len(rows))
            for start in range(0, len(rows), ROWS):
                chosen = order[start : start + ROWS]
                optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
                optimizer.zero_grad()
                self._loss(model(*_packed([rows[i] for i in chosen])), targets[chosen]).backward()
                optimizer.step()
                step += 1
        return model.eval()

    def _loss(self, logits: Tensor, targets: NDArray) -> Tensor:
        """Summed over texts, so that a step of several is about as long as that many steps of one."""
        truth = torch.from_numpy(np.ascontiguousarray(targets))
        if self.kind == "single":
            return functional.cross_entropy(logits, truth, reduction="sum")
        if self.kind == "multi":
            return functional.binary_cross_entropy_with_logits(logits, truth.float(), reduction="sum")
        # A mean, for a squared error has no bound on its gradient, and a sum of several runs away.
        return functional.mse_loss(logits[:, 0], truth.float()) / 2

    @torch.no_grad()
    def _logits(self, model: BagOfNgrams, rows: Sequence[Tensor]) -> Tensor:
        parts = [model(*_packed(rows[i : i + 1_000])) for i in range(0, len(rows), 1_000)]
        return torch.cat(parts) if parts else torch.zeros(0, self.outputs)

    def _answers(self, logits: Tensor) -> NDArray[np.float64]:
        logits = logits.double()
        if self.kind == "numeric":
            return logits[:, 0].numpy()
        return (logits.softmax(1) if self.kind == "single" else logits.sigmoid()).numpy()


def epochs_for(texts: int) -> int:
    """How often so many texts are read."""
    return max(EPOCHS, min(MOST_EPOCHS, math.ceil(LEAST_READ / max(1, texts))))


def hashed_ngrams(text: str, *, words: bool = True, bins: int = BINS) -> NDArray[np.uint64]:
    """The bins (uint64) of a text's word 1-2-grams, or character 1-3-grams, lower-cased, in order of length."""
    parts = re.findall(WORD, text.lower()) if words else [c for c in text.lower() if not c.isspace()]
    hashes = np.array([zlib.crc32(part.encode("utf-8", "surrogatepass")) for part in parts], dtype=np.uint64)
    grams = [hashes]
    for _ in range(1 if words else 2):
        longer = grams[-1][:-1] * _MIX + hashes[len(hashes) - max(0, len(grams[-1]) - 1) :]
        grams.append(longer)
    return np.concatenate(grams) % np.uint64(bins)


def _count_outputs(targets: NDArray, kind: TargetKind) -> int:
    if kind == "numeric":
        return 1
    return int(targets.max()) + 1 if kind == "single" else int(targets.shape[1])


def _packed(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    return torch.cat(list(rows)), lengths.cumsum(0)[:-1]

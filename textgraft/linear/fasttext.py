"""fastText classifier (Joulin et al. 2016, arXiv:1607.01759): averaged n-gram embeddings into a linear layer.

As in the paper: word 1-2-grams in one embedding table, their mean into a softmax, SGD with a linearly decaying rate,
table initialised from U(-1/D, 1/D) and output layer from zero; the rate is selected on held-out training texts.
Differences: words are hashed as well as bigrams, and only bins with training n-grams have a vector, so unseen n-grams
are left out of the mean instead of adding noise; a step sums the gradients of a few texts, where the paper's tool
updates after each one on every thread; small training sets get more than 5 epochs, since 5 epochs of 50 texts train
nothing. Scripts without spaces between words use character 1-3-grams. Label sets get a sigmoid per label and numeric
targets a squared error, which the paper does not have.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from textgraft.data.examples import TargetKind
from textgraft.data.targets import TARGETS
from textgraft.linear.ngrams import WORD, is_space_separated
from textgraft.metrics.classification import document_scores
from textgraft.text.visible import visible
from textgraft.training.uncompiled_optimizers import SGD

DIMENSIONS = 10
BINS = 2_000_000
"""Hash bins; dimensions and bins as in the paper's sentiment experiments and its tool."""
RATES = (0.25, 0.5, 1.0)
"""Learning rates to select from. The paper tries 0.05 to 0.5; in the few steps of a thousand texts 0.1 stays at its
initial loss.
"""
EPOCHS = 5
MIN_TEXTS_SEEN = 20_000
"""Texts seen in training at least, over all epochs: 20 epochs of 1,000 texts."""
MAX_EPOCHS = 100
BATCH_SIZE = 8
HELD_OUT = 0.2
MAX_HELD_OUT = 2_000
_BIGRAM_MULTIPLIER = np.uint64(116049371)
"""fastText's multiplier of a word's hash in those of its bigrams."""


class BagOfNgrams(nn.Module):
    """Mean n-gram embedding into a linear layer with C outputs; a text without known n-grams has mean zero."""

    def __init__(self, ngrams: int, outputs: int, dimensions: int = DIMENSIONS) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(ngrams, dimensions, mode="mean", sparse=True)
        self.output = nn.Linear(dimensions, outputs)
        nn.init.uniform_(self.table.weight, -1 / dimensions, 1 / dimensions)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Compute logits.

        Args:
            ids: Table rows of the n-grams of all texts, concatenated.
            offsets: Start (B,) of each text in `ids`.

        Returns:
            Logits (B, C).
        """
        return self.output(self.table(ids, offsets))


class FastTextClassifier:
    """fastText with the interface of linear.baselines.Baseline; the same seed gives the same predictions."""

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
        """Fit to texts and targets as in `linear.baselines.Baseline.fit`."""
        self.kind = kind
        self.outputs = num_classes or TARGETS[kind].output_count(targets)
        self._spaced = is_space_separated(texts)
        bags = [hashed_ngrams(text, words=self._spaced) for text in texts]
        self._bins = np.unique(np.concatenate([*bags, np.zeros(1, np.uint64)]))
        rows = [self._table_rows(bag) for bag in bags]
        rate = self._select_rate(rows, targets)
        self.model = self._train(rows, targets, rate)
        grams = "word 1-2-grams" if self._spaced else "character 1-3-grams"
        epochs = epochs_for(len(texts))
        self.about = f"fastText: {len(self._bins):,} {grams}, {DIMENSIONS} dimensions, rate {rate:g}, {epochs} epochs"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, C), or values (N,) for a numeric target."""
        rows = [self._table_rows(hashed_ngrams(text, words=self._spaced)) for text in texts]
        return self._predictions(self._logits(self.model, rows))

    def size_in_bytes(self) -> int:
        """Size of the embeddings, the output layer and the table of hashes."""
        return sum(p.nbytes for p in self.model.parameters()) + self._bins.nbytes

    def _table_rows(self, bag: NDArray[np.uint64]) -> Tensor:
        """Table rows of a text's n-grams; n-grams that occur in no training text are dropped."""
        positions = np.searchsorted(self._bins, bag).clip(max=len(self._bins) - 1)
        return torch.from_numpy(positions[self._bins[positions] == bag])

    def _select_rate(self, rows: Sequence[Tensor], targets: NDArray) -> float:
        """The rate with the best headline metric on a fifth of the training texts; on ties the lowest loss."""
        order = np.random.default_rng(self.seed).permutation(len(rows))
        held_out = order[: min(MAX_HELD_OUT, int(len(rows) * HELD_OUT))]
        if not len(held_out):
            return RATES[1]
        training = order[len(held_out) :]
        sign = -1 if TARGETS[self.kind].lower_is_better else 1
        candidates = []
        for rate in RATES:
            model = self._train([rows[i] for i in training], targets[training], rate)
            logits = self._logits(model, [rows[i] for i in held_out])
            score = document_scores(self.kind, targets[held_out], self._predictions(logits)).mean()
            if np.isfinite(score):  # training may diverge at too high a rate
                candidates.append((sign * score, -self._loss(logits, targets[held_out]).item(), rate))
        return max(candidates, default=(0, 0, RATES[0]))[2]

    def _train(self, rows: Sequence[Tensor], targets: NDArray, rate: float) -> BagOfNgrams:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = BagOfNgrams(len(self._bins), self.outputs)
        generator = np.random.default_rng(self.seed)
        optimizer = SGD(model.parameters(), lr=rate)
        epochs = epochs_for(len(rows))
        steps, step = epochs * math.ceil(len(rows) / BATCH_SIZE), 0
        for _ in range(epochs):
            order = generator.permutation(len(rows))
            for start in range(0, len(rows), BATCH_SIZE):
                batch = order[start : start + BATCH_SIZE]
                optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
                optimizer.zero_grad()
                self._loss(model(*_flattened([rows[i] for i in batch])), targets[batch]).backward()
                optimizer.step()
                step += 1
        return model.eval()

    def _loss(self, logits: Tensor, targets: NDArray) -> Tensor:
        """Summed over texts, so that a step of several texts is about as long as as many steps of one."""
        return LOSSES[self.kind](logits, torch.from_numpy(np.ascontiguousarray(targets)))

    @torch.no_grad()
    def _logits(self, model: BagOfNgrams, rows: Sequence[Tensor]) -> Tensor:
        parts = [model(*_flattened(rows[i : i + 1_000])) for i in range(0, len(rows), 1_000)]
        return torch.cat(parts) if parts else torch.zeros(0, self.outputs)

    def _predictions(self, logits: Tensor) -> NDArray[np.float64]:
        return ACTIVATIONS[self.kind](logits.double()).numpy()


def _cross_entropy(logits: Tensor, truth: Tensor) -> Tensor:
    return functional.cross_entropy(logits, truth, reduction="sum")


def _binary_cross_entropy(logits: Tensor, truth: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, truth.float(), reduction="sum")


def _squared_error(logits: Tensor, truth: Tensor) -> Tensor:
    """A mean: the gradient of a squared error is unbounded, and a sum over texts diverges."""
    return functional.mse_loss(logits[:, 0], truth.float()) / 2


LOSSES: Mapping[TargetKind, Callable[[Tensor, Tensor], Tensor]] = {
    "single": _cross_entropy,
    "multi": _binary_cross_entropy,
    "numeric": _squared_error,
}
ACTIVATIONS: Mapping[TargetKind, Callable[[Tensor], Tensor]] = {
    "single": lambda logits: logits.softmax(1),
    "multi": Tensor.sigmoid,
    "numeric": lambda logits: logits[:, 0],
}
"""Outputs of logits (N, C) by kind of target."""


def epochs_for(texts: int) -> int:
    """Number of epochs for a number of training texts.

    >>> epochs_for(1_000), epochs_for(100_000)
    (20, 5)
    """
    return max(EPOCHS, min(MAX_EPOCHS, math.ceil(MIN_TEXTS_SEEN / max(1, texts))))


def hashed_ngrams(text: str, *, words: bool = True, bins: int = BINS) -> NDArray[np.uint64]:
    """Hash the lower-cased n-grams of a text.

    Args:
        text: A raw text.
        words: Word 1-2-grams; False for character 1-3-grams.
        bins: Number of hash bins.

    Returns:
        Bins, uint64, in order of n-gram length.

    >>> len(hashed_ngrams("a good film"))
    5
    """
    text = visible(text)
    parts = re.findall(WORD, text.lower()) if words else [c for c in text.lower() if not c.isspace()]
    hashes = np.array([zlib.crc32(part.encode("utf-8", "surrogatepass")) for part in parts], dtype=np.uint64)
    grams = [hashes]
    for _ in range(1 if words else 2):
        extended = grams[-1][:-1] * _BIGRAM_MULTIPLIER + hashes[len(hashes) - max(0, len(grams[-1]) - 1) :]
        grams.append(extended)
    return np.concatenate(grams) % np.uint64(bins)


def _flattened(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    return torch.cat(list(rows)), lengths.cumsum(0)[:-1]

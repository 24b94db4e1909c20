"""GloVe (Pennington, Socher & Manning 2014): vectors whose dot products are log co-occurrence counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textgraft.word_embeddings.cooccurrence import Pairs
from textgraft.word_embeddings.progress import Bar

X_MAX, ALPHA = 100.0, 0.75
"""Parameters of the weight f(x) = min(1, x / x_max) ** alpha (eq. 9)."""
BATCH = 8_192
PAIRS_PER_WORD = 4
"""Mean number of pairs of a word in a batch, at most."""


@dataclass
class GloVe:
    """Vectors and biases of words and contexts, and the sums of their squared gradients.

    The loss is sum f(x_ij) (w_i · c_j + b_i + b'_j - log x_ij)² (eq. 8), minimised by AdaGrad (Duchi et al. 2011) as in
    the authors' program: initial values from U(-0.5, 0.5) / (D + 1), steps of 0.05 times the gradient, divided by the
    root of 1 and the sum of the squared previous steps (not, as in AdaGrad, of the gradients), which falls far more
    slowly. Difference: there a step is one pair; here it is a batch of random pairs, whose gradients are computed at
    the beginning of the batch, and each step is scaled by the squares of the previous steps and of the others in the
    batch. A batch of one is the authors' step.
    """

    words: Tensor
    contexts: Tensor
    word_bias: Tensor
    context_bias: Tensor

    def __post_init__(self) -> None:
        self.squares = [torch.ones_like(values) for values in self._values()]

    @classmethod
    def begin(cls, size: int, dimensions: int, seed: int) -> Self:
        """Random initial values for `size` words."""
        generator = torch.Generator().manual_seed(seed)
        shapes = ((size, dimensions), (size, dimensions), (size,), (size,))
        return cls(*((torch.rand(shape, generator=generator) - 0.5) / (dimensions + 1) for shape in shapes))

    def _values(self) -> tuple[Tensor, ...]:
        return self.words, self.contexts, self.word_bias, self.context_bias

    def gradients(self, word: Tensor, context: Tensor, count: Tensor) -> tuple[float, tuple[Tensor, ...]]:
        """Loss summed over pairs (N,), and half its gradients by pair: w and c (N, D), b and b' (N,)."""
        w, c = self.words.index_select(0, word), self.contexts.index_select(0, context)
        error = (w * c).sum(1) + self.word_bias[word] + self.context_bias[context] - count.log()
        weighted = error * (count / X_MAX).clamp(max=1.0).pow(ALPHA)
        slope = weighted[:, None]
        return float((weighted * error).sum()), (slope * c, slope * w, weighted, weighted)

    def step(self, word: Tensor, context: Tensor, count: Tensor, rate: float) -> float:
        """One AdaGrad step on a batch of pairs; returns their summed loss."""
        loss, gradients = self.gradients(word, context, count)
        indices = (word, context, word, context)
        for values, squares, gradient, index in zip(self._values(), self.squares, gradients, indices, strict=True):
            change = gradient * rate
            squared = change * change
            squares.index_add_(0, index, squared)
            # At least the initial value, also where another worker's sum was lost.
            others = squares.index_select(0, index).sub_(squared).clamp_(min=1.0)
            values.index_add_(0, index, change * others.rsqrt_(), alpha=-1)
        return loss

    def vectors(self) -> NDArray[np.float32]:
        """Vectors (V, D): w + c, which the paper finds slightly better than w alone (§4.2)."""
        return (self.words + self.contexts).numpy()


def train(
    model: GloVe, pairs: Pairs, *, epochs: int, rate: float, seed: int, workers: int = 1, show: bool = False
) -> list[float]:
    """Train for `epochs` over all pairs; return the mean loss a pair of each epoch.

    With one worker the same seed gives the same bits. Several workers process batches of their own and update the same
    vectors without locks, as the authors' threads do.
    """
    generator = np.random.default_rng(seed)
    losses: list[float] = []
    size = max(1, min(BATCH, PAIRS_PER_WORD * pairs.total // len(model.words)))

    def step(batch: NDArray) -> float:
        word, context = (torch.from_numpy(batch[name].astype(np.int64)) for name in ("word", "context"))
        return model.step(word, context, torch.from_numpy(batch["count"].astype(np.float32)), rate)

    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        with Bar("GloVe", epochs * pairs.total, shown=show) as bar:
            bar.add(0)
            for _ in range(epochs):
                total = 0.0
                for block in pairs.shuffled(generator):
                    batches = [block[start : start + size] for start in range(0, len(block), size)]
                    for batch, loss in zip(batches, pool.map(step, batches), strict=True):
                        total += loss
                        bar.add(len(batch), f"loss {losses[-1]:.4f}" if losses else "")
                losses.append(total / max(1, pairs.total))
    finally:
        pool.shutdown(cancel_futures=True)
    return losses

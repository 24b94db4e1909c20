"""GloVe (Pennington, Socher & Manning 2014): vectors whose products are the logarithms of co-occurrence counts."""

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
"""Of the weight f(x) = min(1, x / x_max) ** alpha (eq. 9)."""
BATCH = 8_192
TOGETHER = 4
"""A word is in a batch so often on the mean, if it stands beside all others, and more seldom if it does not."""


@dataclass
class GloVe:
    """Vectors and biases of words and of contexts, and the sums of their squared gradients.

    The loss is sum f(x_ij) (w_i · c_j + b_i + b'_j - log x_ij)² (eq. 8), minimised by AdaGrad (Duchi et al. 2011) as in
    the authors' program: values from U(-0.5, 0.5) / (D + 1), steps of 0.05 times the gradient, divided by the root of
    1 and the squares of the steps (not, as AdaGrad has it, of the gradients) before, which falls far more slowly. There
    one pair after another is a step. Here a batch of random pairs is: their gradients are computed where the batch
    began, and each step is scaled by the squares of those before and of the others in the batch. A batch of one is
    their step.
    """

    words: Tensor
    contexts: Tensor
    word_bias: Tensor
    context_bias: Tensor

    def __post_init__(self) -> None:
        self.squares = [torch.ones_like(values) for values in self._values()]

    @classmethod
    def begin(cls, size: int, dimensions: int, seed: int) -> Self:
        """Random values for `size` words."""
        generator = torch.Generator().manual_seed(seed)
        shapes = ((size, dimensions), (size, dimensions), (size,), (size,))
        return cls(*((torch.rand(shape, generator=generator) - 0.5) / (dimensions + 1) for shape in shapes))

    def _values(self) -> tuple[Tensor, ...]:
        return self.words, self.contexts, self.word_bias, self.context_bias

    def gradients(self, word: Tensor, context: Tensor, count: Tensor) -> tuple[float, tuple[Tensor, ...]]:
        """The loss summed over pairs (N,), and half its gradients by pair: w and c (N, D), b and b' (N,)."""
        w, c = self.words.index_select(0, word), self.contexts.index_select(0, context)
        error = (w * c).sum(1) + self.word_bias[word] + self.context_bias[context] - count.log()
        weighted = error * (count / X_MAX).clamp(max=1.0).pow(ALPHA)
        slope = weighted[:, None]
        return float((weighted * error).sum()), (slope * c, slope * w, weighted, weighted)

    def step(self, word: Tensor, context: Tensor, count: Tensor, rate: float) -> float:
        """One AdaGrad step on a batch of pairs; returns their summed loss."""
        loss, gradients = self.gradients(word, context, count)
        places = (word, context, word, context)
        for values, squares, gradient, place in zip(self._values(), self.squares, gradients, places, strict=True):
            change = gradient * rate
            own = change * change
            squares.index_add_(0, place, own)
            # At least what they began with, also where another worker's sum was lost.
            others = squares.index_select(0, place).sub_(own).clamp_(min=1.0)
            values.index_add_(0, place, change * others.rsqrt_(), alpha=-1)
        return loss

    def vectors(self) -> NDArray[np.float32]:
        """(V, D): w + c, which the paper finds a little better than w alone (§4.2)."""
        return (self.words + self.contexts).numpy()


def train(
    model: GloVe, pairs: Pairs, *, epochs: int, rate: float, seed: int, workers: int = 1, show: bool = False
) -> list[float]:
    """Go `epochs` times over all pairs; the mean loss a pair of each time.

    With one worker the same seed gives the same bits. More of them take batches of their own and add to the same
    vectors unlocked, as the authors' threads do.
    """
    generator = np.random.default_rng(seed)
    losses: list[float] = []
    size = max(1, min(BATCH, TOGETHER * pairs.total // len(model.words)))

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

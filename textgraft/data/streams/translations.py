"""Translation language modelling data: a sentence and its translation in one row, tokens of both masked.

Lample & Conneau 2019 (arXiv:1901.07291), §3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from textgraft.data.batch import Batch, pad
from textgraft.data.parallel import Parallel
from textgraft.data.sequences import PairIds
from textgraft.data.streams.masking import MaskingTokens, mask_tokens
from textgraft.text.tokenizer import PairMarks, Tokenizer

UNMARKED = PairMarks((), (), ())
"""No special tokens around two texts, which have their own."""


@dataclass(frozen=True)
class TranslatedCorpus:
    """Token ids of N pairs, both texts with special tokens of their own, and the languages' numbers in the model."""

    source: list[np.ndarray]
    target: list[np.ndarray]
    languages: tuple[int, int]

    @classmethod
    def of(cls, pairs: Parallel, tokenizer: Tokenizer, languages: tuple[int, int]) -> TranslatedCorpus:
        """Tokenize pairs."""
        source, target = (tokenizer.encode_batch(list(texts)) for texts in (pairs.source, pairs.target))
        return cls(source, target, languages)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def num_tokens(self) -> int:
        """Tokens of both languages."""
        return sum(map(len, (*self.source, *self.target)))


class TranslatedStream:
    """Rows of pairs in random order, with masked tokens in both texts.

    A text is cut to half of a row. Rows have `segments`, 0 and 1, and `languages`.

    Args:
        corpus: The pairs.
        tokens: The vocabulary.
        length: Most tokens of a row.
        rows: Batch size.
        seed: Seed of order and masks.
        rate: Share of tokens to predict.
        whole_words: Mask all subwords of a word together.
    """

    stateful = False

    def __init__(
        self,
        corpus: TranslatedCorpus,
        tokens: MaskingTokens,
        *,
        length: int = 128,
        rows: int = 32,
        seed: int = 0,
        rate: float = 0.15,
        whole_words: bool = False,
    ) -> None:
        self.corpus, self.tokens, self.length_of_row, self.rows = corpus, tokens, length, rows
        self.seed, self.rate, self.whole_words = seed, rate, whole_words

    def length(self, epoch: int) -> int:
        return -(-len(self.corpus) // self.rows)

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng([self.seed, epoch, 7]).permutation(len(self.corpus))
        for number in range(start, self.length(epoch)):
            generator = np.random.default_rng([self.seed, epoch, 8, number])
            yield self._batch(order[number * self.rows : (number + 1) * self.rows], generator)

    def _batch(self, numbers: np.ndarray, generator: np.random.Generator) -> Batch:
        batch = pad([self._row(int(number)) for number in numbers], self.tokens.pad_id)
        assert batch.segments is not None
        masked, targets = mask_tokens(
            batch.ids.numpy(), self.tokens, generator=generator, rate=self.rate, whole_words=self.whole_words
        )
        return replace(
            batch,
            ids=torch.from_numpy(masked),
            targets=torch.from_numpy(targets),
            languages=torch.tensor(self.corpus.languages)[batch.segments],
        )

    def _row(self, number: int) -> PairIds:
        half = self.length_of_row // 2
        first, second = (_cut(texts[number], half) for texts in (self.corpus.source, self.corpus.target))
        return PairIds(first, second, UNMARKED)


def _cut(ids: np.ndarray, length: int) -> np.ndarray:
    """At most `length` tokens, of which the last stays the last: it ends the text."""
    return ids if len(ids) <= length else np.append(ids[: length - 1], ids[-1])

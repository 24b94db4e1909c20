"""Masked language modelling data: choice of masked tokens, and rows of single texts or pairs.

Masking is dynamic (Liu et al. 2019, RoBERTa, §4.1): another choice of tokens in every epoch. Everything is a pure
function of seed, epoch and batch, so two integers are enough to resume a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.streams.base import TokenSource
from textgraft.data.streams.per_epoch import PerEpoch
from textgraft.text.pretrained import PretrainedTokenizer
from textgraft.text.tokenizer import Tokenizer

MASKED, RANDOM = 0.8, 0.1
"""Share of the tokens to predict that are replaced by [MASK] or by a random token; the rest are kept (Devlin et al.
2019, §3.1).
"""


@dataclass(frozen=True)
class MaskingTokens:
    """The vocabulary of V tokens as masking needs it.

    Attributes:
        cls_id, sep_id, mask_id, pad_id: Ids of special tokens.
        special: Mask (V,) of tokens that are never masked and never inserted.
        continues: Mask (V,) of subwords that continue a word.
        cls_last: [CLS] stands at the end of a text, after [SEP] (XLNet), not at its beginning.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    special: np.ndarray
    continues: np.ndarray
    cls_last: bool = False

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> MaskingTokens:
        """From a tokenizer. Raises UserError for one without a mask token."""
        if tokenizer.mask_id is None:
            remedy = "Train a WordPiece tokenizer, or take a published BERT's, RoBERTa's or ModernBERT's."
            raise UserError("this tokenizer has no [MASK] token.", remedy=remedy)
        cls_id, sep_id, cls_last = tokenizer.bos_id, tokenizer.eos_id, False
        if isinstance(tokenizer, PretrainedTokenizer) and tokenizer.text_position == "last":
            (sep_id, cls_id), cls_last = tokenizer.template.after[-2:], True
        ids = cls_id, sep_id, tokenizer.mask_id, tokenizer.pad_id
        return cls(*ids, special=tokenizer.special, continues=tokenizer.continues, cls_last=cls_last)


def mask_tokens(
    ids: np.ndarray,
    tokens: MaskingTokens,
    *,
    generator: np.random.Generator,
    rate: float = 0.15,
    whole_words: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose and mask tokens for prediction.

    In each row round(rate * n) of its n ordinary tokens are predicted, at least one, all choices being equally likely.
    Unlike in the paper, a random token is never a special one.

    Args:
        ids: Token ids (B, T).
        tokens: The vocabulary.
        generator: Source of randomness.
        rate: Share of tokens to predict.
        whole_words: Mask all subwords of a word together, words in random order as long as they fit in the number (a
            single word that does not fit is taken all the same).

    Returns:
        Masked ids (B, T), and targets (B, T): the original ids, IGNORE elsewhere.
    """
    chosen = choose_tokens(ids, tokens, generator=generator, rate=rate, whole_words=whole_words)
    draws = generator.random(ids.shape)
    ordinary = np.flatnonzero(~tokens.special)
    others = ordinary[generator.integers(len(ordinary), size=ids.shape)]
    masked = np.where(chosen & (draws < MASKED), tokens.mask_id, ids)
    masked = np.where(chosen & (draws >= MASKED) & (draws < MASKED + RANDOM), others, masked)
    return masked, np.where(chosen, ids, IGNORE)


def choose_tokens(
    ids: np.ndarray,
    tokens: MaskingTokens,
    *,
    generator: np.random.Generator,
    rate: float = 0.15,
    whole_words: bool = False,
) -> np.ndarray:
    """Mask (B, T) of the tokens to predict; arguments as for `mask_tokens`."""
    maskable = ~tokens.special[ids]
    quota = np.where(maskable.any(axis=1), np.maximum(1, np.rint(rate * maskable.sum(axis=1))), 0).astype(np.int64)
    order = generator.random(ids.shape)
    if whole_words:
        rows = zip(maskable, tokens.continues[ids], quota, order, strict=True)
        chosen = np.stack([_chosen_words(*row) for row in rows])
    else:
        ranks = np.where(maskable, order, np.inf).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        chosen = ranks < quota[:, None]
    return chosen


def _chosen_words(maskable: np.ndarray, continues: np.ndarray, limit: int, order: np.ndarray) -> np.ndarray:
    """Mask (T,) of whole words of one row, at most `limit` subwords, words with the smallest `order` first."""
    inside = continues & maskable
    inside[1:] &= maskable[:-1]
    inside[:1] = False
    words = np.cumsum(maskable & ~inside)  # 1, 2, ... at the subwords of the first word, the second, ...
    words[~maskable] = 0
    firsts = np.flatnonzero(maskable & ~inside)
    sizes = np.bincount(words, minlength=len(firsts) + 1)
    chosen: list[int] = []
    remaining = limit
    for word in np.argsort(order[firsts], kind="stable") + 1:
        if sizes[word] <= remaining:
            chosen.append(int(word))
            remaining -= int(sizes[word])
    if limit and not chosen:
        chosen = [int(np.argmin(order[firsts])) + 1]
    return np.isin(words, chosen)


class MaskedStream:
    """Rows of `length` tokens of a corpus in random order with masked tokens.

    Without `pairs`, [CLS] text [SEP] (XLNet: text [SEP] [CLS]): the corpus is one sequence, cut at another offset in
    each epoch; where a document begins inside a row its [CLS] becomes [SEP] (RoBERTa's FULL-SENTENCES). With `pairs`,
    [CLS] A [SEP] B [SEP] from chunks of single documents, with segments, and `pair_targets` 0 where B follows A (half
    of the time) and 1 where B is from another document. Unlike in the authors' code, borders between A and B need not
    be sentence borders, and shorter rows occur only where a document is shorter.

    Args:
        corpus: The tokens.
        tokens: The vocabulary.
        length: Tokens of a row, special tokens included.
        rows: Batch size.
        seed: Seed of order and masks.
        rate: Share of tokens to predict.
        whole_words: Mask all subwords of a word together.
        pairs: Rows of two texts for next sentence prediction.

    Raises:
        UserError: The corpus is too short, or has fewer than two documents for pairs.
    """

    stateful = False

    def __init__(
        self,
        corpus: TokenSource,
        tokens: MaskingTokens,
        *,
        length: int = 128,
        rows: int = 32,
        seed: int = 0,
        rate: float = 0.15,
        whole_words: bool = False,
        pairs: bool = False,
    ) -> None:
        self.corpus, self.tokens, self.length_of_row, self.rows = corpus, tokens, length, rows
        self.seed, self.rate, self.whole_words, self.pairs = seed, rate, whole_words, pairs
        if length < 8:
            message = f"rows of {length} tokens are too short for masking."
            raise UserError(message, where="length", remedy="Use 8 or more; 128 and 512 are usual.")
        if corpus.num_tokens < 2:
            remedy = "Check that the files hold text."
            raise UserError(f"{corpus.num_tokens} tokens are too few to train a language model.", remedy=remedy)
        self._documents = _Documents(corpus, tokens, length - 3) if pairs else None
        self._plan = PerEpoch(self._draw_plan)

    def _draw_plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The epoch's rows in order, and the shift of each document (or of the whole corpus)."""
        generator = np.random.default_rng([self.seed, epoch, 4])
        if self._documents is not None:
            return generator.permutation(self._documents.count), self._documents.sample_shifts(generator)
        count = max(1, self.corpus.num_tokens // (self.length_of_row - 2))
        return generator.permutation(count), generator.integers(self.corpus.num_tokens, size=1)

    def length(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)[0]) // self.rows)

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order, shifts = self._plan(epoch)
        for number in range(start, self.length(epoch)):
            generator = np.random.default_rng([self.seed, epoch, 5, number])
            numbers = order[number * self.rows : (number + 1) * self.rows]
            yield self._pairs(numbers, shifts, generator) if self.pairs else self._texts(numbers, shifts, generator)

    def _texts(self, numbers: np.ndarray, shifts: np.ndarray, generator: np.random.Generator) -> Batch:
        size = min(self.length_of_row - 2, self.corpus.num_tokens)
        cls_id, sep_id = self.tokens.cls_id, self.tokens.sep_id
        texts = np.stack([self._read_cyclic(int(shifts[0]) + int(row) * size, size) for row in numbers])
        texts[texts == cls_id] = sep_id
        sep = np.full((len(texts), 1), sep_id)
        cls = np.full_like(sep, cls_id)
        ids = np.concatenate([texts, sep, cls] if self.tokens.cls_last else [cls, texts, sep], axis=1)
        return self._batch(ids, np.full(len(ids), ids.shape[1]), generator)

    def _read_cyclic(self, start: int, size: int) -> np.ndarray:
        """`size` tokens from `start`, continuing at the beginning of the corpus."""
        total = self.corpus.num_tokens
        start %= total
        parts = [self.corpus.read(start, min(start + size, total))]
        if start + size > total:
            parts.append(self.corpus.read(0, start + size - total))
        return np.concatenate(parts).astype(np.int64)

    def _pairs(self, numbers: np.ndarray, shifts: np.ndarray, generator: np.random.Generator) -> Batch:
        assert self._documents is not None
        pairs = [self._documents.pair(int(row), shifts, generator) for row in numbers]
        shape = (len(pairs), max(len(a) + len(b) for a, b, _ in pairs) + 3)
        ids, segments = np.full(shape, self.tokens.pad_id, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, (a, b, _) in enumerate(pairs):
            middle, end = len(a) + 2, len(a) + len(b) + 3
            ids[row, 0], ids[row, middle - 1], ids[row, end - 1] = self.tokens.cls_id, *[self.tokens.sep_id] * 2
            ids[row, 1 : middle - 1], ids[row, middle : end - 1] = a, b
            segments[row, middle:end] = 1
        lengths = np.array([len(a) + len(b) + 3 for a, b, _ in pairs])
        labels = torch.tensor([label for _, _, label in pairs])
        return self._batch(ids, lengths, generator, torch.from_numpy(segments), labels)

    def _batch(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        generator: np.random.Generator,
        segments: torch.Tensor | None = None,
        pair_targets: torch.Tensor | None = None,
    ) -> Batch:
        mask = torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]
        return Batch(mask=mask, segments=segments, pair_targets=pair_targets, **self._hidden(ids, generator))

    def _hidden(self, ids: np.ndarray, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """The fields of a batch that hide tokens and say what they are."""
        masked, targets = mask_tokens(
            ids, self.tokens, generator=generator, rate=self.rate, whole_words=self.whole_words
        )
        return {"ids": torch.from_numpy(masked), "targets": torch.from_numpy(targets)}


class _Documents:
    """A corpus as chunks of up to `size` tokens, none of which crosses a document border."""

    def __init__(self, corpus: TokenSource, tokens: MaskingTokens, size: int) -> None:
        self.corpus, self.size = corpus, size
        ends = np.append(corpus.document_starts[1:], corpus.num_tokens)
        # The special tokens around each document are removed here and added to pairs again.
        first_ends = int(ends[0]) if len(ends) else 0
        marked_start = first_ends > 0 and int(corpus.read(0, 1)[0]) == tokens.cls_id
        marked_end = first_ends > 0 and int(corpus.read(first_ends - 1, first_ends)[0]) == tokens.sep_id
        self.starts = np.asarray(corpus.document_starts, dtype=np.int64) + int(marked_start)
        self.lengths = ends - int(marked_end) - self.starts
        chunks = np.where(self.lengths >= 2, np.maximum(1, self.lengths // size), 0)
        if (chunks > 0).sum() < 2:
            message = "pairs of texts need at least two documents of two tokens or more."
            raise UserError(message, remedy="Give each document by itself, or train without next sentence prediction.")
        self.borders = np.append(0, np.cumsum(chunks))
        self.count = int(self.borders[-1])

    def sample_shifts(self, generator: np.random.Generator) -> np.ndarray:
        """A random offset of each document's first chunk, within what its last one leaves over."""
        free = np.where(self.lengths >= self.size, self.lengths % self.size, 0)
        return generator.integers(free + 1)

    def pair(
        self, chunk: int, shifts: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """A, B, and 0 if B follows A or 1 if it is from another document."""
        document, start, size = self._locate(chunk, shifts)
        cut = int(generator.integers(max(1, size // 4), max(1, 3 * size // 4) + 1))
        a = self.corpus.read(start, start + cut)
        if generator.random() < 0.5:
            return a, self.corpus.read(start + cut, start + size), 0
        first_chunk, last_chunk = int(self.borders[document]), int(self.borders[document + 1])
        other = int(generator.integers(self.count - (last_chunk - first_chunk)))
        _, other_start, other_size = self._locate(
            other + (last_chunk - first_chunk if other >= first_chunk else 0), shifts
        )
        length = min(size - cut, other_size)
        other_start += int(generator.integers(other_size - length + 1))
        return a, self.corpus.read(other_start, other_start + length), 1

    def _locate(self, chunk: int, shifts: np.ndarray) -> tuple[int, int, int]:
        """Document of a chunk, its first token in the corpus, and its length."""
        document = int(np.searchsorted(self.borders, chunk, side="right")) - 1
        within = chunk - int(self.borders[document])
        start = int(self.starts[document]) + int(shifts[document]) + within * self.size
        return document, start, min(self.size, int(self.lengths[document]))

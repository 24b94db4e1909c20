"""Masked text to learn from: which tokens are hidden, and rows of text, alone or in pairs, to hide them in.

Masking is dynamic (Liu et al. 2019, RoBERTa, §4.1): a text that comes again in another epoch has other tokens hidden.
All is a pure function of seed, epoch and batch, so that a run resumes by two integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.streams.base import TokenSource
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer

MASKED, RANDOM = 0.8, 0.1
"""Of the tokens to predict, the share that reads [MASK] or another token; the rest stay (Devlin et al. 2019, §3.1)."""


@dataclass(frozen=True)
class MaskingTokens:
    """What masking must know of a vocabulary of V tokens.

    `special` (V,) bool: these are never hidden and never put in a hidden one's place. `continues` (V,) bool: these
    are pieces that belong to the word before them.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    special: np.ndarray
    continues: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> MaskingTokens:
        """Those of a tokenizer. Raises UserError for one that has no [MASK]."""
        if not isinstance(tokenizer, WordPieceTokenizer):
            remedy = "Train a WordPiece tokenizer, or take a published BERT's."
            raise UserError("this tokenizer has no token that hides another.", remedy=remedy)
        ids = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id
        return cls(*ids, special=tokenizer.special, continues=tokenizer.continues)


def mask_tokens(
    ids: np.ndarray,
    tokens: MaskingTokens,
    *,
    generator: np.random.Generator,
    rate: float = 0.15,
    whole_words: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """ids (B, T) -> (ids with some hidden, targets (B, T): what stood there, and IGNORE elsewhere).

    In each row round(rate * n) of its n ordinary tokens are to be predicted, at least one, each set of so many being
    as likely as any other. With `whole_words` a word's pieces are hidden together, words in random order as long as
    they fit in that number (a lone word that does not fit is taken all the same). We differ from the paper in that
    the random token is never a special one.
    """
    open_ = ~tokens.special[ids]
    quota = np.where(open_.any(axis=1), np.maximum(1, np.rint(rate * open_.sum(axis=1))), 0).astype(np.int64)
    order = generator.random(ids.shape)
    if whole_words:
        rows = zip(open_, tokens.continues[ids], quota, order, strict=True)
        chosen = np.stack([_chosen_words(*row) for row in rows])
    else:
        ranks = np.where(open_, order, np.inf).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        chosen = ranks < quota[:, None]
    fate = generator.random(ids.shape)
    ordinary = np.flatnonzero(~tokens.special)
    others = ordinary[generator.integers(len(ordinary), size=ids.shape)]
    hidden = np.where(chosen & (fate < MASKED), tokens.mask_id, ids)
    hidden = np.where(chosen & (fate >= MASKED) & (fate < MASKED + RANDOM), others, hidden)
    return hidden, np.where(chosen, ids, IGNORE)


def _chosen_words(open_: np.ndarray, continues: np.ndarray, most: int, order: np.ndarray) -> np.ndarray:
    """(T,) bool: whole words of one row, `most` tokens or less, those with the smallest numbers in `order` first."""
    inside = continues & open_
    inside[1:] &= open_[:-1]
    inside[:1] = False
    words = np.cumsum(open_ & ~inside)  # 1, 2, ... at the pieces of the first word, the second, ...
    words[~open_] = 0
    firsts = np.flatnonzero(open_ & ~inside)
    sizes = np.bincount(words, minlength=len(firsts) + 1)
    taken: list[int] = []
    left = most
    for word in np.argsort(order[firsts], kind="stable") + 1:
        if sizes[word] <= left:
            taken.append(int(word))
            left -= int(sizes[word])
    if most and not taken:
        taken = [int(np.argmin(order[firsts])) + 1]
    return np.isin(words, taken)


class MaskedStream:
    """Rows of `length` tokens out of a corpus in random order, some of them hidden, for the training loop.

    Without `pairs`, [CLS] text [SEP]: the corpus is one row of text, cut from another place in each epoch; where a
    document begins inside a row its [CLS] reads [SEP] (RoBERTa's FULL-SENTENCES). With `pairs`, [CLS] A [SEP] B [SEP]
    from stretches of single documents, with segments, and `pair_targets` 0 where B follows A (one half of the time)
    and 1 where B is of another document. Unlike the authors' code, borders between A and B need not be those of
    sentences, both are cut evenly, and shorter rows occur only where a document is shorter.

    Raises UserError for a corpus that is too short, or pairs out of fewer than two documents.
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
            message = f"rows of {length} tokens are too short to hide any in."
            raise UserError(message, where="length", remedy="Give 8 or more; 128 and 512 are usual.")
        if corpus.num_tokens < 2:
            remedy = "Check that the files hold text."
            raise UserError(f"{corpus.num_tokens} tokens are too few to learn a language from.", remedy=remedy)
        self._documents = _Documents(corpus, tokens, length - 3) if pairs else None
        self._plan = lru_cache(maxsize=2)(self._draw_plan)

    def _draw_plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The epoch's rows in their order, and how far each document (or the whole corpus) is shifted."""
        generator = np.random.default_rng([self.seed, epoch, 4])
        if self._documents is not None:
            return generator.permutation(self._documents.count), self._documents.drawn_shifts(generator)
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
            wanted = order[number * self.rows : (number + 1) * self.rows]
            yield self._pairs(wanted, shifts, generator) if self.pairs else self._texts(wanted, shifts, generator)

    def _texts(self, wanted: np.ndarray, shifts: np.ndarray, generator: np.random.Generator) -> Batch:
        size = min(self.length_of_row - 2, self.corpus.num_tokens)
        cls_id, sep_id = self.tokens.cls_id, self.tokens.sep_id
        texts = np.stack([self._around(int(shifts[0]) + int(row) * size, size) for row in wanted])
        texts[texts == cls_id] = sep_id
        edge = np.full((len(texts), 1), sep_id)
        ids = np.concatenate([np.full_like(edge, cls_id), texts, edge], axis=1)
        return self._hidden(ids, np.full(len(ids), ids.shape[1]), generator)

    def _around(self, start: int, size: int) -> np.ndarray:
        """`size` tokens from `start` on, the corpus taken for a ring."""
        total = self.corpus.num_tokens
        start %= total
        parts = [self.corpus.read(start, min(start + size, total))]
        if start + size > total:
            parts.append(self.corpus.read(0, start + size - total))
        return np.concatenate(parts).astype(np.int64)

    def _pairs(self, wanted: np.ndarray, shifts: np.ndarray, generator: np.random.Generator) -> Batch:
        assert self._documents is not None
        drawn = [self._documents.pair(int(row), shifts, generator) for row in wanted]
        shape = (len(drawn), max(len(a) + len(b) for a, b, _ in drawn) + 3)
        ids, segments = np.full(shape, self.tokens.pad_id, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, (a, b, _) in enumerate(drawn):
            middle, end = len(a) + 2, len(a) + len(b) + 3
            ids[row, 0], ids[row, middle - 1], ids[row, end - 1] = self.tokens.cls_id, *[self.tokens.sep_id] * 2
            ids[row, 1 : middle - 1], ids[row, middle : end - 1] = a, b
            segments[row, middle:end] = 1
        lengths = np.array([len(a) + len(b) + 3 for a, b, _ in drawn])
        labels = torch.tensor([label for _, _, label in drawn])
        return self._hidden(ids, lengths, generator, torch.from_numpy(segments), labels)

    def _hidden(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        generator: np.random.Generator,
        segments: torch.Tensor | None = None,
        pair_targets: torch.Tensor | None = None,
    ) -> Batch:
        hidden, targets = mask_tokens(
            ids, self.tokens, generator=generator, rate=self.rate, whole_words=self.whole_words
        )
        mask = torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]
        return Batch(
            ids=torch.from_numpy(hidden),
            mask=mask,
            targets=torch.from_numpy(targets),
            segments=segments,
            pair_targets=pair_targets,
        )


class _Documents:
    """A corpus as stretches of up to `size` tokens, none of which crosses from one document into the next."""

    def __init__(self, corpus: TokenSource, tokens: MaskingTokens, size: int) -> None:
        self.corpus, self.size = corpus, size
        ends = np.append(corpus.document_starts[1:], corpus.num_tokens)
        # The marks that the tokenizer puts around each document are put around pairs anew.
        first_ends = int(ends[0]) if len(ends) else 0
        marked_start = first_ends > 0 and int(corpus.read(0, 1)[0]) == tokens.cls_id
        marked_end = first_ends > 0 and int(corpus.read(first_ends - 1, first_ends)[0]) == tokens.sep_id
        self.starts = np.asarray(corpus.document_starts, dtype=np.int64) + int(marked_start)
        self.lengths = ends - int(marked_end) - self.starts
        stretches = np.where(self.lengths >= 2, np.maximum(1, self.lengths // size), 0)
        if (stretches > 0).sum() < 2:
            message = "pairs of texts need at least two documents of two tokens or more."
            raise UserError(message, remedy="Give each document by itself, or train without next sentence prediction.")
        self.borders = np.append(0, np.cumsum(stretches))
        self.count = int(self.borders[-1])

    def drawn_shifts(self, generator: np.random.Generator) -> np.ndarray:
        """For each document where its first stretch begins; what its last one leaves over is free."""
        free = np.where(self.lengths >= self.size, self.lengths % self.size, 0)
        return generator.integers(free + 1)

    def pair(
        self, stretch: int, shifts: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """A, B, and 0 if B follows A or 1 if it is of another document."""
        document, start, size = self._place(stretch, shifts)
        cut = int(generator.integers(max(1, size // 4), max(1, 3 * size // 4) + 1))
        a = self.corpus.read(start, start + cut)
        if generator.random() < 0.5:
            return a, self.corpus.read(start + cut, start + size), 0
        own, after = int(self.borders[document]), int(self.borders[document + 1])
        other = int(generator.integers(self.count - (after - own)))
        _, other_start, other_size = self._place(other + (after - own if other >= own else 0), shifts)
        length = min(size - cut, other_size)
        other_start += int(generator.integers(other_size - length + 1))
        return a, self.corpus.read(other_start, other_start + length), 1

    def _place(self, stretch: int, shifts: np.ndarray) -> tuple[int, int, int]:
        """The document of a stretch, its first token in the corpus, and its length."""
        document = int(np.searchsorted(self.borders, stretch, side="right")) - 1
        within = stretch - int(self.borders[document])
        start = int(self.starts[document]) + int(shifts[document]) + within * self.size
        return document, start, min(self.size, int(self.lengths[document]))

"""What a training loop reads: a fixed order of batches for every epoch, which can be entered at any batch.

A stream has `length(epoch)`, `batches(epoch, start)` and `rate_scale(batch)`; all are pure functions of the seed, so
that a run resumes by two integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, iterate
from textgraft.data.sequences import Direction, TokenIds, shuffled_batches

MAX_SHUFFLED_TOKENS = 32_000_000
"""Corpora of up to this many tokens are held in memory and their documents shuffled anew in each epoch."""


class TokenSource(Protocol):
    """A long row of token ids: a memory-mapped corpus or one in memory."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def document_starts(self) -> np.ndarray: ...

    def read(self, start: int, stop: int) -> np.ndarray: ...


class CountedTokens(TokenSource, Protocol):
    """One that knows how much text it was: whitespace-separated words, and characters."""

    num_words: int
    num_characters: int


class Stream(Protocol):
    stateful: bool

    def length(self, epoch: int) -> int: ...

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]: ...

    def rate_scale(self, batch: Batch) -> float: ...


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, the next one being made in a thread of its own while a GPU works on this one."""
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = maker.submit(next, batches, None)
            yield batch


class LanguageModelStream:
    """B contiguous streams through a corpus in windows of varying length, with the next (or previous) token as the
    target.

    Each lane is one contiguous stretch, so the encoder's state carries over from window to window. Variable-length
    BPTT as in Merity et al. 2018, §4.1: a window is bptt long with probability 0.95, else half of it, plus normal
    noise with deviation 5; the learning rate is rescaled by its length over bptt. `direction` "right" serves the
    windows from the end of the text to its beginning, each in the order of the text.

    Raises UserError for a corpus without two tokens, in which nothing comes next.
    """

    stateful = True

    def __init__(
        self,
        corpus: TokenSource,
        *,
        rows: int = 64,
        bptt: int = 70,
        seed: int = 0,
        direction: Direction = "left",
        variable: bool = True,
        shuffle: bool = True,
    ) -> None:
        _refuse_too_short(corpus)
        self.corpus, self.bptt, self.seed, self.direction = corpus, bptt, seed, direction
        self.variable, self.shuffle = variable, shuffle and corpus.num_tokens <= MAX_SHUFFLED_TOKENS
        # A tiny corpus gets fewer contiguous streams, so that each still holds a window or two.
        self.rows = max(1, min(rows, (corpus.num_tokens - 1) // (2 * bptt)))
        self.lane = (corpus.num_tokens - 1) // self.rows
        self._windows = lru_cache(maxsize=2)(self._draw_windows)

    def _draw_windows(self, epoch: int) -> np.ndarray:
        """The borders of epoch's windows within a lane, from 0 to its length."""
        if not self.variable:
            return np.append(np.arange(0, self.lane, self.bptt), self.lane)
        generator = np.random.default_rng([self.seed, epoch, 1])
        count = int(self.lane / self.bptt * 1.3) + 10
        base = np.where(generator.random(count) < 0.95, self.bptt, self.bptt / 2)
        lengths = np.maximum(5, generator.normal(base, 5).astype(np.int64))
        borders = np.append(0, np.cumsum(lengths))
        return np.append(borders[borders < self.lane], self.lane)

    def length(self, epoch: int) -> int:
        return len(self._windows(epoch)) - 1

    def rate_scale(self, batch: Batch) -> float:
        return batch.ids.shape[1] / self.bptt if self.variable else 1.0

    def _contiguous_streams(self, epoch: int) -> Sequence[np.ndarray] | None:
        """The contiguous streams in memory, documents shuffled for this epoch; None where the corpus is read as it
        lies.
        """
        if not self.shuffle:
            return None
        starts = self.corpus.document_starts
        order = np.random.default_rng([self.seed, epoch, 2]).permutation(len(starts))
        ends = np.append(starts[1:], self.corpus.num_tokens)
        text = self.corpus.read(0, self.corpus.num_tokens)
        text = np.concatenate([text[starts[i] : ends[i]] for i in order])
        return [text[r * self.lane : (r + 1) * self.lane + 1] for r in range(self.rows)]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        borders, contiguous_streams = self._windows(epoch), self._contiguous_streams(epoch)
        windows = list(zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True))
        if self.direction == "right":
            windows.reverse()
        for first, last in windows[start:]:
            before, after = self._window(contiguous_streams, first, last)
            ids, targets = (after, before) if self.direction == "right" else (before, after)
            yield Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets)

    def _window(self, contiguous_streams: Sequence[np.ndarray] | None, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Tokens first to last of every lane, (B, T), and for each of them the one after it."""
        if contiguous_streams is not None:
            block = np.stack([lane[first : last + 1] for lane in contiguous_streams])
        else:
            offsets = [row * self.lane for row in range(self.rows)]
            block = np.stack([self.corpus.read(o + first, o + last + 1) for o in offsets])
        text = torch.from_numpy(block.astype(np.int64))
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class ScatteredStream:
    """Windows of `bptt` tokens from all over a corpus in random order, with the next token as the target.

    For encoders that hand on no state from window to window. Lanes would give them nothing, and cost much: one batch
    after another from the same few documents, which a young model chases (docs/lab-notes.md). Windows do not overlap
    but for the one token that is a target and then an input; each epoch cuts them at other places. The tokens before
    the first and after the last whole window of an epoch are left out.

    Raises UserError for a corpus without two tokens, in which nothing comes next.
    """

    stateful = False

    def __init__(self, corpus: TokenSource, *, rows: int = 64, bptt: int = 70, seed: int = 0) -> None:
        _refuse_too_short(corpus)
        self.corpus, self.rows, self.seed = corpus, rows, seed
        # A tiny corpus still gives a batch or two.
        self.bptt = max(1, min(bptt, (corpus.num_tokens - 1) // 2))
        self._plan = lru_cache(maxsize=2)(self._draw_plan)

    def _draw_plan(self, epoch: int) -> np.ndarray:
        """Where the epoch's windows begin, in their order."""
        generator = np.random.default_rng([self.seed, epoch, 6])
        most = self.corpus.num_tokens - 1
        shift = int(generator.integers(min(self.bptt, most - self.bptt + 1)))
        return generator.permutation(np.arange(shift, most - self.bptt + 1, self.bptt))

    def length(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)) // self.rows)

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        starts = self._plan(epoch)
        for first in range(start * self.rows, len(starts), self.rows):
            wanted = starts[first : first + self.rows].tolist()
            text = np.stack([self.corpus.read(at, at + self.bptt + 1) for at in wanted]).astype(np.int64)
            ids, targets = torch.from_numpy(text[:, :-1].copy()), torch.from_numpy(text[:, 1:].copy())
            yield Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets)


def _refuse_too_short(corpus: TokenSource) -> None:
    if corpus.num_tokens < 2:
        remedy = "Check that the files hold text."
        raise UserError(f"{corpus.num_tokens} tokens are too few to learn a language from.", remedy=remedy)


class BothEndsStream(LanguageModelStream):
    """The contiguous streams of a LanguageModelStream from both their ends at a time, for two language models side by
    side.

    While the one reads a window as far from the beginning of its lane (`Batch.ids`), the other reads one as far from
    the end, backwards (`Batch.from_right`), so that each goes on from its own state and reads every token of an epoch.
    Targets (B, T, 2) are the next token of the first and the previous one of the second. `character_ids` (V, C) say how
    each token of the corpus is written; a batch has those that occur in it, after one of nothing. Differs from
    Peters et al. 2018's code, which goes through sentences in one order and turns each of them round.
    """

    def __init__(self, corpus: TokenSource, character_ids: np.ndarray, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.character_ids = torch.from_numpy(character_ids.astype(np.int64))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        borders, contiguous_streams = self._windows(epoch), self._contiguous_streams(epoch)
        nothing = torch.zeros_like(self.character_ids[:1])
        for first, last in zip(borders[start:-1].tolist(), borders[start + 1 :].tolist(), strict=True):
            ids, following = self._window(contiguous_streams, first, last)
            previous, from_right = self._window(contiguous_streams, self.lane - last, self.lane - first)
            words, places = torch.stack([ids, from_right]).unique(return_inverse=True)
            yield Batch(
                ids=places[0] + 1,
                mask=torch.ones_like(ids, dtype=torch.bool),
                targets=torch.stack([following, previous], dim=2),
                character_ids=torch.cat([nothing, self.character_ids[words]]),
                from_right=places[1] + 1,
            )


class ExampleStream:
    """Labelled texts in random batches, texts of like length together."""

    stateful = False

    def __init__(
        self,
        sequences: Sequence[TokenIds],
        targets: Tensor,
        *,
        pad_id: int,
        rows: int = 16,
        tokens: int = 24_000,
        seed: int = 0,
    ) -> None:
        self.sequences, self.targets, self.pad_id = sequences, targets, pad_id
        self.rows, self.tokens, self.seed = rows, tokens, seed
        self._plan = lru_cache(maxsize=2)(self._draw_plan)

    def _draw_plan(self, epoch: int) -> list[list[int]]:
        lengths = [len(s) for s in self.sequences]
        generator = np.random.default_rng([self.seed, epoch, 3])
        return shuffled_batches(lengths, rows=self.rows, generator=generator, tokens=self.tokens)

    def length(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return iterate(self.sequences, self._plan(epoch)[start:], self.pad_id, self.targets)

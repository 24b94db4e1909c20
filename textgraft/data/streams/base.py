"""Training streams: batches in a fixed order for every epoch, which can be entered at any batch.

A stream has `length(epoch)`, `batches(epoch, start)` and `rate_scale(batch)`, all pure functions of the seed, so two
integers are enough to resume a run. One that reads its text in order (`Seekable`) has a cursor besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, iterate
from textgraft.data.sequences import Direction, TokenIds, shuffled_batches
from textgraft.data.streams.per_epoch import PerEpoch

MAX_SHUFFLED_TOKENS = 32_000_000
"""Corpora of up to this many tokens are held in memory and their documents shuffled in each epoch."""


class TokenSource(Protocol):
    """A long sequence of token ids: a memory-mapped corpus or one in memory."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def document_starts(self) -> np.ndarray: ...

    def read(self, start: int, stop: int) -> np.ndarray: ...


class CountedTokens(TokenSource, Protocol):
    """A token source with the numbers of whitespace-separated words and characters of its text."""

    num_words: int
    num_characters: int


class Stream(Protocol):
    """Protocol of training streams.

    Attributes:
        stateful: True if the encoder's state carries over from batch to batch.
    """

    stateful: bool

    def length(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        ...

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Batches of an epoch from number `start`."""
        ...

    def rate_scale(self, batch: Batch) -> float:
        """Factor of the learning rate for a batch."""
        ...


@runtime_checkable
class Seekable(Protocol):
    """Protocol of streams that read their text in order: where a batch is, is saved beside its two integers."""

    def cursor(self, epoch: int, batch: int) -> dict[str, Any]:
        """Where to read on for a batch, as JSON values."""
        ...

    def seek(self, cursor: dict[str, Any]) -> None:
        """Read on at a cursor of an equal stream, instead of at the beginning."""
        ...


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, each prepared in a thread while a GPU works on the one before."""
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(next, batches, None)
        while (batch := future.result()) is not None:
            future = executor.submit(next, batches, None)
            yield batch


class LanguageModelStream:
    """B contiguous streams through a corpus in windows of varying length, with the next token as the target.

    The encoder's state carries over from window to window. Variable-length BPTT as in Merity et al. 2018, §4.1: a
    window has length bptt with probability 0.95, else half of it, plus normal noise with deviation 5; the learning rate
    is scaled by its length over bptt.

    Args:
        corpus: The tokens.
        rows: Batch size B: the number of contiguous streams; fewer for a tiny corpus.
        bptt: Tokens of a window.
        seed: Seed of lengths and order.
        direction: "right" serves windows from the end of the text to its beginning, with the previous token as target.
        variable: Vary the length of windows.
        shuffle: Shuffle documents in each epoch, up to MAX_SHUFFLED_TOKENS.

    Raises:
        UserError: The corpus has fewer than two tokens.
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
        _validate_length(corpus)
        self.corpus, self.bptt, self.seed, self.direction = corpus, bptt, seed, direction
        self.variable, self.shuffle = variable, shuffle and corpus.num_tokens <= MAX_SHUFFLED_TOKENS
        # A tiny corpus gets fewer contiguous streams, so that each still holds a window or two.
        self.rows = max(1, min(rows, (corpus.num_tokens - 1) // (2 * bptt)))
        self.stream_length = (corpus.num_tokens - 1) // self.rows
        self._windows = PerEpoch(self._draw_windows)

    def _draw_windows(self, epoch: int) -> np.ndarray:
        """Borders of the epoch's windows within a stream, from 0 to its length."""
        if not self.variable:
            return np.append(np.arange(0, self.stream_length, self.bptt), self.stream_length)
        generator = np.random.default_rng([self.seed, epoch, 1])
        count = int(self.stream_length / self.bptt * 1.3) + 10
        base = np.where(generator.random(count) < 0.95, self.bptt, self.bptt / 2)
        lengths = np.maximum(5, generator.normal(base, 5).astype(np.int64))
        borders = np.append(0, np.cumsum(lengths))
        return np.append(borders[borders < self.stream_length], self.stream_length)

    def length(self, epoch: int) -> int:
        return len(self._windows(epoch)) - 1

    def rate_scale(self, batch: Batch) -> float:
        return batch.ids.shape[1] / self.bptt if self.variable else 1.0

    def _contiguous_streams(self, epoch: int) -> Sequence[np.ndarray] | None:
        """The contiguous streams in memory, documents shuffled for this epoch; None to read the corpus in its order."""
        if not self.shuffle:
            return None
        starts = self.corpus.document_starts
        order = np.random.default_rng([self.seed, epoch, 2]).permutation(len(starts))
        ends = np.append(starts[1:], self.corpus.num_tokens)
        text = self.corpus.read(0, self.corpus.num_tokens)
        text = np.concatenate([text[starts[i] : ends[i]] for i in order])
        return [text[r * self.stream_length : (r + 1) * self.stream_length + 1] for r in range(self.rows)]

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
        """Tokens first to last of every stream (B, T), and their next tokens (B, T)."""
        if contiguous_streams is not None:
            block = np.stack([stream[first : last + 1] for stream in contiguous_streams])
        else:
            offsets = [row * self.stream_length for row in range(self.rows)]
            block = np.stack([self.corpus.read(o + first, o + last + 1) for o in offsets])
        text = torch.from_numpy(block.astype(np.int64))
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class ScatteredStream:
    """Windows of `bptt` tokens from random places of a corpus, with the next token as the target.

    For encoders without state across windows. Contiguous streams would cost accuracy: consecutive batches from the same
    few documents, to which a new model overfits (research/lab-notes.md). Windows overlap by one token, a target and
    then an input; each epoch cuts them at other offsets. Tokens before the first and after the last whole window of an
    epoch are skipped.

    Args:
        corpus: The tokens.
        rows: Batch size.
        bptt: Tokens of a window.
        seed: Seed of offsets and order.

    Raises:
        UserError: The corpus has fewer than two tokens.
    """

    stateful = False

    def __init__(self, corpus: TokenSource, *, rows: int = 64, bptt: int = 70, seed: int = 0) -> None:
        _validate_length(corpus)
        self.corpus, self.rows, self.seed = corpus, rows, seed
        # A tiny corpus still gives a batch or two.
        self.bptt = max(1, min(bptt, (corpus.num_tokens - 1) // 2))
        self._plan = PerEpoch(self._draw_plan)

    def _draw_plan(self, epoch: int) -> np.ndarray:
        """Start of the epoch's windows, in order."""
        generator = np.random.default_rng([self.seed, epoch, 6])
        last = self.corpus.num_tokens - 1
        shift = int(generator.integers(min(self.bptt, last - self.bptt + 1)))
        return generator.permutation(np.arange(shift, last - self.bptt + 1, self.bptt))

    def length(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)) // self.rows)

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        starts = self._plan(epoch)
        for first in range(start * self.rows, len(starts), self.rows):
            window_starts = starts[first : first + self.rows].tolist()
            text = np.stack(
                [self.corpus.read(window_start, window_start + self.bptt + 1) for window_start in window_starts]
            ).astype(np.int64)
            ids, targets = torch.from_numpy(text[:, :-1].copy()), torch.from_numpy(text[:, 1:].copy())
            yield Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets)


def _validate_length(corpus: TokenSource) -> None:
    if corpus.num_tokens < 2:
        remedy = "Check that the files hold text."
        raise UserError(f"{corpus.num_tokens} tokens are too few to train a language model.", remedy=remedy)


class BothEndsStream(LanguageModelStream):
    """The contiguous streams of a LanguageModelStream from both ends at once, for a forward and a backward language
    model.

    While one model reads a window at some distance from the beginning of its stream (`Batch.ids`), the other reads one
    at the same distance from the end, backwards (`Batch.from_right`): each continues from its own state and sees every
    token of an epoch. Peters et al. 2018's code instead goes through sentences in one order and reverses each.

    Targets (B, T, 2) are the next token of the first model and the previous one of the second.

    Args:
        corpus: The tokens.
        character_ids: Character encodings (V, C) of the vocabulary; a batch contains those of its words, after an empty
            one.
        settings: Arguments of LanguageModelStream.
    """

    def __init__(self, corpus: TokenSource, character_ids: np.ndarray, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.character_ids = torch.from_numpy(character_ids.astype(np.int64))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        borders, contiguous_streams = self._windows(epoch), self._contiguous_streams(epoch)
        nothing = torch.zeros_like(self.character_ids[:1])
        for first, last in zip(borders[start:-1].tolist(), borders[start + 1 :].tolist(), strict=True):
            ids, following = self._window(contiguous_streams, first, last)
            previous, from_right = self._window(
                contiguous_streams, self.stream_length - last, self.stream_length - first
            )
            words, indices = torch.stack([ids, from_right]).unique(return_inverse=True)
            yield Batch(
                ids=indices[0] + 1,
                mask=torch.ones_like(ids, dtype=torch.bool),
                targets=torch.stack([following, previous], dim=2),
                character_ids=torch.cat([nothing, self.character_ids[words]]),
                from_right=indices[1] + 1,
            )


class ExampleStream:
    """Labelled texts in random batches of similar length.

    Args:
        sequences: Token ids of N texts.
        targets: Targets, first dimension N.
        pad_id: Id of padding positions.
        rows: Batch size.
        tokens: Most positions of a batch.
        seed: Seed of the order.
    """

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
        self._plan = PerEpoch(self._draw_plan)

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


class MixedStream(ExampleStream):
    """Labelled texts in random batches of even size, whatever their lengths.

    A contrastive loss compares the texts of a batch: among texts of one length it would learn what tells these apart,
    and a small last batch would have little to compare.
    """

    def _draw_plan(self, epoch: int) -> list[list[int]]:
        count = len(self.sequences)
        order = np.random.default_rng([self.seed, epoch, 3]).permutation(count)
        longest = max(1, max((len(s) for s in self.sequences), default=1))
        rows = max(1, min(self.rows, self.tokens // longest))
        return [part.tolist() for part in np.array_split(order, max(1, round(count / rows))) if len(part)]

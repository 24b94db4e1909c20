"""Texts as sequences of token ids: one or a pair, cut to what is read, and grouped into batches. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, Pair, reads
from textgraft.text.tokenizer import PairMarks, Tokenizer

Direction = Literal["left", "right", "both"]
"""What a position may attend to: what came before it, what comes after, or both."""
FEW, LEAST_SHARE = 16, 0.75
"""Of `budget_batches`."""


@dataclass(frozen=True)
class PairIds:
    """Two texts' token ids, int (T1,) and (T2,), that are read as one sequence, and the marks around them."""

    first: np.ndarray
    second: np.ndarray
    marks: PairMarks

    def __len__(self) -> int:
        return self.start + len(self.second) + len(self.marks.after)

    @property
    def start(self) -> int:
        """Where the second text begins."""
        return len(self.marks.before) + len(self.first) + len(self.marks.between)

    @property
    def ids(self) -> np.ndarray:
        marks = self.marks
        return np.concatenate([marks.before, self.first, marks.between, self.second, marks.after]).astype(np.int32)

    def in_both_orders(self) -> Rows:
        """The pair as it is and the other way round: neither of two similar sentences comes first."""
        return Rows((self, replace(self, first=self.second, second=self.first)))


@dataclass(frozen=True)
class Rows:
    """Several sequences that make one example: a pair in both orders, or the options of a question."""

    rows: tuple[PairIds, ...]

    def __len__(self) -> int:
        """The positions that they take when padded, which is what a budget of tokens is about."""
        return len(self.rows) * max(map(len, self.rows))


TokenIds = np.ndarray | PairIds | Rows
"""One example as an encoder reads it: token ids (T,), or for one that reads spellings their characters (T, 50)."""


@dataclass(frozen=True)
class Truncation:
    """How much text a model never saw because documents were longer than it reads."""

    texts: int
    cut_texts: int
    tokens: int
    lost_tokens: int

    @property
    def share(self) -> float:
        """Of all tokens, how many were lost."""
        return self.lost_tokens / max(1, self.tokens)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> tuple[list[TokenIds], Truncation]:
    """The texts' token ids, each at most `max_tokens`, and what this cut off.

    A long text keeps its first quarter of the limit and its last three: reviews and articles say what they are at
    the beginning and what they think at the end (Sun et al. 2019, arXiv:1905.05583, "head + tail"). A Pair becomes
    PairIds, whose marks are kept: the longer text is cut until both are of one length, then both (BERT cuts ends, we
    cut as above). A Choice becomes Rows, a pair for each option. Raises UserError where `max_tokens` leaves no room
    for two texts.
    """
    if reads(texts) == "texts":
        sequences = tokenizer.encode_batch(texts)
        cut: list[TokenIds] = [_cut(s, max_tokens) for s in sequences]
        return cut, _truncation([len(s) for s in sequences], [len(s) for s in cut])
    bundles = [text.pairs if isinstance(text, Choice) else (_pair(text, i),) for i, text in enumerate(texts)]
    whole = _encoded_pairs(tokenizer, [pair for bundle in bundles for pair in bundle])
    kept = [cut_pair(pair, max_tokens) for pair in whole]
    pairs = iter(kept)
    found = [tuple(next(pairs) for _ in bundle) for bundle in bundles]
    examples: list[TokenIds] = [
        Rows(rows) if isinstance(text, Choice) else rows[0] for text, rows in zip(texts, found, strict=True)
    ]
    return examples, _truncation([len(pair) for pair in whole], [len(pair) for pair in kept])


def _pair(text: str, index: int) -> Pair:
    if isinstance(text, Pair):
        return text
    raise UserError(f"text {index + 1} is a single text among pairs.", remedy="Give two texts for each.")


def _encoded_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[PairIds]:
    bodies, marks = (
        tokenizer.bodies([text for pair in pairs for text in (pair.first, pair.second)]),
        tokenizer.pair_marks,
    )
    return [PairIds(a, b, marks) for a, b in zip(bodies[::2], bodies[1::2], strict=True)]


def cut_pair(pair: PairIds, max_tokens: int) -> PairIds:
    """The pair with no more than `max_tokens`, marks among them; the shorter text loses only what is over half.

    Raises UserError where there is no room for a token of each text.
    """
    room = max_tokens - (len(pair) - len(pair.first) - len(pair.second))
    if room < 2:
        raise UserError(f"{max_tokens} tokens leave no room for two texts.", remedy="Raise max_tokens.")
    a, b = len(pair.first), len(pair.second)
    if a + b > room:
        a, b = (min(a, max(room - b, (room + 1) // 2)), min(b, max(room - a, room // 2)))
    return PairIds(_cut(pair.first, a), _cut(pair.second, b), pair.marks)


def _cut(ids: np.ndarray, most: int) -> np.ndarray:
    """No more than `most` ids: the first quarter of them from the beginning, the rest from the end."""
    head = most // 4
    return ids if len(ids) <= most else np.concatenate([ids[:head], ids[len(ids) - most + head :]])


def _truncation(before: Sequence[int], after: Sequence[int]) -> Truncation:
    lost = [a - b for a, b in zip(before, after, strict=True) if a > b]
    return Truncation(len(before), len(lost), sum(before), sum(lost))


def numbered(sequences: Sequence[np.ndarray], first: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Spellings (T, C) as numbers of the distinct words among them, from `first` on, in the order in which they come.

    The second are the spellings (U, C) int64 by number, zeros below `first`.
    """
    places: dict[bytes, int] = {}
    rows = [np.ascontiguousarray(sequence, dtype=np.int16) for sequence in sequences]
    ids = [np.array([places.setdefault(word.tobytes(), len(places) + first) for word in row]) for row in rows]
    words = np.frombuffer(b"".join(places), dtype=np.int16).reshape(len(places), -1).astype(np.int64)
    return ids, np.concatenate([np.zeros((first, words.shape[1]), dtype=np.int64), words])


def budget_batches(lengths: Sequence[int], *, tokens: int, rows: int) -> list[list[int]]:
    """Indices grouped so that each padded batch holds at most `tokens` positions and `rows` texts, longest first.

    A batch of FEW texts takes no more that are shorter than LEAST_SHARE of its longest, so that padding is a small part
    of it even where lengths differ widely. The longest batch comes first so that memory peaks at once.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    for index in order:
        current = batches[-1] if batches else []
        longest = lengths[current[0]] if current else 0
        alike = len(current) < FEW or lengths[index] >= LEAST_SHARE * longest
        if current and alike and len(current) < rows and (len(current) + 1) * longest <= tokens:
            current.append(index)
        else:
            batches.append([index])
    return batches


def shuffled_batches(
    lengths: Sequence[int], *, rows: int, generator: np.random.Generator, tokens: int | None = None
) -> list[list[int]]:
    """One epoch of training batches: random order, yet texts of like length together.

    Texts are shuffled, cut into pools of 50 batches, sorted by length inside each pool, and the batches shuffled
    again (the bucketing that fastai's SortishSampler made popular). A pure function of the generator's state. A
    `tokens` budget divides a batch whose padded size would exceed it, so that long texts cannot exhaust memory. Batch
    normalisation cannot learn from a single text, so one that is left over joins another batch (unless `rows` is 1).
    """
    least = min(rows, 2)
    order = generator.permutation(len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), rows * 50):
        pool = sorted(order[start : start + rows * 50], key=lambda i: (-lengths[i], i))
        for first in range(0, len(pool), rows):
            batch = [int(i) for i in pool[first : first + rows]]
            width = lengths[batch[0]]
            most = len(batch) if tokens is None else max(least, tokens // max(1, width))
            for piece in (batch[i : i + most] for i in range(0, len(batch), most)):
                if len(piece) >= least or not batches:
                    batches.append(piece)
                else:
                    batches[-1] += piece
    generator.shuffle(batches)
    return batches

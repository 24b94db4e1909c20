"""Token sequences of texts: single or paired, truncated, and grouped into batches. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, Pair, reads
from textgraft.text.tokenizer import PairMarks, Tokenizer

Direction = Literal["left", "right", "both"]
"""Positions that a position may attend to: those before it ("left"), those after it ("right"), or both."""
MIN_BATCH_TEXTS, MIN_LENGTH_RATIO = 16, 0.75
"""Thresholds of `budget_batches`."""


@dataclass(frozen=True)
class PairIds:
    """Token ids (T1,) and (T2,), int, of two texts that form one sequence, and the special tokens around them."""

    first: np.ndarray
    second: np.ndarray
    marks: PairMarks

    def __len__(self) -> int:
        return self.start + len(self.second) + len(self.marks.after)

    @property
    def start(self) -> int:
        """Position of the second text's first token."""
        return len(self.marks.before) + len(self.first) + len(self.marks.between)

    @property
    def ids(self) -> np.ndarray:
        """All ids with the special tokens, int32."""
        marks = self.marks
        return np.concatenate([marks.before, self.first, marks.between, self.second, marks.after]).astype(np.int32)

    def in_both_orders(self) -> Rows:
        """The pair in both orders, for symmetric tasks such as similarity."""
        return Rows((self, replace(self, first=self.second, second=self.first)))


@dataclass(frozen=True)
class Rows:
    """Several sequences of one example: a pair in both orders, or the options of a question."""

    rows: tuple[PairIds, ...]

    def __len__(self) -> int:
        """Number of positions after padding, which counts against a token budget."""
        return len(self.rows) * max(map(len, self.rows))


TokenIds = np.ndarray | PairIds | Rows
"""One example as model input: token ids (T,), or character encodings (T, 50)."""


@dataclass(frozen=True)
class Truncation:
    """Amount of text that was cut off because documents were longer than the limit."""

    texts: int
    cut_texts: int
    tokens: int
    lost_tokens: int

    @property
    def share(self) -> float:
        """Share of all tokens that were lost."""
        return self.lost_tokens / max(1, self.tokens)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> tuple[list[TokenIds], Truncation]:
    """Tokenize texts and truncate them.

    A long text keeps the first quarter of the limit and, from its end, the other three: reviews and articles name their
    subject at the beginning and their verdict at the end (Sun et al. 2019, arXiv:1905.05583, "head + tail"). Of a pair
    the longer text is cut first, until both have the same length (BERT cuts ends; here as above).

    Args:
        tokenizer: The tokenizer.
        texts: N texts, `Pair`s or `Choice`s.
        max_tokens: Most tokens of a sequence, special tokens included.

    Returns:
        Token ids, PairIds or, with a pair per option, Rows for each text, and how much was cut off.

    Raises:
        UserError: `max_tokens` leaves no room for two texts.
    """
    if reads(texts) == "texts":
        sequences = tokenizer.encode_batch(texts)
        truncated: list[TokenIds] = [_cut(s, max_tokens) for s in sequences]
        return truncated, _truncation([len(s) for s in sequences], [len(s) for s in truncated])
    bundles = [text.pairs if isinstance(text, Choice) else (_pair(text, i),) for i, text in enumerate(texts)]
    whole = _encoded_pairs(tokenizer, [pair for bundle in bundles for pair in bundle])
    truncated_pairs = [cut_pair(pair, max_tokens) for pair in whole]
    pairs = iter(truncated_pairs)
    bundles_of_pairs = [tuple(next(pairs) for _ in bundle) for bundle in bundles]
    examples: list[TokenIds] = [
        Rows(rows) if isinstance(text, Choice) else rows[0] for text, rows in zip(texts, bundles_of_pairs, strict=True)
    ]
    return examples, _truncation([len(pair) for pair in whole], [len(pair) for pair in truncated_pairs])


def prepared_texts(texts: Sequence[str], before: str, *, lowercase: bool = False) -> list[str]:
    """Texts with `before` in front, in lower case if asked for; pairs and options are left as they are."""
    if not before and not lowercase:
        return list(texts)
    prompted = [before + text if type(text) is str else text for text in texts]
    return [text.lower() if lowercase and type(text) is str else text for text in prompted]


def encode_beginnings(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> tuple[list[TokenIds], Truncation]:
    """Tokenize texts and drop what comes after the limit, but not the special tokens at the end.

    Sentence encoders were trained so. Pairs are truncated as `encode_texts` does, and the second value is as there.

    Raises:
        UserError: `max_tokens` leaves no room for two texts.
    """
    if reads(texts) != "texts":
        return encode_texts(tokenizer, texts, max_tokens)
    end = len(tokenizer.pair_marks.after)

    def beginning(ids: np.ndarray) -> np.ndarray:
        if len(ids) <= max_tokens:
            return ids
        return np.concatenate([ids[: max(0, max_tokens - end)], ids[len(ids) - end :]])

    sequences = tokenizer.encode_batch(texts)
    truncated: list[TokenIds] = [beginning(ids) for ids in sequences]
    return truncated, _truncation([len(s) for s in sequences], [len(s) for s in truncated])


def encoded_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    max_tokens: int,
    *,
    beginnings: bool = False,
    before: str = "",
    lowercase: bool = False,
) -> list[TokenIds]:
    """Token ids of texts as a model takes them: prepared, tokenized and truncated.

    Args:
        tokenizer: The tokenizer.
        texts: N texts, `Pair`s or `Choice`s.
        max_tokens: Most tokens of a sequence.
        beginnings: A long text keeps its beginning (`encode_beginnings`), else more of its end (`encode_texts`).
        before, lowercase: As `prepared_texts`.
    """
    encode = encode_beginnings if beginnings else encode_texts
    return encode(tokenizer, prepared_texts(texts, before, lowercase=lowercase), max_tokens)[0]


def _pair(text: str, index: int) -> Pair:
    if isinstance(text, Pair):
        return text
    raise UserError(f"text {index + 1} is a single text among pairs.", remedy="Pass two texts for each.")


def _encoded_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[PairIds]:
    bodies, marks = (
        tokenizer.bodies([text for pair in pairs for text in (pair.first, pair.second)]),
        tokenizer.pair_marks,
    )
    return [PairIds(a, b, marks) for a, b in zip(bodies[::2], bodies[1::2], strict=True)]


def cut_pair(pair: PairIds, max_tokens: int) -> PairIds:
    """Truncate a pair to `max_tokens`, special tokens included; the shorter text loses only what exceeds half.

    Raises UserError where there is no room for a token of each text.
    """
    budget = max_tokens - (len(pair) - len(pair.first) - len(pair.second))
    if budget < 2:
        raise UserError(f"{max_tokens} tokens leave no room for two texts.", remedy="Raise max_tokens.")
    a, b = len(pair.first), len(pair.second)
    if a + b > budget:
        a, b = (min(a, max(budget - b, (budget + 1) // 2)), min(b, max(budget - a, budget // 2)))
    return PairIds(_cut(pair.first, a), _cut(pair.second, b), pair.marks)


def _cut(ids: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` ids: the first quarter from the beginning, the rest from the end."""
    head = limit // 4
    return ids if len(ids) <= limit else np.concatenate([ids[:head], ids[len(ids) - limit + head :]])


def _truncation(before: Sequence[int], after: Sequence[int]) -> Truncation:
    lost = [a - b for a, b in zip(before, after, strict=True) if a > b]
    return Truncation(len(before), len(lost), sum(before), sum(lost))


def number_distinct(sequences: Sequence[np.ndarray], first: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Number the distinct words of character-encoded texts.

    Args:
        sequences: Character encodings (T, C) of each text.
        first: First number to use.

    Returns:
        The word numbers (T,) of each text, in order of first occurrence, and the encodings (U, C), int64, by number,
        with zeros below `first`.
    """
    numbers: dict[bytes, int] = {}
    rows = [np.ascontiguousarray(sequence, dtype=np.int16) for sequence in sequences]
    ids = [np.array([numbers.setdefault(word.tobytes(), len(numbers) + first) for word in row]) for row in rows]
    words = np.frombuffer(b"".join(numbers), dtype=np.int16).reshape(len(numbers), -1).astype(np.int64)
    return ids, np.concatenate([np.zeros((first, words.shape[1]), dtype=np.int64), words])


def budget_batches(lengths: Sequence[int], *, tokens: int, rows: int) -> list[list[int]]:
    """Group texts into batches for inference, longest first.

    A batch of MIN_BATCH_TEXTS texts takes no more that are shorter than MIN_LENGTH_RATIO of its longest, which limits
    padding where lengths differ widely. With the longest batch first, memory peaks at once.

    Args:
        lengths: Number of tokens of each text.
        tokens: Most positions of a padded batch.
        rows: Most texts of a batch.

    Returns:
        Indices of the texts of each batch.

    >>> budget_batches([3, 9, 4], tokens=10, rows=8)
    [[1], [2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    for index in order:
        current = batches[-1] if batches else []
        longest = lengths[current[0]] if current else 0
        similar = len(current) < MIN_BATCH_TEXTS or lengths[index] >= MIN_LENGTH_RATIO * longest
        if current and similar and len(current) < rows and (len(current) + 1) * longest <= tokens:
            current.append(index)
        else:
            batches.append([index])
    return batches


def shuffled_batches(
    lengths: Sequence[int], *, rows: int, generator: np.random.Generator, tokens: int | None = None
) -> list[list[int]]:
    """Group texts into batches for one epoch of training: random order, similar lengths together.

    Texts are shuffled, cut into pools of 50 batches, sorted by length within each pool, and the batches shuffled again
    (the bucketing of fastai's SortishSampler). Batch normalisation cannot use a single text, so a remaining one joins
    another batch (unless `rows` is 1).

    Args:
        lengths: Number of tokens of each text.
        rows: Batch size.
        generator: Source of randomness; the result is a pure function of its state.
        tokens: Budget of positions: a batch that exceeds it is split.

    Returns:
        Indices of the texts of each batch.
    """
    min_size = min(rows, 2)
    order = generator.permutation(len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), rows * 50):
        pool = sorted(order[start : start + rows * 50], key=lambda i: (-lengths[i], i))
        for first in range(0, len(pool), rows):
            batch = [int(i) for i in pool[first : first + rows]]
            width = lengths[batch[0]]
            size = len(batch) if tokens is None else max(min_size, tokens // max(1, width))
            for piece in (batch[i : i + size] for i in range(0, len(batch), size)):
                if len(piece) >= min_size or not batches:
                    batches.append(piece)
                else:
                    batches[-1] += piece
    generator.shuffle(batches)
    return batches

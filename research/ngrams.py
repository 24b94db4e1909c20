"""Interpolated modified Kneser-Ney, one order after another in memory that grows with the tokens, not the n-grams kept.

The model is that of Chen & Goodman 1998 (§3, eq. 24-27), with the adjusted counts of Heafield et al. 2013 (§3.2, 3.3):

    p_n(w | h) = (a(h w) - D_n(a(h w))) / sum_v a(h v) + gamma_n(h) p_{n-1}(w | h without its first token)

where a is the raw count at the highest order and below it the number of different tokens seen before the n-gram, D_n
takes D1, D2 or D3+ from counts of 1, 2, and 3 or more, and gamma_n(h) is the share so taken. Below order 1 is the
uniform distribution over the vocabulary. A context that was never seen leaves p_{n-1} as it is.

No n-gram reaches across the start of a document (`bos_id`): it may only stand first, where the raw count replaces a
(nothing stands to the left), or last, as the token that ends the text before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PASS_TOKENS = 16_000_000
"""About so many n-grams are sorted at once: what a pass needs beside the tables."""
FALLBACK = (0.5, 1.0, 1.5)
"""D1, D2, D3+ where counts of counts give none: those that KenLM's --discount_fallback uses."""


@dataclass
class Table:
    """All n-grams of one order, sorted by context and token: their contexts' rows in the table below, their counts."""

    contexts: np.ndarray  # int32
    counts: np.ndarray  # int32


@dataclass
class Row:
    """Tokens in a row, and for each the n-gram of the present order that ends there: its row in the table, or -1."""

    tokens: np.ndarray  # unsigned, any width
    grams: np.ndarray  # int32
    begins: np.ndarray  # positions before which nothing is known

    def contexts(self, order: int, bos_id: int) -> np.ndarray:
        """For each position the row of the (order - 1)-gram before it, int32; -1 where it has no such context."""
        contexts = np.empty_like(self.grams)
        contexts[1:] = self.grams[:-1]
        if order > 2:
            contexts[1:][self.tokens[:-1] == bos_id] = -1
        contexts[self.begins] = -1
        return contexts


def log_probabilities(
    train: np.ndarray,
    held: np.ndarray,
    *,
    vocab_size: int,
    bos_id: int,
    order: int = 5,
    say: Callable[[str], None] = lambda text: None,
) -> np.ndarray:
    """Natural logarithms of the probabilities that a model of `train` (N,) gives every token of `held` (rows, length).

    Rows do not know each other; the first token of each is scored without a context. Float64, the shape of `held`.
    Takes some 35 bytes a training token. Raises ValueError for a training text of fewer than two tokens.
    """
    if len(train) < 2 or order < 1:
        raise ValueError("an n-gram model needs two tokens and an order of 1 or more")
    tokens = held.reshape(-1)
    text = Row(train, train.astype(np.int32), np.zeros(1, dtype=np.int64))
    asked = Row(tokens, tokens.astype(np.int32), np.arange(0, len(tokens), held.shape[1]))
    table = Table(np.zeros(vocab_size, dtype=np.int32), np.bincount(train, minlength=vocab_size).astype(np.int32))
    probs = np.full(len(tokens), 1.0 / vocab_size)
    before = np.zeros(len(tokens), dtype=np.int32)  # contexts of the present order; the empty one has row 0
    for n in range(2, order + 1):
        contexts = asked.contexts(n, bos_id)
        after, left, grams, wanted = _longer(text, asked, contexts, n, bos_id, len(table.counts), vocab_size)
        _adjust(table, left, unigrams=n == 2)
        say(_interpolate(table, n - 1, before, asked.grams, probs))
        table, text.grams, asked.grams, before = after, grams, wanted, contexts
    say(_interpolate(table, order, before, asked.grams, probs))
    return np.log(probs).reshape(held.shape)


def _longer(
    text: Row, asked: Row, held_contexts: np.ndarray, n: int, bos_id: int, size: int, vocab_size: int
) -> tuple[Table, np.ndarray, np.ndarray, np.ndarray]:
    """The table of n-grams with raw counts, how many different tokens stand to the left of each (n-1)-gram, and the
    rows of the n-grams at each position of both texts.

    One range of contexts after another is sorted, so that only a part of the keys exists at a time.
    """
    contexts = text.contexts(n, bos_id)
    grams, wanted = np.full(len(text.tokens), -1, dtype=np.int32), np.full(len(asked.tokens), -1, dtype=np.int32)
    left = np.zeros(size, dtype=np.int32)
    tables = [Table(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))]
    base = 0
    for low, high in _ranges(contexts, size):
        places = np.flatnonzero((contexts >= low) & (contexts < high))
        if not len(places):
            continue
        keys = contexts[places].astype(np.int64) * vocab_size + text.tokens[places]
        sorting = np.argsort(keys)
        keys, places = keys[sorting], places[sorting]
        new = np.append(True, keys[1:] != keys[:-1])
        grams[places] = base - 1 + np.cumsum(new, dtype=np.int64)
        firsts = np.flatnonzero(new)
        keys = keys[firsts]
        np.add.at(left, text.grams[places[firsts]], 1)
        counts = np.diff(np.append(firsts, len(places))).astype(np.int32)
        tables.append(Table((keys // vocab_size).astype(np.int32), counts))
        _find(keys, base, held_contexts, asked, (low, high), vocab_size, wanted)
        base += len(keys)
    joined = Table(*(np.concatenate([getattr(t, name) for t in tables]) for name in ("contexts", "counts")))
    return joined, left, grams, wanted


def _ranges(contexts: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Ranges of contexts (low, high) that hold about PASS_TOKENS n-grams each, from 0 to `size`."""
    passes = -(-len(contexts) // PASS_TOKENS)
    sample = np.sort(contexts[:: max(1, len(contexts) // 100_000)])
    cuts = sample[np.arange(1, passes) * len(sample) // passes] + 1
    borders = np.unique([0, *(int(cut) for cut in cuts if 0 < cut < size), size])
    return list(zip(borders[:-1].tolist(), borders[1:].tolist()))


def _find(
    keys: np.ndarray,
    base: int,
    contexts: np.ndarray,
    asked: Row,
    span: tuple[int, int],
    vocab_size: int,
    found: np.ndarray,
) -> None:
    """Note in `found` the rows of the held-out n-grams whose contexts lie in `span` and which are among the keys."""
    places = np.flatnonzero((contexts >= span[0]) & (contexts < span[1]))
    if len(places):
        looked = contexts[places].astype(np.int64) * vocab_size + asked.tokens[places]
        rows = np.minimum(np.searchsorted(keys, looked), len(keys) - 1)
        found[places] = np.where(keys[rows] == looked, base + rows, -1)


def _adjust(table: Table, left: np.ndarray, *, unigrams: bool) -> None:
    """Put the number of different left neighbours in the place of counts, but where nothing ever stands to the left."""
    table.counts = left if unigrams else np.where(left > 0, left, table.counts)


def discounts(counts: np.ndarray) -> tuple[float, float, float]:
    """D1, D2 and D3+ of n-grams with these counts (Chen & Goodman 1998, eq. 26), or FALLBACK where they do not exist.

    Small and sampled texts have orders where no n-gram has a count of 1 to 4, or more have a higher one than a lower,
    so that a discount comes out negative or larger than the count.
    """
    t1, t2, t3, t4 = (int(np.count_nonzero(counts == k)) for k in (1, 2, 3, 4))
    if not (t1 and t2 and t3 and t4):
        return FALLBACK
    y = t1 / (t1 + 2 * t2)
    found = (1 - 2 * y * t2 / t1, 2 - 3 * y * t3 / t2, 3 - 4 * y * t4 / t3)
    return found if all(0 < d < k for k, d in enumerate(found, start=1)) else FALLBACK


def _interpolate(table: Table, n: int, contexts: np.ndarray, grams: np.ndarray, probs: np.ndarray) -> str:
    """Turn `probs` of order n - 1 into those of order n in place; says how many n-grams there are.

    A row's children lie side by side in the table, so that their sums are sums of slices.
    """
    taken = np.array([0.0, *discounts(table.counts)])
    parents, which = np.unique(contexts, return_inverse=True)
    slices = np.stack([np.searchsorted(table.contexts, parents, side=side) for side in ("left", "right")], axis=1)
    known = (parents >= 0) & (slices[:, 0] < slices[:, 1])

    def sums(values: np.ndarray) -> np.ndarray:
        padded = np.append(values, values.dtype.type(0))
        totals = np.zeros(len(parents), dtype=np.int64)
        totals[known] = np.add.reduceat(padded, slices[known].reshape(-1), dtype=np.int64)[::2] if known.any() else 0
        return totals

    total = np.maximum(1, sums(table.counts))
    bins = [sums(np.minimum(table.counts, 3) == k) for k in (1, 2, 3)]
    gamma = np.where(known, sum(d * b for d, b in zip(taken[1:], bins)) / total, 1.0)
    counts = np.zeros(len(grams), dtype=np.int64)
    counts[grams >= 0] = table.counts[grams[grams >= 0]]
    own = np.maximum(0.0, counts - taken[np.minimum(counts, 3)]) / total[which]
    probs[:] = np.where(known[which], own, 0.0) + gamma[which] * probs
    shown = ", ".join(f"{d:.3f}" for d in taken[1:])
    return f"order {n}: {len(table.counts):,} n-grams, discounts {shown}"

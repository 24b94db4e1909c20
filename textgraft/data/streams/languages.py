"""Multilingual text: sampling rates, a sample for the tokenizer, and a mixed corpus."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from textgraft.data.streams.shards import Corpus

MAX_REPEATS = 40.0
"""Upper limit of repetitions: beyond it repeating teaches nothing (Muennighoff et al. 2023, arXiv:2305.16264, who find
four repetitions as good as new text and forty worthless).
"""


def smoothed_shares(sizes: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Sampling share p_i ~ n_i ** exponent of each language.

    Exponent 1 gives the shares of the text, 0 equal ones; multilingual BERT uses 0.7 (Devlin et al., multilingual.md in
    their repository).

    Args:
        sizes: Size n_i > 0 of each language's text.
        exponent: The exponent.

    >>> smoothed_shares({"en": 4, "is": 1}, 0.5)
    {'en': 0.6666666666666666, 'is': 0.3333333333333333}
    """
    powers = {language: float(size) ** exponent for language, size in sizes.items()}
    total = sum(powers.values())
    return {language: power / total for language, power in powers.items()}


def repeats(sizes: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Repetitions of each language's text that give the smoothed shares without leaving any text out.

    The largest is read once, others (n_max / n_i) ** (1 - exponent) times, up to MAX_REPEATS. BERT's authors also read
    less of the largest.
    """
    rates = {language: share / sizes[language] for language, share in smoothed_shares(sizes, exponent).items()}
    lowest = min(rates.values())
    return {language: min(MAX_REPEATS, rate / lowest) for language, rate in rates.items()}


def sample(texts: Mapping[str, Iterable[str]], sizes: Mapping[str, int], rates: Mapping[str, float]) -> Iterator[str]:
    """A stream with `rates` times each language's characters, to within half a text.

    No text is repeated more often than its rate rounded up. Every prefix has the languages in the shares of the whole,
    to within a text of each. The stream is deterministic.

    Args:
        texts: Texts of each language.
        sizes: Total characters of each language.
        rates: Repetitions of each language.
    """
    streams = {language: iter(language_texts) for language, language_texts in texts.items()}
    queue = [(0.0, language) for language in sorted(streams)]
    read, written = dict.fromkeys(streams, 0), dict.fromkeys(streams, 0.0)
    while queue:
        _, language = heapq.heappop(queue)
        text = next(streams[language], None)
        if text is None:
            continue
        read[language] += len(text)
        for _ in range(math.ceil(rates[language])):  # at most, or a short text would compensate for a long one
            if text and written[language] + len(text) / 2 <= rates[language] * read[language]:
                written[language] += len(text)
                yield text
        heapq.heappush(queue, (read[language] / sizes[language], language))


class Mixture:
    """Documents of several corpora in random order as one sequence of N tokens; nothing is copied.

    Of corpus i `rates[i]` times its tokens are included, to within half a document: every document as often as the rate
    rounded down, and a random part of them once more. It has the attributes of a Corpus: `document_starts` (documents,)
    int64, and `num_words` and `num_characters` in proportion to the tokens; `tokens_of[i]` are the tokens of corpus i.
    The order is a function of the seed.
    """

    def __init__(self, corpora: Sequence[Corpus], rates: Sequence[float], *, seed: int) -> None:
        generator = np.random.default_rng([seed, 6])
        samples = [_sampled_documents(corpus, rate, generator) for corpus, rate in zip(corpora, rates, strict=True)]
        lengths = np.concatenate([corpus_lengths[documents] for corpus_lengths, documents in samples])
        corpus_index = np.repeat(np.arange(len(corpora)), [len(documents) for _, documents in samples])
        offsets = [corpus.document_starts[documents] for corpus, (_, documents) in zip(corpora, samples, strict=True)]
        order = generator.permutation(len(lengths))
        self._corpora, self._corpus_index, self._offsets = (
            list(corpora),
            corpus_index[order].astype(np.int32),
            np.concatenate(offsets)[order],
        )
        self._ends = np.cumsum(lengths[order])
        self.document_starts = self._ends - lengths[order]
        self.num_documents, self.num_tokens = len(lengths), int(lengths.sum())
        self.tokens_of = np.bincount(corpus_index, weights=lengths, minlength=len(corpora)).astype(np.int64)
        times = self.tokens_of / [max(1, corpus.num_tokens) for corpus in corpora]
        self.num_words = round(float(np.dot(times, [corpus.num_words for corpus in corpora])))
        self.num_characters = round(float(np.dot(times, [corpus.num_characters for corpus in corpora])))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Ids start to stop, (stop - start,) uint16 or uint32. Raises IndexError outside."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of a mixture of {self.num_tokens}")
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self.document_starts, stop, side="left"))
        parts = [self._corpora[0].read(0, 0)]
        for document in range(first, last):
            begin = max(start, int(self.document_starts[document]))
            size = min(stop, int(self._ends[document])) - begin
            offset = int(self._offsets[document]) + begin - int(self.document_starts[document])
            parts.append(self._corpora[self._corpus_index[document]].read(offset, offset + size))
        return np.concatenate(parts)


def _sampled_documents(corpus: Corpus, rate: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of a corpus's documents, and the indices of those to read, with repetitions."""
    lengths = np.diff(np.append(corpus.document_starts, corpus.num_tokens))
    order = generator.permutation(len(lengths))
    middles = np.cumsum(lengths[order]) - lengths[order] / 2
    once_more = order[middles < (rate - int(rate)) * corpus.num_tokens]
    return lengths, np.concatenate([np.tile(np.arange(len(lengths)), int(rate)), once_more])

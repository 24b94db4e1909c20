"""Text of several languages: how often each is read, a sample for the tokenizer, and a corpus that mixes them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from textgraft.data.streams.shards import Corpus

MAX_REPEATS = 40.0
"""No text is read more often, whatever its share should be: from there on repeating teaches nothing (Muennighoff et al.
2023, arXiv:2305.16264, who find four times as good as new text and forty worthless)."""


def smoothed_shares(sizes: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Each language's share p_i ~ n_i ** S of what is read, for sizes n_i above 0.

    With S = 1 the shares are those of the text, with S = 0 all alike; the multilingual BERT's S is 0.7 (Devlin et al.,
    multilingual.md beside their code).
    """
    powers = {language: float(size) ** exponent for language, size in sizes.items()}
    whole = sum(powers.values())
    return {language: power / whole for language, power in powers.items()}


def repeats(sizes: Mapping[str, int], exponent: float) -> dict[str, float]:
    """How often each language's text is read, so that the shares are the smoothed ones and no text is left out.

    The largest is read once and the others (n_max / n_i) ** (1 - S) times, up to MOST_REPEATS. BERT's authors also read
    less of the largest.
    """
    rates = {language: share / sizes[language] for language, share in smoothed_shares(sizes, exponent).items()}
    least = min(rates.values())
    return {language: min(MAX_REPEATS, rate / least) for language, rate in rates.items()}


def sample(texts: Mapping[str, Iterable[str]], sizes: Mapping[str, int], rates: Mapping[str, float]) -> Iterator[str]:
    """A stream of `rates` of each language's characters, of which there are `sizes` in all, to within half a text.

    No text is in it more often than the next whole number above its rate. Any beginning of the stream has the languages
    in the shares of the whole, to within a text of each, so that a reader who stops early has seen them all. Nothing is
    drawn: the same texts give the same stream.
    """
    streams = {language: iter(found) for language, found in texts.items()}
    queue = [(0.0, language) for language in sorted(streams)]
    read, given = dict.fromkeys(streams, 0), dict.fromkeys(streams, 0.0)
    while queue:
        _, language = heapq.heappop(queue)
        text = next(streams[language], None)
        if text is None:
            continue
        read[language] += len(text)
        for _ in range(math.ceil(rates[language])):  # and no more, or a short text would make up for a long one
            if text and given[language] + len(text) / 2 <= rates[language] * read[language]:
                given[language] += len(text)
                yield text
        heapq.heappush(queue, (read[language] / sizes[language], language))


class Mixture:
    """Documents of several corpora in a drawn order, read as one row of N tokens; nothing is copied.

    Of corpus i `rates[i]` of the tokens are in it, to within half a document: every document as often as the whole
    number below the rate, and a drawn part of them once more; `tokens_of[i]` says how many tokens that are. A corpus in
    all but where its tokens lie: `document_starts` (documents,) int64, and `num_words` and `num_characters` in
    proportion to the tokens. The same seed, the same order.
    """

    def __init__(self, corpora: Sequence[Corpus], rates: Sequence[float], *, seed: int) -> None:
        generator = np.random.default_rng([seed, 6])
        drawn = [_drawn(corpus, rate, generator) for corpus, rate in zip(corpora, rates, strict=True)]
        lengths = np.concatenate([corpus_lengths[chosen] for corpus_lengths, chosen in drawn])
        of = np.repeat(np.arange(len(corpora)), [len(chosen) for _, chosen in drawn])
        places = [corpus.document_starts[chosen] for corpus, (_, chosen) in zip(corpora, drawn, strict=True)]
        order = generator.permutation(len(lengths))
        self._corpora, self._of, self._places = list(corpora), of[order].astype(np.int32), np.concatenate(places)[order]
        self._ends = np.cumsum(lengths[order])
        self.document_starts = self._ends - lengths[order]
        self.num_documents, self.num_tokens = len(lengths), int(lengths.sum())
        self.tokens_of = np.bincount(of, weights=lengths, minlength=len(corpora)).astype(np.int64)
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
            place = int(self._places[document]) + begin - int(self.document_starts[document])
            parts.append(self._corpora[self._of[document]].read(place, place + size))
        return np.concatenate(parts)


def _drawn(corpus: Corpus, rate: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of a corpus's documents, and which of them are read, each as often as it is."""
    lengths = np.diff(np.append(corpus.document_starts, corpus.num_tokens))
    order = generator.permutation(len(lengths))
    middles = np.cumsum(lengths[order]) - lengths[order] / 2
    once_more = order[middles < (rate - int(rate)) * corpus.num_tokens]
    return lengths, np.concatenate([np.tile(np.arange(len(lengths)), int(rate)), once_more])

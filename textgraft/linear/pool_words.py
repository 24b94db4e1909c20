"""What a pool of texts teaches of its words: how frequent each is, and a vector, counted or given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.extmath import randomized_svd

from textgraft.core.errors import UserError
from textgraft.linear.ngram_counts import TEXTS
from textgraft.linear.ngrams import WORD, is_space_separated
from textgraft.text.tokenizer import Tokenizer
from textgraft.word_embeddings.word_vectors import WordVectors

WINDOW = 5
VOCABULARY = 30_000
GIVEN_VOCABULARY = 50_000
"""Words that are kept of vectors that come from elsewhere: those of the pool, then the most frequent of their own."""
MIN_COUNT = 5
SUBSAMPLE = 1e-4
CONTEXT_POWER = 0.75
SUBWORDS = 8_000
UNSPACED_CHARACTERS = 1_000_000
"""From how much of a text without spaces subwords are learned; half a minute."""
AXES_FROM = 10_000
"""Texts whose principal axes are taken."""


@dataclass(frozen=True)
class PoolWords:
    """The words of a pool by falling frequency, their shares (V,) of it and vectors (V, D) of length 1; the texts' ids.

    Word vectors are the truncated SVD of the positive pointwise mutual information of words at most five apart, U √Σ,
    with frequent words sub-sampled and contexts smoothed as in word2vec (Levy & Goldberg 2014; Levy, Goldberg & Dagan
    2015), or they are `given`. `sample` numbers AXES_FROM texts, drawn at random.
    """

    cutter: Cutter
    words: list[str]
    share: NDArray[np.float64]
    vectors: NDArray[np.float32]
    documents: list[NDArray[np.int32]]
    sample: NDArray[np.int64]
    about: str

    @classmethod
    def of(
        cls, texts: Sequence[str], *, dimensions: int = 200, seed: int = 0, given: WordVectors | None = None
    ) -> Self:
        """Of at most TEXTS of the texts. Raises UserError for too few words, and few with a given vector."""
        generator = np.random.default_rng(seed)
        if len(texts) > TEXTS:
            texts = [texts[i] for i in np.sort(generator.choice(len(texts), TEXTS, replace=False))]
        cutter = Cutter.of(texts) if given is None else Cutter(None)
        found = Counter(word for text in texts for word in cutter.cut(text))
        words = _frequent(found) if given is None else _with_vectors(found, given)
        share = np.array([found[word] for word in words]) / sum(found.values())
        ids = {word: i for i, word in enumerate(words)}
        documents = [encode(cutter.cut(text), ids) for text in texts]
        vectors = _counted(documents, share, dimensions, generator, seed) if given is None else given.vectors(words)
        vectors = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float32)
        sample = np.sort(generator.permutation(len(documents))[:AXES_FROM])
        about = f"{len(words):,} {cutter.about}' vectors ({'PMI' if given is None else 'given'})"
        return cls(cutter, words, share, vectors, documents, sample, about)

    def counts(self) -> csr_matrix:
        """How often each text has each word (N, V)."""
        starts = np.cumsum([0, *map(len, self.documents)])
        ids = np.concatenate(self.documents)
        found = csr_matrix((np.ones(len(ids), np.float32), ids, starts), shape=(len(self.documents), len(self.words)))
        found.sum_duplicates()
        return found


def encode(words: Sequence[str], ids: Mapping[str, int]) -> NDArray[np.int32]:
    """The numbers of those words that have one."""
    return np.array([ids[word] for word in words if word in ids], dtype=np.int32)


def _frequent(found: Counter[str]) -> list[str]:
    kept = [word for word in _by_frequency(found) if found[word] >= MIN_COUNT][:VOCABULARY]
    if len(kept) < 2:
        raise UserError("the unlabelled texts are too few to learn words from.", remedy="Give more of them.")
    return kept


def _with_vectors(found: Counter[str], given: WordVectors) -> list[str]:
    seen = [word for word in _by_frequency(found) if given.vector(word) is not None]
    if len(seen) < 2:
        message = f"of the {len(found):,} words of the unlabelled texts {len(seen)} have a vector."
        raise UserError(message, remedy="Name word vectors of the texts' language.")
    own = (word for word in given.words if word not in found)
    return [*seen, *islice(own, max(0, GIVEN_VOCABULARY - len(seen)))][:GIVEN_VOCABULARY]


def _by_frequency(found: Counter[str]) -> list[str]:
    return sorted(found, key=lambda word: (-found[word], word))


def _counted(
    documents: list[NDArray[np.int32]], share: NDArray, dimensions: int, generator: np.random.Generator, seed: int
) -> NDArray[np.float64]:
    """(V, D) vectors of the words, from who stands near whom in the pool."""
    keep = np.minimum(1, np.sqrt(SUBSAMPLE / share))
    thinned = [ids[generator.random(len(ids)) < keep[ids]] for ids in documents]
    matrix = _mutual_information(_neighbours(thinned, len(share)))
    rank = max(1, min(dimensions, len(share) - 1))
    left, values, _ = randomized_svd(matrix, rank, n_iter=3, random_state=seed)
    return np.asarray(left * np.sqrt(values))


class Cutter:
    """How a text is cut: at spaces and punctuation, or into subwords of the pool's own."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.about = "subwords" if tokenizer else "words"
        self._analyse = TfidfVectorizer(token_pattern=WORD).build_analyzer()

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Into words if spaces part the texts' words, else into subwords that the texts teach."""
        if is_space_separated(texts):
            return cls(None)
        return cls(Tokenizer.train(texts, vocab_size=SUBWORDS, max_unspaced=UNSPACED_CHARACTERS))

    def cut(self, text: str) -> Sequence[str]:
        if self.tokenizer is None:
            return self._analyse(text)
        return [self.tokenizer.tokens[i] for i in self.tokenizer.encode_batch([text])[0][1:]]


def _neighbours(documents: list[NDArray[np.int32]], size: int) -> csr_matrix:
    """How often each two words stand at most WINDOW apart in one text: (V, V), symmetric."""
    counts = csr_matrix((size, size), dtype=np.float32)
    for stretch in _stretches(documents):
        for distance in range(1, WINDOW + 1):
            before, after = stretch[:-distance], stretch[distance:]
            both = (before >= 0) & (after >= 0)
            ones = np.ones(int(both.sum()), dtype=np.float32)
            counts = counts + coo_matrix((ones, (before[both], after[both])), shape=(size, size)).tocsr()
    return (counts + counts.T).tocsr()


def _stretches(documents: list[NDArray[np.int32]], most: int = 20_000_000) -> Iterator[NDArray[np.int32]]:
    """All texts one after the other, WINDOW gaps (-1) between them, some millions of words at a time."""
    gap, waiting, length = np.full(WINDOW, -1, dtype=np.int32), [], 0
    for ids in documents:
        waiting += [ids, gap]
        length += len(ids) + WINDOW
        if length >= most:
            yield np.concatenate(waiting)
            waiting, length = [], 0
    if waiting:
        yield np.concatenate(waiting)


def _mutual_information(counts: csr_matrix) -> csr_matrix:
    """Positive pointwise mutual information, contexts smoothed: max(0, log P(w, c) / (P(w) P(c)^0.75))."""
    pairs = counts.tocoo()
    word = np.asarray(counts.sum(axis=1)).ravel()
    context = word**CONTEXT_POWER
    values = np.log(pairs.data * context.sum() / (word[pairs.row] * context[pairs.col]))
    known = values > 0
    return csr_matrix((values[known].astype(np.float32), (pairs.row[known], pairs.col[known])), shape=counts.shape)

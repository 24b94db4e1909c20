"""Words of a pool of texts: their frequencies and vectors, from co-occurrence counts or pretrained."""

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
from textgraft.linear.ngram_counts import MAX_TEXTS
from textgraft.linear.ngrams import WORD, is_space_separated
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import FORMS, VISIBLE, TextForm, visible
from textgraft.word_embeddings.word_vectors import WordVectors

WINDOW = 5
VOCABULARY = 30_000
PRETRAINED_VOCABULARY = 50_000
"""Words that are kept of pretrained vectors: those of the pool, then the file's most frequent ones."""
MIN_COUNT = 5
SUBSAMPLE = 1e-4
CONTEXT_POWER = 0.75
SUBWORDS = 8_000
MAX_UNSPACED_CHARACTERS = 1_000_000
"""Characters of text without spaces that subwords are trained on; half a minute."""
AXES_SAMPLE = 10_000
"""Texts that the principal axes are estimated from."""


@dataclass(frozen=True)
class PoolWords:
    """Words of a pool by falling frequency, with vectors, and the texts as word ids.

    Word vectors are the truncated SVD U √Σ of the positive pointwise mutual information of words at most five apart,
    with frequent words subsampled and contexts smoothed as in word2vec (Levy & Goldberg 2014; Levy, Goldberg & Dagan
    2015), or they are pretrained.

    Attributes:
        segmenter: Splits texts into words.
        words: The V words.
        share: Frequency (V,) of each word, as a share of all words of the pool.
        vectors: Unit vectors (V, D).
        documents: Word ids of each text, int32.
        sample: Indices of AXES_SAMPLE random texts.
        about: Description of the vectors.
    """

    segmenter: Segmenter
    words: list[str]
    share: NDArray[np.float64]
    vectors: NDArray[np.float32]
    documents: list[NDArray[np.int32]]
    sample: NDArray[np.int64]
    about: str

    @classmethod
    def of(
        cls, texts: Sequence[str], *, dimensions: int = 200, seed: int = 0, pretrained: WordVectors | None = None
    ) -> Self:
        """Build from texts.

        Args:
            texts: Unlabelled texts, of which at most MAX_TEXTS are used.
            dimensions: Number of dimensions D of PMI vectors.
            seed: Seed of samples and SVD.
            pretrained: Word vectors to use in place of PMI vectors.

        Raises:
            UserError: There are too few words, or too few with a pretrained vector.
        """
        generator = np.random.default_rng(seed)
        if len(texts) > MAX_TEXTS:
            texts = [texts[i] for i in np.sort(generator.choice(len(texts), MAX_TEXTS, replace=False))]
        segmenter = Segmenter.of(texts) if pretrained is None else Segmenter(None)
        counts = Counter(word for text in texts for word in segmenter.segment(text))
        words = _frequent(counts) if pretrained is None else _with_vectors(counts, pretrained)
        share = np.array([counts[word] for word in words]) / sum(counts.values())
        ids = {word: i for i, word in enumerate(words)}
        documents = [encode(segmenter.segment(text), ids) for text in texts]
        vectors = (
            _pmi_vectors(documents, share, dimensions, generator, seed)
            if pretrained is None
            else pretrained.vectors(words)
        )
        vectors = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float32)
        sample = np.sort(generator.permutation(len(documents))[:AXES_SAMPLE])
        about = f"{len(words):,} {segmenter.about}' vectors ({'PMI' if pretrained is None else 'pretrained'})"
        return cls(segmenter, words, share, vectors, documents, sample, about)

    def counts(self) -> csr_matrix:
        """Occurrences (N, V) of each word in each text."""
        starts = np.cumsum([0, *map(len, self.documents)])
        ids = np.concatenate(self.documents)
        counts = csr_matrix((np.ones(len(ids), np.float32), ids, starts), shape=(len(self.documents), len(self.words)))
        counts.sum_duplicates()
        return counts


def encode(words: Sequence[str], ids: Mapping[str, int]) -> NDArray[np.int32]:
    """Ids of the words that have one.

    >>> encode(["a", "rare", "word"], {"a": 0, "word": 1}).tolist()
    [0, 1]
    """
    return np.array([ids[word] for word in words if word in ids], dtype=np.int32)


def _frequent(counts: Counter[str]) -> list[str]:
    words = [word for word in _by_frequency(counts) if counts[word] >= MIN_COUNT][:VOCABULARY]
    if len(words) < 2:
        raise UserError("the unlabelled texts are too few for word vectors.", remedy="Add unlabelled texts.")
    return words


def _with_vectors(counts: Counter[str], pretrained: WordVectors) -> list[str]:
    with_vector = [word for word in _by_frequency(counts) if pretrained.vector(word) is not None]
    if len(with_vector) < 2:
        message = f"of {len(counts):,} words in the unlabelled texts, {len(with_vector)} have a vector."
        raise UserError(message, remedy="Use word vectors of the texts' language.")
    others = (word for word in pretrained.words if word not in counts)
    return [*with_vector, *islice(others, max(0, PRETRAINED_VOCABULARY - len(with_vector)))][:PRETRAINED_VOCABULARY]


def _by_frequency(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))


def _pmi_vectors(
    documents: list[NDArray[np.int32]], share: NDArray, dimensions: int, generator: np.random.Generator, seed: int
) -> NDArray[np.float64]:
    """(V, D) vectors of the words, from who stands near whom in the pool."""
    keep = np.minimum(1, np.sqrt(SUBSAMPLE / share))
    thinned = [ids[generator.random(len(ids)) < keep[ids]] for ids in documents]
    matrix = _mutual_information(_cooccurrences(thinned, len(share)))
    rank = max(1, min(dimensions, len(share) - 1))
    left, values, _ = randomized_svd(matrix, rank, n_iter=3, random_state=seed)
    return np.asarray(left * np.sqrt(values))


class Segmenter:
    """Splits texts at spaces and punctuation, or into subwords.

    Args:
        tokenizer: Subword tokenizer; None to split into words.
        form: The form of the texts (text.visible).
    """

    def __init__(self, tokenizer: Tokenizer | None, form: TextForm = VISIBLE) -> None:
        self.tokenizer, self.form = tokenizer, form
        self.about = "subwords" if tokenizer else "words"
        self._analyse = TfidfVectorizer(token_pattern=WORD).build_analyzer()

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """A segmenter into words where spaces separate them, else into subwords trained on the texts."""
        if is_space_separated(texts):
            return cls(None)
        return cls(Tokenizer.train(map(visible, texts), vocab_size=SUBWORDS, max_unspaced=MAX_UNSPACED_CHARACTERS))

    def segment(self, text: str) -> Sequence[str]:
        """Words or subwords of a text."""
        text = FORMS[self.form](text)
        if self.tokenizer is None:
            return self._analyse(text)
        return [self.tokenizer.tokens[i] for i in self.tokenizer.encode_batch([text])[0][1:]]


def _cooccurrences(documents: list[NDArray[np.int32]], size: int) -> csr_matrix:
    """Counts (V, V), symmetric, of pairs of words at most WINDOW apart in the same text."""
    counts = csr_matrix((size, size), dtype=np.float32)
    for chunk in _chunks(documents):
        for distance in range(1, WINDOW + 1):
            before, after = chunk[:-distance], chunk[distance:]
            both = (before >= 0) & (after >= 0)
            ones = np.ones(int(both.sum()), dtype=np.float32)
            counts = counts + coo_matrix((ones, (before[both], after[both])), shape=(size, size)).tocsr()
    return (counts + counts.T).tocsr()


def _chunks(documents: list[NDArray[np.int32]], limit: int = 20_000_000) -> Iterator[NDArray[np.int32]]:
    """Concatenated texts, separated by WINDOW gaps (-1), in chunks of some million words."""
    gap, buffer, length = np.full(WINDOW, -1, dtype=np.int32), [], 0
    for ids in documents:
        buffer += [ids, gap]
        length += len(ids) + WINDOW
        if length >= limit:
            yield np.concatenate(buffer)
            buffer, length = [], 0
    if buffer:
        yield np.concatenate(buffer)


def _mutual_information(counts: csr_matrix) -> csr_matrix:
    """Positive pointwise mutual information with smoothed contexts: max(0, log P(w, c) / (P(w) P(c)^0.75))."""
    pairs = counts.tocoo()
    word = np.asarray(counts.sum(axis=1)).ravel()
    context = word**CONTEXT_POWER
    values = np.log(pairs.data * context.sum() / (word[pairs.row] * context[pairs.col]))
    positive = values > 0
    return csr_matrix(
        (values[positive].astype(np.float32), (pairs.row[positive], pairs.col[positive])), shape=counts.shape
    )

"""Texts as means of word vectors, which are learned from unlabelled text by counting: minutes, not hours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.extmath import randomized_svd

from textgraft.errors import UserError
from textgraft.linear.latent_space import POOL_AT_MOST
from textgraft.linear.ngrams import WORD, parts_words_by_spaces
from textgraft.linear.state import State
from textgraft.text.tokenizer import Tokenizer
from textgraft.vectors.word_vectors import WordVectors

WINDOW = 5
VOCABULARY = 30_000
GIVEN_VOCABULARY = 50_000
"""Words that are kept of vectors that come from elsewhere: those of the pool, then the most frequent of their own."""
MIN_COUNT = 5
SUBSAMPLE = 1e-4
CONTEXT_POWER = 0.75
RARITY = 1e-3
"""a in the weight a / (a + p) of a word in a text."""
SUBWORDS = 8_000
UNSPACED_CHARACTERS = 1_000_000
"""From how much of a text without spaces subwords are learned; half a minute."""
AXES_FROM = 10_000
"""Texts whose principal axes are taken."""


class WordSpace:
    """A vector a text: the mean of its words' vectors, the rare words heavier, on the pool's principal axes.

    Word vectors are the truncated SVD of the positive pointwise mutual information of words at most five apart, U √Σ,
    each of length 1, with frequent words sub-sampled and contexts smoothed as in word2vec (Levy & Goldberg 2014;
    Levy, Goldberg & Dagan 2015). A text weighs each by a / (a + p) (Arora, Liang & Ma 2017); we keep the first
    principal component, which that paper removes. Words are those of the linear baseline; where spaces do not part
    them, subwords learned from the pool stand in for them.

    `given` are word vectors from elsewhere, to be used in place of those; the pool still weighs words and sets axes.
    Their words are kept whether or not the pool has them (p is 0 then), for it may be small.
    """

    form: ClassVar[str] = "word vectors"

    def __init__(self, *, dimensions: int = 200, seed: int = 0, given: WordVectors | None = None) -> None:
        self.dimensions = dimensions
        self.seed = seed
        self._given = given

    def fit(self, texts: Sequence[str]) -> Self:
        """Raises UserError where no word is seen five times, or hardly any has a given vector."""
        generator = np.random.default_rng(self.seed)
        if len(texts) > POOL_AT_MOST:
            texts = [texts[i] for i in np.sort(generator.choice(len(texts), POOL_AT_MOST, replace=False))]
        self._words = _Words.of(texts) if self._given is None else _Words(None)
        counts = Counter(word for text in texts for word in self._words.cut(text))
        kept = self._kept(counts)
        self._ids = {word: i for i, word in enumerate(kept)}
        total = sum(counts.values())
        share = np.array([counts[word] / total for word in kept])
        self._weights = RARITY / (RARITY + share)
        documents = [self._encode(text) for text in texts]
        vectors = self._counted(documents, share, generator) if self._given is None else self._given.vectors(kept)
        self.vectors = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float32)
        self._set_axes(documents, generator)
        whence = "PMI" if self._given is None else "given"
        self.about = f"{self.width} principal axes of means of {len(kept):,} {self._words.about}' vectors ({whence})"
        return self

    def _kept(self, counts: Counter[str]) -> list[str]:
        """The words with a vector, the most frequent first."""
        ordered = sorted(counts, key=lambda w: (-counts[w], w))
        if self._given is None:
            kept = [word for word in ordered if counts[word] >= MIN_COUNT][:VOCABULARY]
            if len(kept) < 2:
                raise UserError("the unlabelled texts are too few to learn words from.", remedy="Give more of them.")
            return kept
        seen = [word for word in ordered if self._given.vector(word) is not None]
        if len(seen) < 2:
            message = f"of the {len(counts):,} words of the unlabelled texts {len(seen)} have a vector."
            raise UserError(message, remedy="Name word vectors of the texts' language.")
        own = (word for word in self._given.words if word not in counts)
        return [*seen, *islice(own, max(0, GIVEN_VOCABULARY - len(seen)))][:GIVEN_VOCABULARY]

    def _counted(
        self, documents: list[NDArray[np.int32]], share: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """(V, D) vectors of the words, from who stands near whom in the pool."""
        keep = np.minimum(1, np.sqrt(SUBSAMPLE / share))
        thinned = [ids[generator.random(len(ids)) < keep[ids]] for ids in documents]
        matrix = _mutual_information(_neighbours(thinned, len(share)))
        rank = max(1, min(self.dimensions, len(share) - 1))
        left, values, _ = randomized_svd(matrix, rank, n_iter=3, random_state=self.seed)
        return np.asarray(left * np.sqrt(values))

    def _set_axes(self, documents: list[NDArray[np.int32]], generator: np.random.Generator) -> None:
        chosen = generator.permutation(len(documents))[:AXES_FROM]
        means = np.stack([self._mean(documents[i]) for i in np.sort(chosen)])
        self._centre = means.mean(axis=0)
        # Of the covariance, which has as many axes as there are dimensions, however few the texts.
        _, axes = np.linalg.eigh(np.cov(means - self._centre, rowvar=False).reshape(means.shape[1], -1))
        self._axes = np.ascontiguousarray(axes[:, ::-1])

    @property
    def width(self) -> int:
        """D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as coordinates (N, D), the widest axis first; a text without known words lies at the centre."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        documents = [self._encode(text) for text in texts]
        means = np.stack([self._mean(ids) if len(ids) else self._centre for ids in documents])
        return ((means - self._centre) @ self._axes).astype(np.float64)

    def size_in_bytes(self) -> int:
        """Of the vectors, the words and the axes."""
        words = sum(len(word.encode("utf-8", "surrogatepass")) for word in self._ids)
        return words + self.vectors.nbytes + self._weights.nbytes + self._axes.nbytes

    def state(self) -> State:
        """The words in the order of their vectors, the vectors (V, D) as float16, and the axes."""
        settings = {"dimensions": self.dimensions, "seed": self.seed, "about": self.about}
        arrays = {
            "vectors": self.vectors.astype(np.float16),
            "weights": self._weights,
            "centre": self._centre,
            "axes": self._axes,
        }
        tokenizer = self._words.tokenizer
        documents: dict[str, Any] = {"words": list(self._ids)}
        documents |= {"tokenizer": json.loads(tokenizer.to_json())} if tokenizer else {}
        return State(settings, arrays, documents)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        space = cls(dimensions=state.setting("dimensions", int), seed=state.setting("seed", int))
        space.about, words = state.setting("about", str), state.words("words")
        space._ids = {word: i for i, word in enumerate(words)}
        space.vectors = state.array("vectors", len(words), None)
        width = space.vectors.shape[1]
        space._weights = state.array("weights", len(words))
        space._centre, space._axes = state.array("centre", width), state.array("axes", width, width)
        tokenizer = state.documents.get("tokenizer")
        space._words = _Words(None if tokenizer is None else Tokenizer.from_json(json.dumps(tokenizer)))
        return space

    def _encode(self, text: str) -> NDArray[np.int32]:
        ids = self._ids
        return np.array([ids[word] for word in self._words.cut(text) if word in ids], dtype=np.int32)

    def _mean(self, ids: NDArray[np.int32]) -> NDArray[np.float64]:
        if not len(ids):
            return np.zeros(self.vectors.shape[1])
        return np.asarray(self._weights[ids] @ self.vectors[ids] / len(ids))


class _Words:
    """How a text is cut: at spaces and punctuation, or into subwords of the pool's own."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.about = "subwords" if tokenizer else "words"
        self._analyse = TfidfVectorizer(token_pattern=WORD).build_analyzer()

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Into words if spaces part the texts' words, else into subwords that the texts teach."""
        if parts_words_by_spaces(texts):
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

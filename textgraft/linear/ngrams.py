"""Texts as TF-IDF rows of n-grams: what every linear classifier here reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer

from textgraft.core.errors import UserError
from textgraft.linear.residual_idf import POWER, residual_idf_shares
from textgraft.linear.state import State
from textgraft.text.words import RUN_ON

SPACED_FROM = 0.09
"""Share of white space from which even a script without spaces has been cut into words (raw Thai has 0.04-0.05)."""

_PUNCTUATION = r"!-/:-@\[-`{-~¡«»¿،؛؟।\u2010-\u2027\u2030-\u205e\u3000-\u303f"
# What punctuation and space leave over; \w+ would drop emoji and cut Hindi at its vowel signs.
WORD = rf"[^\s{_PUNCTUATION}]+|[!?]"
# A saved model names these and holds no pattern of its own: changing one is changing what artifact.FORMAT means.
KINDS: dict[str, dict[str, Any]] = {
    "word 1-2-grams": {"token_pattern": WORD, "ngram_range": (1, 2)},
    "character 3-5-grams": {"analyzer": "char_wb", "ngram_range": (3, 5)},
    "character 1-3-grams": {"analyzer": "char", "ngram_range": (1, 3)},
}
_COMMON = {"sublinear_tf": True, "dtype": np.float32}


def is_space_separated(texts: Sequence[str]) -> bool:
    """Whether spaces part the words of these texts, judged on a sample of at most 200,000 characters.

    No, where half of the characters are of a script that runs words together (Thai, Lao, Khmer, Burmese,
    Tibetan, Chinese, Japanese) and white space is rare. Rare spaces alone do not tell: one-word texts have
    none either.
    """
    sample = "".join(text[:1_000] for text in texts[:: len(texts) // 200 + 1])
    unspaced, spaces = len(RUN_ON.findall(sample)), sum(map(str.isspace, sample))
    return unspaced <= len(sample) / 2 or spaces / len(sample) >= SPACED_FROM


@dataclass(frozen=True)
class Counts:
    """How often each text has each n-gram of a kind (N, V), and the n-grams in the order of the columns."""

    name: str
    words: list[str]
    counts: csr_matrix

    @classmethod
    def of(cls, texts: Sequence[str], kind: str, *, max_features: int, min_df: int) -> Self:
        """Of the n-grams in at least `min_df` texts the most frequent; where no two texts share one, of all of them."""
        for least in (min_df, 1):
            counter = CountVectorizer(min_df=least, max_features=max_features, dtype=np.float32, **KINDS[kind])
            try:
                counts = counter.fit_transform(texts)
            except ValueError:
                continue
            return cls(kind, counter.get_feature_names_out().tolist(), counts)
        raise UserError("no text has a single word in it.", remedy="Check that the text column is the right one.")

    def again(self, texts: Sequence[str]) -> csr_matrix:
        """How often other texts have the same n-grams."""
        counter = CountVectorizer(vocabulary=self.words, dtype=np.float32, **KINDS[self.name])
        return counter.transform(texts)

    def of_words(self, words: Sequence[str]) -> csr_matrix:
        """The columns of some of the n-grams, in their order."""
        columns = {word: column for column, word in enumerate(self.words)}
        return self.counts[:, [columns[word] for word in words]]


class Ngrams:
    """TF-IDF rows of length 1 a kind of n-gram, side by side.

    With `even` an n-gram's weight is multiplied by its residual-IDF weighting to the power of 8: n-grams that crowd
    into few texts, which are what those texts are about, hardly count. Learned weights hold that, so a saved one need
    not know.
    """

    def __init__(self, *, characters: bool, max_features: int, min_df: int = 2, even: bool = False) -> None:
        self.characters, self.max_features, self.min_df, self.even = characters, max_features, min_df, even

    def fit(self, texts: Sequence[str]) -> Self:
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Sequence[str]) -> csr_matrix:
        """The rows (N, V) of the texts that the n-grams and their weights are taken from, which are read once."""
        if not is_space_separated(texts):
            kinds = ["character 1-3-grams"]
        else:
            kinds = ["word 1-2-grams", *(["character 3-5-grams"] if self.characters else [])]
        least = self.min_df if len(texts) >= 1_000 else min(2, self.min_df)
        return self.weigh([Counts.of(texts, kind, max_features=self.max_features, min_df=least) for kind in kinds])

    def weigh(self, counted: Sequence[Counts]) -> csr_matrix:
        """The same of texts that were counted before, a kind of n-gram after the other."""
        self._vectorizers: dict[str, TfidfVectorizer] = {}
        rows = []
        for kind in counted:
            weigher = TfidfTransformer(sublinear_tf=True).fit(kind.counts)
            if self.even:
                weigher.idf_ = (weigher.idf_ * residual_idf_shares(kind.counts) ** POWER).astype(kind.counts.dtype)
            self._vectorizers[kind.name] = _vectorizer(kind.name, kind.words, weigher.idf_)
            rows.append(weigher.transform(kind.counts))
        return hstack(rows).tocsr()

    @property
    def about(self) -> str:
        return " and ".join(f"{len(v.vocabulary_):,} {kind}" for kind, v in self._vectorizers.items())

    @property
    def words(self) -> list[str]:
        """The n-grams, in the order of the columns."""
        return [word for v in self._vectorizers.values() for word in _in_order(v)]

    @property
    def width(self) -> int:
        """V, the number of n-grams."""
        return sum(len(v.vocabulary_) for v in self._vectorizers.values())

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        if len(texts) == 0:
            return csr_matrix((0, self.width))
        return hstack([v.transform(texts) for v in self._vectorizers.values()]).tocsr()

    def weighed(self, counts: csr_matrix) -> csr_matrix:
        """The rows of texts whose n-grams, of one kind, have been counted already; the counts stay as they are."""
        (vectorizer,) = self._vectorizers.values()
        weigher = TfidfTransformer(sublinear_tf=True)
        weigher.idf_ = vectorizer.idf_
        return weigher.transform(counts)

    def size_in_bytes(self) -> int:
        """Of the n-grams as UTF-8 and a weight for each."""
        vectorizers = self._vectorizers.values()
        names = sum(len(name.encode("utf-8", "surrogatepass")) for v in vectorizers for name in v.vocabulary_)
        return names + sum(v.idf_.nbytes for v in vectorizers)

    def state(self) -> State:
        """The kinds of n-gram, and for each its n-grams in the order of the columns and their weights."""
        parts = {}
        for number, vectorizer in enumerate(self._vectorizers.values()):
            parts[str(number)] = State(arrays={"idf": vectorizer.idf_}, documents={"words": _in_order(vectorizer)})
        settings = {"kinds": list(self._vectorizers), "characters": self.characters}
        return State(settings | {"max_features": self.max_features, "min_df": self.min_df}).having(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        ngrams = cls(
            characters=state.setting("characters", bool),
            max_features=state.setting("max_features", int),
            min_df=state.setting("min_df", int),
        )
        kinds = state.setting("kinds", list)
        if not kinds or not set(kinds) <= KINDS.keys():
            raise ValueError(f"these are no kinds of n-gram: {kinds}")
        ngrams._vectorizers = {}
        for i, kind in enumerate(kinds):
            part = state.part(str(i))
            words = part.words("words")
            ngrams._vectorizers[kind] = _vectorizer(kind, words, part.array("idf", len(words)))
        return ngrams


def _in_order(vectorizer: TfidfVectorizer) -> list[str]:
    vocabulary: dict[str, int] = vectorizer.vocabulary_
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _vectorizer(kind: str, words: Sequence[str], weights: NDArray) -> TfidfVectorizer:
    vectorizer = TfidfVectorizer(vocabulary=words, **_COMMON, **KINDS[kind])
    vectorizer.idf_ = weights
    return vectorizer

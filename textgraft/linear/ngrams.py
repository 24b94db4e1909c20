"""Texts as TF-IDF rows of n-grams: what every linear classifier here reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

from textgraft.errors import UserError
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


def parts_words_by_spaces(texts: Sequence[str]) -> bool:
    """Whether spaces part the words of these texts, judged on a sample of at most 200,000 characters.

    No, where half of the characters are of a script that runs words together (Thai, Lao, Khmer, Burmese,
    Tibetan, Chinese, Japanese) and white space is rare. Rare spaces alone do not tell: one-word texts have
    none either.
    """
    sample = "".join(text[:1_000] for text in texts[:: len(texts) // 200 + 1])
    unspaced, spaces = len(RUN_ON.findall(sample)), sum(map(str.isspace, sample))
    return unspaced <= len(sample) / 2 or spaces / len(sample) >= SPACED_FROM


class Ngrams:
    """TF-IDF rows of length 1 a kind of n-gram, side by side."""

    def __init__(self, *, characters: bool, max_features: int, min_df: int = 2) -> None:
        self.characters, self.max_features, self.min_df = characters, max_features, min_df

    def fit(self, texts: Sequence[str]) -> Self:
        if not parts_words_by_spaces(texts):
            kinds = ["character 1-3-grams"]
        else:
            kinds = ["word 1-2-grams", *(["character 3-5-grams"] if self.characters else [])]
        self._vectorizers = {kind: self._fit_one(texts, KINDS[kind]) for kind in kinds}
        return self

    def _fit_one(self, texts: Sequence[str], options: dict[str, Any]) -> TfidfVectorizer:
        most = self.max_features
        # A handful of texts may have no n-gram in common; then every n-gram has to do.
        for min_df in (self.min_df if len(texts) >= 1_000 else min(2, self.min_df), 1):
            try:
                return TfidfVectorizer(min_df=min_df, max_features=most, **_COMMON, **options).fit(texts)
            except ValueError:
                continue
        raise UserError("no text has a single word in it.", remedy="Check that the text column is the right one.")

    @property
    def about(self) -> str:
        return " and ".join(f"{len(v.vocabulary_):,} {kind}" for kind, v in self._vectorizers.items())

    @property
    def width(self) -> int:
        """V, the number of n-grams."""
        return sum(len(v.vocabulary_) for v in self._vectorizers.values())

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        if len(texts) == 0:
            return csr_matrix((0, self.width))
        return hstack([v.transform(texts) for v in self._vectorizers.values()]).tocsr()

    def size_in_bytes(self) -> int:
        """Of the n-grams as UTF-8 and a weight for each."""
        vectorizers = self._vectorizers.values()
        names = sum(len(name.encode("utf-8", "surrogatepass")) for v in vectorizers for name in v.vocabulary_)
        return names + sum(v.idf_.nbytes for v in vectorizers)

    def state(self) -> State:
        """The kinds of n-gram, and for each its n-grams in the order of the columns and their weights."""
        parts = {}
        for number, vectorizer in enumerate(self._vectorizers.values()):
            vocabulary: dict[str, int] = vectorizer.vocabulary_
            words = sorted(vocabulary, key=vocabulary.__getitem__)
            parts[str(number)] = State(arrays={"idf": vectorizer.idf_}, documents={"words": words})
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
        ngrams._vectorizers = {kind: _vectorizer(kind, state.part(str(i))) for i, kind in enumerate(kinds)}
        return ngrams


def _vectorizer(kind: str, state: State) -> TfidfVectorizer:
    words = state.words("words")
    vectorizer = TfidfVectorizer(vocabulary=words, **_COMMON, **KINDS[kind])
    weights: NDArray = state.array("idf", len(words))
    vectorizer.idf_ = weights
    return vectorizer

"""TF-IDF features of n-grams, shared by all linear classifiers."""

from __future__ import annotations

import re
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
from textgraft.text.visible import RAW, TEXT_FORM, VISIBLE, TextForm, text_form, visible
from textgraft.text.words import RUN_ON

MIN_SPACE_SHARE = 0.09
"""Share of white space above which text of a script without spaces has been segmented (raw Thai has 0.04-0.05)."""

_PUNCTUATION = r"!-/:-@\[-`{-~¡«»¿،؛؟।\u2010-\u2027\u2030-\u205e\u3000-\u303f"
# Everything but punctuation and white space; \w+ would drop emoji and split Hindi at its vowel signs.
WORD = rf"[^\s{_PUNCTUATION}]+|[!?]"
WORDS = "word 1-2-grams"
KNOWN_SHARE = 0.25
"""Share of a text's character n-grams that random letters hardly reach, and a misspelt word does."""
# Saved models hold these names and no patterns: a changed pattern needs a new artifact.FORMAT.
KINDS: dict[str, dict[str, Any]] = {
    WORDS: {"token_pattern": WORD, "ngram_range": (1, 2)},
    "character 3-5-grams": {"analyzer": "char_wb", "ngram_range": (3, 5)},
    "character 1-3-grams": {"analyzer": "char", "ngram_range": (1, 3)},
}
_COMMON = {"sublinear_tf": True, "dtype": np.float32}


def analysis(kind: str, form: TextForm) -> dict[str, Any]:
    """Options of a vectorizer for a key of KINDS, of texts in a form."""
    # strip_accents is the vectorizer's place for a function of the lower-cased text.
    return KINDS[kind] | {"strip_accents": visible if form == VISIBLE else None}


def form_of(state: State) -> TextForm:
    """The form of the texts in a state; raw in those of earlier versions. Raises UserError for an unknown one."""
    return text_form(state.settings.get(TEXT_FORM, RAW))


def is_space_separated(texts: Sequence[str]) -> bool:
    """True if spaces separate the words of these texts, judged on a sample of at most 200,000 characters.

    False if half of the characters are of a script without spaces between words (Thai, Lao, Khmer, Burmese, Tibetan,
    Chinese, Japanese) and white space is rare. Rare white space alone decides nothing: one-word texts have none either.

    >>> is_space_separated(["two words"]), is_space_separated(["ดีมาก"])
    (True, False)
    """
    sample = "".join(text[:1_000] for text in texts[:: len(texts) // 200 + 1])
    unspaced_count, space_count = len(RUN_ON.findall(sample)), sum(map(str.isspace, sample))
    return unspaced_count <= len(sample) / 2 or space_count / len(sample) >= MIN_SPACE_SHARE


@dataclass(frozen=True)
class Counts:
    """Occurrences (N, V) of n-grams in texts.

    Attributes:
        name: Kind of n-gram, a key of KINDS.
        words: The n-grams, in the order of the columns.
        counts: Occurrences (N, V).
    """

    name: str
    words: list[str]
    counts: csr_matrix

    @classmethod
    def of(cls, texts: Sequence[str], kind: str, *, max_features: int, min_df: int) -> Self:
        """Count the n-grams of texts.

        Args:
            texts: N raw texts.
            kind: A key of KINDS.
            max_features: Most n-grams, the most frequent ones.
            min_df: Texts that an n-gram must occur in; ignored where no n-gram does.

        Raises:
            UserError: No text contains a word.
        """
        for minimum in (min_df, 1):
            counter = CountVectorizer(
                min_df=minimum, max_features=max_features, dtype=np.float32, **analysis(kind, VISIBLE)
            )
            try:
                counts = counter.fit_transform(texts)
            except ValueError:
                continue
            return cls(kind, counter.get_feature_names_out().tolist(), counts)
        raise UserError("no text contains a word.", remedy="Check that the text column is the right one.")

    def count(self, texts: Sequence[str]) -> csr_matrix:
        """Occurrences (M, V) of the same n-grams in other texts."""
        counter = CountVectorizer(vocabulary=self.words, dtype=np.float32, **analysis(self.name, VISIBLE))
        return counter.transform(texts)

    def columns(self, words: Sequence[str]) -> csr_matrix:
        """The columns of some of the n-grams, in their order."""
        positions = {word: column for column, word in enumerate(self.words)}
        return self.counts[:, [positions[word] for word in words]]


class Ngrams:
    """TF-IDF features of one or more kinds of n-gram, side by side; each kind's rows have length 1.

    Args:
        characters: Add character 3-5-grams to word 1-2-grams.
        max_features: Most n-grams of each kind.
        min_df: Texts that an n-gram must occur in, for 1,000 texts and more; at most 2 for fewer.
        residual_idf: Multiply each weight by the n-gram's residual-IDF share to the power POWER, so that n-grams
            concentrated in few texts, their topics, get little weight. The saved weights include the factor, so the
            option itself is not saved.
    """

    def __init__(self, *, characters: bool, max_features: int, min_df: int = 2, residual_idf: bool = False) -> None:
        self.characters, self.max_features, self.min_df, self.residual_idf = (
            characters,
            max_features,
            min_df,
            residual_idf,
        )

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the n-grams and their weights from texts."""
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Sequence[str]) -> csr_matrix:
        """Fit to texts and return their rows (N, V); each text is read once."""
        if not is_space_separated(texts):
            kinds = ["character 1-3-grams"]
        else:
            kinds = ["word 1-2-grams", *(["character 3-5-grams"] if self.characters else [])]
        min_df = self.min_df if len(texts) >= 1_000 else min(2, self.min_df)
        return self.fit_transform_counts(
            [Counts.of(texts, kind, max_features=self.max_features, min_df=min_df) for kind in kinds]
        )

    def fit_transform_counts(self, counts: Sequence[Counts]) -> csr_matrix:
        """Fit to counted texts and return their rows (N, V).

        Args:
            counts: Occurrences in the same texts, one entry per kind of n-gram.
        """
        self._vectorizers: dict[str, TfidfVectorizer] = {}
        self._form = VISIBLE
        rows = []
        for kind in counts:
            transformer = TfidfTransformer(sublinear_tf=True).fit(kind.counts)
            if self.residual_idf:
                transformer.idf_ = (transformer.idf_ * residual_idf_shares(kind.counts) ** POWER).astype(
                    kind.counts.dtype
                )
            self._vectorizers[kind.name] = _vectorizer(kind.name, kind.words, transformer.idf_, VISIBLE)
            rows.append(transformer.transform(kind.counts))
        return hstack(rows).tocsr()

    @property
    def about(self) -> str:
        """Description: the number of n-grams of each kind."""
        return " and ".join(f"{len(v.vocabulary_):,} {kind}" for kind, v in self._vectorizers.items())

    @property
    def words(self) -> list[str]:
        """The n-grams, in the order of the columns."""
        return [word for v in self._vectorizers.values() for word in _ordered_ngrams(v)]

    @property
    def width(self) -> int:
        """Number of n-grams V."""
        return sum(len(v.vocabulary_) for v in self._vectorizers.values())

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        """Rows (N, V) of texts."""
        if len(texts) == 0:
            return csr_matrix((0, self.width))
        return hstack([v.transform(texts) for v in self._vectorizers.values()]).tocsr()

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts of which enough n-grams are in the vocabulary (knows_ngrams) for one kind."""
        known = np.zeros(len(texts), dtype=bool)
        for kind, vectorizer in self._vectorizers.items():
            for i in np.flatnonzero(~known).tolist():
                known[i] = knows_ngrams(vectorizer, kind, texts[i])
        return known

    def transform_counts(self, counts: csr_matrix) -> csr_matrix:
        """Rows (N, V) of counted texts, for one kind of n-gram; `counts` is not modified."""
        (vectorizer,) = self._vectorizers.values()
        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = vectorizer.idf_
        return transformer.transform(counts)

    def size_in_bytes(self) -> int:
        """Size of the n-grams as UTF-8 and of their weights."""
        vectorizers = self._vectorizers.values()
        names = sum(len(name.encode("utf-8", "surrogatepass")) for v in vectorizers for name in v.vocabulary_)
        return names + sum(v.idf_.nbytes for v in vectorizers)

    def state(self) -> State:
        """The kinds of n-gram, and for each its n-grams in the order of the columns and their weights."""
        parts = {}
        for number, vectorizer in enumerate(self._vectorizers.values()):
            parts[str(number)] = State(
                arrays={"idf": vectorizer.idf_}, documents={"words": _ordered_ngrams(vectorizer)}
            )
        settings = {"kinds": list(self._vectorizers), "characters": self.characters, TEXT_FORM: self._form}
        return State(settings | {"max_features": self.max_features, "min_df": self.min_df}).with_parts(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        ngrams = cls(
            characters=state.setting("characters", bool),
            max_features=state.setting("max_features", int),
            min_df=state.setting("min_df", int),
        )
        kinds = state.setting("kinds", list)
        if not kinds or not set(kinds) <= KINDS.keys():
            raise ValueError(f"unknown kinds of n-gram: {kinds}")
        ngrams._vectorizers, ngrams._form = {}, form_of(state)
        for i, kind in enumerate(kinds):
            part = state.part(str(i))
            words = part.word_list("words")
            ngrams._vectorizers[kind] = _vectorizer(kind, words, part.array("idf", len(words)), ngrams._form)
        return ngrams


def knows_ngrams(vectorizer: CountVectorizer, kind: str, text: str) -> bool:
    """True if a word of the text is in the vocabulary, or KNOWN_SHARE of its n-grams of two characters or more.

    Only those with a letter count, unless the text has none.

    Args:
        vectorizer: The vocabulary.
        kind: A key of KINDS.
        text: A raw text.
    """
    shown = vectorizer.build_preprocessor()(text)
    spells = any(map(str.isalpha, shown))
    if kind == WORDS:
        grams = {word for word in re.findall(WORD, shown) if not spells or any(map(str.isalpha, word))}
    else:
        grams = {gram for gram in vectorizer.build_analyzer()(text) if len(gram.strip()) > 1 or not spells}
        grams = {gram for gram in grams if not spells or any(map(str.isalpha, gram))}
    known = len(grams & vectorizer.vocabulary_.keys())
    return known > 0 and (kind == WORDS or known >= KNOWN_SHARE * len(grams))


def _ordered_ngrams(vectorizer: TfidfVectorizer) -> list[str]:
    vocabulary: dict[str, int] = vectorizer.vocabulary_
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _vectorizer(kind: str, words: Sequence[str], weights: NDArray, form: TextForm) -> TfidfVectorizer:
    vectorizer = TfidfVectorizer(vocabulary=words, **_COMMON, **analysis(kind, form))
    vectorizer.idf_ = weights
    return vectorizer

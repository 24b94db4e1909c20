"""Windows of tokens over sentences of words, with the token positions of every word, for every tokenizer. Without
torch.

Each word is encoded alone, as if preceded by a space (where spaces are tokens and the encoder reads left to right,
followed by one), so that its subwords do not depend on spacing; without space in scripts that do not use spaces
(text.words). Long sentences are covered by several windows that overlap by about half; each word is tagged in the
window that shows most context around it. Batches are in streams.words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.tags import SubwordPooling
from textgraft.text.tokenizer import PairMarks, Side, Tokenizer
from textgraft.text.words import spaced

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction

UNLIMITED_TOKENS = 1 << 40
"""More tokens than any sentence has."""


@dataclass(frozen=True)
class WordPieces:
    """A sentence's N words as P tokens without special tokens: word i is tokens bounds[i] to bounds[i + 1], bounds (N +
    1,).

    `unknown` is the number of words that the tokenizer cannot represent.
    """

    ids: np.ndarray
    bounds: np.ndarray
    unknown: int


@dataclass(frozen=True)
class WordWindow:
    """T tokens, special tokens included, of a part of a sentence, in which n words are to be tagged.

    Attributes:
        sentence: Index of the sentence.
        ids: Token ids (T,).
        start: Index of the first word to tag.
        spans: Positions (n, 2) of the words to tag, end exclusive.
        shown: First and, exclusive, last word in the window.
    """

    sentence: int
    ids: np.ndarray
    start: int
    spans: np.ndarray
    shown: tuple[int, int]

    def positions(self, subword_pooling: SubwordPooling) -> np.ndarray:
        """Positions (n,) of the subword that represents each word."""
        return self.spans[:, 0] if subword_pooling == "first" else self.spans[:, 1] - 1


@dataclass(frozen=True)
class Coverage:
    """Counts of sentences that needed several windows, of words that were cut to fit one, and of subwords lost.

    `unknown` words have no subword (a space, a control character) and are encoded as the unknown token.
    """

    sentences: int = 0
    words: int = 0
    windowed: int = 0
    cut_words: int = 0
    lost_pieces: int = 0
    unknown: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def told(self) -> str:
        """A sentence about words that were cut; empty if there are none."""
        if not self.cut_words:
            return ""
        words = f"{self.cut_words:,} of {self.words:,} words"
        return f"{words} were longer than a window and cut; {self.lost_pieces:,} of their subwords were lost."


def default_subword_pooling(direction: Direction) -> SubwordPooling:
    """The subword at which an encoder has seen the whole word; the first, as published, for bidirectional ones."""
    return "last" if direction == "left" else "first"


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], direction: Direction = "both"
) -> list[WordPieces]:
    """Encode each sentence word by word; a word without subwords becomes the unknown token.

    Args:
        tokenizer: The tokenizer.
        sentences: Words of each sentence.
        direction: Direction of the encoder.

    Raises:
        UserError: A sentence has no words.
    """
    if not all(sentences):
        raise UserError("there is a sentence without a word.", remedy="Leave it out.")
    words_with_space = [list(zip(words, _spaces_of_words(words, direction), strict=True)) for words in sentences]
    distinct = dict.fromkeys(word for words in words_with_space for word in words)
    unknown = np.array([tokenizer.unk_id], dtype=np.int32)
    ids_of: dict[tuple[str, Side], np.ndarray] = {}
    for space in dict.fromkeys(space for _, space in distinct):
        words_of_kind = [word for word, word_space in distinct if word_space == space]
        for word, ids in zip(words_of_kind, tokenizer.words(words_of_kind, space=space), strict=True):
            ids_of[word, space] = ids if len(ids) else unknown
    unknown_words = {w for w, ids in ids_of.items() if len(ids) == 1 and np.array_equal(ids, unknown)}
    encoded = []
    for words in words_with_space:
        pieces = [ids_of[word] for word in words]
        bounds = np.cumsum([0, *map(len, pieces)])
        encoded.append(
            WordPieces(np.concatenate(pieces).astype(np.int32), bounds, sum(w in unknown_words for w in words))
        )
    return encoded


def _spaces_of_words(words: Sequence[str], direction: Direction) -> list[Side]:
    """The space that belongs to each word: for left-to-right encoders the one after it."""
    before = spaced(words)
    if direction == "left":
        return ["after" if space else "none" for space in (*before[1:], not words[-1].isspace())]
    return ["before" if space else "none" for space in before]


def word_windows(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_tokens: int, *, direction: Direction = "both"
) -> tuple[list[WordWindow], Coverage]:
    """Windows of all sentences, in order; each word is to be tagged in exactly one.

    Args:
        tokenizer: The tokenizer, whose special tokens surround the words.
        sentences: Words of each sentence.
        max_tokens: Tokens of a window.
        direction: Direction of the encoder.

    Returns:
        The windows, and counts of what did not fit.

    Raises:
        UserError: `max_tokens` leaves no room for a subword, or a sentence has no words.
    """
    return windows_of(encode_words(tokenizer, sentences, direction), tokenizer.pair_marks, max_tokens, direction)


def windows_of(
    sentences: Sequence[WordPieces], marks: PairMarks, max_tokens: int, direction: Direction
) -> tuple[list[WordWindow], Coverage]:
    """`word_windows` of encoded words."""
    room = max_tokens - len(marks.before) - len(marks.after)
    if room < 1:
        raise UserError(f"{max_tokens} tokens leave no room for a word.", remedy="Raise max_tokens.")
    windows: list[WordWindow] = []
    coverage = Coverage()
    for number, pieces in enumerate(sentences):
        sizes = np.diff(pieces.bounds)
        chunks = _stretches(pieces.bounds, room)
        window_of_word = _owners(chunks, pieces.bounds, direction)
        for index, (first, last) in enumerate(chunks):
            tagged_words = np.flatnonzero(window_of_word == index)
            if not len(tagged_words):
                continue
            begin, end = pieces.bounds[first], min(pieces.bounds[last], pieces.bounds[first] + room)
            ids = np.concatenate([marks.before, pieces.ids[begin:end], marks.after]).astype(np.int32)
            positions = np.stack(
                [pieces.bounds[tagged_words], np.minimum(pieces.bounds[tagged_words + 1], end)], axis=1
            )
            spans = positions - begin + len(marks.before)
            windows.append(WordWindow(number, ids, int(tagged_words[0]), spans, (first, last)))
        too_long = sizes[sizes > room]
        lost = int((too_long - room).sum())
        coverage += Coverage(1, len(sizes), int(len(chunks) > 1), len(too_long), lost, pieces.unknown)
    return windows, coverage


def _stretches(bounds: np.ndarray, room: int) -> list[tuple[int, int]]:
    """First and, exclusive, last word of each window over a sentence: as many as fit, at least one."""
    count, first, chunks = len(bounds) - 1, 0, []
    while True:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + room, side="right")) - 1)
        chunks.append((first, last))
        if last >= count:
            return chunks
        half = (bounds[first] + bounds[last]) / 2
        first = max(first + 1, int(np.searchsorted(bounds[: last + 1], half)))


def _owners(chunks: Sequence[tuple[int, int]], bounds: np.ndarray, direction: Direction) -> np.ndarray:
    """Window (N,) with most context for each word in the encoder's direction; ties go to the first.

    For bidirectional encoders the context is the smaller of the subwords before and after, as in BERT's `run_squad.py`.
    """
    scores = np.full((len(chunks), len(bounds) - 1), -1)
    for row, (first, last) in zip(scores, chunks, strict=True):
        before, after = bounds[first:last] - bounds[first], bounds[last] - bounds[first + 1 : last + 1]
        row[first:last] = {"left": before, "right": after, "both": np.minimum(before, after)}[direction]
    owners: np.ndarray = scores.argmax(axis=0)
    return owners

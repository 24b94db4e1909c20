"""Sentences of words as windows of tokens in which every word knows its positions, for every tokenizer.

Each word is encoded alone, as if a space stood before it (or, where spaces are tokens and an encoder reads from the
left, after it), so that its pieces do not depend on how a file or a program spaces words; without one where its script
runs words together (text.words). A sentence that is longer than a window is read in several that overlap by about half;
each word is tagged in the one that shows most of what is around it. Without torch; their batches are in word_stream.
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

WHOLE = 1 << 40
"""More tokens than any sentence has."""


@dataclass(frozen=True)
class WordPieces:
    """A sentence's N words as P tokens without marks: word i is tokens bounds[i] to bounds[i + 1] (N + 1).

    `unknown` is how many words the tokenizer has nothing for.
    """

    ids: np.ndarray
    bounds: np.ndarray
    unknown: int


@dataclass(frozen=True)
class WordWindow:
    """T tokens, marks among them, that hold words of a sentence, and are to tell the tags of n of them.

    These are the words from `start` on; word `start + i` has the positions spans[i] (n of [first, last + 1)). `shown`
    is which words stand in the window at all, [first, last + 1).
    """

    sentence: int
    ids: np.ndarray
    start: int
    spans: np.ndarray
    shown: tuple[int, int]

    def positions(self, subword_pooling: SubwordPooling) -> np.ndarray:
        """(n,) where the piece that speaks for each word stands."""
        return self.spans[:, 0] if subword_pooling == "first" else self.spans[:, 1] - 1


@dataclass(frozen=True)
class Coverage:
    """What did not fit: sentences that took several windows, words that were cut to fit one, and pieces lost so.

    `unknown` words are those that the tokenizer has no piece for (a space, a control character), read as unknown.
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
        """A sentence on what was cut; empty if nothing was."""
        if not self.cut_words:
            return ""
        words = f"{self.cut_words:,} of {self.words:,} words"
        return f"{words} were longer than a window and cut; {self.lost_pieces:,} of their pieces were not read."


def default_subword_pooling(direction: Direction) -> SubwordPooling:
    """The piece at which an encoder has read the whole word; of one that looks both ways the first, as published."""
    return "last" if direction == "left" else "first"


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], direction: Direction = "both"
) -> list[WordPieces]:
    """The pieces of each sentence's words, one at least for each: a word that has none reads as unknown."""
    if not all(sentences):
        raise UserError("there is a sentence without a word.", remedy="Leave it out.")
    placed = [list(zip(words, _own_spaces(words, direction), strict=True)) for words in sentences]
    distinct = dict.fromkeys(word for words in placed for word in words)
    unknown = np.array([tokenizer.unk_id], dtype=np.int32)
    known: dict[tuple[str, Side], np.ndarray] = {}
    for space in dict.fromkeys(space for _, space in distinct):
        alike = [word for word, own in distinct if own == space]
        for word, ids in zip(alike, tokenizer.words(alike, space=space), strict=True):
            known[word, space] = ids if len(ids) else unknown
    unread = {w for w, ids in known.items() if len(ids) == 1 and np.array_equal(ids, unknown)}
    found = []
    for words in placed:
        pieces = [known[word] for word in words]
        bounds = np.cumsum([0, *map(len, pieces)])
        found.append(WordPieces(np.concatenate(pieces).astype(np.int32), bounds, sum(w in unread for w in words)))
    return found


def _own_spaces(words: Sequence[str], direction: Direction) -> list[Side]:
    """Which space is each word's own: to an encoder that reads from the left the one after it."""
    before = spaced(words)
    if direction == "left":
        return ["after" if space else "none" for space in (*before[1:], not words[-1].isspace())]
    return ["before" if space else "none" for space in before]


def word_windows(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_tokens: int, *, direction: Direction = "both"
) -> tuple[list[WordWindow], Coverage]:
    """The windows of all sentences, in order, and what they could not hold; each word is in the spans of one of them.

    Around the words stand the marks that the tokenizer puts around a text. Raises UserError where `max_tokens` leaves
    no room for a piece, and for a sentence without words.
    """
    return windows_of(encode_words(tokenizer, sentences, direction), tokenizer.pair_marks, max_tokens, direction)


def windows_of(
    sentences: Sequence[WordPieces], marks: PairMarks, max_tokens: int, direction: Direction
) -> tuple[list[WordWindow], Coverage]:
    """What `word_windows` says, of pieces."""
    room = max_tokens - len(marks.before) - len(marks.after)
    if room < 1:
        raise UserError(f"{max_tokens} tokens leave no room for a word.", remedy="Raise max_tokens.")
    windows: list[WordWindow] = []
    coverage = Coverage()
    for number, pieces in enumerate(sentences):
        sizes = np.diff(pieces.bounds)
        stretches = _stretches(pieces.bounds, room)
        owner = _owners(stretches, pieces.bounds, direction)
        for index, (first, last) in enumerate(stretches):
            owned = np.flatnonzero(owner == index)
            if not len(owned):
                continue
            begin, end = pieces.bounds[first], min(pieces.bounds[last], pieces.bounds[first] + room)
            ids = np.concatenate([marks.before, pieces.ids[begin:end], marks.after]).astype(np.int32)
            places = np.stack([pieces.bounds[owned], np.minimum(pieces.bounds[owned + 1], end)], axis=1)
            spans = places - begin + len(marks.before)
            windows.append(WordWindow(number, ids, int(owned[0]), spans, (first, last)))
        too_long = sizes[sizes > room]
        lost = int((too_long - room).sum())
        coverage += Coverage(1, len(sizes), int(len(stretches) > 1), len(too_long), lost, pieces.unknown)
    return windows, coverage


def _stretches(bounds: np.ndarray, room: int) -> list[tuple[int, int]]:
    """The words [first, last + 1) of each window over a sentence: as many as fit, and one at least."""
    count, first, found = len(bounds) - 1, 0, []
    while True:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + room, side="right")) - 1)
        found.append((first, last))
        if last >= count:
            return found
        half = (bounds[first] + bounds[last]) / 2
        first = max(first + 1, int(np.searchsorted(bounds[: last + 1], half)))


def _owners(stretches: Sequence[tuple[int, int]], bounds: np.ndarray, direction: Direction) -> np.ndarray:
    """(N,) the window of each word that shows most of what the encoder looks at; the first of equals.

    Looking both ways that is the smaller of the pieces before and after it, as in `run_squad.py` of the BERT authors.
    """
    scores = np.full((len(stretches), len(bounds) - 1), -1)
    for row, (first, last) in zip(scores, stretches, strict=True):
        before, after = bounds[first:last] - bounds[first], bounds[last] - bounds[first + 1 : last + 1]
        row[first:last] = {"left": before, "right": after, "both": np.minimum(before, after)}[direction]
    owners: np.ndarray = scores.argmax(axis=0)
    return owners

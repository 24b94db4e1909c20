"""A question and its context as windows of tokens, in each of which every token knows its characters.

A context that is longer than a window is read in several that overlap (Devlin et al. 2019; `run_squad.py` of the
published code). The order of the two texts follows from how an encoder reads: whoever looks back must have read the
question before the context, and whoever reads from the right must find it behind. Without torch; their batches
are in window_stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.squad import Question
from textgraft.text.byte_level import BytePairTokenizer
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction

NO_ANSWER = -1
"""The target of a window that does not hold the answer."""


@dataclass(frozen=True)
class WindowSettings:
    """How long windows are, in tokens; the defaults are the published code's.

    Of a question the first `max_question` tokens are read. `stride` is how far one window begins behind the one before
    (other programs call the overlap so).
    """

    max_tokens: int = 384
    stride: int = 128
    max_question: int = 64

    def __post_init__(self) -> None:
        for name in ("stride", "max_question"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")
        if self.max_tokens < 8:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 8 or more.")


@dataclass(frozen=True)
class TokenizedText:
    """C tokens without any mark, and where each one's characters are: `spans` (C, 2), without spaces at their ends.

    A token that stands for no character of the text, or for spaces alone, has an empty span.
    """

    ids: np.ndarray
    spans: np.ndarray


@dataclass(frozen=True)
class Window:
    """T tokens that hold a question and a stretch of L tokens of its context.

    `question` counts the questions given to `encode_questions`. The stretch begins at position `first`, and is the
    context's tokens from `start` on, with their `spans` (L, 2); `most_context` (L,) says which of them have more of
    the context around them here than in any other window. From position `second` on it is the second text. `target`
    are the positions of the answer's first and last token, or NO_ANSWER twice.
    """

    question: int
    ids: np.ndarray
    second: int
    first: int
    start: int
    spans: np.ndarray
    most_context: np.ndarray
    target: tuple[int, int] = (NO_ANSWER, NO_ANSWER)

    @property
    def answerable(self) -> np.ndarray:
        """(T,) bool: the positions at which an answer may begin or end."""
        inside = np.zeros(len(self.ids), dtype=bool)
        inside[self.first : self.first + len(self.spans)] = self.spans[:, 0] < self.spans[:, 1]
        return inside

    @property
    def has_answer(self) -> bool:
        return self.target[0] != NO_ANSWER


def tokenize(tokenizer: Tokenizer, text: str) -> TokenizedText:
    """A text's tokens without what the tokenizer puts around it."""
    encoding = tokenizer.encode(text)
    ids, spans = encoding.ids, encoding.offsets
    if isinstance(tokenizer, WordPieceTokenizer | CharacterEncodingTokenizer):
        ids, spans = ids[1:-1], spans[1:-1]
    elif isinstance(tokenizer, BytePairTokenizer):
        # Without a start of its own, an empty text is the one token that begins a text.
        begins = len(tokenizer.starts) if tokenizer.starts else int(not text)
        ids, spans = ids[begins:], spans[begins:]
    else:
        ids, spans = ids[1:], spans[1:]
    trimmed = [_trimmed(text, start, end) for start, end in spans]
    return TokenizedText(np.array(ids, dtype=np.int32), np.array(trimmed, dtype=np.int64).reshape(-1, 2))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def stretches(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """The [start, end) of the windows over `length` tokens, `room` in each; one, if empty, of no tokens."""
    found, start = [], 0
    while True:
        end = min(start + room, length)
        found.append((start, end))
        if end == length:
            return found
        start += min(end - start, stride)


def most_context(windows: Sequence[tuple[int, int]], length: int) -> np.ndarray:
    """(length,) which of the windows has each token in its midst.

    A token's score in a window is the smaller of the number of tokens before and after it there, plus a hundredth of
    the window's length; the first of the best has it (`_check_is_max_context` of the published code).
    """
    positions = np.arange(length)
    scores = np.full((len(windows), length), -1.0)
    for row, (start, end) in zip(scores, windows, strict=True):
        inside = positions[start:end]
        row[start:end] = np.minimum(inside - start, end - 1 - inside) + 0.01 * (end - start)
    return scores.argmax(axis=0)


def answer_tokens(spans: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that share a character with [start, end); None if there is none."""
    touched = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > start) & (spans[:, 0] < spans[:, 1]))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None


def encode_questions(
    asked: Iterable[tuple[str, Question]],
    tokenizer: Tokenizer,
    settings: WindowSettings,
    *,
    direction: Direction = "both",
) -> list[Window]:
    """The windows of all questions, given with their contexts, in order; targets are those of the first answers.

    An encoder of pieces reads [CLS] question [SEP] context [SEP]; with other vocabularies the token that begins a text
    stands for [CLS], what parts a pair for the first [SEP], and the token that ends a text for the second. Reading from
    the right, the context is the first text.
    Raises UserError where a question leaves no room for its context.
    """
    text = lru_cache(maxsize=8)(lambda context: tokenize(tokenizer, context))  # a context's questions come together
    windows: list[Window] = []
    for number, (context, question) in enumerate(asked):
        words = tokenize(tokenizer, question.text).ids[: settings.max_question]
        room = settings.max_tokens - len(words) - 2 - len(tokenizer.pair_marks.between)
        if room < 1:
            message = f"{settings.max_tokens} tokens leave no room beside a question of {len(words)}."
            raise UserError(
                message, where=f"question '{question.id}'", remedy="Raise max_tokens or lower max_question."
            )
        read = text(context)
        gold = question.answers[0] if question.answers else None
        span = answer_tokens(read.spans, gold.start, gold.end) if gold else None
        windows += _windows(number, words, read, span, _Layout(tokenizer, direction, room, settings.stride))
    return windows


@dataclass(frozen=True)
class _Layout:
    tokenizer: Tokenizer
    direction: Direction
    room: int
    stride: int


def _windows(
    number: int, words: np.ndarray, read: TokenizedText, span: tuple[int, int] | None, layout: _Layout
) -> Iterator[Window]:
    pieces = stretches(len(read.ids), layout.room, layout.stride)
    nowhere = (NO_ANSWER, NO_ANSWER)
    owner = most_context(pieces, len(read.ids))
    bos, between, eos = [layout.tokenizer.bos_id], layout.tokenizer.pair_marks.between, [layout.tokenizer.eos_id]
    for index, (start, end) in enumerate(pieces):
        part = read.ids[start:end]
        texts = (part, words) if layout.direction == "right" else (words, part)
        second = 1 + len(texts[0]) + len(between)
        first = 1 if layout.direction == "right" else second
        target = nowhere
        if span is not None and start <= span[0] and span[1] < end:
            target = (span[0] - start + first, span[1] - start + first)
        yield Window(
            question=number,
            ids=np.concatenate([bos, texts[0], between, texts[1], eos]).astype(np.int32),
            second=second,
            first=first,
            start=start,
            spans=read.spans[start:end],
            most_context=owner[start:end] == index,
            target=target,
        )

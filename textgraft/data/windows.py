"""Windows of tokens over a question and its context, with the character span of every token. Without torch.

A context that is longer than a window is covered by several overlapping ones (Devlin et al. 2019, `run_squad.py`). The
order of question and context depends on the encoder's direction: it must have processed the question before the
context. Batches are in streams.windows.
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
from textgraft.text.normalize import Aligned
from textgraft.text.pretrained import PretrainedTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import RAW, VISIBLE, TextForm, align_visible
from textgraft.text.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction

NO_ANSWER = -1
"""Target of a window without the answer."""


@dataclass(frozen=True)
class WindowSettings:
    """Sizes of windows in tokens; the defaults are those of the published code.

    Attributes:
        max_tokens: Tokens of a window.
        stride: Distance between the starts of consecutive windows (other programs call the overlap stride).
        max_question: Tokens of a question; longer ones are cut.
    """

    max_tokens: int = 384
    stride: int = 128
    max_question: int = 64

    def __post_init__(self) -> None:
        for name in ("stride", "max_question"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Use 1 or more.")
        if self.max_tokens < 8:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Use 8 or more.")


@dataclass(frozen=True)
class TokenizedText:
    """Ids (C,) of a text's tokens without special tokens, and their `spans` (C, 2) in characters, white space trimmed.

    Tokens without a character of the text, or with white space only, have an empty span.
    """

    ids: np.ndarray
    spans: np.ndarray


@dataclass(frozen=True)
class Window:
    """T tokens with a question and L tokens of its context.

    Attributes:
        question: Index of the question.
        ids: Token ids (T,).
        second: Position where the second text begins.
        first: Position of the context's first token.
        start: Index of that token in the context.
        spans: Character spans (L, 2) of the context's tokens.
        most_context: Mask (L,) of tokens that have more context around them here than in any other window.
        target: Positions of the answer's first and last token, or NO_ANSWER twice.
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
        """Mask (T,) of positions where an answer may begin or end."""
        inside = np.zeros(len(self.ids), dtype=bool)
        inside[self.first : self.first + len(self.spans)] = self.spans[:, 0] < self.spans[:, 1]
        return inside

    @property
    def has_answer(self) -> bool:
        return self.target[0] != NO_ANSWER


def tokenize(tokenizer: Tokenizer, text: str, form: TextForm = RAW) -> TokenizedText:
    """Tokens of a text in this form without special tokens, with spans in the text as it is given."""
    if form == VISIBLE:
        aligned = align_visible(text)
        tokens = tokenize(tokenizer, aligned.text)
        return tokens if aligned.text == text else TokenizedText(tokens.ids, _original_spans(tokens.spans, aligned))
    encoding = tokenizer.encode(text)
    ids, spans = encoding.ids, encoding.offsets
    if isinstance(tokenizer, WordPieceTokenizer | CharacterEncodingTokenizer):
        ids, spans = ids[1:-1], spans[1:-1]
    elif isinstance(tokenizer, BytePairTokenizer):
        # Without a start token, an empty text is encoded as the token that separates texts.
        begins = len(tokenizer.starts) if tokenizer.starts else int(not text)
        ids, spans = ids[begins:], spans[begins:]
    elif isinstance(tokenizer, PretrainedTokenizer):
        first, last = len(tokenizer.template.before), len(ids) - len(tokenizer.template.after)
        ids, spans = (ids[first:last], spans[first:last]) if text else ([], [])
    else:
        ids, spans = ids[1:], spans[1:]
    trimmed = [_trimmed(text, start, end) for start, end in spans]
    return TokenizedText(np.array(ids, dtype=np.int32), np.array(trimmed, dtype=np.int64).reshape(-1, 2))


def _original_spans(spans: np.ndarray, aligned: Aligned) -> np.ndarray:
    """Spans (C, 2) in the text that `aligned` was made of."""
    size = aligned.ends[-1] if aligned.ends else 0
    starts, ends = np.array([*aligned.starts, size]), np.array([0, *aligned.ends])
    first, last = starts[spans[:, 0]], ends[spans[:, 1]]
    return np.stack([first, np.where(spans[:, 0] < spans[:, 1], last, first)], axis=1)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def stretches(length: int, capacity: int, stride: int) -> list[tuple[int, int]]:
    """Start and end of windows over `length` tokens, at most `capacity` tokens each; one empty window for no tokens.

    >>> stretches(10, 6, 3)
    [(0, 6), (3, 9), (6, 10)]
    """
    spans, start = [], 0
    while True:
        end = min(start + capacity, length)
        spans.append((start, end))
        if end == length:
            return spans
        start += min(end - start, stride)


def most_context(windows: Sequence[tuple[int, int]], length: int) -> np.ndarray:
    """Index (length,) of the window with most context around each token.

    The score of a token in a window is the smaller of the numbers of tokens before and after it, plus a hundredth of
    the window's length; ties go to the first (`_check_is_max_context` of the published code).
    """
    positions = np.arange(length)
    scores = np.full((len(windows), length), -1.0)
    for row, (start, end) in zip(scores, windows, strict=True):
        inside = positions[start:end]
        row[start:end] = np.minimum(inside - start, end - 1 - inside) + 0.01 * (end - start)
    return scores.argmax(axis=0)


def answer_tokens(spans: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """First and last token that overlap the characters [start, end); None if there is none."""
    touched = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > start) & (spans[:, 0] < spans[:, 1]))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None


def encode_questions(
    questions: Iterable[tuple[str, Question]],
    tokenizer: Tokenizer,
    settings: WindowSettings,
    *,
    direction: Direction = "both",
    form: TextForm = RAW,
) -> list[Window]:
    """Windows of all questions, in order; targets are the first answers.

    An encoder with WordPiece reads [CLS] question [SEP] context [SEP]; other vocabularies use their tokens that begin a
    text, separate a pair and end a text. From right to left the context comes first.

    Args:
        questions: Contexts and their questions.
        tokenizer: The tokenizer.
        settings: Sizes of the windows.
        direction: Direction of the encoder.
        form: The form in which the model takes texts.

    Raises:
        UserError: A question leaves no room for its context.
    """
    text = lru_cache(maxsize=8)(
        lambda context: tokenize(tokenizer, context, form)
    )  # questions about one context are consecutive
    windows: list[Window] = []
    for number, (context, question) in enumerate(questions):
        words = tokenize(tokenizer, question.text, form).ids[: settings.max_question]
        marks = tokenizer.window_marks
        room = settings.max_tokens - len(words) - len(marks.before) - len(marks.between) - len(marks.after)
        if room < 1:
            message = f"{settings.max_tokens} tokens leave no room beside a question of {len(words)}."
            raise UserError(
                message, where=f"question '{question.id}'", remedy="Raise max_tokens or lower max_question."
            )
        context_tokens = text(context)
        gold = question.answers[0] if question.answers else None
        span = answer_tokens(context_tokens.spans, gold.start, gold.end) if gold else None
        windows += _windows(number, words, context_tokens, span, _Layout(tokenizer, direction, room, settings.stride))
    return windows


@dataclass(frozen=True)
class _Layout:
    tokenizer: Tokenizer
    direction: Direction
    room: int
    stride: int


def _windows(
    number: int, words: np.ndarray, context: TokenizedText, span: tuple[int, int] | None, layout: _Layout
) -> Iterator[Window]:
    chunks = stretches(len(context.ids), layout.room, layout.stride)
    no_target = (NO_ANSWER, NO_ANSWER)
    owner = most_context(chunks, len(context.ids))
    marks = layout.tokenizer.window_marks
    for index, (start, end) in enumerate(chunks):
        chunk = context.ids[start:end]
        texts = (chunk, words) if layout.direction == "right" else (words, chunk)
        second = len(marks.before) + len(texts[0]) + len(marks.between)
        first = len(marks.before) if layout.direction == "right" else second
        target = no_target
        if span is not None and start <= span[0] and span[1] < end:
            target = (span[0] - start + first, span[1] - start + first)
        yield Window(
            question=number,
            ids=np.concatenate([marks.before, texts[0], marks.between, texts[1], marks.after]).astype(np.int32),
            second=second,
            first=first,
            start=start,
            spans=context.spans[start:end],
            most_context=owner[start:end] == index,
            target=target,
        )

"""Annotated spans of characters as tags of words.

A span belongs to the words that it touches. One that cuts a word, overlaps another or lies outside the text has no
tags that mean the same, and is an error or, with the policy "repair", counted and reported.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from textgraft.core.errors import UserError
from textgraft.data.conll import Illegal, Sentence
from textgraft.data.tags import Entity, tags_of
from textgraft.text.words import split_visible_words

_SHOWN = 40  # characters of a text in a message


@dataclass(frozen=True)
class Span:
    """Characters [start, end) of a text and their label.

    `text` is what the annotation says is there, if it does; `where` is the place of the annotation in its file.
    """

    start: int
    end: int
    label: str
    where: str
    text: str | None = None


def from_text(text: str) -> Sentence:
    """Split a text into words, with their offsets; an invisible character splits none."""
    spans = split_visible_words(text)
    return Sentence(tuple(text[a:b] for a, b in spans), (), text, tuple(spans))


@dataclass
class SpanAlignment:
    """Conversion of spans to IOB2 tags, sentence by sentence, with the spans that did not fit.

    Args:
        policy: "refuse" raises, at `finish`, for the first span that does not fit; "repair" extends spans that cut a
            word to whole words, leaves out others, and warns with their numbers.
        cut: Errors of spans that begin or end inside a word.
        unusable: Errors of spans that overlap others or are not in the text.
    """

    policy: Illegal = "refuse"
    cut: list[UserError] = field(default_factory=list)
    unusable: list[UserError] = field(default_factory=list)

    def tags(self, sentence: Sentence, spans: Iterable[Span]) -> list[str]:
        """IOB2 tags of a sentence's words; of spans that overlap, the one that begins first, or is longer, is kept."""
        owner: dict[int, Span] = {}  # by the index of a word
        found: list[Entity] = []
        distinct = {(span.start, -span.end, span.label): span for span in spans}
        for _, span in sorted(distinct.items()):
            covered = self._words(sentence, span)
            other = next((owner[i] for i in covered if i in owner), None)
            if other is not None:
                shown = f"{_described(sentence.text, span)} overlaps {_described(sentence.text, other)}"
                self._leave_out(f"{shown}, and a word has one tag.", span)
            elif covered:
                owner |= dict.fromkeys(covered, span)
                found.append(Entity(span.label, covered[0], covered[-1]))
        return tags_of(found, len(sentence), "IOB2")

    def _words(self, sentence: Sentence, span: Span) -> Sequence[int]:
        """Indices of the words that a span touches; none if the span is unusable."""
        text, start, end = sentence.text, span.start, span.end
        if not 0 <= start < end <= len(text):
            self._leave_out(f"{start} to {end} ({span.label}) is no part of the text of {len(text)} characters.", span)
            return ()
        if span.text is not None and " ".join(text[start:end].split()) != " ".join(span.text.split()):
            found, said = _short(text[start:end]), _short(span.text)
            self._leave_out(f"the annotation says '{said}' at {start} to {end}, where the text has '{found}'.", span)
            return ()
        words = [i for i, (a, b) in enumerate(sentence.spans) if a < end and b > start]
        if not words:
            self._leave_out(f"{_described(text, span)} covers no word.", span)
            return ()
        for i in (words[0], words[-1]):
            a, b = sentence.spans[i]
            if a < start or b > end:
                message = f"{_described(text, span)} cuts the word '{_short(text[a:b])}'."
                self.cut.append(UserError(message, where=span.where))
                break
        return words

    def _leave_out(self, message: str, span: Span) -> None:
        self.leave_out(UserError(message, where=span.where))

    def leave_out(self, problem: UserError) -> None:
        """Note a span that has no tags."""
        self.unusable.append(problem)

    def finish(self) -> None:
        """Raise or warn about spans that did not fit."""
        problems = [*self.unusable, *self.cut]
        if not problems:
            return
        if self.policy == "refuse":
            more = f" ({len(problems):,} such spans in these data.)" if len(problems) > 1 else ""
            remedy = (
                f'Correct it, or use illegal_spans="repair", which extends spans that cut a word to whole words and '
                f"leaves out those that overlap or are not in the text.{more}"
            )
            raise UserError(problems[0].message, where=problems[0].where, remedy=remedy)
        done = {"extended to whole words": self.cut, "left out": self.unusable}
        for action, of_action in done.items():
            if of_action:
                message = f"{len(of_action):,} spans that do not fit the words were {action}; the first: {of_action[0]}"
                warnings.warn(message, stacklevel=4)


def _described(text: str, span: Span) -> str:
    return f"'{_short(text[span.start : span.end])}' ({span.start} to {span.end}, {span.label})"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"

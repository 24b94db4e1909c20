"""Incremental decoding: text that grows token by token, of which only the end is decoded again."""

from __future__ import annotations

from collections.abc import Sequence

from textgraft.text.tokenizer import Tokenizer


class IncrementalText:
    """Decoded text of a growing sequence of ids; each step costs as much as the last words, however long the text.

    Text before a stable boundary (`Tokenizer.parting`) does not change. The ids since the boundary before that are
    kept, because they determine how the next ones are joined, with or without a space.
    """

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._before = ""  # the text up to the last boundary
        self._ids: list[int] = []  # ids since the last boundary but one
        self._parting = 0  # index of the last boundary in these
        self._decoded = 0  # length of their text up to there
        self.add(ids)

    def add(self, ids: Sequence[int]) -> None:
        """Append ids."""
        self._ids += ids
        parting = self._tokenizer.parting(self._ids)
        between = self._ids[self._parting : parting]
        if between and (text := self._tokenizer.decode(between)):  # an empty text determines no spacing
            self._before += self._tokenizer.decode(self._ids[:parting])[self._decoded :]
            self._ids, self._parting = self._ids[self._parting :], len(between)
            self._decoded = len(text)

    @property
    def text(self) -> str:
        """`decode` of all ids."""
        return self._before + self._tokenizer.decode(self._ids)[self._decoded :]

    @property
    def settled(self) -> str:
        """`settled` of all ids."""
        return self._before + self._tokenizer.settled(self._ids)[self._decoded :]

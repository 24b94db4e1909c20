"""Text that grows token by token, of which only the end is decoded anew."""

from __future__ import annotations

from collections.abc import Sequence

from textgraft.text.tokenizer import Tokenizer


class IncrementalText:
    """The text of ids that come one after another; each costs as much as the last words, however long the text.

    What lies before a parting (`Tokenizer.parting`) stays as it is. The ids from the one before that on are kept: to
    them the next ones are attached as to all, be it with or without a space.
    """

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._before = ""  # the text up to the last parting
        self._ids: list[int] = []  # those from the last parting but one on
        self._parting = 0  # where in these the last one is,
        self._known = 0  # and how many characters they have up to there
        self.add(ids)

    def add(self, ids: Sequence[int]) -> None:
        """`ids` come behind those that are there."""
        self._ids += ids
        parting = self._tokenizer.parting(self._ids)
        between = self._ids[self._parting : parting]
        if between and (text := self._tokenizer.decode(between)):  # nothing could be attached to no text
            self._before += self._tokenizer.decode(self._ids[:parting])[self._known :]
            self._ids, self._parting = self._ids[self._parting :], len(between)
            self._known = len(text)

    @property
    def text(self) -> str:
        """`decode` of all ids."""
        return self._before + self._tokenizer.decode(self._ids)[self._known :]

    @property
    def settled(self) -> str:
        """`settled` of all ids."""
        return self._before + self._tokenizer.settled(self._ids)[self._known :]

"""Texts, pairs and questions in the form that a model takes (text.visible)."""

from __future__ import annotations

from collections.abc import Sequence

from textgraft.data.examples import Choice, Pair
from textgraft.text.visible import FORMS, TextForm, visible_word


def in_form(texts: Sequence[str], form: TextForm) -> list[str]:
    r"""Texts in a form, each part of a pair or question by itself.

    >>> in_form(["two  words", Pair("a\u00a0b", " c")], "visible")
    ['two words', 'a b\nc']
    """
    convert = FORMS[form]

    def converted(text: str) -> str:
        if isinstance(text, Pair):
            return Pair(convert(text.first), convert(text.second))
        if isinstance(text, Choice):
            return Choice(convert(text.context), map(convert, text.options), convert(text.question))
        return convert(text)

    return [converted(text) for text in texts]


def words_in_form(sentences: Sequence[Sequence[str]], form: TextForm) -> list[list[str]]:
    """The words of sentences in a form; each stays one word."""
    convert = visible_word if form == "visible" else FORMS[form]
    return [[convert(word) for word in words] for words in sentences]

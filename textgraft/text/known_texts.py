"""Texts of which a tokenizer's vocabulary knows something, and texts that it only spells.

A vocabulary represents almost every text, a foreign script or random letters as single letters or bytes. So a text is
known if one of its words is a token by itself, or if its tokens have more than LETTERS_PER_TOKEN letters on average;
texts without letters if they have a token. In vocabularies of characters every letter with an id is known.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import visible

LETTERS_PER_TOKEN = 2.0
SYLLABLE = 3
"""Letters that an ideograph, a Japanese syllable or a Korean one counts for."""
BEGINNING = 200
"""Characters that are judged first; the rest only where nothing in them is known."""
_MOST_WORDS = 50


def knows(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Mask (N,) of the texts of which the vocabulary knows something.

    Args:
        tokenizer: The tokenizer.
        texts: N texts.
    """
    shown = [visible(text) for text in texts]
    known = _knows(tokenizer, [text[:BEGINNING] for text in shown])
    rest = [i for i in np.flatnonzero(~known).tolist() if len(shown[i]) > BEGINNING]
    if rest:
        known[rest] = _knows(tokenizer, [shown[i] for i in rest])
    return known


def _knows(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.bool_]:
    per_token = np.array([_letters_per_token(tokenizer, ids) for ids in tokenizer.bodies(texts)])
    limit = 0.0 if tokenizer.kind == "character" else LETTERS_PER_TOKEN
    known = per_token > limit
    for i in np.flatnonzero(~known & (per_token > 0)).tolist():
        known[i] = _has_whole_word(tokenizer, texts[i])
    return known


def _letters_per_token(tokenizer: Tokenizer, ids: NDArray) -> float:
    """Mean number of letters of the tokens that have any, are unknown, or are part of a character.

    Infinite without such tokens, and for words that are encoded by their characters; 0 without any token.
    """
    if ids.ndim > 1:
        return np.inf if len(ids) else 0.0
    letters = _letters(tokenizer)[ids]
    spelled = letters[letters >= 0]
    if len(spelled):
        return float(spelled.mean())
    return np.inf if len(ids) else 0.0


@lru_cache(maxsize=8)
def _letters(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """Letters of each token (V,): 0 for the unknown one and parts of characters, -1 for signs and special tokens."""
    texts = tokenizer.token_texts
    letters = np.array([letters_of(text) or -1 for text in texts], dtype=np.int32)
    letters[["\ufffd" in text for text in texts]] = 0
    letters[tokenizer.unk_id] = 0
    return letters


@lru_cache(maxsize=1 << 8)
def letters_of(word: str) -> int:
    """Number of letters and marks; an ideograph or a syllable counts SYLLABLE times.

    >>> letters_of("don't 1"), letters_of("好")
    (4, 3)
    """
    return sum(_weight(char) for char in word)


def _weight(char: str) -> int:
    if unicodedata.category(char)[0] not in "LM":
        return 0
    return SYLLABLE if "\u3040" <= char <= "\ud7a3" or char >= "\U00020000" else 1


def _has_whole_word(tokenizer: Tokenizer, text: str) -> bool:
    """True if a word is one token, as it is or in lower case; one letter is a word in ASCII only."""
    distinct = dict.fromkeys(word.strip("\"'.,;:!?()[]…") for word in text.split())
    words = [word for word in distinct if letters_of(word) > (not word.isascii())][:_MOST_WORDS]
    spellings = list(dict.fromkeys([*words, *map(str.lower, words)]))
    encoded = [_letters(tokenizer)[ids] for ids in tokenizer.words(spellings)]
    return any(letters.max(initial=0) > 0 and np.count_nonzero(letters >= 0) == 1 for letters in encoded)

"""Character encoding of words, ELMo's input: each position is a word, encoded by its UTF-8 bytes.

A word is 50 character ids as published by Peters et al. 2018 (`UnicodeCharsVocabulary`): begin of word, its UTF-8 bytes
(at most 48), end of word, and padding, all shifted by one because 0 pads sentences. Begin and end of a text are words
of one special character each. Every word can be encoded, none is unknown. A separate vocabulary, by falling frequency,
provides the targets of a language model. Unlike theirs, plain text is split into words here (text.words).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from textgraft.core.errors import UserError
from textgraft.text.limits import limited
from textgraft.text.tokenizer import Encoding, PairMarks, Side, Tokenizer
from textgraft.text.words import split_words

CHARACTERS = 50
"""Character ids of a word."""
NUM_CHARACTERS = 262
"""Ids 0 to 261: padding of sentences, 256 bytes, then the special characters below."""
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = 257, 258, 259, 260, 261
MARKS = ("<S>", "</S>", "<UNK>")
"""First words of every vocabulary: begin of text, end of text, unknown word."""
KEY = "textgraft_spelling"
_RESTORE = "Use a tokenizer.json written by textgraft, or train one."


def encode_word(word: str) -> np.ndarray:
    """Character ids (50,), int16, of a word; lone surrogates and bytes beyond the 48th are dropped."""
    return _row(np.frombuffer(word.encode("utf-8", "ignore"), dtype=np.uint8)[: CHARACTERS - 2] + np.int16(1))


class _EncodingCache:
    """Cache of word encodings in one table; separate rows would fragment memory."""

    def __init__(self, limit: int = 100_000) -> None:
        self.limit, self._row_numbers = limit, dict[str, int]()
        self._rows = np.zeros((0, CHARACTERS), dtype=np.int16)
        self._lock = Lock()

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Encodings (N, 50), int16, in a new array."""
        with self._lock:
            return self._look_up(words)

    def _look_up(self, words: Sequence[str]) -> np.ndarray:
        row_numbers = self._row_numbers
        new = [word for word in dict.fromkeys(words) if word not in row_numbers]
        if new:
            if len(row_numbers) + len(new) > self.limit:
                row_numbers.clear()
                new = list(dict.fromkeys(words))
            while len(row_numbers) + len(new) > len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros((max(1_024, len(self._rows)), CHARACTERS), np.int16)])
            for word in new:
                self._rows[len(row_numbers)] = encode_word(word)
                row_numbers[word] = len(row_numbers)
        return self._rows[[row_numbers[word] for word in words]] if words else np.zeros((0, CHARACTERS), dtype=np.int16)


_cached_encodings = _EncodingCache()


def _row(characters: np.ndarray) -> np.ndarray:
    row = np.full(CHARACTERS, PADDING, dtype=np.int16)
    row[0], row[1 : len(characters) + 1], row[len(characters) + 1] = BEGIN_WORD, characters, END_WORD
    return row


class CharacterEncodingTokenizer(Tokenizer):
    """Words by character encoding, with the vocabulary of a language model; created by `train` or `load`.

    Where other tokenizers have an id, this one has a row of 50: `bos_id`, `eos_id` and `unk_id` are rows and texts are
    arrays (T, 50); batches number their distinct words (data.batch), with `pad_id` for padding. A text is <S> words
    </S>. Only `corpus_ids` are indices of the vocabulary. Raises UserError for a vocabulary that does not begin with
    MARKS.
    """

    spells = True

    def __init__(self, pipeline: Pipeline, *, where: str = "tokenizer.json") -> None:
        super().__init__(pipeline)
        if tuple(self.tokens[: len(MARKS)]) != MARKS:
            message = f"this vocabulary of words does not begin with {', '.join(MARKS)}."
            raise UserError(message, where=where, remedy=_RESTORE)
        rows: Any = [_row(np.array([mark])) for mark in (BEGIN_TEXT, END_TEXT)]
        self.bos_id, self.eos_id = (tuple(row.tolist()) for row in rows)  # type: ignore[assignment]
        self.unk_id = tuple(encode_word("<UNK>").tolist())  # type: ignore[assignment]
        self.pad_id = 0

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """Index of each word in the vocabulary; MARKS are not words."""
        return {word: i for i, word in enumerate(self.tokens) if i >= len(MARKS)}

    @cached_property
    def character_ids(self) -> np.ndarray:
        """Encodings (V, 50), int16, of the vocabulary; "<UNK>" for the unknown word."""
        rows = [np.array(self.bos_id), np.array(self.eos_id), np.array(self.unk_id)]
        rows += [encode_word(word) for word in self.tokens[len(MARKS) :]]
        return np.stack(rows).astype(np.int16)

    def encode(self, text: str) -> Encoding:
        """Words and offsets of one text; `ids` are (T, 50), and the special words at both ends have empty spans."""
        spans = split_words(text)
        words = [text[start:end] for start, end in spans]
        rows: Any = self._rows(words, marked=True)
        ends = (len(text), len(text))
        return Encoding(ids=rows, tokens=[MARKS[0], *words, MARKS[1]], offsets=[(0, 0), *spans, ends])

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encodings (T, 50), int16, of each text, with special words; the same as `encode`'s."""
        return [self._rows(_words(text), marked=True) for text in texts]

    @property
    def pair_marks(self) -> PairMarks:
        """<S> first </S> <S> second </S>, each as a text of its own."""
        begin: Any = self.bos_id
        end: Any = self.eos_id
        return PairMarks((begin,), (end, begin), (end,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encodings (T, 50), int16, of each text, without special words."""
        return [self._rows(_words(text), marked=False) for text in texts]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Encoding (1, 50), int16, of each word, whatever it contains."""
        return list(_cached_encodings(words)[:, None])

    def corpus_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Indices of each text's words in the vocabulary, int32, from <S> to </S>."""
        begin, end, unknown = range(len(MARKS))
        word_ids = self.word_ids
        return [
            np.array([begin, *(word_ids.get(word, unknown) for word in _words(text)), end], dtype=np.int32)
            for text in texts
        ]

    def decode(self, ids: Iterable[Any]) -> str:
        """The words of encodings (T, 50), joined by spaces; truncated bytes are missing."""
        words = []
        for row in np.asarray(list(ids), dtype=np.int16).reshape(-1, CHARACTERS):
            if (row == BEGIN_TEXT).any() or (row == END_TEXT).any():
                continue
            words.append(bytes((row[(row > 0) & (row < BEGIN_TEXT)] - 1).tolist()).decode("utf-8", "replace"))
        return " ".join(words)

    def settled(self, ids: Sequence[Any]) -> str:
        """The whole text: no further word changes it."""
        return self.decode(ids)

    def parting(self, ids: Sequence[Any]) -> int:
        """0: text is never generated word encoding by word encoding."""
        return 0

    def to_json(self) -> str:
        """Contents of `tokenizer.json`, which the `tokenizers` library rejects since it cannot encode characters."""
        content = {KEY: {"characters": CHARACTERS}, **json.loads(super().to_json())}
        return json.dumps(content, indent=2, ensure_ascii=False)

    def _rows(self, words: Sequence[str], *, marked: bool) -> np.ndarray:
        rows = _cached_encodings(words)
        return np.concatenate([[self.bos_id], rows, [self.eos_id]]).astype(np.int16) if marked else rows

    @classmethod
    def from_vocabulary(cls, words: Iterable[str] = (), *, where: str = "tokenizer.json") -> CharacterEncodingTokenizer:
        """Tokenizer whose vocabulary is MARKS followed by these words."""
        ids = {word: i for i, word in enumerate(dict.fromkeys((*MARKS, *words)))}
        return cls(Pipeline(models.WordLevel(ids, unk_token=MARKS[2])), where=where)


def train(
    texts: Iterable[str], *, vocab_size: int = 30_000, min_frequency: int = 2, max_characters: int = 200_000_000
) -> CharacterEncodingTokenizer:
    """Train a vocabulary of the most frequent words, by falling frequency, then alphabetically.

    Args:
        texts: Texts, read once.
        vocab_size: Most words, including MARKS.
        min_frequency: Occurrences of a word.
        max_characters: Characters to train on.

    Raises:
        UserError: A setting is out of range, or there is no text.
    """
    if vocab_size <= len(MARKS) or min_frequency < 1:
        where, value = ("vocab_size", vocab_size) if vocab_size <= len(MARKS) else ("min_frequency", min_frequency)
        raise UserError(f"{value} is out of range.", where=where, remedy="Use some thousands, a frequency from 1.")
    counts: Counter[str] = Counter()
    for text in limited(texts, max_characters):
        counts.update(_words(text))
    for mark in MARKS:
        counts.pop(mark, None)
    frequent = sorted((-count, word) for word, count in counts.items() if count >= min_frequency)
    return CharacterEncodingTokenizer.from_vocabulary(word for _, word in frequent[: vocab_size - len(MARKS)])


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]

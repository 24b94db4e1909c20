"""Words as their spelling, ELMo's input: each position is a word, and a word is the bytes that it is written with.

A word is 50 character ids as Peters et al. 2018 published them (their `UnicodeCharsVocabulary`): a mark for its
beginning, the bytes of its UTF-8 (at most 48), a mark for its end, and padding, all one up, since 0 is what pads a
sentence. The beginning and the end of a text are words of one mark each. So every word has a spelling and none is
unknown. Beside that a vocabulary, words by falling frequency, serves as the targets of a language model. Differs from
theirs in that we cut plain text into words ourselves (words.py), where they want it cut.
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
"""How many character ids a word has."""
NUM_CHARACTERS = 262
"""Ids 0 to 261: nothing, then 256 bytes, then the marks below."""
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = 257, 258, 259, 260, 261
MARKS = ("<S>", "</S>", "<UNK>")
"""The first words of every vocabulary: the beginning and the end of a text, and all words that it lacks."""
KEY = "textgraft_spelling"
_RESTORE = "Give a tokenizer.json that textgraft wrote, or train one."


def spell(word: str) -> np.ndarray:
    """The character ids of a word, (50,) int16; half of a surrogate pair is left out, and what is over 48 bytes."""
    return _row(np.frombuffer(word.encode("utf-8", "ignore"), dtype=np.uint8)[: CHARACTERS - 2] + np.int16(1))


class _Spelled:
    """How words are spelled, each looked up once, in one table: a row each of its own would keep memory in pieces."""

    def __init__(self, most: int = 100_000) -> None:
        self.most, self._places = most, dict[str, int]()
        self._rows = np.zeros((0, CHARACTERS), dtype=np.int16)
        self._lock = Lock()

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """(N, 50) int16, for whoever asks to keep and to write to."""
        with self._lock:
            return self._looked_up(words)

    def _looked_up(self, words: Sequence[str]) -> np.ndarray:
        places = self._places
        new = [word for word in dict.fromkeys(words) if word not in places]
        if new:
            if len(places) + len(new) > self.most:
                places.clear()
                new = list(dict.fromkeys(words))
            while len(places) + len(new) > len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros((max(1_024, len(self._rows)), CHARACTERS), np.int16)])
            for word in new:
                self._rows[len(places)] = spell(word)
                places[word] = len(places)
        return self._rows[[places[word] for word in words]] if words else np.zeros((0, CHARACTERS), dtype=np.int16)


_spelled = _Spelled()


def _row(characters: np.ndarray) -> np.ndarray:
    row = np.full(CHARACTERS, PADDING, dtype=np.int16)
    row[0], row[1 : len(characters) + 1], row[len(characters) + 1] = BEGIN_WORD, characters, END_WORD
    return row


class CharacterEncodingTokenizer(Tokenizer):
    """Texts as words with their spelling, and the vocabulary of a language model over them; made by `train` or `load`.

    What other tokenizers call an id is here a row of 50: `bos_id`, `eos_id` and `unk_id` are rows, texts are arrays
    (T, 50), and batches number the distinct words of theirs (data.batch), with `pad_id` for none. A text is <S> words
    </S>. Only `corpus_ids` are numbers of the vocabulary. Raises UserError for one that does not begin with the MARKS.
    """

    spells = True

    def __init__(self, pipeline: Pipeline, *, where: str = "tokenizer.json") -> None:
        super().__init__(pipeline)
        if tuple(self.tokens[: len(MARKS)]) != MARKS:
            message = f"this vocabulary of words does not begin with {', '.join(MARKS)}."
            raise UserError(message, where=where, remedy=_RESTORE)
        rows: Any = [_row(np.array([mark])) for mark in (BEGIN_TEXT, END_TEXT)]
        self.bos_id, self.eos_id = (tuple(row.tolist()) for row in rows)  # type: ignore[assignment]
        self.unk_id = tuple(spell("<UNK>").tolist())  # type: ignore[assignment]
        self.pad_id = 0

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """The number of each word of the vocabulary; marks cannot be written."""
        return {word: i for i, word in enumerate(self.tokens) if i >= len(MARKS)}

    @cached_property
    def character_ids(self) -> np.ndarray:
        """(V, 50) int16: how each word of the vocabulary is spelled; its unknown one as "<UNK>"."""
        rows = [np.array(self.bos_id), np.array(self.eos_id), np.array(self.unk_id)]
        rows += [spell(word) for word in self.tokens[len(MARKS) :]]
        return np.stack(rows).astype(np.int16)

    def encode(self, text: str) -> Encoding:
        """One text with its words and their offsets; the marks at its ends have empty ones. `ids` are (T, 50)."""
        spans = split_words(text)
        words = [text[start:end] for start, end in spans]
        rows: Any = self._rows(words, marked=True)
        ends = (len(text), len(text))
        return Encoding(ids=rows, tokens=[MARKS[0], *words, MARKS[1]], offsets=[(0, 0), *spans, ends])

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The spellings of each text, (T, 50) int16, with the marks; the same as `encode`'s."""
        return [self._rows(_words(text), marked=True) for text in texts]

    @property
    def pair_marks(self) -> PairMarks:
        """<S> first </S> <S> second </S>: the two are a text each."""
        begin: Any = self.bos_id
        end: Any = self.eos_id
        return PairMarks((begin,), (end, begin), (end,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The spellings of each text, (T, 50) int16, without the marks."""
        return [self._rows(_words(text), marked=False) for text in texts]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Each word by itself, (1, 50) int16, whatever is in it."""
        return list(_spelled(words)[:, None])

    def corpus_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The numbers of each text's words in the vocabulary, int32, <S> first and </S> last."""
        begin, end, unknown = range(len(MARKS))
        known = self.word_ids
        return [
            np.array([begin, *(known.get(word, unknown) for word in _words(text)), end], dtype=np.int32)
            for text in texts
        ]

    def decode(self, ids: Iterable[Any]) -> str:
        """The words of spellings (T, 50) with a space between each; bytes that were cut off are missing."""
        words = []
        for row in np.asarray(list(ids), dtype=np.int16).reshape(-1, CHARACTERS):
            if (row == BEGIN_TEXT).any() or (row == END_TEXT).any():
                continue
            words.append(bytes((row[(row > 0) & (row < BEGIN_TEXT)] - 1).tolist()).decode("utf-8", "replace"))
        return " ".join(words)

    def settled(self, ids: Sequence[Any]) -> str:
        """The text: no further word changes it."""
        return self.decode(ids)

    def parting(self, ids: Sequence[Any]) -> int:
        """None known: nobody writes in spellings, token by token."""
        return 0

    def to_json(self) -> str:
        """The text of `tokenizer.json`, which the library refuses: it could read no spelling."""
        content = {KEY: {"characters": CHARACTERS}, **json.loads(super().to_json())}
        return json.dumps(content, indent=2, ensure_ascii=False)

    def _rows(self, words: Sequence[str], *, marked: bool) -> np.ndarray:
        rows = _spelled(words)
        return np.concatenate([[self.bos_id], rows, [self.eos_id]]).astype(np.int16) if marked else rows

    @classmethod
    def from_vocabulary(cls, words: Iterable[str] = (), *, where: str = "tokenizer.json") -> CharacterEncodingTokenizer:
        """The tokenizer whose vocabulary is the MARKS and then these words, by their numbers."""
        ids = {word: i for i, word in enumerate(dict.fromkeys((*MARKS, *words)))}
        return cls(Pipeline(models.WordLevel(ids, unk_token=MARKS[2])), where=where)


def train(
    texts: Iterable[str], *, vocab_size: int = 30_000, min_frequency: int = 2, max_characters: int = 200_000_000
) -> CharacterEncodingTokenizer:
    """A vocabulary of the most frequent words of `texts`, by falling frequency and then by the alphabet.

    `vocab_size` counts the three MARKS and is a ceiling, `min_frequency` is what a word must reach. Raises UserError
    for settings out of range or no text.
    """
    if vocab_size <= len(MARKS) or min_frequency < 1:
        where, value = ("vocab_size", vocab_size) if vocab_size <= len(MARKS) else ("min_frequency", min_frequency)
        raise UserError(f"{value} is out of range.", where=where, remedy="Give some thousands, a frequency from 1.")
    counts: Counter[str] = Counter()
    for text in limited(texts, max_characters):
        counts.update(_words(text))
    for mark in MARKS:
        counts.pop(mark, None)
    frequent = sorted((-count, word) for word, count in counts.items() if count >= min_frequency)
    return CharacterEncodingTokenizer.from_vocabulary(word for _, word in frequent[: vocab_size - len(MARKS)])


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]

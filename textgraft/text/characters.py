"""Character tokenizer, as used by Flair: no normalisation, no words, any language.

A character is a code point; case, spaces and line ends are characters too. Characters outside the vocabulary become its
first item, `<unk>`. A line end begins a text. The file is a tokenizer.json for the `tokenizers` library; ids are looked
up in a table, which is faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.clusters import cluster_spans
from textgraft.text.limits import limited
from textgraft.text.tokenizer import Encoding, PairMarks, Side, Tokenizer

UNKNOWN, LINE_END, SPACE = "<unk>", "\n", " "


class CharacterTokenizer(Tokenizer):
    """A vocabulary of V characters; created by the functions below or `load`.

    Every text starts with a line end, which is also the end token and separates the texts of a pair. Raises UserError
    for ids with gaps.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.kind = "character"
        if pipeline.token_to_id(self.tokens[-1]) != self.vocab_size - 1:
            raise UserError("the ids of this vocabulary have gaps.", remedy="Assign every id from 0 to one character.")
        ids = {token: i for i, token in enumerate(self.tokens)}
        self.unk_id = self.pad_id = 0
        self.bos_id = self.eos_id = ids.get(LINE_END, 0)
        self.space_id = ids.get(SPACE, 0)

    @cached_property
    def _table(self) -> np.ndarray:
        """Id of every code point."""
        table = np.full(0x110000, self.unk_id, dtype=np.int32)
        for i, token in enumerate(self.tokens):
            if len(token) == 1:
                table[ord(token)] = i
        return table

    def encode(self, text: str) -> Encoding:
        """Characters and offsets of one text; each part of a grapheme cluster has the span of the cluster."""
        (ids,) = self.encode_batch([text])
        starts, ends = cluster_spans(text)
        offsets = [(0, 0), *((starts[i], ends[i]) for i in range(len(text)))]
        return Encoding(ids=ids.tolist(), tokens=[self.tokens[i] for i in ids], offsets=offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, after a line end; the same as `encode`'s."""
        first = np.array([self.bos_id], dtype=np.int32)
        return [np.concatenate([first, ids]) for ids in self.bodies(texts)]

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text's characters, int32."""
        codes = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4") for text in texts]
        return [self._table[text] for text in codes]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids, int32, of each word with the space before or after it.

        A left-to-right model needs the space after the word, a right-to-left model the one before it: Flair takes a
        word's vector at the space that follows in reading direction. Concatenated, they are the sentence with Flair's
        spacing, including a space at its end.
        """
        before, after = SPACE * (space == "before"), SPACE * (space == "after")
        return self.bodies([f"{before}{word}{after}" for word in words])

    @property
    def pair_marks(self) -> PairMarks:
        """Line ends before, between and after, so that models of both directions begin with one."""
        return PairMarks((self.bos_id,), (self.bos_id,), (self.bos_id,))

    def decode(self, ids: Iterable[int]) -> str:
        """The text without the line end that `encode` adds; U+FFFD for ids that are not characters."""
        remaining = list(ids)
        if remaining[:1] == [self.bos_id]:
            remaining = remaining[1:]
        return "".join(token if len(token) == 1 else "\ufffd" for token in map(self.tokens.__getitem__, remaining))

    def settled(self, ids: Sequence[int]) -> str:
        """The whole text: no further character changes it."""
        return self.decode(ids)

    def parting(self, ids: Sequence[int]) -> int:
        """The end: any position will do."""
        return len(ids)


def is_characters(pipeline: Pipeline) -> bool:
    """True for a tokenizer written by `CharacterTokenizer`; word-level ones have no decoder."""
    return isinstance(pipeline.model, models.WordLevel) and isinstance(pipeline.decoder, decoders.Fuse)


def of_vocabulary(items: Sequence[str]) -> CharacterTokenizer:
    """Tokenizer that maps characters to the positions of `items`; the first item also stands for unknown characters.

    Items of several characters keep their ids but never match. Raises UserError for no items or duplicates.
    """
    ids = {item: i for i, item in enumerate(items)}
    if not items or len(ids) < len(items):
        raise UserError("this vocabulary is empty, or has an item twice.", remedy="List each character once.")
    pipeline = Pipeline(models.WordLevel(vocab=ids, unk_token=items[0]))
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.decoder = decoders.Fuse()
    return CharacterTokenizer(pipeline)


def train(
    texts: Iterable[str], *, vocab_size: int = 1_000, min_frequency: int = 2, max_characters: int = 200_000_000
) -> CharacterTokenizer:
    """Train a vocabulary of the most frequent characters; line end and space are always included.

    Args:
        texts: Texts, read once.
        vocab_size: Most characters, including `<unk>`.
        min_frequency: Occurrences of a character.
        max_characters: Characters to train on.

    Raises:
        UserError: There is no text.
    """
    counts: Counter[str] = Counter()
    for text in limited(texts, max_characters):
        counts.update(text)
    always = (UNKNOWN, LINE_END, SPACE)
    frequent = sorted((-count, c) for c, count in counts.items() if count >= min_frequency and c not in always)
    usable = [c for _, c in frequent if not "\ud800" <= c <= "\udfff"]  # lone surrogates cannot be written as UTF-8
    return of_vocabulary([*always, *usable[: max(0, vocab_size - len(always))]])

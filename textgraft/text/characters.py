"""Text as its characters, as Flair reads it: nothing is normalised, no word is known, every language is alike.

A character is a code point. Case, spaces and line ends are characters like others; one that the vocabulary does not
have reads as the vocabulary's first item, `<unk>`. A line end begins a text. The file is a tokenizer.json that the
`tokenizers` library reads; we look the ids up in a table, which is faster.
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
    """A vocabulary of V characters, with everything that `Tokenizer` has; made by the functions below or `load`.

    Every text starts with a line end, which also stands for an end and parts the texts of a pair. Raises UserError for
    ids with gaps.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.kind = "character"
        if pipeline.token_to_id(self.tokens[-1]) != self.vocab_size - 1:
            raise UserError("the ids of this vocabulary have gaps.", remedy="Give every id from 0 on to one character.")
        ids = {token: i for i, token in enumerate(self.tokens)}
        self.unk_id = self.pad_id = 0
        self.bos_id = self.eos_id = ids.get(LINE_END, 0)
        self.space_id = ids.get(SPACE, 0)

    @cached_property
    def _table(self) -> np.ndarray:
        """The id of every code point."""
        table = np.full(0x110000, self.unk_id, dtype=np.int32)
        for i, token in enumerate(self.tokens):
            if len(token) == 1:
                table[ord(token)] = i
        return table

    def encode(self, text: str) -> Encoding:
        """One text with its characters and where they stand; the parts of a grapheme cluster all have the whole."""
        (ids,) = self.encode_batch([text])
        starts, ends = cluster_spans(text)
        offsets = [(0, 0), *((starts[i], ends[i]) for i in range(len(text)))]
        return Encoding(ids=ids.tolist(), tokens=[self.tokens[i] for i in ids], offsets=offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32, a line end first; the same as `encode`'s."""
        first = np.array([self.bos_id], dtype=np.int32)
        return [np.concatenate([first, ids]) for ids in self.bodies(texts)]

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text's characters, int32."""
        codes = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4") for text in texts]
        return [self._table[text] for text in codes]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Each word with the space before or after it, int32.

        A model from the left wants the one after it, one from the right the one before it: the space that is read when
        the word has been, where Flair takes its vector. Put together they are the sentence as Flair spaces it, with
        the space that it puts where its reading ends.
        """
        before, after = SPACE * (space == "before"), SPACE * (space == "after")
        return self.bodies([f"{before}{word}{after}" for word in words])

    @property
    def pair_marks(self) -> PairMarks:
        """Line ends before, between and behind, so that a model from either side begins with one."""
        return PairMarks((self.bos_id,), (self.bos_id,), (self.bos_id,))

    def decode(self, ids: Iterable[int]) -> str:
        """The text, but for the line end that `encode` adds; what is no character reads as U+FFFD."""
        kept = list(ids)
        if kept[:1] == [self.bos_id]:
            kept = kept[1:]
        return "".join(token if len(token) == 1 else "\ufffd" for token in map(self.tokens.__getitem__, kept))

    def settled(self, ids: Sequence[int]) -> str:
        """All of it: no character changes those before it."""
        return self.decode(ids)

    def parting(self, ids: Sequence[int]) -> int:
        """Behind every character."""
        return len(ids)


def is_characters(pipeline: Pipeline) -> bool:
    """Whether a tokenizer.json is one that `CharacterTokenizer` wrote; one of words has no decoder."""
    return isinstance(pipeline.model, models.WordLevel) and isinstance(pipeline.decoder, decoders.Fuse)


def of_vocabulary(items: Sequence[str]) -> CharacterTokenizer:
    """The tokenizer that gives characters the ids of `items`, of which the first also stands for unknown ones.

    Items of several characters keep their place and are never read. Raises UserError for no items, or one twice.
    """
    ids = {item: i for i, item in enumerate(items)}
    if not items or len(ids) < len(items):
        raise UserError("this vocabulary is empty, or has an item twice.", remedy="Name each character once.")
    pipeline = Pipeline(models.WordLevel(vocab=ids, unk_token=items[0]))
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.decoder = decoders.Fuse()
    return CharacterTokenizer(pipeline)


def train(
    texts: Iterable[str], *, vocab_size: int = 1_000, min_frequency: int = 2, max_characters: int = 200_000_000
) -> CharacterTokenizer:
    """The most frequent characters of `texts` that occur `min_frequency` times; a line end and a space in any case.

    `vocab_size` counts `<unk>` too and is a ceiling. Raises UserError where there is no text.
    """
    counts: Counter[str] = Counter()
    for text in limited(texts, max_characters):
        counts.update(text)
    given = (UNKNOWN, LINE_END, SPACE)
    often = sorted((-count, c) for c, count in counts.items() if count >= min_frequency and c not in given)
    usable = [c for _, c in often if not "\ud800" <= c <= "\udfff"]  # half a surrogate pair is in no UTF-8 file
    return of_vocabulary([*given, *usable[: max(0, vocab_size - len(given))]])

"""Byte-level BPE with BERT's special tokens: the tokenizer of ModernBERT.

Warner et al. 2024, arXiv:2412.13663, §2.1.3: a byte pair encoding as GPT-2's, [CLS] text [SEP], and [MASK].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.byte_level import BytePairTokenizer
from textgraft.text.tokenizer import Encoding, PairMarks, Tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPACES = range(256, 290)
"""Characters that stand for spaces and control codes in GPT-2's alphabet of bytes; a word's first token begins so."""


class MaskedBytePairTokenizer(BytePairTokenizer):
    """Tokenizer of ModernBERT; created by `load`. Every text is [CLS] text [SEP]."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        ids = pipeline.get_vocab()
        self.mask_id: int
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[name] for name in SPECIAL)
        self.bos_id, self.eos_id, self.between_id = self.cls_id, self.sep_id, self.sep_id
        self.starts = [self.cls_id]

    @property
    def special(self) -> np.ndarray:
        """Mask (V,) of special tokens."""
        added = [i for i, token in self._pipeline.get_added_tokens_decoder().items() if token.special]
        marks = [*added, self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id]
        return np.isin(np.arange(self.vocab_size), marks)

    @property
    def continues(self) -> np.ndarray:
        """Mask (V,) of tokens that continue a word: those that begin with a letter, a digit or a byte above ASCII."""
        return np.array([_continues(token) for token in self.tokens])

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text; special tokens have empty spans."""
        encoding = super().encode(text)
        offsets = [(0, 0), *encoding.offsets[1:-1], (len(text),) * 2]
        return Encoding(ids=encoding.ids, tokens=encoding.tokens, offsets=offsets)

    @property
    def pair_marks(self) -> PairMarks:
        """[CLS] first [SEP] second [SEP]."""
        return PairMarks((self.cls_id,), (self.sep_id,), (self.sep_id,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without special tokens."""
        return [ids[1:-1] for ids in self.encode_batch(texts)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text without special tokens."""
        return str(self._pipeline.decode(list(map(int, ids)), skip_special_tokens=True))


def _continues(token: str) -> bool:
    first = token[:1]
    return first.isalnum() if first.isascii() else ord(first) not in SPACES


def is_masked_byte_pair(pipeline: Pipeline) -> bool:
    """True for a byte-level BPE with BERT's special tokens around every text."""
    marks = [pipeline.token_to_id(name) for name in SPECIAL]
    around = [pipeline.token_to_id("[CLS]"), pipeline.token_to_id("[SEP]")]
    return None not in marks and pipeline.encode("").ids == around


def read_modernbert(folder: Path) -> MaskedBytePairTokenizer:
    """Tokenizer of a folder of ModernBERT. Raises UserError where its tokenizer.json is missing or of another kind."""
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.load(path)
    if not isinstance(tokenizer, MaskedBytePairTokenizer):
        remedy = "Use the tokenizer.json that came with the model."
        raise UserError("this is not the tokenizer of a ModernBERT.", where=str(path), remedy=remedy)
    return tokenizer

"""The tokenizers that are a class of their own: which of them a file is, and what trains one.

Tokenizer's own constructors ask here. That is the one circle among the package's imports: whoever wants a tokenizer
says Tokenizer.train or Tokenizer.load and need not know of which class it will be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from textgraft.text import character_encoding, characters, wordpiece
from textgraft.text.byte_level import BytePairTokenizer, is_byte_pair, train_byte_level
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.characters import CharacterTokenizer, is_characters
from textgraft.text.normalize import Kind
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer


def trained(kind: Kind, model: str, texts: Iterable[str], *, lowercase: bool, **sizes: Any) -> Tokenizer | None:
    """A tokenizer of a class of its own, learned from `texts`; None where `kind` and `model` name none of them.

    `sizes` are vocab_size, min_frequency and max_characters. Raises UserError as the trainers do.
    """
    if kind == "character":
        return characters.train(texts, **sizes)
    if kind == "subword" and model == "byte_level":
        return train_byte_level(texts, **sizes)
    if kind == "subword" and model == "wordpiece":
        return wordpiece.train(texts, lowercase=lowercase, **sizes)
    if model == "spelling":
        return character_encoding.train(texts, **sizes)
    return None


def found(pipeline: Pipeline, *, spelled: bool, where: str) -> Tokenizer | None:
    """The tokenizer that a file's pipeline is, if it is of a class of its own. Raises UserError for a damaged one."""
    if spelled:
        return CharacterEncodingTokenizer(pipeline, where=where)
    if is_byte_pair(pipeline):
        return BytePairTokenizer(pipeline)
    if isinstance(pipeline.model, models.WordPiece):
        return WordPieceTokenizer(pipeline, where=where)
    if is_characters(pipeline):
        return CharacterTokenizer(pipeline)
    return None

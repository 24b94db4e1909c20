"""Registry of tokenizer classes: which class a file needs, and which trainer a setting needs.

`Tokenizer.train` and `Tokenizer.load` look here, so callers need not know the class. This is the only import cycle of
the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from textgraft.text import character_encoding, characters, wordpiece
from textgraft.text.byte_level import BytePairTokenizer, is_byte_pair, train_byte_level
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.characters import CharacterTokenizer, is_characters
from textgraft.text.normalize import Kind
from textgraft.text.pretrained import PretrainedTokenizer, is_pretrained
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer


def train_kind(kind: Kind, model: str, texts: Iterable[str], *, lowercase: bool, **sizes: Any) -> Tokenizer | None:
    """Train a tokenizer of a class of its own; None where `kind` and `model` need no special class.

    Args:
        kind, model: As for `Tokenizer.train`.
        texts: Texts, read once.
        lowercase: For WordPiece.
        sizes: vocab_size, min_frequency and max_characters.

    Raises:
        UserError: As the trainers do.
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


def from_pipeline(
    pipeline: Pipeline, *, spelled: bool, special: Mapping[str, str] | None = None, where: str
) -> Tokenizer | None:
    """The tokenizer of a file's pipeline, if it has a class of its own.

    Args:
        pipeline: The library's tokenizer.
        spelled: The file has settings of character encodings.
        special: Special tokens by role, where the file of a published tokenizer names them.
        where: Name of the file.

    Raises:
        UserError: It is damaged.
    """
    if spelled:
        return CharacterEncodingTokenizer(pipeline, where=where)
    if special is not None or is_pretrained(pipeline):
        return PretrainedTokenizer(pipeline, special, where=where)
    if is_byte_pair(pipeline):
        return BytePairTokenizer(pipeline)
    if isinstance(pipeline.model, models.WordPiece):
        return WordPieceTokenizer(pipeline, where=where)
    if is_characters(pipeline):
        return CharacterTokenizer(pipeline)
    return None

"""SentencePiece models (Kudo & Richardson 2018) read from their file, a protocol buffer, without that library.

Only what a unigram tokenizer needs is read: the pieces with their scores, the kind of model, and the normaliser's
compiled character map. Fields are those of `sentencepiece_model.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from textgraft.core.errors import UserError

UNIGRAM = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class SentencePieceModel:
    """Pieces with their log probabilities, in the order of their ids, and the character map of the normaliser."""

    pieces: tuple[tuple[str, float], ...]
    character_map: bytes


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a unigram model. Raises UserError for a missing or damaged file, and for another kind of model."""
    remedy = "Use the file that came with the model, or a tokenizer.json."
    pieces: list[tuple[str, float]] = []
    kind, character_map = UNIGRAM, b""
    try:
        for field, value in _fields(path.read_bytes()):
            match field, value:
                case 1, bytes():
                    pieces.append(_piece(value))
                case 2, bytes():
                    kind = next((int(v) for f, v in _fields(value) if f == 3 and isinstance(v, int)), UNIGRAM)
                case 3, bytes():
                    character_map = next((v for f, v in _fields(value) if f == 2 and isinstance(v, bytes)), b"")
    except OSError as error:
        raise UserError(f"cannot read the vocabulary ({error}).", where=str(path), remedy=remedy) from error
    except (ValueError, IndexError, struct.error) as error:
        raise UserError(
            "this is not a SentencePiece model, or it is damaged.", where=str(path), remedy=remedy
        ) from error
    if not pieces:
        raise UserError("this SentencePiece model has no pieces.", where=str(path), remedy=remedy)
    if kind != UNIGRAM:
        message = "this SentencePiece model is not a unigram model."
        raise UserError(message, where=str(path), remedy="Use a folder with a tokenizer.json.")
    return SentencePieceModel(tuple(pieces), character_map)


def _piece(data: bytes) -> tuple[str, float]:
    values = dict(_fields(data))
    piece, score = values[1], values.get(2, b"\0\0\0\0")
    if not isinstance(piece, bytes) or not isinstance(score, bytes):
        raise ValueError("a piece is of another type")
    return piece.decode("utf-8"), float(struct.unpack("<f", score)[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: an integer, or bytes for text, messages and floats."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        wire = key & 7
        if wire == _VARINT:
            number, position = _varint(data, position)
            yield key >> 3, number
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in _SIZES:
            size = _SIZES[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if position + size > len(data):
            raise ValueError("the file ends within a field")
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """An integer of seven bits a byte, low ones first, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError("an integer of more than ten bytes")

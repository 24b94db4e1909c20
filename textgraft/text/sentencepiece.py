"""SentencePiece models (Kudo & Richardson 2018) read from their file, a protocol buffer, without that library.

Only what a unigram tokenizer needs is read: the pieces with their scores, the kind of model, and the normaliser's
compiled character map. Fields are those of `sentencepiece_model.proto`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.core.protobuf import fields

UNIGRAM = 1


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
        for field, value in fields(path.read_bytes()):
            match field, value:
                case 1, bytes():
                    pieces.append(_piece(value))
                case 2, bytes():
                    kind = next((int(v) for f, v in fields(value) if f == 3 and isinstance(v, int)), UNIGRAM)
                case 3, bytes():
                    character_map = next((v for f, v in fields(value) if f == 2 and isinstance(v, bytes)), b"")
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
    values = dict(fields(data))
    piece, score = values[1], values.get(2, b"\0\0\0\0")
    if not isinstance(piece, bytes) or not isinstance(score, bytes):
        raise ValueError("a piece is of another type")
    return piece.decode("utf-8"), float(struct.unpack("<f", score)[0])

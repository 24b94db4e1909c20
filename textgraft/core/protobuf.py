"""Reading of protocol buffers, field by field, without their library: SentencePiece models, TensorFlow's indices."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIZES = {FIXED64: 8, FIXED32: 4}


def varint(data: bytes, position: int) -> tuple[int, int]:
    """An integer of seven bits a byte, the low ones first, and the position after it.

    Raises:
        ValueError: It has more than ten bytes.
        IndexError: The data ends within it.

    >>> varint(bytes([0xAC, 0x02, 0xFF]), 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError("an integer of more than ten bytes")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message, in order.

    A value is an integer, or bytes: those of a text or message, or the 4 or 8 of a number of fixed size.

    Raises:
        ValueError: A field is of an unknown kind, or the data ends within one.
        IndexError: As `varint`.
    """
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        wire = key & 7
        if wire == VARINT:
            number, position = varint(data, position)
            yield key >> 3, number
            continue
        if wire == BYTES:
            size, position = varint(data, position)
        elif wire in SIZES:
            size = SIZES[wire]
        else:
            raise ValueError(f"a field of kind {wire}")
        if position + size > len(data):
            raise ValueError("the data ends within a field")
        yield key >> 3, data[position : position + size]
        position += size

"""A TensorFlow checkpoint from arrays, in the format that conversion.legacy.tensorflow_checkpoint documents."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from textgraft.conversion.legacy.tensorflow_checkpoint import FOOTER, MAGIC, crc32c

FLOAT = 1


def write_checkpoint(prefix: Path, values: Mapping[str, np.ndarray]) -> None:
    """Write NAME.index and NAME.data-00000-of-00001 with float32 variables."""
    data, entries = b"", {b"": b"\x08\x01"}
    for name in sorted(values):
        raw = np.ascontiguousarray(values[name], dtype="<f4").tobytes()
        shape = b"".join(_message(2, b"\x08" + _varint(size)) for size in values[name].shape)
        numbers = {1: FLOAT, 4: len(data), 5: len(raw)}
        entry = b"".join(_varint(field << 3) + _varint(number) for field, number in numbers.items())
        entries[name.encode()] = entry + _message(2, shape) + bytes([6 << 3 | 5]) + _checksum(raw)
        data += raw
    table = b"".join(b"\0" + _varint(len(k)) + _varint(len(v)) + k + v for k, v in entries.items())
    index, handles = b"", []
    for block in (table, b""):
        handles.append(_varint(len(index)) + _varint(len(block) + 8))
        index += _with_trailer(block)
    last = b"\0" + _varint(1) + _varint(len(handles[0])) + b"~" + handles[0]
    footer = handles[1] + _varint(len(index)) + _varint(len(last) + 8)
    index += _with_trailer(last) + footer.ljust(FOOTER - 8, b"\0") + struct.pack("<Q", MAGIC)
    prefix.with_name(prefix.name + ".index").write_bytes(index)
    prefix.with_name(prefix.name + ".data-00000-of-00001").write_bytes(data)


def _with_trailer(block: bytes) -> bytes:
    """The block with its only restart and their number, the kind of compression, and a checksum."""
    block += struct.pack("<II", 0, 1) + b"\0"
    return block + _checksum(block)


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])

"""Reading of TensorFlow checkpoints without TensorFlow: NAME.index lists the contents of NAME.data-00000-of-00001.

The index is a sorted string table as in LevelDB (blocks of entries that share prefixes with the previous one, a footer
that points to the index block), uncompressed; its values are protocol buffers (BundleHeaderProto under the empty key,
then a BundleEntryProto for each variable: tensorflow/core/protobuf/tensor_bundle.proto). The data are the variables'
bytes. All parts have a CRC-32C, and all of them are verified.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.protobuf import fields, varint

MAGIC = 0xDB4775248B80FB57
FOOTER = 48
TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""TensorFlow's DataType of the variables of language models."""
POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
LANES = 1 << 12

_REMEDY = "Get the checkpoint again: its .index and its .data files belong together."


@dataclass(frozen=True)
class Entry:
    """Location of a variable: bytes `offset` to `offset + size` of a shard."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    sliced: bool


def read_index(prefix: Path) -> tuple[int, dict[str, Entry]]:
    """Number of shards, and the entries of all variables by name; `prefix` is the path without `.index`.

    Raises:
        UserError: The file is missing, damaged, or of another format.
    """
    path = prefix.with_name(prefix.name + ".index")
    try:
        data = path.read_bytes()
        if len(data) < FOOTER or struct.unpack("<Q", data[-8:])[0] != MAGIC:
            raise UserError("this is not the index of a TensorFlow checkpoint.", where=str(path), remedy=_REMEDY)
        entries = dict(_table(data))
        header = dict(fields(entries.pop(b"")))
        if header.get(2, 0):
            raise UserError("this checkpoint has big-endian numbers, which are not supported.", where=str(path))
        return _int(header.get(1, 1)), {name.decode(): _entry(value) for name, value in entries.items()}
    except OSError as error:
        raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=_REMEDY) from error
    except (ValueError, KeyError, IndexError, struct.error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"damaged ({error}).", where=str(path), remedy=_REMEDY) from error


def read_values(
    prefix: Path, shards: int, entries: Mapping[str, Entry], names: Collection[str]
) -> dict[str, np.ndarray]:
    """Values of the variables `names`, each in its own type. Raises UserError for unsupported types and for damage."""
    values = {}
    for name in names:
        entry = entries[name]
        path = prefix.with_name(f"{prefix.name}.data-{entry.shard:05d}-of-{shards:05d}")
        if entry.dtype not in TYPES or entry.sliced:
            problem = "is kept in slices" if entry.sliced else f"has an unsupported type ({entry.dtype})"
            raise UserError(f"the variable '{name}' {problem}.", where=str(path))
        dtype = np.dtype(TYPES[entry.dtype])
        try:
            with open(path, "rb") as file:
                file.seek(entry.offset)
                data = file.read(entry.size)
        except OSError as error:
            raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=_REMEDY) from error
        complete = len(data) == entry.size == dtype.itemsize * int(np.prod(entry.shape, dtype=np.int64))
        if not complete or _masked(crc32c(data)) != entry.crc:
            raise UserError(f"truncated or damaged (at variable '{name}').", where=str(path), remedy=_REMEDY)
        values[name] = np.frombuffer(data, dtype).reshape(entry.shape)
    return values


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Entries of a sorted string table."""
    at = len(data) - FOOTER
    for _ in range(2):  # the empty metadata block, then the index block
        offset, at = varint(data, at)
        size, at = varint(data, at)
    for _, handle in _block(data, offset, size):
        offset, at = varint(handle, 0)
        size, _ = varint(handle, at)
        yield from _block(data, offset, size)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries of a block, which ends with the offsets of entries without shared prefix, and their number."""
    kind, crc = data[offset + size], struct.unpack_from("<I", data, offset + size + 1)[0]
    block = data[offset : offset + size]
    if _masked(crc32c(block + bytes([kind]))) != crc:
        raise ValueError("a block's checksum is wrong")
    if kind:
        raise ValueError("its blocks are compressed, which TensorFlow's own never are")
    end = size - 4 - 4 * struct.unpack_from("<I", block, size - 4)[0]
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        yield key, block[at + unshared : at + unshared + length]
        at += unshared + length


def _entry(message: bytes) -> Entry:
    values = dict(fields(message))
    dims = [value for number, value in fields(_bytes(values.get(2, b""))) if number == 2]
    shape = tuple(_int(dict(fields(_bytes(dim))).get(1, 0)) for dim in dims)
    dtype, shard, offset, size = (_int(values.get(number, 0)) for number in (1, 3, 4, 5))
    crc = int.from_bytes(_bytes(values.get(6, b"")), "little")
    return Entry(dtype, shape, shard, offset, size, crc, sliced=7 in values)


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("text where a number is due")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message is due")
    return value


def _masked(crc: int) -> int:
    """A checksum in the masked form of these files, which keeps checksums of data with checksums meaningful."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _tables() -> np.ndarray:
    """Table (4, 256) uint32: effect of a byte on the register, followed by as many zero bytes as the row's number."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(POLYNOMIAL), first >> 1)
    rows = [first]
    for _ in range(3):
        rows.append(rows[-1] >> 8 ^ first[rows[-1] & 255])
    return np.stack(rows)


def crc32c(data: bytes) -> int:
    """CRC-32C. Long data are split into equal contiguous segments that are processed in parallel, four bytes a step,
    and combined.

    It is linear over GF(2): the register after A and then B is that of A advanced by as many zeros as B is long, xor
    that of B alone.
    """
    tables, register = _tables(), 0xFFFFFFFF
    words = len(data) // (4 * LANES)
    if words:
        block = np.frombuffer(data, "<u4", words * LANES).reshape(LANES, words)
        registers = np.zeros(LANES, np.uint32)
        registers[0] = register
        for at in range(0, words, 256):
            for column in np.ascontiguousarray(block[:, at : at + 256].T):
                registers ^= column
                parts = [tables[3 - i][registers >> np.uint32(8 * i) & np.uint32(255)] for i in range(4)]
                registers = parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
        zeros = _zeros(4 * words)
        while len(registers) > 1:
            registers = _times(zeros, registers[0::2]) ^ registers[1::2]
            zeros = _times(zeros, zeros)
        register = int(registers[0])
    step = tables[0].tolist()
    for byte in data[4 * LANES * words :]:
        register = step[(register ^ byte) & 255] ^ register >> 8
    return register ^ 0xFFFFFFFF


def _times(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Product over GF(2) of a 32 x 32 matrix, with columns (32,) uint32, and vectors (N,) uint32."""
    product = np.zeros_like(vectors)
    for bit in range(32):
        product ^= matrix[bit] * (vectors >> np.uint32(bit) & np.uint32(1))
    return product


def _zeros(count: int) -> np.ndarray:
    """The matrix of `count` zero bytes."""
    power = np.uint32(1) << np.arange(32, dtype=np.uint32)
    result = power.copy()
    power = power >> 8 ^ _tables()[0][power & 255]
    while count:
        if count & 1:
            result = _times(power, result)
        power, count = _times(power, power), count >> 1
    return result

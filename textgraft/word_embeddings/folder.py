"""Word vectors as an artifact: a folder with config.json, words.txt, vectors.safetensors, run.json and a card.

vectors.safetensors has `vectors` (V, D), `counts` (V,) if known, and `ngrams` (B, D) of a fastText model; it is written
as a stream and memory-mapped when loaded, so neither needs more memory than the words.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write, write_atomically, writing_atomically
from textgraft.core.json_text import parse
from textgraft.models import model_folder
from textgraft.models.card import model_card
from textgraft.word_embeddings.lines import limited, sound
from textgraft.word_embeddings.subwords import Subwords
from textgraft.word_embeddings.word_vectors import Block, VectorStream, WordVectors

FILES = ("vectors.safetensors", "words.txt", "run.json")
DTYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
LINE_ENDS = "\n\r\0"
"""Characters that a word in words.txt cannot have; it may be a space or have one in it."""
MAX_HALF = 65_504.0
"""The largest float16."""
_ROWS = 8_192


def write(stream: VectorStream, path: Path, *, half: bool = False, overwrite: bool = False) -> Path:
    """Write the folder atomically, block by block; `half` stores float16.

    Raises:
        UserError: `path` exists (without `overwrite`) or cannot be written, or a number is too large for `half`.
    """
    model_folder.validate_new_path(path, overwrite)
    beside = path.with_name(f".{path.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        _write_files(stream, beside, path, half)
        model_folder.put_in_place(beside, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return path


def _write_files(stream: VectorStream, beside: Path, path: Path, half: bool) -> None:
    words = _write_numbers(stream, beside / "vectors.safetensors", "F16" if half else "F32")
    text = "".join(f"{sound(word, path, LINE_ENDS)}\n" for word in words)
    write_atomically(beside / "words.txt", text.encode())
    subwords = stream.subwords
    about = {"words": stream.count, "dimensions": stream.dimensions, "lowercase": bool(stream.lowercase)}
    if stream.lowercase is None:
        about["lowercase"] = all(word == word.lower() for word in words)
    described: dict[str, Any] = {**about, "ngrams": subwords and {"minn": subwords.minn, "maxn": subwords.maxn}}
    parameters = stream.dimensions * (stream.count + (len(subwords.table) if subwords else 0))
    run = {"name": path.name, "parameters": parameters, **stream.run, "stage": "vectors"}
    write_atomically(beside / "run.json", model_folder.to_json(run))
    hashes = {name: _sha256(beside / name) for name in FILES}
    write_atomically(beside / "config.json", model_folder.config_of({"vectors": described}, hashes))
    write_atomically(beside / "README.md", model_card(run).encode())


def _write_numbers(stream: VectorStream, path: Path, kind: str) -> list[str]:
    """Write vectors.safetensors; return the words, which come with the vectors."""
    shapes: dict[str, tuple[str, list[int]]] = {}
    if stream.counts is not None:
        shapes["counts"] = ("I64", [stream.count])
    if stream.subwords is not None:
        shapes["ngrams"] = (kind, list(stream.subwords.table.shape))
    shapes["vectors"] = (kind, [stream.count, stream.dimensions])
    words: list[str] = []
    with writing_atomically(path) as file:
        file.write(_header(shapes))
        if stream.counts is not None:
            file.write(stream.counts.astype("<i8").tobytes())
        if stream.subwords is not None:
            table = stream.subwords.table
            for start in range(0, len(table), _ROWS):
                file.write(_numbers(table[start : start + _ROWS], kind, path))
        for block_words, rows in stream.blocks:
            words += block_words
            file.write(_numbers(rows, kind, path))
    return words


def _header(shapes: dict[str, tuple[str, list[int]]]) -> bytes:
    """Beginning of a safetensors file: length of the JSON header, then the header."""
    tensors, end = {}, 0
    for name, (kind, shape) in shapes.items():
        begin, end = end, end + math.prod(shape) * DTYPES[kind].itemsize
        tensors[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _numbers(rows: NDArray, kind: str, path: Path) -> bytes:
    if kind == "F16" and np.abs(rows).max(initial=0) > MAX_HALF:
        raise UserError("a number is too large for float16.", where=str(path), remedy="Write without half.")
    return rows.astype(DTYPES[kind]).tobytes()


def read(name: str | Path, limit: int | None = None, *, verify: bool = True) -> WordVectors:
    """Load vectors from a folder, or bundled ones by name, memory-mapped.

    Args:
        name: Folder or name.
        limit: Number of most frequent words (None: all).
        verify: Compare every file with its hash, about a second a gigabyte.

    Raises:
        UserError: The folder is of another kind, or files are missing, truncated or altered.
    """
    folder = model_folder.find(name)
    return from_folder(folder, model_folder.read_config(folder), limit, verify=verify)


def from_folder(
    folder: Path, config: Mapping[str, Any], limit: int | None = None, *, verify: bool = True
) -> WordVectors:
    """`read` for a folder whose config.json has been read."""
    described = config.get("vectors")
    if not isinstance(described, dict):
        remedy = "Use a folder written by `textgraft vectors`, or a file of vectors."
        raise UserError("this model has no word vectors.", where=str(folder), remedy=remedy)
    if verify:
        _verify(folder, config["files"])
    try:
        return _from_files(folder, described, limit)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, OSError) as error:
        if isinstance(error, UserError):
            raise
        message = f"this description of word vectors is invalid ({error})."
        raise UserError(message, where=str(folder), remedy=model_folder.RESTORE) from error


def _from_files(folder: Path, described: dict[str, Any], limit: int | None) -> WordVectors:
    words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]
    tensors = _mapped(folder / "vectors.safetensors")
    shape = (described["words"], described["dimensions"])
    if tensors["vectors"].shape != shape or len(words) != shape[0]:
        raise ValueError(f"{len(words)} words and vectors of shape {tensors['vectors'].shape}, expected are {shape}")
    grams, counts = described.get("ngrams"), tensors.get("counts")
    subwords = None if grams is None else Subwords(grams["minn"], grams["maxn"], tensors["ngrams"])
    run = parse((folder / "run.json").read_text(encoding="utf-8"))
    vectors = WordVectors(
        words, tensors["vectors"], counts=counts, subwords=subwords, lowercase=described["lowercase"], run=run
    )
    return vectors if limit is None else vectors.truncated(limited(len(words), limit))


def _mapped(path: Path) -> dict[str, NDArray]:
    """Tensors of a safetensors file, memory-mapped. Raises ValueError for another file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            raise ValueError("vectors.safetensors is cut short")
        tensors = dict(parse(file.read(length)))
    arrays = {}
    for name, about in tensors.items():
        if name == "__metadata__":
            continue
        (begin, end), kind, shape = about["data_offsets"], DTYPES[about["dtype"]], tuple(about["shape"])
        if end - begin != math.prod(shape) * kind.itemsize or 8 + length + end > size:
            raise ValueError(f"'{name}' in vectors.safetensors is cut short")
        if not math.prod(shape):
            arrays[name] = np.zeros(shape, dtype=kind)
            continue
        arrays[name] = np.memmap(path, dtype=kind, mode="r", offset=8 + length + begin, shape=shape)
    return arrays


def _verify(folder: Path, hashes: dict[str, str]) -> None:
    for name in FILES:
        path = folder / name
        if not path.is_file():
            raise UserError("missing.", where=str(path), remedy=model_folder.RESTORE)
        if _sha256(path) != hashes.get(name):
            raise UserError("truncated or altered since it was saved.", where=str(path), remedy=model_folder.RESTORE)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files(folder: Path) -> dict[str, bytes]:
    """All files of the folder as bytes."""
    return {name: (folder / name).read_bytes() for name in (*FILES, "config.json", "README.md")}


def observed(stream: VectorStream, seen: Callable[[int], None]) -> VectorStream:
    """The stream, calling `seen` with the number of words of each block: for progress bars."""

    def blocks() -> Iterator[Block]:
        for words, rows in stream.blocks:
            yield words, rows
            seen(len(words))

    about: dict[str, Any] = {"lowercase": stream.lowercase, "run": stream.run, "composed": stream.composed}
    return VectorStream(stream.count, stream.dimensions, blocks(), stream.counts, stream.subwords, **about)

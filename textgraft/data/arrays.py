"""Arrays on the disk that are written row by row, so that only the disk has to hold them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically

SUFFIXES = (".npz", ".npy")


def validate_suffix(path: Path) -> None:
    """Raises UserError for a file that `write_rows` does not write."""
    if path.suffix not in SUFFIXES:
        raise UserError("vectors are written as .npz or .npy.", where=str(path), remedy="Name such a file.")


def write_rows(path: Path, blocks: Iterable[np.ndarray]) -> tuple[int, int]:
    """Write blocks (n, D) of float32 as one array (N, D), whole or not at all; returns N and D.

    A .npy file is that array, which numpy can map; a .npz one has it under `vectors`. Raises UserError where there is
    no block, and where the file cannot be written.
    """
    validate_suffix(path)
    if path.suffix == ".npy":
        with writing_atomically(path) as file:
            return _write_npy(file, blocks)
    # How many rows there are stands before them, and what lies in a zip cannot be changed any more.
    rows = path.with_name(path.name + ".rows")
    try:
        with writing_atomically(rows) as file:
            shape = _write_npy(file, blocks)
        with writing_atomically(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.write(rows, "vectors.npy")
    finally:
        rows.unlink(missing_ok=True)
    return shape


def _write_npy(file: BinaryIO, blocks: Iterable[np.ndarray]) -> tuple[int, int]:
    height = width = 0
    for block in blocks:
        if not height:
            width = block.shape[1]
            _write_header(file, 0, width)
        height += len(block)
        file.write(np.ascontiguousarray(block, dtype="<f4").data)
    if not height:
        raise UserError("there is not one text in it.", remedy="Is it the right file?")
    file.seek(0)
    _write_header(file, height, width)
    return height, width


def _write_header(file: BinaryIO, height: int, width: int) -> None:
    """Of one length whatever the height, for which numpy leaves room."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (height, width)})

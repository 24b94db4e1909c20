"""File fingerprints from two short reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from textgraft.data.huggingface_datasets import dataset_files, is_dataset
from textgraft.data.members import split_member
from textgraft.data.readers import source_files
from textgraft.data.text_files import explained

END_BYTES = 1 << 16


def fingerprint(file: Path) -> dict[str, Any]:
    """Name, size and a hash of both ends of a file.

    Location and modification time do not count. A change in the middle that keeps the size is not detected. Raises
    UserError for a file that cannot be read.

    Returns:
        {"name", "bytes", "ends"}: file name without folder, size, SHA-256 of the first and last 64 KiB.
    """
    file, _ = split_member(file)
    with explained(file), file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        ends = hashlib.sha256(stream.read(END_BYTES))
        stream.seek(max(END_BYTES, size - END_BYTES))
        ends.update(stream.read(END_BYTES))
    return {"name": file.name, "bytes": size, "ends": ends.hexdigest()}


def fingerprints(sources: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Fingerprints of all files that `read_texts` reads for `sources`, in its order."""
    paths = source_files(sources)
    return [fingerprint(file) for path in paths for file in (dataset_files(path) if is_dataset(path) else [path])]


def difference(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """Description of the differences between two lists of fingerprints; empty if equal.

    >>> old = {"name": "a.txt", "bytes": 1, "ends": "0"}
    >>> difference([old | {"bytes": 2}], [old]), difference([], [old])
    ('a.txt changed', 'a.txt gone')
    """
    if now == before:
        return ""
    names = {time: [file["name"] for file in files] for time, files in (("now", now), ("before", before))}
    words = {
        "changed": [f["name"] for f in now if f not in before and f["name"] in names["before"]],
        "new": [name for name in names["now"] if name not in names["before"]],
        "gone": [name for name in names["before"] if name not in names["now"]],
    }
    parts = [f"{', '.join(list(dict.fromkeys(files))[:3])} {word}" for word, files in words.items() if files]
    return "; ".join(parts) or "in another order"

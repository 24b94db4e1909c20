"""What a file holds, told apart at the price of two short reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from textgraft.data.huggingface_datasets import dataset_files, is_dataset
from textgraft.data.readers import source_files
from textgraft.data.text_files import explained

END_BYTES = 1 << 16


def fingerprint(file: Path) -> dict[str, Any]:
    """{"name", "bytes", "ends"}: the file's name without its folder, its size, a sha256 of its first and last 64 KiB.

    Neither where it lies nor when it was written counts. A change in the middle that keeps the size goes unseen.
    Raises UserError for a file that cannot be read.
    """
    with explained(file), file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        ends = hashlib.sha256(stream.read(END_BYTES))
        stream.seek(max(END_BYTES, size - END_BYTES))
        ends.update(stream.read(END_BYTES))
    return {"name": file.name, "bytes": size, "ends": ends.hexdigest()}


def fingerprints(sources: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Of every file that `read_texts` reads for `sources`, in its order."""
    found = source_files(sources)
    return [fingerprint(file) for path in found for file in (dataset_files(path) if is_dataset(path) else [path])]


def difference(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """In words, which of two lists of fingerprints differ; empty if none do."""
    if now == before:
        return ""
    names = {side: [file["name"] for file in files] for side, files in (("now", now), ("before", before))}
    words = {
        "changed": [f["name"] for f in now if f not in before and f["name"] in names["before"]],
        "new": [name for name in names["now"] if name not in names["before"]],
        "gone": [name for name in names["before"] if name not in names["now"]],
    }
    told = [f"{', '.join(list(dict.fromkeys(files))[:3])} {word}" for word, files in words.items() if files]
    return "; ".join(told) or "in another order"

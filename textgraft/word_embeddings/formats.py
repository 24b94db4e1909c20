"""The formats of word vectors, each a pair of functions; which of them a file is; from any to any."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.text_files import COMPRESSED, explained, open_binary
from textgraft.models import model_folder
from textgraft.word_embeddings import fasttext_binary, folder, glove_text, word2vec_binary, word2vec_text
from textgraft.word_embeddings.lines import first_line
from textgraft.word_embeddings.word_vectors import VectorStream, WordVectors


@dataclass(frozen=True)
class Format:
    """`read` takes a path and a limit; it gives what is mapped (WordVectors) or still to be read (a stream)."""

    read: Callable[[Path, int | None], WordVectors | VectorStream]
    write: Callable[[VectorStream, Path], Path]


FORMATS: dict[str, Format] = {
    "textgraft": Format(folder.read, folder.write),
    "word2vec": Format(word2vec_text.read, word2vec_text.write),
    "word2vec-binary": Format(word2vec_binary.read, word2vec_binary.write),
    "glove": Format(glove_text.read, glove_text.write),
    "fasttext": Format(fasttext_binary.read, fasttext_binary.write),
}
"""`word2vec` is fastText's .vec too; `fasttext` its .bin."""

_PEEK = 1 << 16


def load_vectors(source: str | Path, *, format: str | None = None, limit: int | None = None) -> WordVectors:
    """Word vectors from a folder of ours, by the name of those that ship, or from a file in any of FORMATS.

    The format is told by what the file begins with. A folder and fastText's .bin are mapped from disk; the others are
    read into memory. `limit` reads the most frequent words only. Raises UserError for what is none of these, and, with
    the place, for what is wrong in it.
    """
    found = _opened(source, format, limit)
    return found if isinstance(found, WordVectors) else WordVectors.from_stream(found)


def stream_vectors(source: str | Path, *, format: str | None = None, limit: int | None = None) -> VectorStream:
    """The same, block by block, in memory for the words alone."""
    found = _opened(source, format, limit)
    return found.stream() if isinstance(found, WordVectors) else found


def _opened(source: str | Path, format: str | None, limit: int | None) -> WordVectors | VectorStream:
    return FORMATS[_known(format or detect(source))].read(Path(source), limit)


def _known(format: str) -> str:
    if format not in FORMATS:
        raise UserError(f"unknown format '{format}'.", remedy=did_you_mean(format, FORMATS))
    return format


def detect(source: str | Path) -> str:
    """The format of a file, by its first bytes; a folder, or a name that is no path, is one of ours.

    Raises UserError where there is neither a file nor a model of that name.
    """
    path = Path(source)
    if not path.is_file():
        model_folder.find(source)
        return "textgraft"
    with explained(path), open_binary(path) as file:
        if fasttext_binary.is_fasttext(file.read(4)):
            return "fasttext"
    fields = first_line(path).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return "glove"
    return "word2vec" if _is_text(path) else "word2vec-binary"


def _is_text(path: Path) -> bool:
    """Whether numbers stand behind the word in the second line, which in a binary file they do but by a miracle."""
    with explained(path), open_binary(path) as file:
        file.readline(100)
        line = file.readline(_PEEK)
    try:
        return all(math.isfinite(float(field)) for field in line.split()[1:3])
    except ValueError:
        return False


def convert_vectors(
    source: str | Path,
    out: str | Path,
    *,
    to: str = "textgraft",
    format: str | None = None,
    limit: int | None = None,
    half: bool = False,
    overwrite: bool = False,
    seen: Callable[[int], None] = lambda words: None,
) -> Path:
    """Write the vectors of `source` in another format, block by block, and return where.

    `half` is for our own. `seen` is told of every few words that are written. Raises UserError as `load_vectors` does,
    and where `out` exists (without `overwrite`) or the format has no place for these vectors.
    """
    path = Path(out)
    if _known(to) == "textgraft":
        model_folder.refuse_existing(path, overwrite)
    else:
        _refuse(path, overwrite, half)
    stream = folder.observed(stream_vectors(source, format=format, limit=limit), seen)
    if to == "textgraft":
        return folder.write(stream, path, half=half, overwrite=overwrite)
    return FORMATS[to].write(stream, path)


def save_vectors(vectors: WordVectors, out: str | Path, *, to: str = "textgraft", **options: bool) -> Path:
    """Write vectors in one of FORMATS; `half` and `overwrite` as for `convert_vectors`."""
    path = Path(out)
    if _known(to) == "textgraft":
        return folder.write(vectors.stream(), path, **options)
    _refuse(path, options.get("overwrite", False), options.get("half", False))
    return FORMATS[to].write(vectors.stream(), path)


def _refuse(path: Path, overwrite: bool, half: bool) -> None:
    """Raises UserError for a file that is there already or to be packed, and for `half` where numbers have one size."""
    if half:
        raise UserError("only textgraft's own format has float16.", where=str(path), remedy="Leave half out.")
    if path.suffix.lower() in COMPRESSED:
        remedy = "Name it without, and pack what comes out."
        raise UserError(f"vectors are not written as {path.suffix}.", where=str(path), remedy=remedy)
    if path.is_dir() or (path.exists() and not overwrite):
        remedy = "Name another, or pass --overwrite to replace it."
        raise UserError("this path exists already.", where=str(path), remedy=remedy)

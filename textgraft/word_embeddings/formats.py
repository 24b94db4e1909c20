"""Formats of word vectors: detection, reading, writing, conversion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.members import COMPRESSED
from textgraft.data.text_files import explained, open_binary
from textgraft.models import model_folder
from textgraft.word_embeddings import fasttext_binary, folder, glove_text, word2vec_binary, word2vec_text
from textgraft.word_embeddings.lines import Errors, WordDecoder, first_line
from textgraft.word_embeddings.word_vectors import VectorStream, WordVectors


@dataclass(frozen=True)
class Format:
    """`read` takes a path, a limit and a decoder of words, and returns mapped WordVectors or a stream; `write` takes a
    stream and a path.
    """

    read: Callable[[Path, int | None, WordDecoder], WordVectors | VectorStream]
    write: Callable[[VectorStream, Path], Path]


FORMATS: dict[str, Format] = {
    "textgraft": Format(lambda path, limit, _: folder.read(path, limit), folder.write),
    "word2vec": Format(word2vec_text.read, word2vec_text.write),
    "word2vec-binary": Format(word2vec_binary.read, word2vec_binary.write),
    "glove": Format(glove_text.read, glove_text.write),
    "fasttext": Format(fasttext_binary.read, fasttext_binary.write),
}
"""`word2vec` is also fastText's .vec; `fasttext` its .bin."""

_PEEK = 1 << 16


def load_vectors(
    source: str | Path, *, format: str | None = None, limit: int | None = None, errors: Errors = "strict"
) -> WordVectors:
    """Load word vectors from a textgraft folder, a bundled name, or a file in any of FORMATS.

    Folders and fastText's .bin are memory-mapped; the others are loaded into memory.

    Args:
        source: Folder, name or file.
        format: Name in FORMATS (None: detected from the first bytes).
        limit: Number of most frequent words (None: all).
        errors: "strict" raises for a word that is not UTF-8; "replace" puts U+FFFD for its wrong bytes, and warns.

    Raises:
        UserError: The source is none of these, or damaged; the message has the position.
    """
    vectors = _opened(source, format, limit, errors)
    return vectors if isinstance(vectors, WordVectors) else WordVectors.from_stream(vectors)


def stream_vectors(
    source: str | Path, *, format: str | None = None, limit: int | None = None, errors: Errors = "strict"
) -> VectorStream:
    """The same, block by block, with only the words in memory."""
    vectors = _opened(source, format, limit, errors)
    return vectors.stream() if isinstance(vectors, WordVectors) else vectors


def _opened(source: str | Path, format: str | None, limit: int | None, errors: Errors) -> WordVectors | VectorStream:
    return FORMATS[_validated_format(format or detect(source))].read(Path(source), limit, WordDecoder(errors))


def _validated_format(format: str) -> str:
    if format not in FORMATS:
        raise UserError(f"unknown format '{format}'.", remedy=did_you_mean(format, FORMATS))
    return format


def detect(source: str | Path) -> str:
    """Detect the format of a file by its first bytes; a folder, or a name that is not a path, is "textgraft".

    Raises:
        UserError: There is neither a file nor a model of that name.
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
    """True if the second line has numbers after the word."""
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
    errors: Errors = "strict",
    half: bool = False,
    overwrite: bool = False,
    seen: Callable[[int], None] = lambda words: None,
) -> Path:
    """Write the vectors of `source` in another format, block by block.

    Args:
        source: Folder, name or file.
        out: Path to write.
        to: Name in FORMATS.
        format: Format of `source` (None: detected).
        limit: Number of most frequent words (None: all).
        errors: Policy for words that are not UTF-8, as for `load_vectors`.
        half: Store float16 (textgraft's own format only).
        overwrite: Replace an existing path.
        seen: Called with the number of words of each block.

    Returns:
        The path.

    Raises:
        UserError: As `load_vectors`; `out` exists; the format cannot represent these vectors.
    """
    path = Path(out)
    if _validated_format(to) == "textgraft":
        model_folder.validate_new_path(path, overwrite)
    else:
        _validate_target(path, overwrite, half)
    stream = folder.observed(stream_vectors(source, format=format, limit=limit, errors=errors), seen)
    if to == "textgraft":
        return folder.write(stream, path, half=half, overwrite=overwrite)
    return FORMATS[to].write(stream, path)


def save_vectors(vectors: WordVectors, out: str | Path, *, to: str = "textgraft", **options: bool) -> Path:
    """Write vectors in one of FORMATS; `half` and `overwrite` as for `convert_vectors`."""
    path = Path(out)
    if _validated_format(to) == "textgraft":
        return folder.write(vectors.stream(), path, **options)
    _validate_target(path, options.get("overwrite", False), options.get("half", False))
    return FORMATS[to].write(vectors.stream(), path)


def _validate_target(path: Path, overwrite: bool, half: bool) -> None:
    """Raise UserError for an existing or compressed file, and for `half` with another format than textgraft's."""
    if half:
        raise UserError("only textgraft's own format has float16.", where=str(path), remedy="Leave half out.")
    if path.suffix.lower() in COMPRESSED:
        remedy = "Leave the suffix out, and compress the result."
        raise UserError(f"vectors are not written as {path.suffix}.", where=str(path), remedy=remedy)
    if path.is_dir() or (path.exists() and not overwrite):
        remedy = "Name another, or pass overwrite=True to replace it."
        raise UserError("this path exists already.", where=str(path), remedy=remedy)

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


@dataclass(frozen=True)
class VectorSource:
    """Word vectors to open, and how: arguments of `load_vectors`, whose errors `open` and `stream` raise."""

    path: str | Path
    format: str | None = None
    limit: int | None = None
    errors: Errors = "strict"

    def open(self) -> WordVectors | VectorStream:
        """Mapped vectors where the format allows it, else a stream."""
        read = FORMATS[_validated_format(self.format or detect(self.path))].read
        return read(Path(self.path), self.limit, WordDecoder(self.errors))

    def stream(self) -> VectorStream:
        """The vectors block by block, with only the words in memory."""
        vectors = self.open()
        return vectors.stream() if isinstance(vectors, WordVectors) else vectors


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
    vectors = VectorSource(source, format, limit, errors).open()
    return vectors if isinstance(vectors, WordVectors) else WordVectors.from_stream(vectors)


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
    return "word2vec" if _is_text(path, int(fields[1][:12])) else "word2vec-binary"


def _is_text(path: Path, dimensions: int) -> bool:
    """True if the second line has numbers after the word, which may have spaces in it."""
    with explained(path), open_binary(path) as file:
        file.readline(100)
        line = file.readline(_PEEK)
    parts = line.split()
    try:
        return all(math.isfinite(float(field)) for field in parts[max(1, len(parts) - dimensions) :][:2])
    except ValueError:
        return False


def convert_vectors(
    source: str | Path | VectorSource,
    out: str | Path,
    *,
    to: str = "textgraft",
    half: bool = False,
    overwrite: bool = False,
    seen: Callable[[int], None] = lambda words: None,
) -> Path:
    """Write the vectors of `source` in another format, block by block.

    Args:
        source: Folder, name or file; a VectorSource to name its format, a limit, or what to do about damaged words.
        out: Path to write.
        to: Name in FORMATS.
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
    opened = source if isinstance(source, VectorSource) else VectorSource(source)
    stream = folder.observed(opened.stream(), seen)
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

"""Memory-mapped token shards of a corpus: built in one pass in constant memory, readable at any position.

A folder contains `tokens-00000.bin`, … (ids, uint16, or uint32 for vocabularies of 65,536 tokens and more), for each a
`starts-00000.bin` (start of its documents in the whole corpus, uint64), all raw and little-endian, and `index.json`
with counts and checksums. A shard ends with the first document that fills it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write, write_atomically
from textgraft.core.json_text import parse
from textgraft.core.progress import Meter
from textgraft.data.streams.parallel_encoding import encoded
from textgraft.text.tokenizer import Tokenizer

INDEX = "index.json"
SHARD_TOKENS = 16_777_216
BATCH_CHARACTERS = 1_000_000
"""Characters of a batch for the tokenizer, so that memory does not depend on the number of texts."""

_FORMAT, _VERSION = "textgraft corpus", 1
_DELETE = "Delete the folder and build the corpus again."


@dataclass(frozen=True)
class Shard:
    """Index entry of one shard. `texts_sha256` is of the encoded texts with their lengths."""

    tokens: int
    documents: int
    words: int
    characters: int
    tokens_sha256: str
    starts_sha256: str
    texts_sha256: str


@dataclass
class Index:
    """Contents of `index.json`, rewritten after every shard so that an interrupted build can continue."""

    source: str
    tokenizer: str
    dtype: str
    shard_tokens: int
    complete: bool = False
    shards: list[Shard] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        names = ("documents", "tokens", "words", "characters")
        counts = {name: sum(getattr(shard, name) for shard in self.shards) for name in names}
        content = {"format": _FORMAT, "version": _VERSION, **counts, **asdict(self)}
        write_atomically(folder / INDEX, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Index:
        path = folder / INDEX
        try:
            content = parse(path.read_text(encoding="utf-8"))
            if content["format"] == _FORMAT and content["version"] > _VERSION:
                raise UserError(
                    "this corpus was written by a later version of textgraft.",
                    where=str(path),
                    remedy="Update textgraft, or build the corpus again in another folder.",
                )
            values = {f.name: content[f.name] for f in fields(cls)}
            index = cls(**{**values, "shards": [Shard(**shard) for shard in values["shards"]]})
            np.dtype(index.dtype)
        except OSError as error:
            message = f"there is no corpus here ({error.strerror})."
            raise UserError(message, where=str(path), remedy="Build one first, or check the path.") from error
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError("this index of a corpus is damaged.", where=str(path), remedy=_DELETE) from error
        return index


class Corpus:
    """A sequence of N token ids, documents one after another, on disk (`open`) or in memory (`from_ids`).

    `document_starts` (documents,) int64 are the documents' first tokens; `num_words` and `num_characters` count
    whitespace-separated words and characters of the original texts. Memory-mapped pages count as resident until the
    system reclaims them; they are not memory of the process.
    """

    def __init__(
        self,
        shards: Sequence[np.ndarray],
        document_starts: np.ndarray,
        *,
        words: int,
        characters: int,
        fingerprint: str,
        folder: Path | None = None,
    ) -> None:
        self._shards, self._folder = list(shards), folder
        self._borders = np.cumsum([0, *(len(shard) for shard in shards)])
        self.document_starts = document_starts
        self.num_tokens = int(self._borders[-1])
        self.num_documents = len(document_starts)
        self.num_words, self.num_characters = words, characters
        self.tokenizer_fingerprint = fingerprint

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Corpus:
        """Open a finished corpus.

        Args:
            folder: Its folder.
            verify: Check all hashes (about a second per gigabyte); else only sizes.

        Raises:
            UserError: The corpus is missing, unfinished, truncated or altered.
        """
        folder = Path(folder)
        index = Index.read(folder)
        if not index.complete:
            remedy = "Run the command that builds it again: it continues where it stopped."
            raise UserError("this corpus is unfinished.", where=str(folder), remedy=remedy)
        _validate_shards(folder, index, verify=verify)
        numbers = range(len(index.shards))
        starts = [np.fromfile(_starts_path(folder, i), dtype="<u8").astype(np.int64) for i in numbers]
        return cls(
            [np.memmap(_tokens_path(folder, i), dtype=index.dtype, mode="r") for i in numbers],
            np.concatenate(starts),
            words=sum(shard.words for shard in index.shards),
            characters=sum(shard.characters for shard in index.shards),
            fingerprint=index.tokenizer,
            folder=folder,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same files; a corpus in memory is copied."""
        if self._folder is None:
            counts = self.num_words, self.num_characters, self.tokenizer_fingerprint
            return _in_memory, (self._shards, self.document_starts, *counts)
        digest = _sha256(self._folder / INDEX)
        return _opened, (self._folder.resolve(), digest)

    @classmethod
    def from_ids(cls, ids: Sequence[np.ndarray], tokenizer: Tokenizer, *, words: int, characters: int) -> Corpus:
        """A corpus in memory from the output of `tokenizer.corpus_ids`."""
        lengths = np.array([len(document) for document in ids], dtype=np.int64)
        tokens = np.concatenate([np.zeros(0, dtype=np.int32), *ids]).astype(_dtype(tokenizer))
        starts = np.cumsum(lengths) - lengths
        return cls([tokens], starts, words=words, characters=characters, fingerprint=tokenizer.fingerprint)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Ids start to stop, (stop - start,) uint16 or uint32, across shard borders. Raises IndexError outside."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of a corpus of {self.num_tokens}")
        first = int(np.searchsorted(self._borders, start, side="right")) - 1
        parts = []
        for i in range(min(first, len(self._shards) - 1), len(self._shards)):
            border = int(self._borders[i])
            parts.append(self._shards[i][max(0, start - border) : stop - border])
            if stop <= self._borders[i + 1]:
                break
        return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _in_memory(shards: list[np.ndarray], starts: np.ndarray, words: int, characters: int, fingerprint: str) -> Corpus:
    return Corpus(shards, starts, words=words, characters=characters, fingerprint=fingerprint)


def _opened(folder: Path, digest: str) -> Corpus:
    """The corpus that another process has opened. Raises UserError if it is not here, or is another one."""
    path = folder / INDEX
    if not path.exists() or _sha256(path) != digest:
        message = "this corpus is not here" if not path.exists() else "this is another corpus than that of process 0"
        remedy = "Put the output folder on a drive that all machines share, under the same path."
        raise UserError(f"{message}.", where=str(folder), remedy=remedy)
    return Corpus.open(folder, verify=False)


def build_corpus(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    folder: str | Path,
    *,
    source_description: str,
    shard_tokens: int = SHARD_TOKENS,
    total: int | None = None,
    progress: bool = True,
    processes: int = 0,
) -> Corpus:
    """Encode a stream of texts into shards and open them.

    An interrupted build, called again, skips the texts of complete shards and continues; the result is byte-identical.
    A finished corpus of the same source and tokenizer is opened immediately. Only one process may build in a folder.

    Args:
        texts: The texts.
        tokenizer: The tokenizer.
        folder: Folder of the shards.
        source_description: Names of the files and their hashes.
        shard_tokens: Tokens of a shard.
        total: Number of texts for the progress bar; taken from `texts` if that has a length.
        progress: Show a progress bar on stderr.
        processes: Number of processes that tokenize; 0: this one, with the threads of the tokenizer's library.

    Raises:
        UserError: The folder contains something else or a corpus of another source or tokenizer, cannot be written, or
            there is no text.
    """
    folder = Path(folder)
    index = _begin_or_resume(folder, source_description, tokenizer, shard_tokens)
    if index.complete:
        return Corpus.open(folder)
    if total is None and isinstance(texts, Sized):
        total = len(texts)
    stream = enumerate(texts, start=1)
    with Meter("Encoding", total, shown=progress) as meter:
        for number, shard in enumerate(index.shards):
            _skip(stream, shard, number, folder, meter)
        documents = _encode_batches(_validated(stream, folder), tokenizer, processes)
        first_token = sum(shard.tokens for shard in index.shards)
        while shard_written := _write_shard(documents, folder, index, first_token, meter):
            index.shards.append(shard_written)
            index.write(folder)
            first_token += shard_written.tokens
    if not index.shards:
        raise UserError("there is no text to encode.", where=source_description, remedy="Check that it is not empty.")
    index.complete = True
    index.write(folder)
    return Corpus.open(folder, verify=False)


def _begin_or_resume(folder: Path, source: str, tokenizer: Tokenizer, shard_tokens: int) -> Index:
    if shard_tokens < 1:
        raise UserError(f"{shard_tokens} is out of range.", where="shard_tokens", remedy="Use 1 or more.")
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    remedy = "Choose another folder, or delete this one."
    if not (folder / INDEX).exists():
        # Files of a build interrupted before its first index.json are overwritten.
        leftovers = {_tokens_path(folder, 0), _starts_path(folder, 0)}
        if any(path.suffix != ".part" and path not in leftovers for path in folder.iterdir()):
            raise UserError("this folder holds other files.", where=str(folder), remedy=remedy)
        return Index(source, tokenizer.fingerprint, _dtype(tokenizer), shard_tokens)
    index = Index.read(folder)
    if index.tokenizer != tokenizer.fingerprint:
        raise UserError("this folder holds a corpus of another tokenizer.", where=str(folder), remedy=remedy)
    if index.source != source:
        message = f"this folder holds a corpus of another source ({index.source})."
        raise UserError(message, where=str(folder), remedy=remedy)
    _validate_shards(folder, index, verify=False)
    return index


def _validate_shards(folder: Path, index: Index, *, verify: bool) -> None:
    size = np.dtype(index.dtype).itemsize
    for i, shard in enumerate(index.shards):
        expected = (
            (_tokens_path(folder, i), shard.tokens * size, shard.tokens_sha256),
            (_starts_path(folder, i), shard.documents * 8, shard.starts_sha256),
        )
        for path, length, digest in expected:
            if not path.exists():
                raise UserError("this part of the corpus is missing.", where=str(path), remedy=_DELETE)
            if path.stat().st_size != length:
                message = f"this part of the corpus has {path.stat().st_size} bytes instead of {length}."
                raise UserError(message, where=str(path), remedy=_DELETE)
            if verify and _sha256(path) != digest:
                raise UserError("this part of the corpus has been altered.", where=str(path), remedy=_DELETE)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _skip(stream: Iterator[tuple[int, Any]], shard: Shard, number: int, folder: Path, meter: Meter) -> None:
    """Skip the texts of a shard that an earlier run completed, after checking that they are unchanged."""
    digest = hashlib.sha256()
    for _, text in islice(stream, shard.documents):
        digest.update(_length_prefixed(text) if isinstance(text, str) else b"")
    meter.skip(shard.documents)
    if digest.hexdigest() != shard.texts_sha256:
        raise UserError(
            f"the source has changed since shard {number} was made from it.",
            where=str(folder),
            remedy="Choose another folder, or delete this one to start over.",
        )


def _validated(stream: Iterator[tuple[int, Any]], folder: Path) -> Iterator[str]:
    for number, text in stream:
        if not isinstance(text, str):
            message = f"text {number} is not a string but {type(text).__name__}."
            raise UserError(message, where=str(folder), remedy="Leave out rows without text.")
        yield text


def _encode_batches(texts: Iterator[str], tokenizer: Tokenizer, processes: int) -> Iterator[tuple[str, np.ndarray]]:
    if processes:
        encoded_texts = encoded(((text, text) for text in texts), tokenizer.to_json(), processes=processes)
        yield from ((text, ids) for ids, text in encoded_texts)
        return
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield from zip(batch, tokenizer.corpus_ids(batch))
            batch, characters = [], 0
    yield from zip(batch, tokenizer.corpus_ids(batch))


def _write_shard(
    documents: Iterator[tuple[str, np.ndarray]], folder: Path, index: Index, first_token: int, meter: Meter
) -> Shard | None:
    """Write the next shard; None when there are no more documents."""
    number = len(index.shards)
    count = tokens = words = characters = 0
    texts = hashlib.sha256()
    with (
        _ShardFile(_tokens_path(folder, number)) as ids_file,
        _ShardFile(_starts_path(folder, number)) as starts,
    ):
        for text, ids in documents:
            raw = _length_prefixed(text)
            texts.update(raw)
            starts.write(np.array([first_token + tokens], dtype="<u8").tobytes())
            ids_file.write(ids.astype(index.dtype).tobytes())
            count, tokens = count + 1, tokens + len(ids)
            words, characters = words + len(text.split()), characters + len(text)
            meter.add(len(raw), len(ids))
            if tokens >= index.shard_tokens:
                break
        if not count:
            return None
        ids_file.finish()
        starts.finish()
    return Shard(tokens, count, words, characters, ids_file.sha256, starts.sha256, texts.hexdigest())


class _ShardFile:
    """A temporary file that `finish` moves to its path; without it, nothing remains."""

    def __init__(self, path: Path) -> None:
        self.path, self._temporary = path, path.with_name(path.name + ".part")
        self._digest = hashlib.sha256()
        with _writing(path):
            self._file = open(self._temporary, "wb")  # noqa: SIM115 (closed by __exit__)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        with _writing(self.path):
            self._file.write(data)

    def finish(self) -> None:
        with _writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._temporary, self.path)

    def __enter__(self) -> _ShardFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _writing(self.path):
            self._file.close()
            self._temporary.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def _length_prefixed(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return b"%d:%b" % (len(raw), raw)


def _dtype(tokenizer: Tokenizer) -> str:
    return "<u2" if tokenizer.vocab_size < 65_536 else "<u4"


def _tokens_path(folder: Path, number: int) -> Path:
    return folder / f"tokens-{number:05d}.bin"


def _starts_path(folder: Path, number: int) -> Path:
    return folder / f"starts-{number:05d}.bin"

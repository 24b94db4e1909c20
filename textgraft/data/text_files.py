"""Text files as lines: plain or compressed, in any encoding, with the location of undecodable bytes."""

from __future__ import annotations

import bz2
import codecs
import difflib
import gzip
import io
import lzma
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import FULL, temporary_folder
from textgraft.data.legacy_encodings import KNOWN, guess_encoding
from textgraft.data.members import COMPRESSED, format_of, is_in_zip, open_in_zip, split_member

_CHUNK = 1 << 20
_SAMPLE_BYTES = 1 << 16  # bytes of undecodable lines that the guess is made from: more is slower, not better
_BOMS = (  # the longer first: a UTF-32 mark begins with the UTF-16 one
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NAME_IT = "Name it with encoding=… (for example latin-1), or save the file as UTF-8."


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert errors of the operating system or a decompressor about `path` to UserError."""
    try:
        yield
    except FileNotFoundError as error:
        path = split_member(path)[0]
        if path.parent.is_dir():
            near = difflib.get_close_matches(path.name, sorted(p.name for p in path.parent.iterdir()), n=1)
            remedy = f"Did you mean '{near[0]}'?" if near else "Check the path."
        else:
            remedy = "The folder does not exist either."
        raise UserError("no such file or folder.", where=str(path), remedy=remedy) from error
    except zipfile.BadZipFile as error:
        raise UserError(f"not a zip archive, or a damaged one ({error}).", where=str(path)) from error
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise _damaged_error(path, error) from error
    except OSError as error:
        if error.errno in FULL:  # of a file that is written meanwhile, such as an unpacked copy
            raise
        if error.errno is None:  # not from the system: bz2 raises OSError for invalid data
            raise _damaged_error(path, error) from error
        raise UserError(
            f"cannot be read: {error.strerror or error}.", where=str(path), remedy="Check the path and its permissions."
        ) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # by name, because its library may not be installed
            raise
        raise _damaged_error(path, error) from error


def _damaged_error(path: Path, error: Exception) -> UserError:
    message = f"the compressed file is damaged or cut short ({error})."
    return UserError(message, where=str(path), remedy="Download it again.")


def open_binary(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open `path` for reading bytes, decompressed if it ends in .gz, .xz, .bz2 or .zst, or is in a zip archive.

    Raises UserError for .zst without a library for it.
    """
    return decompressed(path, open_in_zip(path) if is_in_zip(path) else path)


def decompressed(path: Path, file: Path | IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    """Open the bytes of `file`, decompressed as the suffix of `path` says. Raises UserError as `open_binary`."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(file, "rb")
    if suffix == ".xz":
        return lzma.open(file, "rb")
    if suffix == ".bz2":
        return bz2.open(file, "rb")
    if suffix == ".zst":
        return _open_zstandard(path, file)
    return file.open("rb") if isinstance(file, Path) else file


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """The file itself, or an unpacked copy for the time of the block: for formats that are not read from the start."""
    file, _ = split_member(path)
    with explained(path):
        file.open("rb").close()
    if not is_in_zip(path) and file.suffix.lower() not in COMPRESSED:
        yield file
        return
    packed = path if is_in_zip(path) else file
    with temporary_folder() as folder:
        plain = folder / f"table{format_of(path)}"
        with explained(path), open_binary(packed) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield plain


def _open_zstandard(path: Path, source: Path | IO[bytes]) -> IO[bytes]:
    # The module of Python 3.14 or its backport; unlike other bindings they detect truncated files.
    for name in ("compression.zstd", "backports.zstd"):
        try:
            zstd = import_module(name)
        except ImportError:
            continue
        file: IO[bytes] = zstd.open(source, "rb")
        return file
    remedy = "Install one (pip install 'textgraft[zstd]'), or unpack the file (zstd -d) and use the result."
    raise UserError("reading .zst needs a library.", where=str(path), remedy=remedy)


def lines(path: Path, *, encoding: str | None = None, sniff_bytes: int | None = None) -> Iterator[str]:
    """Lines of a file with their line ends, in constant memory.

    Args:
        path: The file, plain or compressed.
        encoding: Encoding; detected if None.
        sniff_bytes: Bytes that decide the encoding; None for all.

    Raises:
        UserError: The file cannot be opened, decompressed or decoded, the last with line and byte.
    """
    encoding = sniff(path, sniff_bytes) if encoding is None else validate_encoding(encoding)
    with explained(path), io.TextIOWrapper(open_binary(path), encoding=encoding, newline="") as text:
        try:
            yield from text
        except UnicodeDecodeError:
            _raise_undecodable(path, encoding)


def sniff(path: Path, limit: int | None = None) -> str:
    """Detect the encoding from the first `limit` bytes (None: all): byte order mark, else UTF-8, else a guess.

    A guess is announced by a warning and needs evidence (data.legacy_encodings). Otherwise, and for UTF-8 with some
    damage, where a guess would garble the rest, UserError is raised.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    seen = 0
    with explained(path), open_binary(path) as raw:
        while True:
            chunk = raw.read(_CHUNK)
            if seen == 0 and (encoding := encoding_from_start(chunk)):
                return encoding
            seen += len(chunk)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError:
                break
            if not chunk or (limit is not None and seen >= limit):
                return "utf-8"
    return _guess(path)


def encoding_from_start(head: bytes) -> str | None:
    """UTF-8, UTF-16 or UTF-32 by byte order mark, UTF-16 without one by the positions of its zero bytes."""
    if (marked := next((name for bom, name in _BOMS if head.startswith(bom)), None)) is not None:
        return marked
    start = head[:4096]
    even, odd = start[0::2].count(0), start[1::2].count(0)
    if len(start) >= 4 and max(even, odd) > 0.3 * len(start) / 2 and min(even, odd) < 0.05 * len(start) / 2:
        return "utf-16-le" if odd > even else "utf-16-be"
    return None


def _guess(path: Path) -> str:
    sample = _non_ascii_lines(path)
    text = sample.decode("utf-8", errors="replace")
    bad = text.count("\ufffd")
    if sum(not c.isascii() for c in text) - bad > bad:
        _raise_undecodable(path, "utf-8")
    encoding = guess_encoding(sample)
    if encoding is None:
        _raise_undecodable(path, "utf-8")
    warnings.warn(f"{path} is not UTF-8 and was read as {encoding}. {_NAME_IT}", stacklevel=2)
    return encoding


def _non_ascii_lines(path: Path) -> bytes:
    """Up to `_SAMPLE_BYTES` bytes of lines with non-ASCII bytes."""
    sample = bytearray()
    with explained(path), open_binary(path) as raw:
        while len(sample) < _SAMPLE_BYTES and (line := raw.readline(_SAMPLE_BYTES)):
            if not line.isascii():
                sample += line
    return bytes(sample)


def validate_encoding(encoding: str) -> str:
    """The name that Python has for an encoding, with its byte order mark. Raises UserError for an unknown one."""
    try:
        info = codecs.lookup(encoding)
    except LookupError as error:
        remedy = did_you_mean(encoding, KNOWN)
        raise UserError(f"unknown encoding '{encoding}'.", remedy=remedy) from error
    return "utf-8-sig" if info.name == "utf-8" else info.name


def _raise_undecodable(path: Path, encoding: str) -> NoReturn:
    """Read `path` again and raise UserError with the line and byte where decoding fails."""
    decoder = codecs.getincrementaldecoder(encoding)()
    read, line = 0, 1
    with explained(path), open_binary(path) as raw:
        while True:
            chunk = raw.read(_CHUNK)
            read += len(chunk)
            try:
                line += decoder.decode(chunk, final=not chunk).count("\n")
            except UnicodeDecodeError as error:
                # error.object is what the decoder still held plus this chunk
                line += error.object[: error.start].decode(encoding, errors="ignore").count("\n")
                byte = error.object[error.start : error.start + 1].hex()
                offset = read - len(error.object) + error.start
                raise UserError(
                    f"byte 0x{byte} at offset {offset} is not {encoding.removesuffix('-sig')}.",
                    where=f"{path} line {line}",
                    remedy=f"The file is damaged or in another encoding. {_NAME_IT}",
                ) from None
            if not chunk:
                raise UserError(f"is not {encoding} throughout.", where=str(path), remedy=_NAME_IT)

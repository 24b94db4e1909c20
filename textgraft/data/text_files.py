"""Files as lines of text: plain or compressed, in any encoding, with the place of whatever cannot be read."""

from __future__ import annotations

import bz2
import codecs
import difflib
import gzip
import io
import lzma
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

from textgraft.core.errors import UserError, did_you_mean

COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
_CHUNK = 1 << 20
_SAMPLE = 1 << 16  # bytes of undecodable lines that charset-normalizer sees: more is slower, not better
_EVIDENCE = (
    0.03,
    8,
)  # the share and the count of non-ASCII bytes below which a language says nothing about them

_BOMS = (  # the longer first: a UTF-32 mark begins with the UTF-16 one
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = frozenset("àáâãäåæçèéêëìíîïñòóôõöøœùúûüßÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØŒÙÚÛÜ‘’‚“”„…–—•·€£§©®™°´«»¡¿½¼¾²×\u00a0")
_NO_WORD = re.compile(r"\b[ÂÃÇËÎÏÑÕÜâãçëîïñõüß]\b")  # alone these are broken UTF-8, not a word of any language
_LEGACY = (  # the encodings that people's files really come in, for every larger script
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("cp874", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
_NAME_IT = "Name it with encoding=… (for example latin-1), or save the file as UTF-8."


def format_of(path: Path) -> str:
    """The suffix that says how to read `path`, compression aside: `.csv` for `reviews.CSV.gz`."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the operating system or a decompressor says about `path` into a `UserError`."""
    try:
        yield
    except FileNotFoundError as error:
        if path.parent.is_dir():
            near = difflib.get_close_matches(path.name, sorted(p.name for p in path.parent.iterdir()), n=1)
            remedy = f"Did you mean '{near[0]}'?" if near else "Check the path."
        else:
            remedy = "The folder does not exist either."
        raise UserError("no such file or folder.", where=str(path), remedy=remedy) from error
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if error.errno is None:  # not the system: bz2 says so of data that are not its own
            raise _damaged(path, error) from error
        raise UserError(
            f"cannot be read: {error.strerror or error}.", where=str(path), remedy="Check the path and its permissions."
        ) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # of a library that may not be there to be named
            raise
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UserError:
    message = f"the compressed file is damaged or cut short ({error})."
    return UserError(message, where=str(path), remedy="Fetch it again.")


def open_binary(path: Path) -> IO[bytes] | gzip.GzipFile:
    """The bytes of `path`, decompressed when it ends in .gz, .xz, .bz2 or .zst.

    Raises UserError for .zst where no library reads it.
    """
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(path, "rb")
    if suffix == ".xz":
        return lzma.open(path, "rb")
    if suffix == ".bz2":
        return bz2.open(path, "rb")
    if suffix == ".zst":
        return _open_zstandard(path)
    return path.open("rb")


def _open_zstandard(path: Path) -> IO[bytes]:
    # The module of Python 3.14 and its backport, which unlike other bindings notice a file that was cut short.
    for name in ("compression.zstd", "backports.zstd"):
        try:
            zstd = import_module(name)
        except ImportError:
            continue
        file: IO[bytes] = zstd.open(path, "rb")
        return file
    remedy = "Install one (pip install 'textgraft[zstd]'), or unpack the file (zstd -d) and name what comes out."
    raise UserError("reading .zst needs a library.", where=str(path), remedy=remedy)


def lines(path: Path, *, encoding: str | None = None, sniff_bytes: int | None = None) -> Iterator[str]:
    """Each line of `path` with its line end, in memory that does not grow with the file.

    Without `encoding`, UTF-8 is assumed once the first `sniff_bytes` bytes (None: all of them) decode as such.
    Raises UserError for a file that cannot be opened, decompressed or decoded, the last with line and byte.
    """
    encoding = sniff(path, sniff_bytes) if encoding is None else _checked(encoding)
    with explained(path), io.TextIOWrapper(open_binary(path), encoding=encoding, newline="") as text:
        try:
            yield from text
        except UnicodeDecodeError:
            _raise_undecodable(path, encoding)


def sniff(path: Path, limit: int | None = None) -> str:
    """The encoding of the first `limit` bytes (None: all): a byte order mark, else UTF-8, else an informed guess.

    A guess is announced by a warning, and made only on evidence: Western European characters throughout
    (Windows-1252), or a language that charset-normalizer recognises. Anything else is a UserError, and so is a
    file that is UTF-8 but for some damage, because guessing there would garble all the rest.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    seen = 0
    with explained(path), open_binary(path) as raw:
        while True:
            chunk = raw.read(_CHUNK)
            if seen == 0 and (marked := _marked(chunk)):
                return marked
            seen += len(chunk)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError:
                break
            if not chunk or (limit is not None and seen >= limit):
                return "utf-8"
    return _guess(path)


def _marked(head: bytes) -> str | None:
    """UTF-16 and UTF-32 by their byte order mark, UTF-16 without one by where its zero bytes stand."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
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
    encoding = "cp1252" if _looks_western(sample) else _recognised(sample)
    if encoding is None:
        _raise_undecodable(path, "utf-8")
    warnings.warn(f"{path} is not UTF-8 and was read as {encoding}. {_NAME_IT}", stacklevel=2)
    return encoding


def _looks_western(sample: bytes) -> bool:
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    return all(c.isascii() or c in _WESTERN for c in text) and not _NO_WORD.search(text)


def _recognised(sample: bytes) -> str | None:
    from charset_normalizer import from_bytes

    share, count = _EVIDENCE
    if sum(byte > 127 for byte in sample) < max(count, share * len(sample)):
        return None  # the language recognised would be that of the ASCII around a few broken bytes
    best = from_bytes(sample, cp_isolation=list(_LEGACY)).best()
    return best.encoding if best is not None and best.coherence > 0 else None


def _non_ascii_lines(path: Path) -> bytes:
    """Up to `_SAMPLE` bytes of the lines that tell encodings apart."""
    sample = bytearray()
    with explained(path), open_binary(path) as raw:
        while len(sample) < _SAMPLE and (line := raw.readline(_SAMPLE)):
            if not line.isascii():
                sample += line
    return bytes(sample)


def _checked(encoding: str) -> str:
    try:
        info = codecs.lookup(encoding)
    except LookupError as error:
        remedy = did_you_mean(encoding, ("utf-8", "utf-16", "latin-1", *_LEGACY))
        raise UserError(f"unknown encoding '{encoding}'.", remedy=remedy) from error
    return "utf-8-sig" if info.name == "utf-8" else info.name


def _raise_undecodable(path: Path, encoding: str) -> NoReturn:
    """Read `path` again to say at which line and byte it stops being `encoding`."""
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
                found = error.object[error.start : error.start + 1].hex()
                offset = read - len(error.object) + error.start
                raise UserError(
                    f"byte 0x{found} at offset {offset} is not {encoding.removesuffix('-sig')}.",
                    where=f"{path} line {line}",
                    remedy=f"The file is damaged or in another encoding. {_NAME_IT}",
                ) from None
            if not chunk:
                raise UserError(f"is not {encoding} throughout.", where=str(path), remedy=_NAME_IT)

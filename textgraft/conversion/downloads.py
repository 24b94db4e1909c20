"""Verified downloads from a model hub through `huggingface_hub`: a repository's files at one commit.

Requests, redirections, proxies, ranges and tokens are the library's. Two things are added to its downloads: bytes of
a process that was killed are kept, and contents are compared with the hub's hashes (docs/decisions.md has the reasons).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from textgraft import __version__
from textgraft.conversion import hub_errors
from textgraft.conversion.hub_errors import RESUME_NOTE
from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write

ENDPOINT = "https://huggingface.co"
TIMEOUT = 30.0
"""Seconds for the list of files."""
RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry after a failure that may pass; the sequence restarts whenever bytes have arrived."""
CHUNK = 1 << 18
WRITE_EVERY = 1 << 18
"""Bytes that are written at once: what a lost connection or a killed process costs. The library waits for 10 MB."""
LOG, BARS = "huggingface_hub", "huggingface_hub.http_get"
"""Names of the library's log and of its progress bars."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository with the hash of its content; git's blob sha1 includes a header."""

    name: str
    size: int
    algorithm: Literal["sha256", "git-sha1"]
    digest: str

    def hasher(self) -> Any:
        """A hash object whose hexdigest is `digest` for the complete content."""
        if self.algorithm == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)


@dataclass(frozen=True)
class Repository:
    """A model's files at one commit; `name` is the hub's current name, which may differ after a renaming."""

    name: str
    commit: str
    files: Mapping[str, RemoteFile]


class Hub:
    """A hub at `endpoint` (None: HF_ENDPOINT, else huggingface.co), with the user's token.

    Raises:
        UserError: The address is invalid, or `huggingface_hub` is not installed.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        endpoint = endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT
        self.endpoint = endpoint.rstrip("/")
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            remedy = "Write it as https://host or http://host."
            raise UserError(f"'{endpoint}' is not the address of a hub.", remedy=remedy)
        self._library = _library()
        self.token: str | None = self._library.get_token()
        # A fixed user agent: the library's own would name the versions of what else is installed.
        self._headers = {"user-agent": f"textgraft/{__version__}", "accept-encoding": "identity"}

    def repository(self, name: str, revision: str) -> Repository:
        """Files of the model `name` at `revision`: a branch, a tag or a commit.

        Raises:
            UserError: It does not exist, access is denied, the hub cannot be reached, or it gives no sizes and hashes.
        """
        api = self._library.HfApi(self.endpoint, token=self.token or False, headers=self._headers)
        waits = iter(RETRY_DELAYS)
        while True:
            try:
                content = api.model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT)
                files = {one.rfilename: _remote_file(one) for one in content.siblings or ()}
                return Repository(str(content.id or name), str(content.sha), files)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                message = f"the server is not a model hub, or gives no hashes to verify by ({error!r})."
                raise UserError(message, where=self.endpoint, remedy="Check endpoint=… and HF_ENDPOINT.") from error
            except Exception as error:
                wait = next(waits, None) if hub_errors.is_transient(error) else None
                if wait is None:
                    raise self._user_error(error, name, revision) from error
                time.sleep(wait)

    def download(
        self, repository: Repository, file: RemoteFile, whole: Path, part: Path, advance: Callable[[int], object]
    ) -> None:
        """Download a file to `whole`, resuming what is in `part`.

        `advance` is called with the number of new bytes, negative where they have to be downloaded again.

        Raises:
            UserError: The connection is lost for good or the disk is full (`part` is kept), or the hash is wrong
                (`part` is removed).
        """
        try:
            if whole.is_file() and is_intact(whole, file):
                advance(file.size)
                return
            part.parent.mkdir(parents=True, exist_ok=True)
            whole.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "a+b", buffering=0) as out:
                partial = _Partial(out, file, advance)
                if partial.size < file.size:
                    self._rest(repository, file, partial)
                os.fsync(out.fileno())
        except UserError:
            raise
        except OSError as error:
            raise cannot_write(part, error) from error
        digest = partial.digest()
        if digest != file.digest:
            part.unlink()
            message = f"the checksum is wrong: {file.algorithm} {digest}, and the hub says {file.digest}."
            remedy = "The file was removed. Run the same command again; if that does not help, the server is at fault."
            raise UserError(message, where=f"{repository.name}/{file.name}", remedy=remedy)
        part.replace(whole)

    def _rest(self, repository: Repository, file: RemoteFile, partial: _Partial) -> None:
        """Append the missing bytes."""
        http_get = self._library.file_download.http_get
        name = repository.name
        url = self._library.hf_hub_url(name, file.name, revision=repository.commit, endpoint=self.endpoint)
        headers = self._headers | ({"authorization": f"Bearer {self.token}"} if self.token else {})
        waits = iter(RETRY_DELAYS)
        while partial.size < file.size:
            before = partial.size
            failure: Exception | None = None
            try:
                with _adjusted(self._library):
                    http_get(url, partial, resume_size=before, headers=headers, expected_size=file.size)
            except UserError:
                raise
            except Exception as error:
                failure = error
            partial.refresh()
            if partial.size > before:
                waits = iter(RETRY_DELAYS)
            if partial.size >= file.size:
                break
            may_pass = failure is None or hub_errors.is_transient(failure, retried=True)
            wait = next(waits, None) if may_pass else None
            if wait is None and (failure is None or not hub_errors.is_response(failure)):
                reason = f" ({hub_errors.reason(failure)})" if failure else ""
                message = f"the connection was lost at byte {partial.size:,} of {file.size:,}{reason}."
                raise UserError(message, where=f"{name}/{file.name}", remedy=RESUME_NOTE) from failure
            if wait is None:
                raise self._user_error(failure, name, repository.commit, file.name) from failure
            time.sleep(wait)

    def _user_error(self, error: Exception | None, name: str, revision: str, file: str = "") -> UserError:
        request = hub_errors.Request(self.endpoint, name, revision, file, has_token=bool(self.token))
        return hub_errors.user_error(error, request)


class _Partial:
    """A partial download as the library writes it: bytes are hashed and reported when they are on the disk."""

    def __init__(self, out: Any, file: RemoteFile, advance: Callable[[int], object]) -> None:
        self._out, self._file, self._advance = out, file, advance
        self.name, self.size = out.name, 0
        if out.seek(0, os.SEEK_END) > file.size:
            out.truncate(0)
        self._read()

    def refresh(self) -> None:
        """Read the file again if something else than `write` has changed it."""
        if os.fstat(self._out.fileno()).st_size != self.size:
            self._read()

    def digest(self) -> str:
        """The hash of the bytes so far."""
        return str(self._content.hexdigest())

    def tell(self) -> int:
        """Position of the end: bytes are only appended."""
        return self.size

    def seek(self, position: int) -> int:
        """Where `truncate` cuts; the library goes back to the beginning if the server ignores a range."""
        return int(self._out.seek(position))

    def truncate(self, size: int | None = None) -> int:
        """Remove bytes from the end."""
        left = int(self._out.truncate() if size is None else self._out.truncate(size))
        self._read()
        return left

    def write(self, chunk: bytes) -> int:
        """Append all bytes. Raises UserError if the disk is full, which no retry helps."""
        rest = memoryview(chunk)
        while rest:
            try:
                written = append(self._out, rest)
            except OSError as error:
                full = cannot_write(Path(self.name), error)
                raise UserError(full.message, where=full.where, remedy=f"{full.remedy} {RESUME_NOTE}") from error
            self._content.update(rest[:written])
            self.size += written
            self._advance(written)
            rest = rest[written:]
        return len(chunk)

    def flush(self) -> None:
        """Nothing: the file has no buffer."""

    def _read(self) -> None:
        """Hash and count what is in the file."""
        self._content, before = self._file.hasher(), self.size
        self._out.seek(0)
        self.size = 0
        while chunk := self._out.read(CHUNK):
            self._content.update(chunk)
            self.size += len(chunk)
        self._advance(self.size - before)


def append(out: Any, data: memoryview) -> int:
    """Write some of the bytes; return how many."""
    return int(out.write(data))


def is_intact(path: Path, file: RemoteFile) -> bool:
    """True if a file has the size and the hash that the hub states."""
    if path.stat().st_size != file.size:
        return False
    content = file.hasher()
    with open(path, "rb") as data:
        while chunk := data.read(CHUNK):
            content.update(chunk)
    return bool(content.hexdigest() == file.digest)


def _remote_file(described: Any) -> RemoteFile:
    lfs = described.lfs
    if lfs:
        return RemoteFile(described.rfilename, int(lfs["size"]), "sha256", str(lfs["sha256"]))
    if described.blob_id is None:
        raise ValueError(f"{described.rfilename} has no blobId")
    return RemoteFile(described.rfilename, int(described.size), "git-sha1", str(described.blob_id))


@contextlib.contextmanager
def _adjusted(library: Any) -> Iterator[None]:
    """The library with small chunks, and without its progress bars and notes on retries, which we have of our own."""
    bars, constants, log = library.utils, library.constants, logging.getLogger(LOG)
    off, level, chunk = bars.are_progress_bars_disabled(BARS), log.level, constants.DOWNLOAD_CHUNK_SIZE
    if not off:
        bars.disable_progress_bars(BARS)
    log.setLevel(logging.ERROR)
    constants.DOWNLOAD_CHUNK_SIZE = WRITE_EVERY
    try:
        yield
    finally:
        constants.DOWNLOAD_CHUNK_SIZE = chunk
        log.setLevel(level)
        if not off:
            bars.enable_progress_bars(BARS)


def _library() -> Any:
    """`huggingface_hub`, with the module of its downloads."""
    try:
        import huggingface_hub
        import huggingface_hub.file_download
    except ImportError as error:
        remedy = "Install it: pip install 'textgraft[hub]'."
        raise UserError("fetch needs the package 'huggingface_hub'.", remedy=remedy) from error
    return huggingface_hub

"""HTTP client of a model hub, with the standard library: a repository's files at one commit, and verified downloads.

Addresses are those of huggingface.co and its mirrors: `/api/models/NAME/revision/REVISION` and
`/NAME/resolve/COMMIT/FILE`. Proxies are those of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from textgraft import __version__
from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as lost."""
RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry; the sequence restarts whenever bytes have arrived."""
CHUNK = 1 << 18
TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
"""Status codes after which a retry may help."""
RESUME_NOTE = "What has come is kept; the same command goes on from there."


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

    @property
    def part(self) -> str:
        """Name of the partial download: other content has another name."""
        return f"{self.name}.{self.digest[:16]}.part"


@dataclass(frozen=True)
class Repository:
    """A model's files at one commit; `name` is the hub's current name, which may differ after a renaming."""

    name: str
    commit: str
    files: Mapping[str, RemoteFile]


class _Redirects(request.HTTPRedirectHandler):
    """Redirections, which lead to other storage hosts: the token is only sent to the original host."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if new is not None and token and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            new.add_unredirected_header("Authorization", token)
        return new


class Hub:
    """A hub at `endpoint`; `token` is only sent to that host. Raises UserError for an invalid address."""

    def __init__(self, endpoint: str, token: str | None = None) -> None:
        self.endpoint, self.token = endpoint.rstrip("/"), token
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(
                f"'{endpoint}' is not the address of a hub.", remedy="Write it as https://host or http://host."
            )
        self._opener = request.OpenerDirector()
        for handler in (
            request.ProxyHandler(),
            request.HTTPHandler(),
            request.HTTPSHandler(),
            _Redirects(),
            request.HTTPErrorProcessor(),
            request.HTTPDefaultErrorHandler(),
            request.UnknownHandler(),
        ):
            self._opener.add_handler(handler)

    def repository(self, name: str, revision: str) -> Repository:
        """Files of the model `name` at `revision`: a branch, a tag or a commit.

        Raises:
            UserError: It does not exist, access is denied, the hub cannot be reached, or it gives no sizes and hashes.
        """
        path = f"/api/models/{name}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            content = json.loads(self._read(path, name, revision))
            files = {f.name: f for f in map(_remote_file, content["siblings"])}
            return Repository(str(content.get("id") or name), str(content["sha"]), files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            message = f"the server is not a model hub, or gives no hashes to verify by ({error!r})."
            raise UserError(message, where=self.endpoint, remedy="Check the endpoint and HF_ENDPOINT.") from error

    def _read(self, path: str, name: str, revision: str) -> bytes:
        for wait in (*RETRY_DELAYS, None):
            try:
                with self._open(path) as response:
                    return bytes(response.read())
            except (OSError, http.client.HTTPException) as error:
                if wait is None or not _is_transient(error):
                    raise self._user_error(error, name, revision) from error
                time.sleep(wait)
        raise AssertionError

    def download(
        self, repository: Repository, file: RemoteFile, folder: Path, advance: Callable[[int], object]
    ) -> None:
        """Download a file into `folder`, resuming a partial download.

        `advance` is called with the number of new bytes, negative where they have to be downloaded again.

        Raises:
            UserError: The connection is lost for good or the disk is full (the partial download is kept), or the hash
                is wrong (it is removed).
        """
        path, part = folder / file.name, folder / file.part
        content = file.hasher()
        try:
            if path.is_file():  # from an interrupted run
                if _is_whole(path, file):
                    advance(file.size)
                    return
                path.unlink()
            with open(part, "a+b", buffering=0) as out:
                have = _read_part(out, file, content, advance)
                if have < file.size:
                    content = self._rest(repository, file, out, content, advance)
                os.fsync(out.fileno())
        except OSError as error:
            raise cannot_write(part, error) from error
        digest = content.hexdigest()
        if digest != file.digest:
            part.unlink()
            message = f"the checksum is wrong: {file.algorithm} {digest}, and the hub says {file.digest}."
            remedy = "The file was removed. Run the same command again; if that does not help, the server is at fault."
            raise UserError(message, where=f"{repository.name}/{file.name}", remedy=remedy)
        part.replace(path)

    def _rest(
        self, repository: Repository, file: RemoteFile, out: Any, content: Any, advance: Callable[[int], object]
    ) -> Any:
        """Append the missing bytes to `out`; return the hash object of the whole content."""
        path = f"/{repository.name}/resolve/{repository.commit}/{quote(file.name)}"
        have, waits = out.tell(), iter(RETRY_DELAYS)
        while have < file.size:
            start_of_attempt, lost = have, None
            try:
                with self._open(path, start=have) as response:
                    if have and response.status != http.client.PARTIAL_CONTENT:
                        advance(-have)
                        have, start_of_attempt, content = 0, 0, file.hasher()
                        _write(out, None)
                    while have < file.size and (chunk := response.read1(min(CHUNK, file.size - have))):
                        _write(out, chunk)
                        content.update(chunk)
                        have += len(chunk)
                        advance(len(chunk))
            except (OSError, http.client.HTTPException) as error:
                lost = error
                if isinstance(error, HTTPError) and not _is_transient(error):
                    raise self._user_error(error, repository.name, repository.commit, file.name) from error
            if have > start_of_attempt:
                waits = iter(RETRY_DELAYS)
            if have < file.size:
                wait = next(waits, None)
                if wait is None:
                    reason = f" ({_reason(lost)})" if lost else ""
                    message = f"the connection was lost at byte {have:,} of {file.size:,}{reason}."
                    raise UserError(message, where=f"{repository.name}/{file.name}", remedy=RESUME_NOTE) from lost
                time.sleep(wait)
        return content

    def _open(self, path: str, *, start: int = 0) -> Any:
        http_request = request.Request(self.endpoint + path, headers={"User-Agent": f"textgraft/{__version__}"})
        if self.token:
            http_request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if start:
            http_request.add_header("Range", f"bytes={start}-")
        response = self._opener.open(http_request, timeout=TIMEOUT)
        begins = response.headers.get("Content-Range", f"bytes {start}-")
        if response.status == http.client.PARTIAL_CONTENT and not begins.startswith(f"bytes {start}-"):
            response.close()
            raise ConnectionError(f"asked for bytes from {start} on and got '{begins}'")
        return response

    def _user_error(self, error: Exception, name: str, revision: str, file: str = "") -> UserError:
        """A UserError with a remedy for a failed request."""
        where = f"{self.endpoint}/{name}"
        if isinstance(error, HTTPError):
            error.close()
            code = error.headers.get("X-Error-Code", "")
            if code == "RevisionNotFound":
                return UserError(f"this model has no revision '{revision}'.", where=where, remedy="Check the revision.")
            if code == "GatedRepo" or error.code == http.client.FORBIDDEN:
                remedy = "Ask for access on its page, and set HF_TOKEN to a token of your account."
                return UserError(f"access to this model is restricted ({error.code}).", where=where, remedy=remedy)
            if error.code == http.client.UNAUTHORIZED:  # also the hub's response for an unknown name
                remedy = "Check the name; for a private model set HF_TOKEN to a token that may read it."
                if self.token:
                    remedy = "Check the name, and HF_TOKEN, which is set."
                return UserError("no such model, or it is private (401).", where=where, remedy=remedy)
            if error.code == http.client.NOT_FOUND:
                what = f"no file '{file}'" if file else f"no model '{name}' with a revision '{revision}'"
                return UserError(f"there is {what} (404).", where=where, remedy="Check the name and the revision.")
            return UserError(f"the hub answers {error.code} {error.reason}.", where=where, remedy="Try again later.")
        remedy = "Check the network; behind a proxy set HTTPS_PROXY, in a closed network name a mirror with endpoint=…."
        if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
            remedy = "Set SSL_CERT_FILE to the certificates that your network trusts."
        return UserError(f"the hub cannot be reached ({_reason(error)}).", where=self.endpoint, remedy=remedy)


def _remote_file(described: Mapping[str, Any]) -> RemoteFile:
    lfs = described.get("lfs")
    if lfs:
        return RemoteFile(str(described["rfilename"]), int(lfs["size"]), "sha256", str(lfs["sha256"]))
    return RemoteFile(str(described["rfilename"]), int(described["size"]), "git-sha1", str(described["blobId"]))


def _is_whole(path: Path, file: RemoteFile) -> bool:
    with open(path, "rb") as data:
        content = file.hasher()
        while chunk := data.read(CHUNK):
            content.update(chunk)
    return bool(content.hexdigest() == file.digest)


def _read_part(out: Any, file: RemoteFile, content: Any, advance: Callable[[int], object]) -> int:
    """Hash the partial download; return its size. A file that is too long is truncated."""
    if out.seek(0, 2) > file.size:
        out.truncate(0)
    out.seek(0)
    while chunk := out.read(CHUNK):
        content.update(chunk)
        advance(len(chunk))
    return int(out.tell())


def _write(out: Any, chunk: bytes | None) -> None:
    """Append a chunk completely, or truncate for None. Raises UserError at once, since retries do not help."""
    try:
        if chunk is None:
            out.truncate(0)
            out.seek(0)
        while chunk:
            chunk = chunk[out.write(chunk) :]
    except OSError as error:
        write_error = cannot_write(Path(out.name), error)
        raise UserError(
            write_error.message, where=write_error.where, remedy=f"{write_error.remedy} {RESUME_NOTE}"
        ) from error


def _is_transient(error: Exception) -> bool:
    if isinstance(error, HTTPError):
        return error.code in TRANSIENT_STATUS
    reason = error.reason if isinstance(error, URLError) else error
    return isinstance(reason, TimeoutError | ConnectionResetError | http.client.HTTPException)


def _reason(error: Exception | None) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)

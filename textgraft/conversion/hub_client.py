"""A model hub over HTTP by the standard library: what a repository holds at one commit, and its files, verified.

The addresses are those of huggingface.co and its mirrors: `/api/models/NAME/revision/REVISION` and
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
WAITS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each further try; the count starts anew whenever bytes have come."""
CHUNK = 1 << 18
PASSING = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which another try may help."""
KEPT = "What has come is kept; the same command goes on from there."


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, and what its content must hash to: git's blob sha1 covers a header too."""

    name: str
    size: int
    algorithm: Literal["sha256", "git-sha1"]
    digest: str

    def hasher(self) -> Any:
        """A hash object whose hexdigest is `digest` once it has the whole content."""
        if self.algorithm == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)

    @property
    def part(self) -> str:
        """The name under which its first bytes are kept: another content is another name."""
        return f"{self.name}.{self.digest[:16]}.part"


@dataclass(frozen=True)
class Repository:
    """A model's files at one commit; `name` is as the hub calls it, which may have been renamed."""

    name: str
    commit: str
    files: Mapping[str, RemoteFile]


class _Redirects(request.HTTPRedirectHandler):
    """Redirections, which lead to storage elsewhere: the token goes no further than its own host."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if new is not None and token and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            new.add_unredirected_header("Authorization", token)
        return new


class Hub:
    """A hub at `endpoint`; a `token` is shown to that host alone. Raises UserError for an address that is none."""

    def __init__(self, endpoint: str, token: str | None = None) -> None:
        self.endpoint, self.token = endpoint.rstrip("/"), token
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(f"'{endpoint}' is no address of a hub.", remedy="Write it as https://host or http://host.")
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
        """What the model `name` holds at `revision`: a branch, a tag or a commit.

        Raises UserError where there is no such thing, access is refused, the hub cannot be reached, or it gives no
        sizes and hashes to verify by.
        """
        path = f"/api/models/{name}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            content = json.loads(self._read(path, name, revision))
            files = {f.name: f for f in map(_remote_file, content["siblings"])}
            return Repository(str(content.get("id") or name), str(content["sha"]), files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            message = f"what answers is no model hub, or gives no hashes to verify by ({error!r})."
            raise UserError(message, where=self.endpoint, remedy="Check --endpoint and HF_ENDPOINT.") from error

    def _read(self, path: str, name: str, revision: str) -> bytes:
        for wait in (*WAITS, None):
            try:
                with self._open(path) as response:
                    return bytes(response.read())
            except (OSError, http.client.HTTPException) as error:
                if wait is None or not _is_passing(error):
                    raise self._explained(error, name, revision) from error
                time.sleep(wait)
        raise AssertionError

    def download(
        self, repository: Repository, file: RemoteFile, folder: Path, advance: Callable[[int], object]
    ) -> None:
        """Put a file into `folder`: what is there of it already is used, and the rest asked for.

        `advance` is told the bytes that came, and a negative number where they have to come again. Raises UserError
        where the connection is lost for good or the disk full (what has come stays), and where the content is not
        what the hub says it is (it goes).
        """
        path, part = folder / file.name, folder / file.part
        content = file.hasher()
        try:
            if path.is_file():  # of a run that was stopped
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
        found = content.hexdigest()
        if found != file.digest:
            part.unlink()
            message = f"the checksum is wrong: {file.algorithm} {found}, and the hub says {file.digest}."
            remedy = "The file was removed. Run the same command again; if that does not help, the server is at fault."
            raise UserError(message, where=f"{repository.name}/{file.name}", remedy=remedy)
        part.replace(path)

    def _rest(
        self, repository: Repository, file: RemoteFile, out: Any, content: Any, advance: Callable[[int], object]
    ) -> Any:
        """Append what is missing to `out`; the hash object of the whole content."""
        path = f"/{repository.name}/resolve/{repository.commit}/{quote(file.name)}"
        have, waits = out.tell(), iter(WAITS)
        while have < file.size:
            began, lost = have, None
            try:
                with self._open(path, start=have) as response:
                    if have and response.status != http.client.PARTIAL_CONTENT:
                        advance(-have)
                        have, began, content = 0, 0, file.hasher()
                        _write(out, None)
                    while have < file.size and (chunk := response.read1(min(CHUNK, file.size - have))):
                        _write(out, chunk)
                        content.update(chunk)
                        have += len(chunk)
                        advance(len(chunk))
            except (OSError, http.client.HTTPException) as error:
                lost = error
                if isinstance(error, HTTPError) and not _is_passing(error):
                    raise self._explained(error, repository.name, repository.commit, file.name) from error
            if have > began:
                waits = iter(WAITS)
            if have < file.size:
                wait = next(waits, None)
                if wait is None:
                    reason = f" ({_reason(lost)})" if lost else ""
                    message = f"the connection was lost at byte {have:,} of {file.size:,}{reason}."
                    raise UserError(message, where=f"{repository.name}/{file.name}", remedy=KEPT) from lost
                time.sleep(wait)
        return content

    def _open(self, path: str, *, start: int = 0) -> Any:
        asked = request.Request(self.endpoint + path, headers={"User-Agent": f"textgraft/{__version__}"})
        if self.token:
            asked.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if start:
            asked.add_header("Range", f"bytes={start}-")
        response = self._opener.open(asked, timeout=TIMEOUT)
        begins = response.headers.get("Content-Range", f"bytes {start}-")
        if response.status == http.client.PARTIAL_CONTENT and not begins.startswith(f"bytes {start}-"):
            response.close()
            raise ConnectionError(f"asked for bytes from {start} on and got '{begins}'")
        return response

    def _explained(self, error: Exception, name: str, revision: str, file: str = "") -> UserError:
        """What a person can do about a request that failed."""
        where = f"{self.endpoint}/{name}"
        if isinstance(error, HTTPError):
            error.close()
            code = error.headers.get("X-Error-Code", "")
            if code == "RevisionNotFound":
                return UserError(f"this model has no revision '{revision}'.", where=where, remedy="Check --revision.")
            if code == "GatedRepo" or error.code == http.client.FORBIDDEN:
                remedy = "Ask for access on its page, and set HF_TOKEN to a token of your account."
                return UserError(f"access to this model is restricted ({error.code}).", where=where, remedy=remedy)
            if error.code == http.client.UNAUTHORIZED:  # also the hub's answer for a name that does not exist
                remedy = "Check the name; for a private model set HF_TOKEN to a token that may read it."
                if self.token:
                    remedy = "Check the name, and HF_TOKEN, which is set."
                return UserError("no such model, or it is private (401).", where=where, remedy=remedy)
            if error.code == http.client.NOT_FOUND:
                what = f"no file '{file}'" if file else f"no model '{name}' with a revision '{revision}'"
                return UserError(f"there is {what} (404).", where=where, remedy="Check the name and --revision.")
            return UserError(f"the hub answers {error.code} {error.reason}.", where=where, remedy="Try again later.")
        remedy = "Check the network; behind a proxy set HTTPS_PROXY, in a closed network name a mirror with --endpoint."
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
    """Hash what is there already; the number of its bytes. What is longer than the file is thrown away."""
    if out.seek(0, 2) > file.size:
        out.truncate(0)
    out.seek(0)
    while chunk := out.read(CHUNK):
        content.update(chunk)
        advance(len(chunk))
    return int(out.tell())


def _write(out: Any, chunk: bytes | None) -> None:
    """Append, all of it, or begin anew for None. Raises UserError at once, for that is no fault of the network."""
    try:
        if chunk is None:
            out.truncate(0)
            out.seek(0)
        while chunk:
            chunk = chunk[out.write(chunk) :]
    except OSError as error:
        refused = cannot_write(Path(out.name), error)
        raise UserError(refused.message, where=refused.where, remedy=f"{refused.remedy} {KEPT}") from error


def _is_passing(error: Exception) -> bool:
    if isinstance(error, HTTPError):
        return error.code in PASSING
    reason = error.reason if isinstance(error, URLError) else error
    return isinstance(reason, TimeoutError | ConnectionResetError | http.client.HTTPException)


def _reason(error: Exception | None) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)

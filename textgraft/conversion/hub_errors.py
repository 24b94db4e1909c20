"""Failed requests to a model hub as UserErrors with a remedy.

`huggingface_hub` has changed its HTTP client with its major versions, so that errors of the network are told by the
package that defines them, and those of the hub by their response.
"""

from __future__ import annotations

from dataclasses import dataclass

from textgraft.core.errors import UserError

RESUME_NOTE = "What has come is kept; the same command goes on from there."
TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
"""Status codes after which a retry may help."""
RETRIED = ("Timeout", "RemoteProtocolError")
"""Parts of the names of errors after which the library's downloads are resumed by itself, five times in a row."""
TRANSIENT = ("ReadError", "WriteError", "ChunkedEncodingError", "IncompleteRead")
"""Further ones after which a retry may help."""
CLIENTS = ("httpx", "httpcore", "requests", "urllib3")
OFFLINE = "OfflineModeIsEnabled"
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404


@dataclass(frozen=True)
class Request:
    """What was asked of a hub: a model's list of files, or one of them."""

    endpoint: str
    name: str
    revision: str
    file: str = ""
    has_token: bool = False


def is_response(error: Exception) -> bool:
    """True if the hub has answered, with an error."""
    return getattr(error, "response", None) is not None


def is_transient(error: Exception, *, retried: bool = False) -> bool:
    """True if the same request may succeed a moment later, and the library has not `retried` it."""
    if is_response(error):
        return error.response.status_code in TRANSIENT_STATUS  # type: ignore[attr-defined]
    names = TRANSIENT if retried else TRANSIENT + RETRIED
    return isinstance(error, ConnectionResetError) or any(part in type(error).__name__ for part in names)


def user_error(error: Exception | None, request: Request) -> UserError:
    """A UserError for a failed request."""
    where = f"{request.endpoint}/{request.name}"
    if error is not None and is_response(error):
        return _of_response(error, request, where)
    if type(error).__name__ == OFFLINE:
        return UserError("HF_HUB_OFFLINE is set, so nothing is fetched.", remedy="Unset it to fetch.")
    if error is not None and not _is_of_client(error) and not isinstance(error, OSError):
        return UserError(
            f"the download failed ({reason(error)}).", where=where, remedy="Check the name and the hub's address."
        )
    remedy = "Check the network; behind a proxy set HTTPS_PROXY, in a closed network name a mirror with endpoint=…."
    if "CERTIFICATE" in str(error):
        remedy = "Set SSL_CERT_FILE to the certificates that your network trusts."
    return UserError(f"the hub cannot be reached ({reason(error)}).", where=request.endpoint, remedy=remedy)


def _of_response(error: Exception, request: Request, where: str) -> UserError:
    response = error.response  # type: ignore[attr-defined]
    status = int(response.status_code)
    code, said = response.headers.get("X-Error-Code", ""), response.headers.get("X-Error-Message", "")
    if code == "RevisionNotFound":
        return UserError(f"this model has no revision '{request.revision}'.", where=where, remedy="Check the revision.")
    if status == UNAUTHORIZED and request.has_token and "nvalid" in said:
        remedy = "Set HF_TOKEN to a valid token, or run `hf auth logout` and unset it: public models need none."
        return UserError("the hub does not accept your token (401).", where=where, remedy=remedy)
    if code == "GatedRepo" or status == FORBIDDEN:
        remedy = "Ask for access on its page, and set HF_TOKEN to a token of your account."
        return UserError(f"access to this model is restricted ({status}).", where=where, remedy=remedy)
    if status == UNAUTHORIZED:  # also the hub's response for an unknown name
        remedy = "Check the name; for a private model set HF_TOKEN to a token that may read it."
        if request.has_token:
            remedy = "Check the name, and your token (HF_TOKEN, or what `hf auth login` stored)."
        return UserError("no such model, or it is private (401).", where=where, remedy=remedy)
    if status == NOT_FOUND:
        what = f"no file '{request.file}'" if request.file else f"no model '{request.name}'"
        what += "" if request.file else f" with a revision '{request.revision}'"
        return UserError(f"there is {what} (404).", where=where, remedy="Check the name and the revision.")
    phrase = getattr(response, "reason_phrase", None) or getattr(response, "reason", "")
    return UserError(f"the hub answers {status} {phrase}.", where=where, remedy="Try again later.")


def reason(error: Exception | None) -> str:
    """What went wrong, in the operating system's words where it has some."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _is_of_client(error: Exception) -> bool:
    return type(error).__module__.startswith(CLIENTS)

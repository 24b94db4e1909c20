"""Middleware that rejects requests that are too large, and those for other host names."""

from __future__ import annotations

import json
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BYTES = 8_000_000
"""Maximum size of a request body."""
_DIGITS = 20  # of a number of bytes; Python refuses to convert thousands
TOO_LARGE = f"a request has at most {MAX_BYTES // 1_000_000} MB. Send several."


class Guard:
    """ASGI middleware.

    `hosts` are the allowed host names, without a port; None: all. This prevents DNS rebinding, by which a web page from
    elsewhere makes a browser send requests to a local server under the page's own name.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None = None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self.hosts is not None and _host(headers.get(b"host", b"").decode("latin-1")) not in self.hosts:
            await _reject(send, 421, f"the host must be {' or '.join(sorted(self.hosts))}.")
            return
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > _DIGITS or int(length) > MAX_BYTES):
            await _reject(send, 413, TOO_LARGE)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MAX_BYTES:
                raise HTTPException(413, TOO_LARGE)
            return message

        await self.app(scope, counted, send)


def _host(header: str) -> str:
    """`[::1]` of `[::1]:8000`, `localhost` of `LOCALHOST:8000`."""
    name, _, port = header.rpartition(":")
    return (name if port.isdigit() and name else header).lower()


async def _reject(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

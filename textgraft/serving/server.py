"""`textgraft.serve`: a finished model answers over HTTP until it is stopped."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path

from textgraft.core.errors import UserError

LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
STOPPING_SECONDS = 30
"""How long requests that have begun may still take once the server is told to stop."""

Announce = Callable[[str, str], None]
"""Who hears, once it listens, the address and what answers there."""


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    precision: str = "auto",
    device: str = "cpu",
    tell: Announce | None = None,
) -> None:
    """Answer for a classifier, tagger or reader (or its graph) at http://HOST:PORT, until Ctrl-C or SIGTERM.

    `port` 0 takes a free one; `tell` hears which. The texts of requests are nowhere kept or logged. With a `host` of
    this machine alone it answers only to requests that call it so; with any other, everyone who can reach the machine
    may ask, without a password and in the clear: put it behind a server that sees to that.

    Raises UserError without FastAPI and uvicorn, for a port that is taken, a host that is not this machine's, and for a
    model that is not there or has no task.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        remedy = 'Install it by: pip install "textgraft[serve]"'
        raise UserError(f"serving needs {error.name}.", remedy=remedy) from error
    from textgraft.serving.app import application
    from textgraft.serving.services import open_service

    with listening_at(host, port) as listening:  # before the model is read, which may take longer than to be told no
        service = open_service(model, precision=precision, device=device)
        known = LOCAL | {f"[{host}]" if ":" in host else host.lower()}
        app = application(service, Path(model).name, hosts=known if is_local(host) else None)
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOPPING_SECONDS,
        )
        if tell is not None:
            tell(address(listening), service.task)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has ended in order, and raises the signal again
            uvicorn.Server(settings).run(sockets=[listening])


def is_local(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def address(listening: socket.socket) -> str:
    """`http://127.0.0.1:8000`."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listening_at(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises UserError where that cannot be."""
    asked = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP, "flags": socket.AI_PASSIVE}
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, **asked)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise UserError(f"no machine is called '{host}'.", where="host", remedy="Give 127.0.0.1.") from error
    # By its protocol asyncio knows what to send at once: without it an answer waits 40 ms for the end of its headers.
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken.", where="port", remedy="Give another, or 0 for any.") from error
        if error.errno == errno.EADDRNOTAVAIL:
            remedy = "Give 127.0.0.1, or 0.0.0.0 for all of its addresses."
            raise UserError(f"'{host}' is not this machine.", where="host", remedy=remedy) from error
        remedy = "Give a port of 1024 or more." if error.errno == errno.EACCES else ""
        message = f"cannot listen at {host}, port {port}: {error.strerror}."
        raise UserError(message, where="port", remedy=remedy) from error
    return made

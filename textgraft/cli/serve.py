"""textgraft serve: a model as an HTTP service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_note


def serve(
    model: Annotated[Path, typer.Argument(help="The folder of a fine-tuned classifier, tagger or QA model.")],
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; 127.0.0.1 is reachable from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8000,
    device: o.Device = "auto",
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the address.")] = False,
) -> None:
    """Serve a classifier, tagger or QA model over HTTP, with a page to try it; Ctrl-C stops the server.

    curl 127.0.0.1:8000/predict -H 'content-type: application/json' -d '{"texts": ["An unexpected delight."]}'

    Texts are neither stored nor logged. /model describes the model, /health the state of the server, /openapi.json
    the requests.
    """
    from textgraft.serving.server import is_local
    from textgraft.serving.server import serve as served

    o.use_threads(threads)

    def announce(address: str, task: str) -> None:
        if not is_local(host):
            print_note("textgraft: warning: anyone who can reach this machine can use the model, without a password.")
        if not quiet:
            print_note(f"textgraft: {model} ({task}) is served at {address}; Ctrl-C stops it.")

    served(str(model), host=host, port=port, device=device, precision=precision, tell=announce)

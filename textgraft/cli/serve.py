"""textgraft serve: a finished model behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import say


def serve(
    model: Annotated[Path, typer.Argument(help="The folder of a fine-tuned classifier, tagger or reader.")],
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; 127.0.0.1 is reached from this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8000,
    device: o.Device = "auto",
    precision: o.ReadingPrecision = "auto",
    threads: o.Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not say where it listens.")] = False,
) -> None:
    """Answer over HTTP for a classifier, tagger or reader, with a page to try it; Ctrl-C ends it.

    curl 127.0.0.1:8000/predict -H 'content-type: application/json' -d '{"texts": ["An unexpected delight."]}'

    Texts are neither kept nor logged. /model says what the model does, /health whether it answers, /openapi.json what
    requests look like.
    """
    from textgraft.serving.server import is_local
    from textgraft.serving.server import serve as served

    o.use_threads(threads)

    def tell(address: str, task: str) -> None:
        if not is_local(host):
            say("textgraft: warning: everyone who can reach this machine may ask the model, without a password.")
        if not quiet:
            say(f"textgraft: {model} ({task}) answers at {address}; Ctrl-C ends it.")

    served(str(model), host=host, port=port, device=device, precision=precision, tell=tell)

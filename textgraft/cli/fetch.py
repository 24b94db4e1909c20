"""textgraft fetch: a model from a Hugging Face hub, into the cache or as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json
from textgraft.cli.output_files import validate_writable


def fetch(
    name: Annotated[
        str, typer.Argument(help="OWNER/MODEL on the hub, or a name of `textgraft models`, such as bge-small.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder to write; else the Hugging Face cache of this user.")
    ] = None,
    revision: Annotated[str, typer.Option("--revision", help="A branch, a tag or a commit.")] = "main",
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="The address of another hub, such as a mirror; else HF_ENDPOINT."),
    ] = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Download a model from a Hugging Face hub and verify each file (extra "hub"); hf:NAME opens it afterwards.

    BERT, DistilBERT, RoBERTa, XLM-R, CamemBERT, MPNet, ModernBERT, GPT, GPT-2, Llama, Mistral, Qwen and SmolLM open;
    with the extra "transformers" any other encoder of that library does.

    After an interruption, the same command resumes the download. Set HF_TOKEN for models that need permission.
    """
    from textgraft.conversion.fetch import fetch_model

    if out is not None:
        validate_writable(out)
    fetched = fetch_model(name, out, revision=revision, endpoint=endpoint, overwrite=overwrite, show=not quiet)
    record = fetched.record
    if as_json:
        print_json({"out": fetched.folder, "use": fetched.name, **record})
    else:
        size = sum(file["bytes"] for file in record["files"].values())
        licence = record["licence"] or "none stated"
        facts = f"{size / 1e6:,.1f} MB, commit {record['commit'][:12]}, licence: {licence}"
        print(f"Written: {fetched.folder} ({facts})")
        print(f"Use it as {fetched.name}")

"""textgraft fetch: a model from a Hugging Face hub, as a folder."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json


def fetch(
    name: Annotated[str, typer.Argument(help="The model's name on the hub, such as distilbert/distilbert-base-cased.")],
    out: o.OutFolder,
    revision: Annotated[str, typer.Option("--revision", help="A branch, a tag or a commit.")] = "main",
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="The address of another hub, such as a mirror; else HF_ENDPOINT."),
    ] = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Download a BERT, DistilBERT, GPT or GPT-2 from a Hugging Face hub and verify each file; hf:OUT names the result.

    After an interruption, the same command resumes the download. Set HF_TOKEN for models that need permission.
    """
    from textgraft.conversion.fetch import RECORD, fetch

    written = fetch(name, out, revision=revision, endpoint=endpoint, overwrite=overwrite, show=not quiet)
    record = json.loads((written / RECORD).read_bytes())
    if as_json:
        print_json({"out": written, **record})
    else:
        size = sum(file["bytes"] for file in record["files"].values())
        licence = record["licence"] or "none stated"
        print(f"Written: {written} ({size / 1e6:,.1f} MB, commit {record['commit'][:12]}, licence: {licence})")
        print(f"Use it as hf:{written}")

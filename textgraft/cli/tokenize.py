"""textgraft tokenize: text as token ids, before pretraining."""

from __future__ import annotations

from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.language_sources import HeldOut, Languages, Sources, TokenizerFile, by_language, named_sources
from textgraft.cli.resumable import resumable, validate_out


def tokenize(
    out: o.OutFolder,
    sources: Sources = None,
    language: Languages = None,
    recipe: Annotated[
        str,
        typer.Option("--recipe", help="The pretraining recipe with the tokenizer's settings: a name, or a .toml file."),
    ] = "en-ulmfit",
    valid: HeldOut = None,
    tokenizer: TokenizerFile = None,
    tokenizer_processes: Annotated[
        int,
        typer.Option(
            "--tokenizer-processes", help="Processes that tokenize; 0: this one, with the threads of its library."
        ),
    ] = 0,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Tokenize general text once, to pretrain several models, or on another machine."""
    from textgraft.tasks.language_modeling.tokenize import token_counts, tokenize

    validate_out(out, overwrite=None)
    source_texts = named_sources(sources or [], language or [])
    held_out = by_language("--valid", valid) if language and valid else valid
    with resumable(out):
        tokenize(
            source_texts,
            out,
            recipe=recipe,
            valid=held_out,
            tokenizer=tokenizer,
            processes=tokenizer_processes,
            show=not quiet,
        )
    counts = token_counts(out)
    if as_json:
        print_json({"out": out, "corpora": counts})
        return
    rows = [[name, *(f"{count:,}" for count in corpus.values())] for name, corpus in counts.items()]
    print_table(["corpus", *next(iter(counts.values()))], rows)
    print(f"Written: {out}")

"""textgraft tokenize: text as token ids, before pretraining."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.language_sources import HeldOut, Languages, Sources, TokenizerFile, by_language, named_sources
from textgraft.cli.resumable import resumable, validate_out
from textgraft.cli.streaming_options import streamed_text, validate_no_languages


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
    text: Annotated[
        str | None,
        typer.Option("--text", "--text-column", help="The column of the texts of a URL, or of Parquet or JSON lines."),
    ] = None,
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
    from textgraft.data.remote_files import is_url
    from textgraft.tasks.language_modeling.tokenize import token_counts, tokenize

    validate_out(out, overwrite=None)
    source_texts: Any = named_sources(sources or [], language or [])
    if text is not None or any(is_url(source) for source in sources or []):
        validate_no_languages(language or [])
        source_texts = streamed_text(sources or [], [], [], text, tokenizer_processes)
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

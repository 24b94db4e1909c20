"""Options of `textgraft pretrain --streaming` and `textgraft adapt --streaming`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.tasks.language_modeling.streamed_text import StreamedText

STREAMING = "Text that does not fit on the disk"

Streaming = Annotated[
    bool,
    typer.Option(
        "--streaming",
        help="Read the text while training on it; nothing is copied to disk. Also from s3://…, hf://… and https://…. "
        "Needs --tokens.",
        rich_help_panel=STREAMING,
    ),
]
MixedSources = Annotated[
    list[str] | None,
    typer.Option("--source", help="A source of a mixture, as NAME=FILES; repeat.", rich_help_panel=STREAMING),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        help="A source's share of the characters, as NAME=0.3; they sum to 1. Else equal.",
        rich_help_panel=STREAMING,
    ),
]
StreamedColumn = Annotated[
    str | None,
    typer.Option("--text", "--text-column", help="The column of the texts; else inferred.", rich_help_panel=STREAMING),
]
StreamedTokens = Annotated[
    float | None,
    typer.Option("--tokens", min=1, help="Stop after this many tokens of streamed text.", rich_help_panel=STREAMING),
]
StreamedHeldOut = Annotated[
    list[str] | None,
    typer.Option(
        "--valid", help="Files of held-out text; else the first 300 texts of the stream.", rich_help_panel=STREAMING
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--tokenizer-processes",
        help="Processes that tokenize beside the training; 0: the training's own does.",
        rich_help_panel=STREAMING,
    ),
]


def streamed_text(
    sources: Sequence[str], named: Sequence[str], weights: Sequence[str], column: str | None, processes: int
) -> StreamedText:
    """The streamed text of the command line. Raises UserError for no source, and for plain beside named ones."""
    from textgraft.tasks.language_modeling.streamed_text import StreamedText

    if sources and named:
        remedy = "Name each of them (--source NAME=FILES), or none."
        raise UserError("some sources have a name and some have none.", where=sources[0], remedy=remedy)
    if not sources and not named:
        raise UserError("no text was named.", remedy="Name files, or several sources (--source NAME=FILES).")
    by_name: dict[str, list[str | Path]] = {}
    for name, value in (_pair("--source", one) for one in named):
        by_name.setdefault(name, []).append(value)
    shares: dict[str, float] = {}
    for name, value in (_pair("--weight", one) for one in weights):
        try:
            shares[name] = float(value)
        except ValueError:
            message = f"the weight of '{name}' is not a number: '{value}'."
            raise UserError(message, where="--weight", remedy="Write it as in --weight web=0.7.") from None
    return StreamedText(by_name or list(sources), shares, column, processes)


def validate_no_streaming_options(
    named: Sequence[str], weights: Sequence[str], column: str | None, **others: object
) -> None:
    """Raise UserError for options that only streamed text has; `others` by their names."""
    more = ((f"--{name}", value) for name, value in others.items())
    for option, value in (("--source", named), ("--weight", weights), ("--text", column), *more):
        if value:
            raise UserError("this option is for streamed text.", where=option, remedy="Add --streaming.")


def validate_no_languages(languages: Sequence[str]) -> None:
    """Raise UserError for languages, whose shares depend on the size of all their text."""
    if languages:
        remedy = "Name sources and weights: --source th=FILES --weight th=0.3."
        raise UserError("streamed text has no languages.", where="--language", remedy=remedy)


def _pair(option: str, value: str) -> tuple[str, str]:
    name, equals, rest = value.partition("=")
    if not (name and equals and rest):
        remedy = f"Write a name, = and its {'files' if option == '--source' else 'share'}."
        raise UserError(f"'{value}' is not of the form NAME=…", where=option, remedy=remedy)
    return name, rest

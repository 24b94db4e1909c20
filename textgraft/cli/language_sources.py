"""Text by language, as `textgraft pretrain` and `textgraft tokenize` take it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.tasks.language_modeling.pretraining_text import Paths

Sources = Annotated[
    list[str] | None,
    typer.Argument(help="Files, folders or globs of general text, hf:NAME, or a URL (s3://…, hf://…, https://…)."),
]


Languages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        help="Sources of one language, as th=FILES; repeat per language. Small languages are oversampled "
        "(the recipe's smoothing).",
    ),
]


HeldOut = Annotated[
    list[str] | None,
    typer.Option("--valid", help="Held-out text, with --language as th=FILES too; else every 200th text."),
]


TokenizerFile = Annotated[
    Path | None, typer.Option("--tokenizer", help="A tokenizer.json, or a folder with one; else one is trained.")
]


def named_sources(sources: Sequence[str | Path], languages: Sequence[str]) -> Paths | dict[str, Paths]:
    """Return the sources, by language if languages are named. Raises UserError for both, and for neither."""
    if sources and languages and "=" not in "".join(languages):
        remedy = "Leave it out for text of one language: the recipe says which."
        raise UserError(f"'{languages[0]}' names no files.", where="--language", remedy=remedy)
    if sources and languages:
        remedy = "Give each a language (--language th=FILES), or none."
        raise UserError("some sources have a language and some have none.", where=str(sources[0]), remedy=remedy)
    if not sources and not languages:
        raise UserError("no text was named.", remedy="Name files, or files by language (--language th=FILES).")
    return by_language("--language", languages) if languages else sources


def by_language(option: str, values: Sequence[str]) -> dict[str, Paths]:
    """Return values such as `th=FILES` as a mapping from languages. Raises UserError for any other form."""
    by_code: dict[str, list[Path]] = {}
    for value in values:
        language, equals, path = value.partition("=")
        if not (language and equals and path):
            remedy = "Write a language's code, = and its files, such as th=thai/*.txt."
            raise UserError(f"'{value}' is not of the form LANGUAGE=FILES.", where=option, remedy=remedy)
        by_code.setdefault(language, []).append(Path(path))
    return dict(by_code)

"""textgraft inspect words: a word in several sentences, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_table
from textgraft.cli.inspect.results import Read, Source, input_texts
from textgraft.cli.results import print_json_results, print_written, validate_out
from textgraft.cli.resumable import resumable
from textgraft.core.errors import UserError


def words(
    model: Source,
    out: o.OutFolder,
    texts: Annotated[list[Path] | None, typer.Argument(help="Files, folders or globs of plain text.")] = None,
    word: Annotated[list[str] | None, typer.Option("--word", help="A word to inspect; may be repeated.")] = None,
    sentence: Annotated[
        list[str] | None, typer.Option("--sentence", help="A sentence with such a word in it; may be repeated.")
    ] = None,
    occurrences: Annotated[
        int, typer.Option("--occurrences", min=1, help="Occurrences of each word, in different sentences.")
    ] = 12,
    neighbours: Annotated[int, typer.Option("--neighbours", min=1, help="Nearest neighbours of each occurrence.")] = 5,
    pool: Annotated[
        int, typer.Option("--pool", min=0, help="More sentences whose words are candidates for neighbours.")
    ] = 1000,
    read: Read = 20_000,
    projection: Annotated[str, typer.Option("--projection", help="The projection of maps: pca or tsne.")] = "pca",
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Inspect a word in several sentences: nearest neighbours and a map of its occurrences, by layer.

    After Peters et al. 2018, table 4. --word ignores case.
    """
    from textgraft.experiments.word_contexts import WordOptions, inspect_words

    validate_out(out)
    o.use_threads(threads)
    if not texts and not sentence:
        raise UserError("there is no text.", where="TEXTS", remedy="Name files, or give sentences (--sentence).")
    options = WordOptions(
        occurrences=occurrences,
        neighbours=neighbours,
        pool=pool,
        read=read,
        projection=projection,
        seed=seed,
        precision=precision,
    )
    source_texts = input_texts(texts, text, encoding)
    with resumable(out):
        results = inspect_words(
            model, source_texts, out, words=word or [], sentences=sentence or [], options=options, show=not quiet
        )
    if as_json:
        print_json_results(out, results)
        return
    from textgraft.experiments.word_contexts_report import neighbour_rows  # here, because it loads matplotlib

    for one in results["words"]:
        print_table(*neighbour_rows(one, -1), title=f"{one['word']}: nearest words in {results['layers'][-1]}")
    print_written(out)

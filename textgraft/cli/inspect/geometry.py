"""textgraft inspect geometry: the anisotropy and contextuality of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_table
from textgraft.cli.inspect.results import Read, Source, input_texts
from textgraft.cli.results import print_json_results, print_written, validate_out
from textgraft.cli.resumable import resumable


def geometry(
    model: Source,
    texts: Annotated[list[Path], typer.Argument(help="Files, folders or globs of plain text.")],
    out: o.OutFolder,
    words: Annotated[int, typer.Option("--words", min=2, help="Number of words to compare between contexts.")] = 500,
    contexts: Annotated[int, typer.Option("--contexts", min=2, help="Sentences per word.")] = 5,
    random: Annotated[int, typer.Option("--random", min=2, help="Random words, for the chance baseline.")] = 1000,
    sentences: Annotated[
        int, typer.Option("--sentences", min=2, help="Sentences for intra-sentence similarity.")
    ] = 100,
    read: Read = 20_000,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Measure the contextuality and anisotropy of each layer.

    Self-similarity, intra-sentence similarity and maximum explainable variance after Ethayarajh 2019, before and after
    subtraction of the mean.
    """
    from textgraft.experiments.geometry import GeometryOptions, inspect_geometry

    validate_out(out)
    o.use_threads(threads)
    amounts = {"words": words, "contexts": contexts, "random": random, "sentences": sentences, "read": read}
    options = GeometryOptions(**amounts, seed=seed, precision=precision)
    sentence_texts = input_texts(texts, text, encoding)
    with resumable(out):
        results = inspect_geometry(model, sentence_texts, out, options=options, show=not quiet)
    if as_json:
        print_json_results(out, results)
        return
    from textgraft.experiments.geometry_report import table_rows  # here, because it loads matplotlib

    for variant, title in (("raw", "Original vectors"), ("centred", "Without the mean vector")):
        print_table(*table_rows(results, variant), title=title)
    print("\n".join(results["verdict"]))
    print_written(out)

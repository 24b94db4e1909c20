"""textgraft inspect ntm: Neural Turing Machines that learn to copy and to sort."""

from __future__ import annotations

from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_table
from textgraft.cli.results import print_json_results, print_written, validate_out
from textgraft.cli.resumable import resumable


def ntm(
    task: Annotated[
        str, typer.Argument(help="copy, repeat-copy, associative-recall or priority-sort.", metavar="TASK")
    ],
    out: o.OutFolder,
    networks: Annotated[
        str, typer.Option("--networks", help="Of ntm-lstm, ntm-feedforward and lstm, separated by commas.")
    ] = "ntm-lstm,ntm-feedforward,lstm",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps of each network.")] = 10_000,
    heads: Annotated[int, typer.Option("--heads", min=1, help="Heads that read, and heads that write.")] = 1,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of Adam, in the first half.")] = 2e-3,
    seed: o.Seed = 0,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train Neural Turing Machines beside an LSTM, and measure them on longer sequences than they were trained on.

    After Graves et al. 2014: the report has learning curves, costs, and the memory and attention over time.
    """
    from textgraft.core.context import RunContext
    from textgraft.experiments.ntm_training import NTMOptions, inspect_ntm

    validate_out(out)
    o.use_threads(threads)
    names = tuple(name.strip() for name in networks.split(","))
    options = NTMOptions(names, steps, learning_rate=learning_rate, heads=heads, seed=seed)
    with resumable(out):
        results = inspect_ntm(task, out, options=options, context=RunContext(show=not quiet))
    if as_json:
        print_json_results(out, results)
        return
    from textgraft.experiments.ntm_report import table_rows  # here, because it loads matplotlib

    print_table(*table_rows(results))
    print_written(out)

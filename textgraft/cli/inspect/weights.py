"""textgraft inspect weights: the learned weights of layers, model by model."""

from __future__ import annotations

from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_table
from textgraft.cli.results import print_json_results, print_written, validate_out


def weights(
    models: Annotated[list[str], typer.Argument(help="Folders fine-tuned with --layer-aggregation mix or elmo-mix.")],
    out: o.OutFolder,
    as_json: o.AsJson = False,
) -> None:
    """Report the learned weights of layers in --out, and print them: softmax weights and gamma, model by model.

    After Peters et al. 2018, figure 2.
    """
    from textgraft.experiments.layer_weights import inspect_weights

    validate_out(out)
    results = inspect_weights(models, out)
    if as_json:
        print_json_results(out, results)
        return
    from textgraft.experiments.layer_weights_report import table_rows  # here, because it loads matplotlib

    print_table(*table_rows(results))
    print_written(out)

"""textgraft adapt: continued pretraining of a language model on the text of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.language_model_result import print_language_model
from textgraft.cli.resumable import resumable, validate_out


def adapt(
    pool: Annotated[
        list[Path], typer.Argument(help="Files, folders or globs of text from the domain; labels are ignored.")
    ],
    out: o.OutFolder,
    model: o.DefaultModel = None,
    recipe: o.Recipe = "default",
    minutes: o.Minutes = None,
    own_vocabulary: Annotated[
        bool,
        typer.Option(
            "--own-vocabulary", help="Train a new tokenizer on the pool; tokens of the old one keep their embeddings."
        ),
    ] = False,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Continue the pretraining of a language model on text from your domain; no labels needed."""
    from textgraft.core.context import RunContext
    from textgraft.models.loading import load_network
    from textgraft.tasks.language_modeling.adapt import adapt
    from textgraft.training.settings import Settings

    validate_out(out, overwrite)
    o.use_threads(threads)
    settings = Settings(seed=seed, precision=precision, minutes=minutes, device=device)
    texts = o.read_pool(pool, text=text, encoding=encoding) or []
    with resumable(out):
        adapt(
            texts,
            out,
            model=model,
            recipe=recipe,
            own_vocabulary=own_vocabulary,
            settings=settings,
            context=RunContext(show=not quiet, overwrite=overwrite),
        )
    print_language_model(out, load_network(out).run, as_json)

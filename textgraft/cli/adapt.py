"""textgraft adapt: continued pretraining of a language model on the text of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli import streaming_options as s
from textgraft.cli.language_model_result import print_language_model
from textgraft.cli.language_sources import by_language
from textgraft.cli.resumable import resumable, validate_out
from textgraft.core.errors import UserError

ALIGNED = "Name two files aligned by line: --parallel en=english.txt --parallel de=german.txt."


def adapt(
    out: o.OutFolder,
    pool: Annotated[
        list[str] | None, typer.Argument(help="Files, folders or globs of text from the domain; labels are ignored.")
    ] = None,
    model: o.DefaultModel = None,
    recipe: o.Recipe = "default",
    minutes: o.Minutes = None,
    own_vocabulary: Annotated[
        bool,
        typer.Option(
            "--own-vocabulary", help="Train a new tokenizer on the pool; tokens of the old one keep their embeddings."
        ),
    ] = False,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            "--parallel", help="Twice, in place of a pool: a language of the model (an XLM) and its side, as en=FILE."
        ),
    ] = None,
    streaming: s.Streaming = False,
    source: s.MixedSources = None,
    weight: s.Weights = None,
    tokenizer_processes: s.Processes = 1,
    tokens: s.StreamedTokens = None,
    valid: s.StreamedHeldOut = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Continue the pretraining of a language model on text from your domain; no labels needed.

    textgraft adapt tickets.csv --model en-ulmfit --out tickets-lm

    Text that does not fit on the disk is read meanwhile:

    textgraft adapt --streaming s3://bucket/tickets/ --model minilm --tokens 5e7 --out tickets-lm
    """
    from textgraft.core.context import RunContext
    from textgraft.models.loading import load_network
    from textgraft.tasks.language_modeling.adapt import adapt
    from textgraft.tasks.language_modeling.adapt_streamed import adapt_streamed
    from textgraft.training.settings import Settings

    validate_out(out, overwrite)
    o.use_threads(threads)
    settings = Settings(
        seed=seed,
        precision=precision,
        minutes=minutes,
        device=device,
        sharding=sharding,
        activation_checkpointing=activation_checkpointing,
    )
    common: dict[str, Any] = {"recipe": recipe, "settings": settings}
    common["context"] = RunContext(show=not quiet, overwrite=overwrite)
    if streaming:
        if parallel or encoding or own_vocabulary:
            message = "--streaming takes no --parallel, --encoding or --own-vocabulary."
            raise UserError(message, where="--streaming", remedy="Leave them out, or read files (without --streaming).")
        streamed = s.streamed_text(pool or [], source or [], weight or [], text, tokenizer_processes)
        with resumable(out):
            adapt_streamed(streamed, out, model=model, tokens=tokens, valid=valid, **common)
        print_language_model(out, load_network(out).run, as_json)
        return
    s.validate_no_streaming_options(source or [], weight or [], None, tokens=tokens, valid=valid)
    if parallel:
        if pool or own_vocabulary or text or encoding or not model:
            message = "--parallel takes a model, and no pool, --own-vocabulary, --text or --encoding."
            raise UserError(message, where="--parallel", remedy=ALIGNED)
        _adapt_parallel(parallel, out, str(model), common)
    elif pool:
        texts = o.read_pool([Path(one) for one in pool], text=text, encoding=encoding) or []
        with resumable(out):
            adapt(texts, out, model=model, own_vocabulary=own_vocabulary, **common)
    else:
        raise UserError("no text was named.", remedy="Name files of the domain, or two sides with --parallel.")
    print_language_model(out, load_network(out).run, as_json)


def _adapt_parallel(values: Sequence[str], out: Path, model: str, common: dict[str, Any]) -> None:
    from textgraft.data.parallel import read_parallel
    from textgraft.tasks.language_modeling.adapt_parallel import adapt_parallel

    sides = by_language("--parallel", values)
    if len(sides) != 2 or any(len(files) != 1 for files in sides.values()):
        message = f"{len(values)} sides of {len(sides)} languages were named."
        raise UserError(message, where="--parallel", remedy=ALIGNED)
    (source,), (target,) = sides.values()
    first, second = sides
    with resumable(out):
        adapt_parallel(read_parallel(source, target), out, model=model, languages=(first, second), **common)

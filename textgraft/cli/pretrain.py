"""textgraft pretrain: a language model, and its tokenizer, from general text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli import streaming_options as s
from textgraft.cli.language_model_result import print_language_model
from textgraft.cli.language_sources import HeldOut, Languages, TokenizerFile, by_language, named_sources
from textgraft.cli.resumable import resumable, validate_out


def pretrain(
    out: o.OutFolder,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders or globs of general text, or hf:NAME; or a folder of `textgraft tokenize`."
        ),
    ] = None,
    language: Languages = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="A pretraining recipe from `textgraft recipes`, or a .toml file.")
    ] = "en-ulmfit",
    valid: HeldOut = None,
    tokenizer: TokenizerFile = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A language model to start from, with its tokenizer; else random weights."),
    ] = None,
    tokens: Annotated[float | None, typer.Option("--tokens", min=1, help="Stop after this many tokens.")] = None,
    streaming: s.Streaming = False,
    source: s.MixedSources = None,
    weight: s.Weights = None,
    text: s.StreamedColumn = None,
    tokenizer_processes: s.Processes = 1,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a language model, and its tokenizer, on general text."""
    from textgraft.core.context import RunContext
    from textgraft.models.loading import load_network
    from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
    from textgraft.training.settings import Settings

    validate_out(out, overwrite=None)
    o.use_threads(threads)
    settings = Settings(
        seed=seed,
        precision=precision,
        minutes=minutes,
        patience=patience,
        device=device,
        sharding=sharding,
        activation_checkpointing=activation_checkpointing,
    )
    source_texts: Any
    if streaming:
        s.validate_no_languages(language or [])
        source_texts = s.streamed_text(sources or [], source or [], weight or [], text, tokenizer_processes)
    else:
        s.validate_no_streaming_options(source or [], weight or [], text)
        source_texts = named_sources(sources or [], language or [])
    with resumable(out):
        pretrain(
            source_texts,
            out,
            valid=by_language("--valid", valid) if language and valid else valid,
            tokenizer=tokenizer,
            model=model,
            options=PretrainOptions(recipe, tokens, settings),
            context=RunContext(show=not quiet),
        )
    print_language_model(out, load_network(out).run, as_json)

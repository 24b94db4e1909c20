"""textgraft finetune: a classifier from labelled texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_problems, problems_printed
from textgraft.cli.resumable import resumable, validate_out
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.examples import Examples
    from textgraft.data.problems import Problem


def finetune(
    train: o.LabelledTexts,
    out: o.OutFolder,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A name of `textgraft models` or a folder; several as MODEL+MODEL. Else a sentence encoder for the "
            "texts' language that is installed or cached, such as minilm; else en-gpt-small, for Thai th-ulmfit. With "
            "--recipe: en-ulmfit, for Thai th-ulmfit.",
        ),
    ] = None,
    valid: Annotated[Path | None, typer.Option("--valid", help="Labelled texts for early stopping.")] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Labelled texts for the final evaluation only.")] = None,
    unlabelled: o.UnlabelledFiles = None,
    adapt_first: Annotated[
        bool,
        typer.Option(
            "--adapt/--no-adapt",
            help="Adapt the language model to the unlabelled text, into OUT.lm, if that is likely to help and in time.",
        ),
    ] = True,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Fine-tune only the language model, by a recipe from `textgraft recipes` or a .toml file; "
            "else select the best weighted ensemble of it and linear classifiers.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Number of trainings; mean and spread are reported.")
    ] = 1,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds", min=0, help="Cross-validation folds; else only for model selection, or if nothing is held out."
        ),
    ] = None,
    max_tokens: o.MaxTokens = 512,
    class_weights: Annotated[
        str, typer.Option("--class-weights", help='none, balanced, or JSON such as {"rare": 5}.')
    ] = "none",
    both_orders: Annotated[
        bool, typer.Option("--both-orders", help="Encode pairs in both orders and add the results: for similarity.")
    ] = False,
    layer_aggregation: o.LayerAggregation = "last",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start from random weights, to measure the gain from pretraining.")
    ] = False,
    baselines: Annotated[
        bool,
        typer.Option("--baselines/--no-baselines", help="Train linear models for comparison and for the ensemble."),
    ] = True,
    patience: o.Patience = None,
    adapt_minutes: o.AdaptMinutes = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.01,
            help="Time limit of the whole model selection, on the clock: what would take longer than is left is not "
            "begun. A limit, not a duration. 5 on a processor, none on a GPU; inf: none. Not with --recipe.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="ensemble, or one of its candidates alone: linear, lsa, vectors, co-training, linear-probe or "
            "fine-tuned.",
        ),
    ] = "ensemble",
    rungs: Annotated[
        str | None,
        typer.Option(
            "--rungs",
            help="Repeat what an earlier run had time for, as `rungs` in its run.json has it, whatever the machine: "
            "bert-probe,bert-co-training:5000,bert:2.",
        ),
    ] = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    strict: o.Strict = False,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a classifier on labelled texts and evaluate it beside linear baselines.

    Without --recipe it is the best weighted ensemble of a fine-tuned language model and linear classifiers, chosen by
    cross-validation. Candidates are tried in order of cost, as many as --minutes allows, and the score
    of each is shown as soon as it is there.
    """
    from textgraft.core.context import RunContext
    from textgraft.data.problems import to_json
    from textgraft.tasks.classification.budget import parse_rungs
    from textgraft.tasks.classification.finetune import finetune
    from textgraft.tasks.classification.finetune_options import FinetuneOptions
    from textgraft.tasks.classification.preflight import validate_finetune
    from textgraft.tasks.classification.sources import adapted_path
    from textgraft.tasks.language_modeling.adapt import enough_to_adapt
    from textgraft.training.recipes import load_recipe
    from textgraft.training.settings import Settings

    validate_out(out, overwrite)
    o.use_threads(threads)
    options = FinetuneOptions(
        recipe=recipe,
        method=method,
        seeds=seeds,
        folds=folds,
        max_tokens=max_tokens,
        class_weights=parse_weights(class_weights),
        from_scratch=from_scratch,
        both_orders=both_orders,
        baselines=baselines,
        layer_aggregation=layer_aggregation,
        minutes=minutes,
        rungs=None if rungs is None else parse_rungs(rungs),
        settings=Settings(
            seed=seed,
            precision=precision,
            patience=patience,
            device=device,
            sharding=sharding,
            activation_checkpointing=activation_checkpointing,
        ),
    )
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    parts = o.read_parts({"train": train, "valid": valid, "test": test}, **columns)
    texts = o.read_pool(unlabelled, encoding=encoding)
    examples, pool = o.labelled_parts(parts, texts, strict=strict)
    model = model or options.default_model(examples["train"])
    held_out = [part for name, part in examples.items() if name != "train"]
    models = validate_finetune(examples["train"], model=model, held_out=held_out, options=options)
    problems = _data_problems(parts, texts, quiet)
    if pool and adapt_first and (texts or enough_to_adapt(pool)) and load_recipe(options.language_recipe).adapt.phases:
        options = replace(options, adapt=replace(options.settings, minutes=adapt_minutes, patience=None))
    with problems_printed(), resumable(out, *(adapted_path(out, name, models) for name in models)):
        result = finetune(
            examples["train"],
            out,
            model=model,
            valid=examples.get("valid"),
            test=examples.get("test"),
            unlabelled=pool,
            options=options,
            context=RunContext(show=not quiet, overwrite=overwrite),
        )
    report = out / "report.html"
    if as_json:
        written = {"out": out, "report": report, "language_models": {**models, **result.language_models}}
        written |= {"seconds": result.seconds}
        print_json({**result.record["results"], **written, "problems": to_json(problems)})
    else:
        print(result.comparison.table())
        print(result.times)
        print("Written: " + ", ".join(str(path) for path in (out, report, *result.language_models.values())))


def _data_problems(parts: Mapping[str, Examples], pool: Sequence[str] | None, quiet: bool) -> Sequence[Problem]:
    """Return the problems that `check` finds in the data, printed on stderr; only errors if `quiet`."""
    from textgraft.data.checks import check
    from textgraft.data.examples import Examples

    unlabelled = Examples(pool, source="the unlabelled texts") if pool else None
    problems = check(parts["train"], valid=parts.get("valid"), test=parts.get("test"), unlabelled=unlabelled)
    print_problems(problems, errors_only=quiet)
    return problems


def parse_weights(value: str) -> str | dict[str, float]:
    """Return `none`, `balanced`, or the weights by label in a JSON object."""
    if not value.lstrip().startswith("{"):
        return value
    try:
        return dict(json.loads(value))
    except ValueError as error:
        raise UserError(
            f"this is not JSON: {error}.", where="--class-weights", remedy='Write for example {"rare": 5}.'
        ) from error

"""textgraft finetune: a classifier from labelled texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_problems
from textgraft.cli.resumable import resumable, validate_out
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.checks import Problem
    from textgraft.data.examples import Examples


def finetune(
    train: o.LabelledTexts,
    out: o.OutFolder,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A model that ships, or a folder; several as MODEL+MODEL. Else en-gpt-small, with --recipe en-ulmfit; "
            "for Thai texts th-ulmfit.",
        ),
    ] = None,
    valid: Annotated[Path | None, typer.Option("--valid", help="Labelled texts that guide early stopping.")] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Labelled texts that nothing is chosen by.")] = None,
    unlabelled: o.UnlabelledFiles = None,
    adapt_first: Annotated[
        bool,
        typer.Option(
            "--adapt/--no-adapt", help="Adapt the model to the unlabelled text, into OUT.lm, if it is worth it."
        ),
    ] = True,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Fine-tune the language model alone, by a name from `textgraft recipes` or a .toml file; "
            "else the best mean of it and of linear classifiers.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Train so many; report mean and spread.")] = 1,
    folds: Annotated[
        int | None,
        typer.Option("--folds", min=0, help="Cross-validate; else only to choose, or if nothing is held out."),
    ] = None,
    max_tokens: o.MaxTokens = 512,
    class_weights: Annotated[
        str, typer.Option("--class-weights", help='none, balanced, or JSON such as {"rare": 5}.')
    ] = "none",
    both_orders: Annotated[
        bool, typer.Option("--both-orders", help="Read pairs both ways round and add up: for similarity.")
    ] = False,
    layer_aggregation: o.LayerAggregation = "last",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Forget what the model learned: what is pretraining worth?")
    ] = False,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Linear models beside it, or in it.")
    ] = True,
    patience: o.Patience = None,
    adapt_minutes: o.AdaptMinutes = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.01,
            help="Leave the language model, and its probe, out where that would take longer in all, adapting aside.",
        ),
    ] = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Make a classifier from labelled texts and say how good it is, beside linear baselines.

    Without --recipe it is the best mean of a fine-tuned language model and linear classifiers, and says which and why.
    """
    from textgraft.data.checks import to_json
    from textgraft.tasks.classification.finetune import FinetuneOptions, finetune
    from textgraft.tasks.classification.preflight import check_finetune
    from textgraft.tasks.classification.sources import adapted_path
    from textgraft.training.loop import Settings
    from textgraft.training.recipes import load_recipe

    validate_out(out, overwrite)
    o.use_threads(threads)
    asked = FinetuneOptions(
        recipe=recipe,
        seeds=seeds,
        folds=folds,
        max_tokens=max_tokens,
        class_weights=parse_weights(class_weights),
        from_scratch=from_scratch,
        both_orders=both_orders,
        baselines=baselines,
        layer_aggregation=layer_aggregation,
        minutes=minutes,
        settings=Settings(seed=seed, precision=precision, patience=patience, device=device),
    )
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    parts = {"train": train, "valid": valid, "test": test}
    examples = {name: o.read_file(path, **columns) for name, path in parts.items() if path is not None}
    pool = o.read_pool(unlabelled, encoding=encoding)
    model = model or asked.default_model(examples["train"])
    held_out = [part for name, part in examples.items() if name != "train"]
    models = check_finetune(examples["train"], model=model, held_out=held_out, options=asked)
    problems = _problems(examples, pool, quiet)
    adapting = None
    if pool and adapt_first and load_recipe(asked.language_recipe).adapt.phases:
        adapting = Settings(seed=seed, precision=precision, minutes=adapt_minutes, device=device)
    with resumable(out, *(adapted_path(out, name, models) for name in models)):
        done = finetune(
            examples["train"],
            out,
            model=model,
            valid=examples.get("valid"),
            test=examples.get("test"),
            unlabelled=pool,
            adapting=adapting,
            options=asked,
            overwrite=overwrite,
            show=not quiet,
        )
    report = out / "report.html"
    if as_json:
        written = {"out": out, "report": report, "language_models": {**models, **done.language_models}}
        print_json({**done.record["results"], **written, "problems": to_json(problems)})
    else:
        print(done.comparison.table())
        print("Written: " + ", ".join(str(path) for path in (out, report, *done.language_models.values())))


def _problems(parts: Mapping[str, Examples], pool: Sequence[str] | None, quiet: bool) -> Sequence[Problem]:
    """What `check` finds in what was read of train, valid and test; told on stderr, errors even if `quiet`."""
    from textgraft.data.checks import check
    from textgraft.data.examples import Examples

    unlabelled = Examples(pool, source="the unlabelled texts") if pool else None
    problems = check(parts["train"], valid=parts.get("valid"), test=parts.get("test"), unlabelled=unlabelled)
    print_problems(problems, errors_only=quiet)
    return problems


def parse_weights(value: str) -> str | dict[str, float]:
    """`none`, `balanced`, or a JSON object of weights by label."""
    if not value.lstrip().startswith("{"):
        return value
    try:
        return dict(json.loads(value))
    except ValueError as error:
        raise UserError(
            f"this is not JSON: {error}.", where="--class-weights", remedy='Write for example {"rare": 5}.'
        ) from error

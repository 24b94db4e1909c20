"""textgraft compare: learning curves of methods on your data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import bulk
from textgraft.cli import options as o
from textgraft.cli.console import print_problems, problems_printed
from textgraft.cli.results import print_json_results, print_written, validate_out


def compare(
    train: o.LabelledTexts,
    out: o.OutFolder,
    test: o.TestTexts = None,
    unlabelled: o.UnlabelledFiles = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Names with commas, as in linear,ulmfit; else all that apply to the texts."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Numbers of labels with commas, as in 50,100,all; else a series up to all."),
    ] = None,
    reuse: Annotated[
        Path | None,
        typer.Option(
            "--reuse", help="Another comparison on the same texts, finished or not, whose predictions are reused."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Training samples, and trainings, for each number of labels.")
    ] = 5,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="The language model of all methods; else en-ulmfit, for default en-gpt-small, for Thai th-ulmfit.",
        ),
    ] = None,
    recipe: o.Recipe = "default",
    max_tokens: o.MaxTokens = 512,
    adapt_minutes: o.AdaptMinutes = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", min=0.01, help="For default: time limit of each model selection, as in finetune; else none."
        ),
    ] = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
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
    engine: bulk.Engine = "local",
    address: bulk.Address = None,
    workers: bulk.Workers = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Compare methods by number of labels, on your data: learning curves, significance tests, and a report.

    Methods: linear, lsa, vectors, co-training, fasttext, features, scratch, frozen, no-adapt, ulmfit, default, cove,
    elmo, flair, bert, gpt. The last five need models of their own and run only if they are named.

    METHOD@MODEL uses another model, as in ulmfit@th-ulmfit or vectors@my-vectors; METHOD@MODEL+MODEL uses several, as
    in features@en-ulmfit+en-ulmfit-backward.

    textgraft compare train.csv --test test.csv --methods linear,no-adapt@hf:FOLDER --labels 100,all --out curve

    With --reuse, only new methods, numbers of labels and seeds are trained:

    textgraft compare train.csv --test test.csv --methods linear,no-adapt --labels 100,all --reuse curve --out grown

    With --engine ray, the trainings of a method are spread over a cluster, whose machines share the folder of --out.
    """
    from textgraft.cli.resumable import resumable
    from textgraft.comparison.cells import ANSWERS
    from textgraft.comparison.compare import compare
    from textgraft.comparison.methods import MethodOptions
    from textgraft.comparison.report import table_text
    from textgraft.data.checks import check
    from textgraft.data.examples import Examples
    from textgraft.engines.registry import open_engine

    validate_out(out)
    o.use_threads(threads)
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    parts = o.read_parts({"train": train, "test": test}, **columns)
    texts = o.read_pool(unlabelled, encoding=encoding)
    labelled, pool = o.labelled_parts(parts, texts, strict=strict)
    options = MethodOptions(
        model=model,
        recipe=recipe,
        max_tokens=max_tokens,
        adapt_minutes=adapt_minutes,
        minutes=minutes,
        precision=precision,
        seed=seed,
        seeds=seeds,
        show=not quiet,
    )
    problems = check(
        parts["train"],
        test=parts.get("test"),
        unlabelled=Examples(texts, source="the unlabelled texts") if texts else None,
    )
    print_problems(problems, errors_only=quiet)
    with (
        problems_printed(),
        resumable(out),
        open_engine(engine, address=address, workers=workers, threads=threads) as where,
    ):
        results = compare(
            labelled["train"],
            out,
            test=labelled.get("test"),
            unlabelled=pool,
            methods=_listed(methods),
            labels=_listed(labels),
            options=replace(options, engine=where),
            reuse=reuse,
        )
    if as_json:
        print_json_results(out, results)
    else:
        print(table_text(results))
        print_written(out, out / ANSWERS)


def _listed(value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]

"""textgraft compare: the learning curve on one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_problems


def compare(
    train: Annotated[Path, typer.Argument(help="Labelled texts: .csv .tsv .jsonl .parquet, or a folder a class.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")],
    test: Annotated[
        Path | None, typer.Option("--test", help="Labelled texts to measure on; else a fifth of TRAIN is held out.")
    ] = None,
    unlabelled: Annotated[
        list[Path] | None, typer.Option("--unlabelled", "-u", help="Text of the domain; repeat for more files.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Names with commas, as in linear,ulmfit; else all that the texts allow."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Numbers of labels with commas, as in 50,100,all; else what there is."),
    ] = None,
    reuse: Annotated[
        Path | None,
        typer.Option("--reuse", help="Another comparison on the same texts, finished or not, whose answers are taken."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Draw and train so often for each number.")] = 5,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="One for all methods; else en-ulmfit, for default en-gpt-small, for Thai th-ulmfit.",
        ),
    ] = None,
    recipe: o.Recipe = "default",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="Longer texts lose their middle.")] = 512,
    adapt_minutes: Annotated[
        float | None,
        typer.Option("--adapt-minutes", min=0.01, help="Adapt for this long instead of the recipe's epochs."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.01, help="For default: give up a language model that would take longer."),
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
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """How good is each method with how many labels, on your data? Learning curves, tests, and a report.

    Methods: linear, lsa, vectors, self-trained, fasttext, features, scratch, frozen, no-adapt, ulmfit, default, cove,
    elmo, flair, bert, gpt. The last five read models of their own and are run only where they are named.

    METHOD@MODEL reads another model, as in ulmfit@th-ulmfit or vectors@my-vectors; METHOD@MODEL+MODEL reads several, as
    in features@en-ulmfit+en-ulmfit-backward.

    textgraft compare train.csv --test test.csv --methods linear,no-adapt@hf:FOLDER --labels 100,all --out curve

    With another method, or more labels or seeds, only what is new is trained:

    textgraft compare train.csv --test test.csv --methods linear,no-adapt --labels 100,all --reuse curve --out grown
    """
    from textgraft.cli.train import resumable
    from textgraft.comparison.cells import ANSWERS
    from textgraft.comparison.compare import compare
    from textgraft.comparison.methods import MethodOptions
    from textgraft.comparison.report import table_text
    from textgraft.core.files import validate_writable
    from textgraft.data.checks import check
    from textgraft.data.examples import Examples
    from textgraft.training.results_folder import refuse_existing

    refuse_existing(out)
    validate_writable(out)
    o.use_threads(threads)
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    examples = o.read_file(train, **columns)
    tested = o.read_file(test, **columns) if test is not None else None
    pool = o.read_pool(unlabelled, encoding=encoding)
    options = MethodOptions(
        model=model,
        recipe=recipe,
        max_tokens=max_tokens,
        adapt_minutes=adapt_minutes,
        minutes=minutes,
        precision=precision,
        seed=seed,
        show=not quiet,
    )
    problems = check(examples, test=tested, unlabelled=Examples(pool, source="the unlabelled texts") if pool else None)
    print_problems(problems, errors_only=quiet)
    with resumable(out):
        results = compare(
            examples,
            out,
            test=tested,
            unlabelled=pool,
            methods=_listed(methods),
            labels=_listed(labels),
            seeds=seeds,
            options=options,
            reuse=reuse,
        )
    if as_json:
        print_json({"out": out, "report": out / "report.html", **results})
    else:
        print(table_text(results))
        print(f"Written: {out / 'report.html'}, {out / 'results.json'}, {out / ANSWERS}")


def _listed(value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]

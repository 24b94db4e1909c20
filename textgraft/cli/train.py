"""textgraft pretrain, adapt, finetune: the three stages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import Interrupted, print_json, print_problems, print_table
from textgraft.core.errors import UserError
from textgraft.core.interrupts import reliable_interrupts

if TYPE_CHECKING:
    from textgraft.data.checks import Problem
    from textgraft.data.examples import Examples
    from textgraft.tasks.language_modeling.pretraining_text import Paths

MEASURES = (
    *("loss", "perplexity", "perplexity_forward", "perplexity_backward", "next_sentence_loss", "perplexity_per_word"),
    "bits_per_character",
)
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")]
Sources = Annotated[list[Path] | None, typer.Argument(help="Files, folders or globs of general text, or hf:NAME.")]
Languages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        help="Sources of one language, as th=FILES; repeat it. Small languages are read more often "
        "(the recipe's smoothing).",
    ),
]
HeldOut = Annotated[
    list[str] | None,
    typer.Option("--valid", help="Held-out text, with --language as th=FILES too; else every 200th text."),
]
GivenTokenizer = Annotated[Path | None, typer.Option("--tokenizer", help="A tokenizer.json; else one is trained.")]


@contextmanager
def resumable(*outs: Path) -> Iterator[None]:
    """Ctrl-C inside ends the program with a word on how to go on; work that had not begun leaves nothing behind."""
    from textgraft.training.driver import Stopped, remove_unstarted, work_path

    try:
        with reliable_interrupts():
            yield
    except (KeyboardInterrupt, Stopped):
        for out in outs:
            remove_unstarted(out)
        saved = " and ".join(str(work_path(out)) for out in outs if work_path(out).exists())
        word = f"the run is saved in {saved}, and" if saved else "nothing was lost;"
        raise Interrupted(f"stopped; {word} the same command goes on from there.") from None
    except Exception:
        for out in outs:
            remove_unstarted(out)
        raise


def check_out(out: Path, overwrite: bool | None) -> None:
    """Raises UserError if nothing could be put at `out` in the end."""
    from textgraft.core.files import validate_writable
    from textgraft.training.driver import refuse_existing

    refuse_existing(out, overwrite)
    validate_writable(out)


def pretrain(
    out: Out,
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help="Files, folders or globs of general text, or hf:NAME; or what textgraft tokenize wrote."),
    ] = None,
    language: Languages = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="A name below recipes/pretrain, or a .toml file.")
    ] = "en-ulmfit",
    valid: HeldOut = None,
    tokenizer: GivenTokenizer = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A language model to go on from, with its tokenizer; else a fresh one."),
    ] = None,
    tokens: Annotated[float | None, typer.Option("--tokens", min=1, help="Stop after reading so many tokens.")] = None,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a language model, and its tokenizer, on general text."""
    from textgraft.models.loading import load_network
    from textgraft.tasks.language_modeling.pretrain import pretrain
    from textgraft.training.loop import Settings

    check_out(out, overwrite=None)
    o.use_threads(threads)
    settings = Settings(seed=seed, precision=precision, minutes=minutes, patience=patience, device=device)
    chosen = named_sources(sources or [], language or [])
    with resumable(out):
        pretrain(
            chosen,
            out,
            recipe=recipe,
            valid=by_language("--valid", valid) if language and valid else valid,
            tokenizer=tokenizer,
            model=model,
            tokens=tokens,
            settings=settings,
            show=not quiet,
        )
    _told(out, load_network(out).run, as_json)


def adapt(
    pool: Annotated[
        list[Path], typer.Argument(help="Files, folders or globs of the domain's text; labels are ignored.")
    ],
    out: Out,
    model: o.DefaultModel = None,
    recipe: o.Recipe = "default",
    minutes: o.Minutes = None,
    own_vocabulary: Annotated[
        bool, typer.Option("--own-vocabulary", help="Train a tokenizer on the pool; known tokens keep their vectors.")
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
    """Let a language model read your domain's text; no labels needed."""
    from textgraft.models.loading import load_network
    from textgraft.tasks.language_modeling.adapt import adapt
    from textgraft.training.loop import Settings

    check_out(out, overwrite)
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
            overwrite=overwrite,
            show=not quiet,
        )
    _told(out, load_network(out).run, as_json)


def _told(out: Path, run: Mapping[str, Any], as_json: bool) -> None:
    """How a language model got better, and where it is."""
    from textgraft.models.card import LANGUAGES, language_rows

    held = run["held_out"]
    if as_json:
        told = {name: run[name] for name in ("stage", "tokens_seen", "held_out", "languages") if name in run}
        print_json({"out": out, **told})
        return
    columns = [name for name in ("before", "after") if name in held]
    names = [name for name in MEASURES if name in held["after"]]
    rows = [[name.replace("_", " "), *(f"{held[c][name]:,.4g}" for c in columns)] for name in names]
    print_table([f"on {held['tokens']:,} held-out tokens", *columns], rows)
    if run.get("languages"):
        print_table(LANGUAGES, language_rows(run["languages"]))
    print(f"Written: {out}")


def named_sources(sources: Sequence[Path], languages: Sequence[str]) -> Paths | dict[str, Paths]:
    """What pretraining reads, by language if it is told so. Raises UserError for both, and for nothing."""
    if sources and languages and "=" not in "".join(languages):
        remedy = "Leave it out for text of one language: the recipe says which."
        raise UserError(f"'{languages[0]}' names no files.", where="--language", remedy=remedy)
    if sources and languages:
        remedy = "Give each a language (--language th=FILES), or none."
        raise UserError("some sources have a language and some have none.", where=str(sources[0]), remedy=remedy)
    if not sources and not languages:
        raise UserError("no text was named.", remedy="Name files, or files by language (--language th=FILES).")
    return by_language("--language", languages) if languages else sources


def by_language(option: str, values: Sequence[str]) -> dict[str, Paths]:
    """`th=FILES` and the like as a mapping, several of one language together. Raises UserError for another spelling."""
    found: dict[str, list[Path]] = {}
    for value in values:
        language, equals, path = value.partition("=")
        if not (language and equals and path):
            remedy = "Write a language's code, = and its files, such as th=thai/*.txt."
            raise UserError(f"'{value}' does not say which language is where.", where=option, remedy=remedy)
        found.setdefault(language, []).append(Path(path))
    return dict(found)


def finetune(
    train: Annotated[Path, typer.Argument(help="Labelled texts: .csv .tsv .jsonl .parquet, or a folder a class.")],
    out: Out,
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
    unlabelled: Annotated[
        list[Path] | None, typer.Option("--unlabelled", "-u", help="Text of the domain; repeat for more files.")
    ] = None,
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
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="Longer texts lose their middle.")] = 512,
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
    adapt_minutes: Annotated[
        float | None,
        typer.Option("--adapt-minutes", min=0.01, help="Adapt for this long instead of the recipe's epochs."),
    ] = None,
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

    check_out(out, overwrite)
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

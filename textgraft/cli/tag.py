"""textgraft tag: sequence tagging, such as part-of-speech tagging and named-entity recognition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.bulk.workers import TagWorker
from textgraft.cli import bulk
from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note, print_table
from textgraft.cli.groups import Verb, group_of
from textgraft.cli.input_texts import InputTexts, KeptColumns
from textgraft.cli.output_files import validate_writable
from textgraft.cli.tagged_input import (
    File,
    RepairSpans,
    RepairTags,
    TagColumn,
    TaggedFiles,
    TagNames,
    WordColumn,
    untagged,
)
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.conll import Columns
    from textgraft.tasks.tagging.predictor import TaggedSentence

Folder = Annotated[Path, typer.Argument(help="The folder of a tagger from `textgraft tag finetune`.")]
FORMATS = ("conll", "json", "colour")
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def finetune(
    train: File,
    out: o.OutFolder,
    model: o.DefaultModel = None,
    valid: Annotated[
        Path | None, typer.Option("--valid", help="Sentences for the selection of the best epoch.")
    ] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Sentences for the final evaluation only.")] = None,
    held_out: Annotated[
        float, typer.Option("--held-out", help="Without --valid and --test, the share of the sentences to evaluate on.")
    ] = 0.1,
    sentences: Annotated[
        int | None,
        typer.Option("--sentences", min=1, help="Train on this many; a larger sample contains a smaller one."),
    ] = None,
    test_sentences: Annotated[
        int | None, typer.Option("--test-sentences", min=1, help="Evaluate on this many sentences of --test.")
    ] = None,
    word_column: WordColumn = None,
    tag_column: TagColumn = None,
    tag_names: TagNames = None,
    repair_tags: RepairTags = False,
    repair_spans: RepairSpans = False,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack", help="Train on stacked embeddings of models and word vectors: NAME,NAME@LAYERS,pooled:NAME,…"
        ),
    ] = None,
    keep_gb: Annotated[
        float, typer.Option("--keep-gb", min=0, help="With --stack, the disk cache of embeddings, in gigabytes.")
    ] = 2.0,
    scheme: Annotated[
        str | None,
        typer.Option("--scheme", help="The scheme of entity tags: IOB2 (default) or BIOES (default with --stack)."),
    ] = None,
    crf: Annotated[
        bool | None, typer.Option("--crf/--no-crf", help="Add a CRF over the tags; default with --stack.")
    ] = None,
    recipe: o.Recipe = "default",
    layer_aggregation: o.LayerAggregation = "last",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=4, help="The most tokens of a window over a long sentence.")
    ] = 256,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Evaluate each word's most frequent tag for comparison.")
    ] = True,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a tagger on tagged sentences and evaluate it beside each word's most frequent tag."""
    from textgraft.cli.resumable import resumable, validate_out
    from textgraft.tasks.tagging.finetune import STACKED, TagOptions, tag_finetune
    from textgraft.tasks.tagging.stacked import Network
    from textgraft.training.settings import Settings
    from textgraft.word_embeddings.stack import Stack

    validate_out(out, overwrite)
    if stack is not None and model is not None:
        raise UserError(
            "both a model and a stack are named.", where="--stack", remedy="Add the model to the names of --stack."
        )
    o.use_threads(threads)
    defaults = TagOptions() if stack is None else STACKED
    tag_scheme: Any = defaults.scheme if scheme is None else scheme
    options = TagOptions(
        recipe=recipe,
        max_tokens=max_tokens,
        scheme=tag_scheme,
        crf=defaults.crf if crf is None else crf,
        held_out=held_out,
        baseline=baseline,
        layer_aggregation=layer_aggregation,
        network=Network(kept_bytes=round(keep_gb * 1e9)),
        settings=Settings(
            seed=seed,
            precision=precision,
            minutes=minutes,
            patience=patience,
            device=device,
            sharding=sharding,
            activation_checkpointing=activation_checkpointing,
        ),
    )
    paths = {"train": train, "valid": valid, "test": test}
    files = TaggedFiles(word_column, tag_column, tag_names, repair_tags, repair_spans)
    parts = {name: files.read(path) for name, path in paths.items() if path is not None}
    if sentences is not None and valid is None and test is None:
        remedy = "Name a --test file; the sentences outside the sample are not held out."
        raise UserError("there is no evaluation split beside a sample.", where="--sentences", remedy=remedy)
    for name, count in (("train", sentences), ("test", test_sentences)):
        if count is not None and name in parts:
            parts[name] = parts[name].sample(count, seed)
    if valid is None and test is None and not (quiet or as_json):  # JSON has the evaluation split
        print_note("textgraft: there is no --test, so some sentences are held out for evaluation.")
    with resumable(out):
        result = tag_finetune(
            parts["train"],
            out,
            model=model if stack is None else Stack.open(stack.split(","), precision=precision),
            valid=parts.get("valid"),
            test=parts.get("test"),
            options=options,
            context=RunContext(show=not quiet, overwrite=overwrite),
        )
    if as_json:
        split = result.record["evaluation_split"]
        about = {"evaluation_split": split, "coverage": result.record["coverage"], **_inference(result.record)}
        print_json({"out": out, **about, **result.record["results"]})
        return
    print(result.table())
    if "in_int8" in result.record:
        print(_precision_note(result.record))
    _warn_of_windows(result.record["coverage"].values())
    print(f"Written: {out} (predictions.conll in it)")


def evaluate(
    model: Folder,
    file: File,
    word_column: WordColumn = None,
    tag_column: TagColumn = None,
    tag_names: TagNames = None,
    repair_tags: RepairTags = False,
    repair_spans: RepairSpans = False,
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Evaluate a tagger: F1 of entities as conlleval counts it, or accuracy, with intervals."""
    from textgraft.tasks.tagging.predictor import Tagger, scores

    data = TaggedFiles(word_column, tag_column, tag_names, repair_tags, repair_spans).read(file)
    o.use_threads(threads)
    tagger = Tagger(model, precision=precision, show=not quiet)
    result = scores(data, tagger.tag(data.sentences)).summary()
    if as_json:
        print_json(result)
    else:
        _print_scores(result)


def predict(
    model: Folder,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="A .txt file or stdin (-) with a text per line, JSON lines with text, or any file of `tag finetune`, "
            "whose tags are ignored. Several files of texts, folders and 'patterns*' with a folder for --out.",
        ),
    ] = None,
    input_text: InputTexts = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file to write: .jsonl for offsets, else CoNLL; or a folder.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="An HTML page to write, with entities or tags in colours.")
    ] = None,
    colour: Annotated[bool, typer.Option("--colour", help="Short for --format colour.")] = False,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="conll, json (a line per sentence) or colour (brackets); jsonl or parquet in a folder; else by input "
            "and output.",
        ),
    ] = None,
    word_column: WordColumn = None,
    tag_column: TagColumn = None,
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    id: o.IdColumn = None,
    keep: KeptColumns = "all",
    block_rows: bulk.BlockRows = bulk.BLOCK_ROWS,
    engine: bulk.Engine = "local",
    address: bulk.Address = None,
    workers: bulk.Workers = None,
) -> None:
    """Tag the words of a file or of texts, as CoNLL columns, JSON with character offsets, or in colours.

    With folders or several files of texts and a folder for --out, a file of rows with their words and entities is
    written for each block of rows; the same command resumes an interrupted run:

    textgraft tag predict tagger reviews/ --out tagged --engine ray --address auto
    """
    from textgraft.core.files import writing_atomically
    from textgraft.data.words import Coverage
    from textgraft.tasks.tagging.predictor import Tagger

    folder = bulk.BulkRun(files or (), out, engine, address, workers, threads, block_rows=block_rows)
    if _are_folders(files or ()):
        o.use_threads(threads)
        worker = TagWorker(str(model), precision)
        replace(folder, output_format=format).run(worker, {"text": word_column, "id": id}, keep, as_json=False)
        return
    folder.validate_unused()
    file = files[0] if files else None
    if colour and format not in (None, "colour"):
        raise UserError(f"colours are not {format}.", where="--colour", remedy="Leave out --colour or --format.")
    if html is not None and out is not None:
        raise UserError("both a page and a file are named.", where="--html", remedy="Name one at a time.")
    output_format = _output_format("colour" if colour else format, out)
    target = html or out
    if target is not None:
        validate_writable(target)
    source = untagged(file, input_text, word_column, tag_column)
    o.use_threads(threads)
    tagger = Tagger(model, precision=precision)
    total, count = Coverage(), 0

    def predictions() -> Iterator[TaggedSentence]:
        nonlocal total, count
        for prediction, coverage in tagger.stream(source.sentences):
            total, count = total + coverage, count + 1
            yield prediction

    shown_as = output_format or source.output_format
    shown = (line for r in predictions() for line in _shown(r, shown_as, source.columns))
    lines = _page(predictions()) if html else shown
    if target is None:
        for line in lines:
            print(line)
    else:
        with writing_atomically(target) as written:
            for line in lines:
                written.write(f"{line}\n".encode("utf-8", "replace"))
        print_note(f"Written: {target} ({count:,} sentences)")
    _warn_of_windows([vars(total)])


def _are_folders(files: Sequence[Path]) -> bool:
    """True for several files, a pattern, or a folder that is not brat's."""
    from textgraft.data.brat import is_brat

    folder = files[0] if len(files) == 1 and files[0].is_dir() else None
    return len(files) > 1 or any(map(bulk.has_pattern, files)) or (folder is not None and not is_brat(folder))


def _output_format(name: str | None, out: Path | None) -> str | None:
    """Return the format that is named, or that of the file to write; None for that of the input."""
    if name is not None and name not in FORMATS:
        raise UserError(f"there is no format '{name}'.", where="--format", remedy=f"Known: {', '.join(FORMATS)}.")
    if out is not None:
        if name == "colour":
            raise UserError("a file has no colours.", where="--format", remedy="Leave out --out, or take conll.")
        if out.suffix == ".json":
            raise UserError("a sentence per line is no JSON file.", where=str(out), remedy="Name a .jsonl file.")
        return name or ("json" if out.suffix == ".jsonl" else "conll")
    return name


def _page(predictions: Iterator[TaggedSentence]) -> Iterator[str]:
    """Return the lines of a page; the import is here because only --html needs it."""
    from textgraft.tasks.tagging.page import tagged_sentences_page

    return tagged_sentences_page(predictions)


def _shown(prediction: TaggedSentence, format: str, columns: Columns | None) -> Iterator[str]:
    """Yield the lines of one sentence."""
    from textgraft.core.json_text import encode
    from textgraft.data.conll import conll_lines

    if format == "json":
        yield encode(prediction.as_json()).decode()
    elif format == "conll":
        yield from conll_lines(prediction.sentence, prediction.tags, columns)
    else:
        yield _coloured(prediction)


def _coloured(prediction: TaggedSentence) -> str:
    """Return the text with entities, or words, in brackets with their tags, in colours on a terminal."""
    from rich.console import Console
    from rich.text import Text

    from textgraft.core.formatting import printable

    spans = prediction.spans
    names = sorted({name for *_, name in spans})
    shown, at = Text(), 0
    for start, end, name in spans:
        if start < at:  # a part of a multi-word token
            continue
        colour = COLOURS[sum(name.encode()) % len(COLOURS)] if len(names) else ""
        shown.append(printable(prediction.sentence.text[at:start]))
        shown.append(f"[{printable(prediction.sentence.text[start:end])}", style=f"bold {colour}")
        shown.append(f" {name}]", style=colour)
        at = end
    shown.append(printable(prediction.sentence.text[at:]))
    console = Console(soft_wrap=True, highlight=False)
    with console.capture() as capture:
        console.print(shown, end="")
    return capture.get()


def _print_scores(scores: Mapping[str, Any]) -> None:
    from textgraft.core import formatting

    rows = []
    for name in ("f1", "precision", "recall", "accuracy"):
        value = scores.get(name)
        if value is not None:
            shown = formatting.interval(value["mean"], value["low"], value["high"], name)
            rows.append([formatting.metric_name(name), shown])
    print_table([f"{scores['sentences']:,} sentences, {scores['words']:,} words", "score [95 % interval]"], rows)
    if "types" in scores:
        columns = ("precision", "recall", "f1")
        table = [
            [name or "–", *(formatting.score(of[c], c) for c in columns), f"{of['support']:,}"]
            for name, of in scores["types"].items()
        ]
        print_table(["entity", *map(formatting.metric_name, columns), "support"], table)


def _inference(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evaluation split, and the precision of inference where int8 was tried, under the names of --json."""
    names = {"in_int8": "int8_agreement", "read_in": "inference_precision"}
    return {name: record[key] for key, name in names.items() if key in record}


def _precision_note(record: Mapping[str, Any]) -> str:
    from textgraft.models.card import in_int8

    if "read_in" not in record:
        return f"Inference is in floating point: only {in_int8(**record['in_int8'])}."
    agreement = in_int8(**record["in_int8"])
    return f"Inference is in int8, which is faster, and so is the evaluation: {agreement} (--precision fp32)."


def _warn_of_windows(coverages: Iterable[Mapping[str, int]]) -> None:
    """Warn on stderr of sentences that were longer than a window."""
    from textgraft.data.words import Coverage

    for coverage in coverages:
        message = Coverage(**coverage).told()
        if message:
            print_note(f"textgraft: warning: {message} Raise --max-tokens in fine-tuning.")


VERBS: tuple[Verb, ...] = (
    ("finetune", finetune, "textgraft tag finetune train.conll --test test.conll --model hf:bert-base --out tagger"),
    ("evaluate", evaluate, "textgraft tag evaluate tagger test.conll --json"),
    ("predict", predict, "textgraft tag predict tagger --text 'Ada met Charles in London.'"),
)
"""Name, function and example of each verb, in the order of --help."""


def group() -> typer.Typer:
    """Return the group of commands `textgraft tag`."""
    return group_of(VERBS, "Sequence tagging: parts of speech, or named entities.")

"""textgraft tag: words with tags, which are parts of speech or places in entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table, say
from textgraft.cli.groups import Verb, group_of
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.conll import Columns, Sentence, Tagged
    from textgraft.tasks.tagging.predictor import Reply

Folder = Annotated[Path, typer.Argument(help="The folder of a model made by `textgraft tag finetune`.")]
File = Annotated[Path, typer.Argument(help="Sentences with tags: CoNLL columns or CoNLL-U, also .gz, .xz, ….")]
WordColumn = Annotated[
    str | None, typer.Option("--word-column", help="The words' column, from 1, or a CoNLL-U name; else guessed.")
]
TagColumn = Annotated[
    str | None, typer.Option("--tag-column", help="The tags' column, -1 the last, or a CoNLL-U name; else guessed.")
]
RepairTags = Annotated[
    bool, typer.Option("--repair-tags", help="Let entities begin where a tag may not go on with one.")
]
FORMATS = ("conll", "json", "colour")
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def finetune(
    train: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")],
    model: o.DefaultModel = None,
    valid: Annotated[Path | None, typer.Option("--valid", help="Sentences to choose the best epoch by.")] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Sentences whose tags choose nothing.")] = None,
    held_out: Annotated[
        float, typer.Option("--held-out", help="With neither, the share of the sentences to measure on.")
    ] = 0.1,
    sentences: Annotated[
        int | None, typer.Option("--sentences", min=1, help="Learn from so many; a larger sample holds a smaller one.")
    ] = None,
    test_sentences: Annotated[
        int | None, typer.Option("--test-sentences", min=1, help="Measure on so many of --test's.")
    ] = None,
    word_column: WordColumn = None,
    tag_column: TagColumn = None,
    repair_tags: RepairTags = False,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack", help="Train on what these say: models and word vectors, NAME,NAME@LAYERS,pooled:NAME,…"
        ),
    ] = None,
    keep_gb: Annotated[
        float, typer.Option("--keep-gb", min=0, help="With --stack, how much of that to keep on disk.")
    ] = 2.0,
    scheme: Annotated[
        str | None, typer.Option("--scheme", help="How entities are learned: IOB2 (default) or BIOES (with --stack).")
    ] = None,
    crf: Annotated[
        bool | None, typer.Option("--crf/--no-crf", help="Learn which tag follows which; --stack does.")
    ] = None,
    recipe: o.Recipe = "default",
    layer_aggregation: o.LayerAggregation = "last",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=4, help="Of a window over a long sentence.")] = 256,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Each word's most frequent tag beside it.")
    ] = True,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Make a tagger from sentences with tags, and say how good it is beside each word's most frequent tag."""
    from textgraft.cli.train import check_out, resumable
    from textgraft.tasks.tagging.finetune import STACKED, TagOptions, tag_finetune
    from textgraft.tasks.tagging.stacked import Network
    from textgraft.training.loop import Settings
    from textgraft.word_embeddings.stack import Stack

    check_out(out, overwrite)
    if stack is not None and model is not None:
        raise UserError("both a model and a stack.", where="--stack", remedy="Put the model among the stack's names.")
    o.use_threads(threads)
    recommended_recipe = TagOptions() if stack is None else STACKED
    given: Any = recommended_recipe.scheme if scheme is None else scheme
    options = TagOptions(
        recipe=recipe,
        max_tokens=max_tokens,
        scheme=given,
        crf=recommended_recipe.crf if crf is None else crf,
        held_out=held_out,
        baseline=baseline,
        layer_aggregation=layer_aggregation,
        network=Network(kept_bytes=round(keep_gb * 1e9)),
        settings=Settings(seed=seed, precision=precision, minutes=minutes, patience=patience, device=device),
    )
    paths = {"train": train, "valid": valid, "test": test}
    parts = {n: _read(path, word_column, tag_column, repair_tags) for n, path in paths.items() if path is not None}
    if sentences is not None and valid is None and test is None:
        remedy = "Name a --test file; the rest of the sentences is not held out."
        raise UserError("there is nothing to measure on beside a sample.", where="--sentences", remedy=remedy)
    for name, count in (("train", sentences), ("test", test_sentences)):
        if count is not None and name in parts:
            parts[name] = parts[name].sample(count, seed)
    if valid is None and test is None and not quiet:
        say("textgraft: there is no --test, so some sentences are held out to measure on.")
    with resumable(out):
        done = tag_finetune(
            parts["train"],
            out,
            model=model if stack is None else Stack.open(stack.split(","), precision=precision),
            valid=parts.get("valid"),
            test=parts.get("test"),
            options=options,
            overwrite=overwrite,
            show=not quiet,
        )
    if as_json:
        reading: dict[str, Any] = {n: done.record[n] for n in ("in_int8", "read_in") if n in done.record}
        print_json({"out": out, "examined": done.record["examined"], **reading, **done.record["results"]})
        return
    print(done.table())
    if "in_int8" in done.record:
        print(_precision_told(done.record))
    _tell_cut(done.record["coverage"].values())
    print(f"Written: {out} (predictions.conll in it)")


def evaluate(
    model: Folder,
    file: File,
    word_column: WordColumn = None,
    tag_column: TagColumn = None,
    repair_tags: RepairTags = False,
    precision: o.ReadingPrecision = "auto",
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Say how good a tagger is: F1 of entities as conlleval counts it, or accuracy, with intervals."""
    from textgraft.tasks.tagging.predictor import Tagger, scores

    data = _read(file, word_column, tag_column, repair_tags)
    o.use_threads(threads)
    tagger = Tagger(model, precision=precision, show=not quiet)
    found = scores(data, tagger.tag(data.sentences)).summary()
    if as_json:
        print_json(found)
    else:
        _tell(found)


def predict(
    model: Folder,
    file: Annotated[
        Path | None, typer.Argument(help="A .txt file with a text a line, or CoNLL columns, whose tags are not read.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text itself; may be repeated.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file to write: .jsonl for offsets, else CoNLL.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="A page to write, with what was found in colours.")
    ] = None,
    colour: Annotated[bool, typer.Option("--colour", help="Brackets and colours, as --format colour.")] = False,
    format: Annotated[
        str | None, typer.Option("--format", help="conll, json (a line a sentence) or colour; else as fits.")
    ] = None,
    word_column: WordColumn = None,
    tag_column: TagColumn = None,
    precision: o.ReadingPrecision = "auto",
    threads: o.Threads = None,
) -> None:
    """Tag the words of a file or of texts, as CoNLL columns, as JSON with characters' offsets, or in colours."""
    from textgraft.core.files import validate_writable, writing_atomically
    from textgraft.data.words import Coverage
    from textgraft.tasks.tagging.predictor import Tagger

    if colour and format not in (None, "colour"):
        raise UserError(f"colours are not {format}.", where="--colour", remedy="Leave out --colour or --format.")
    if html is not None and out is not None:
        raise UserError("both a page and a file.", where="--html", remedy="Name one at a time.")
    chosen = _chosen_format("colour" if colour else format, file, out)
    target = html or out
    if target is not None:
        validate_writable(target)
    columns, sentences = _asked(file, text, word_column, tag_column)
    o.use_threads(threads)
    tagger = Tagger(model, precision=precision)
    total, count = Coverage(), 0

    def replies() -> Iterator[Reply]:
        nonlocal total, count
        for reply, coverage in tagger.stream(sentences):
            total, count = total + coverage, count + 1
            yield reply

    lines = _page(replies()) if html else (line for r in replies() for line in _shown(r, chosen, columns))
    if target is None:
        for line in lines:
            print(line)
    else:
        with writing_atomically(target) as written:
            for line in lines:
                written.write(f"{line}\n".encode("utf-8", "replace"))
        say(f"Written: {target} ({count:,} sentences)")
    _tell_cut([vars(total)])


def _read(path: Path, word: str | None, tag: str | None, repair: bool) -> Tagged:
    from textgraft.data.conll import read_conll

    return read_conll(path, word=word, tag=tag, illegal_tags="repair" if repair else "refuse")


def _chosen_format(name: str | None, file: Path | None, out: Path | None) -> str:
    if name is not None and name not in FORMATS:
        raise UserError(f"there is no format '{name}'.", where="--format", remedy=f"Known: {', '.join(FORMATS)}.")
    if out is not None:
        if name == "colour":
            raise UserError("a file has no colours.", where="--format", remedy="Leave out --out, or take conll.")
        if out.suffix == ".json":
            raise UserError("a sentence a line is no JSON file.", where=str(out), remedy="Name a .jsonl file.")
        return name or ("json" if out.suffix == ".jsonl" else "conll")
    return name or ("conll" if file is not None else "colour")


def _asked(
    file: Path | None, texts: list[str] | None, word: str | None, tag: str | None
) -> tuple[Columns | None, Iterable[Sentence]]:
    """Sentences one by one, and how to write them back. Raises UserError for both a file and texts, or neither."""
    from textgraft.data.conll import sniff_columns, stream_sentences
    from textgraft.data.text_files import format_of, lines
    from textgraft.tasks.tagging.predictor import from_text

    if (file is None) == (not texts):
        raise UserError("name either a file or --text.", remedy="For example: textgraft tag predict MODEL --text Yes.")
    if file is not None and format_of(file) != ".txt":
        columns = sniff_columns(file, word=word, tag=tag)
        return columns, (s for s in stream_sentences(file, columns) if s.words)
    given = texts if file is None else (line.rstrip("\r\n") for line in lines(file))
    return None, (sentence for sentence in map(from_text, given or ()) if sentence.words)


def _page(replies: Iterator[Reply]) -> Iterator[str]:
    """A page's lines; what draws pages is not asked for where there is none."""
    from textgraft.tasks.tagging.page import tagged_page

    return tagged_page(replies)


def _shown(reply: Reply, format: str, columns: Columns | None) -> Iterator[str]:
    """The lines of one sentence."""
    import json

    from textgraft.data.conll import conll_lines

    if format == "json":
        yield json.dumps(reply.listed(), ensure_ascii=False)
    elif format == "conll":
        yield from conll_lines(reply.sentence, reply.tags, columns)
    else:
        yield _coloured(reply)


def _coloured(reply: Reply) -> str:
    """The text with its entities, or words, in brackets with their tags, in colours where the terminal has some."""
    from rich.console import Console
    from rich.text import Text

    from textgraft.core.formatting import printable

    spans = reply.spans
    names = sorted({name for *_, name in spans})
    shown, at = Text(), 0
    for start, end, name in spans:
        if start < at:  # a word of several that are written as one
            continue
        colour = COLOURS[sum(name.encode()) % len(COLOURS)] if len(names) else ""
        shown.append(printable(reply.sentence.text[at:start]))
        shown.append(f"[{printable(reply.sentence.text[start:end])}", style=f"bold {colour}")
        shown.append(f" {name}]", style=colour)
        at = end
    shown.append(printable(reply.sentence.text[at:]))
    console = Console(soft_wrap=True, highlight=False)
    with console.capture() as capture:
        console.print(shown, end="")
    return capture.get()


def _tell(found: Mapping[str, Any]) -> None:
    from textgraft.core import formatting

    rows = []
    for name in ("f1", "precision", "recall", "accuracy"):
        value = found.get(name)
        if value is not None:
            shown = formatting.interval(value["mean"], value["low"], value["high"], name)
            rows.append([formatting.metric_name(name), shown])
    print_table([f"{found['sentences']:,} sentences, {found['words']:,} words", "score [95 % interval]"], rows)
    if "types" in found:
        columns = ("precision", "recall", "f1")
        table = [
            [name or "–", *(formatting.score(of[c], c) for c in columns), f"{of['support']:,}"]
            for name, of in found["types"].items()
        ]
        print_table(["entity", *map(formatting.metric_name, columns), "there"], table)


def _precision_told(record: Mapping[str, Any]) -> str:
    from textgraft.models.card import in_int8

    if "read_in" not in record:
        return f"It reads in floating point: only {in_int8(**record['in_int8'])}."
    return f"It reads in int8, which is faster and what was scored: {in_int8(**record['in_int8'])} (--precision fp32)."


def _tell_cut(coverages: Iterable[Mapping[str, int]]) -> None:
    """Say what was longer than a window, on stderr."""
    from textgraft.data.words import Coverage

    for coverage in coverages:
        told = Coverage(**coverage).told()
        if told:
            say(f"textgraft: warning: {told} Raise --max-tokens when you fine-tune.")


VERBS: tuple[Verb, ...] = (
    ("finetune", finetune, "textgraft tag finetune train.conll --test test.conll --model hf:bert-base --out tagger"),
    ("evaluate", evaluate, "textgraft tag evaluate tagger test.conll --json"),
    ("predict", predict, "textgraft tag predict tagger --text 'Ada met Charles in London.'"),
)
"""Name, function and an example for --help, in the order that help lists them."""


def group() -> typer.Typer:
    """`textgraft tag` with its verbs."""
    return group_of(VERBS, "Words with tags: parts of speech, or names and other entities, from CoNLL's files.")

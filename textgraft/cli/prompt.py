"""textgraft prompt: what a language model answers without being trained for the question."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, say
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.examples import Examples
    from textgraft.generation.prompt_tasks import Prompted
    from textgraft.generation.prompting import Template

ASKING = "How the model is asked"


def prompt(
    model: Annotated[str, typer.Argument(help="A language model that ships, by name, or the path of a folder.")],
    file: Annotated[Path, typer.Argument(help="Texts, pairs or choices to answer; with labels, to be measured.")],
    template: Annotated[
        str, typer.Option("--template", "-t", help="A name from `textgraft recipes`, or a .toml file.")
    ],
    shots: Annotated[
        int, typer.Option("--shots", min=0, help="Examples before each text.", rich_help_panel=ASKING)
    ] = 0,
    examples: Annotated[
        Path | None, typer.Option("--examples", help="Labelled texts to draw them from; else from FILE.")
    ] = None,
    scoring: Annotated[
        str,
        typer.Option("--scoring", help="sum, length, bytes or unconditional.", rich_help_panel=ASKING),
    ] = "sum",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Against texts without content.", rich_help_panel=ASKING)
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Longer prompts lose examples.", rich_help_panel=ASKING)
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Draws and orders the examples.", rich_help_panel=ASKING)
    ] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv or .jsonl file; else stdout.")] = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    kind: o.Kind = None,
    encoding: o.Encoding = None,
    device: o.Device = "auto",
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Ask a language model: labels or options by how likely they are after a prompt, or what it writes.

    With labels in FILE the accuracy is said, with its interval and beside always giving the most frequent answer.
    """
    from textgraft.core.files import validate_writable
    from textgraft.generation.prompt_tasks import PromptOptions
    from textgraft.generation.prompting import load_template

    if out is not None and out.suffix not in (".csv", ".jsonl"):
        raise UserError("answers are written as .csv or .jsonl.", where=str(out), remedy="Name such a file.")
    if out is not None:
        validate_writable(out)
    o.use_threads(threads)
    options = PromptOptions(shots, scoring, calibrate, seed, max_tokens, precision)
    chosen = load_template(template)
    columns = {"text": text, "text2": text2, "label": label, "kind": kind, "encoding": encoding}
    data = o.read_file(file, **columns)
    pool = None if examples is None else o.read_file(examples, **columns)
    _give(
        *_asked(model, data, template=chosen, options=options, examples=pool, device=device), out=out, as_json=as_json
    )


def _asked(
    model: str, data: Examples, *, template: Template, **asking: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each text, and how good the answers are, where there are labels to tell."""
    from textgraft.generation.prompt_tasks import complete, prompt

    if template.writes:
        written = complete(model, data, template, **asking)
        return [key | {"text": row.text} for key, row in zip(_keys(data), written, strict=True)], {}
    found = prompt(model, data, template, **asking)
    has_labels = found.texts.labels is not None and any(given != "" for given in found.texts.labels)
    return list(_rows(found)), found.evaluate() if has_labels else {}


def _keys(texts: Examples) -> Iterator[dict[str, Any]]:
    """What to know each text by: its id, or its line."""
    for index in range(len(texts)):
        yield {texts.unit: texts.line(index)} if texts.ids is None else {"id": texts.ids[index]}


def _rows(found: Prompted) -> Iterator[dict[str, Any]]:
    for key, answer in zip(_keys(found.texts), found.answers, strict=True):
        option = {} if answer.option is None else {"option": answer.option}
        yield key | {"label": answer.label, **option, "probabilities": answer.probabilities}


def _give(rows: list[dict[str, Any]], evaluation: Mapping[str, Any], *, out: Path | None, as_json: bool) -> None:
    """Answers to the file or stdout, and how good they are."""
    from textgraft.cli.use import as_csv, as_json_lines, write_lines

    if out is not None:
        write_lines(out, as_csv(rows) if out.suffix == ".csv" else as_json_lines(rows))
    if as_json:
        answers = {"answers": rows} if out is None else {"out": out, "texts": len(rows)}
        print_json(answers | ({"evaluation": evaluation} if evaluation else {}))
        return
    if out is None:
        for line in as_json_lines(rows):
            sys.stdout.write(line)
    else:
        say(f"Written: {out} ({len(rows):,} answers)")
    if evaluation:
        say(verdict(evaluation))


def verdict(evaluation: Mapping[str, Any]) -> str:
    """How good the answers are, in two sentences."""
    from textgraft.core import formatting

    def share(found: Mapping[str, float]) -> str:
        return formatting.interval(found["mean"], found["low"], found["high"], "accuracy")

    always, difference = evaluation["most_frequent"], evaluation["difference"]
    first = f"accuracy {share(evaluation['accuracy'])} on {evaluation['texts']:,} texts"
    second = f"always '{always['label']}', the most frequent of their labels, gives {share(always)}"
    return f"{first}; {second}: {difference['points']:+.1f} points ({formatting.p_value(difference['p'])})."

"""textgraft prompt: zero-shot and few-shot classification and completion with a language model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note
from textgraft.cli.input_texts import KeptColumns, examples_keys
from textgraft.cli.output_files import ROW_FORMATS, validate_out_file, write_lines
from textgraft.data.output_rows import CsvStyle, Kept, as_json_lines, as_lines, rounded, with_prediction

if TYPE_CHECKING:
    from textgraft.data.examples import Examples
    from textgraft.generation.prompt_tasks import Prompted
    from textgraft.generation.prompting import Template

PROMPTING = "Prompting"


def prompt(
    model: o.LanguageModel,
    file: Annotated[Path, typer.Argument(help="Texts, pairs or choices; with labels, predictions are evaluated.")],
    template: Annotated[
        str, typer.Option("--template", "-t", help="A name from `textgraft recipes`, or a .toml file.")
    ],
    shots: Annotated[
        int, typer.Option("--shots", min=0, help="Number of examples before each text.", rich_help_panel=PROMPTING)
    ] = 0,
    examples: Annotated[
        Path | None, typer.Option("--examples", help="Labelled texts for --shots; else those in FILE.")
    ] = None,
    scoring: Annotated[
        str,
        typer.Option(
            "--scoring", help="Score of a label: sum, length, bytes or unconditional.", rich_help_panel=PROMPTING
        ),
    ] = "sum",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Calibrate on texts without content.", rich_help_panel=PROMPTING)
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Longer prompts get fewer examples.", rich_help_panel=PROMPTING)
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Selects and orders the examples.", rich_help_panel=PROMPTING)
    ] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv, .tsv or .jsonl file; else stdout.")] = None,
    keep: KeptColumns = "all",
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    device: o.Device = "auto",
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Prompt a language model: rank labels or options by their probability, or generate text.

    With labels in FILE, the accuracy is printed with its interval, beside that of the majority class.
    """
    from textgraft.generation.prompt_tasks import PromptOptions
    from textgraft.generation.prompting import load_template

    validate_out_file(out, ROW_FORMATS, "answers")
    o.use_threads(threads)
    options = PromptOptions(shots, scoring, calibrate, seed, max_tokens, precision)
    prompt_template = load_template(template)
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "encoding": encoding}
    columns |= {"delimiter": delimiter}
    data = o.read_file(file, **columns)
    pool = None if examples is None else o.read_file(examples, **columns)
    answered, answers, evaluation = _answered(
        model, data, template=prompt_template, options=options, examples=pool, device=device
    )
    begun = examples_keys(answered, file, columns, Kept.parse(keep))
    rows = [with_prediction(row, answer) for row, answer in zip(begun, answers, strict=True)]
    _print_answers(rows, evaluation, out=out, as_json=as_json, style=CsvStyle.like(file, out, columns))


def _answered(
    model: str, data: Examples, *, template: Template, **settings: Any
) -> tuple[Examples, list[dict[str, Any]], dict[str, Any]]:
    """Return the texts that were answered, an answer for each, and the evaluation where there are labels."""
    from textgraft.generation.prompt_tasks import complete, prompt

    if template.writes:
        return data, [{"text": row.text} for row in complete(model, data, template, **settings)], {}
    result = prompt(model, data, template, **settings)
    has_labels = result.texts.labels is not None and any(label != "" for label in result.texts.labels)
    return result.texts, list(_rows(result)), result.evaluate() if has_labels else {}


def _rows(result: Prompted) -> Iterator[dict[str, Any]]:
    for answer in result.answers:
        option = {} if answer.option is None else {"option": answer.option}
        yield {"label": answer.label, **option, "probabilities": rounded(answer.probabilities)}


def _print_answers(
    rows: list[dict[str, Any]], evaluation: Mapping[str, Any], *, out: Path | None, as_json: bool, style: CsvStyle
) -> None:
    """Write answers to the file or stdout, and print their evaluation."""
    if out is not None:
        write_lines(out, as_lines(rows, out, style))
    if as_json:
        answers = {"answers": rows} if out is None else {"out": out, "texts": len(rows)}
        print_json(answers | ({"evaluation": evaluation} if evaluation else {}))
        return
    if out is None:
        for line in as_json_lines(rows):
            sys.stdout.write(line)
    else:
        print_note(f"Written: {out} ({len(rows):,} answers)")
    if evaluation:
        print_note(verdict(evaluation))


def verdict(evaluation: Mapping[str, Any]) -> str:
    """Return the accuracy, beside the majority class, as a sentence."""
    from textgraft.core import formatting

    def share(score: Mapping[str, float]) -> str:
        return formatting.interval(score["mean"], score["low"], score["high"], "accuracy")

    majority, difference = evaluation["most_frequent"], evaluation["difference"]
    first = f"accuracy {share(evaluation['accuracy'])} on {evaluation['texts']:,} texts"
    second = f"the majority class '{majority['label']}' alone has {share(majority)}"
    return f"{first}; {second}: {difference['points']:+.1f} points ({formatting.p_value(difference['p'])})."

"""textgraft models: bundled and published models, and which of them are here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note, print_table

if TYPE_CHECKING:
    from textgraft.conversion.list_models import ListedModel

FEW = 2
"""Number of languages up to which the table names them."""
LONGEST_SUITS = 20
UNKNOWN = "–"


def models(
    name: Annotated[str | None, typer.Argument(help="Show this model in full, with its licence.")] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="Only models of this language: an ISO 639 code, such as th.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", help="Only models for classification, tagging, qa, embedding or generation."),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """List models for --model: the bundled ones, and published ones with the command that gets them."""
    from textgraft.conversion.list_models import list_models

    listed = list_models(name or "", language=language or "", task=task or "")
    if as_json:
        print_json({"models": [asdict(model) for model in listed]})
    elif name:
        _print_in_full(listed[0])
    else:
        rows = [_row(model) for model in listed]
        print_table(["model", "params", "MB", "language", "licence", "suits", "here"], rows)
        if any(not model.path and model.can_open for model in listed):
            print_note("`textgraft fetch MODEL` gets one that is not here; `textgraft models MODEL` tells more of it.")


def _row(model: ListedModel) -> list[str]:
    languages = ", ".join(model.languages) if len(model.languages) <= FEW else f"many ({len(model.languages)})"
    suits = model.suits if len(model.suits) <= LONGEST_SUITS else model.tasks[0]
    licence = "Apache-2.0" if "Apache-2.0" in model.licence else model.licence or UNKNOWN
    megabytes = UNKNOWN if model.megabytes is None else f"{model.megabytes:,.0f}"
    return [model.name, _millions(model.parameters), megabytes, languages, licence, suits, _here(model)]


def _millions(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count / 1e6:,.0f} M"


def _here(model: ListedModel) -> str:
    if model.path is None:
        return "no" if model.can_open else "not yet"
    return "package" if model.place == "installed" else model.place.removeprefix("in ")


def _use(model: ListedModel) -> str:
    """How commands name it: word vectors are no language model, and a layer below a tagger's."""
    if model.is_static:
        return f"tag finetune --stack {model.name}, embed {model.name}"
    return f"--model {model.name}"


def _print_in_full(model: ListedModel) -> None:
    if model.path is not None:
        here = f"{model.place}: {model.path}"
    else:
        here = f"no; get it with: {model.command}" if model.can_open else "no; this version cannot open its type"
    facts = {
        "hub": model.hub and f"https://huggingface.co/{model.hub}",
        "parameters": "" if model.parameters is None else f"{model.parameters:,}",
        "size": "" if model.megabytes is None else f"{model.megabytes:,} MB",
        "languages": " ".join(model.languages),
        "licence": model.licence or "not stated on its card",
        "tasks": ", ".join(model.tasks),
        "suits": model.suits,
        "here": here,
        "use": _use(model) if model.can_open else "",
    }
    print(model.name)
    for key, value in facts.items():
        if value:
            print(f"  {key + ':':12} {value}")

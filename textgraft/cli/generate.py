"""textgraft generate: a language model goes on from a prompt."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json

CHOOSING = "How tokens are chosen"


def generate(
    model: Annotated[str, typer.Argument(help="A language model that ships, by name, or the path of a folder.")],
    prompt: Annotated[list[str], typer.Option("--prompt", "-p", help="What to go on from; may be repeated.")],
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Write no more than this.")] = 50,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="End before this text; may be repeated.")] = None,
    temperature: Annotated[
        float,
        typer.Option("--temperature", help="0: the likeliest token; 1: as the model has it.", rich_help_panel=CHOOSING),
    ] = 0.0,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Draw from so many tokens.", rich_help_panel=CHOOSING)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", help="Draw from the fewest tokens this likely.", rich_help_panel=CHOOSING),
    ] = None,
    beams: Annotated[
        int, typer.Option("--beams", help="Look for the likeliest text with so many.", rich_help_panel=CHOOSING)
    ] = 1,
    repetition_penalty: Annotated[
        float,
        typer.Option("--repetition-penalty", help="Above 1: repeat tokens less.", rich_help_panel=CHOOSING),
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Draws the same again.", rich_help_panel=CHOOSING)] = 0,
    device: o.Device = "auto",
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Go on from a prompt with a language model; one prompt's text appears as it is written."""
    from textgraft.generation.decoding import GenerateOptions
    from textgraft.generation.generation import generate, stream
    from textgraft.models.loading import load_network

    choosing: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "beams": beams}
    choosing |= {"repetition_penalty": repetition_penalty, "seed": seed, "precision": precision}
    options = GenerateOptions(max_tokens=max_tokens, stop=tuple(stop or ()), **choosing)
    o.use_threads(threads)
    artifact = load_network(model)
    if len(prompt) == 1 and beams == 1 and not as_json:
        pieces = stream(artifact, prompt[0], options, device=device)
        sys.stdout.write(prompt[0] + next(pieces, ""))  # a mistake shows at the first piece, and prints nothing here
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        return
    found = generate(artifact, prompt, options, device=device)
    if as_json:
        rows = [{"prompt": given, **vars(row), "tokens": len(row.ids)} for given, row in zip(prompt, found)]
        print_json({"texts": rows})
    else:
        for given, row in zip(prompt, found):
            print(given + row.text)

"""textgraft generate: the continuation of a prompt by a language model."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json

SAMPLING = "Sampling"


def generate(
    model: o.LanguageModel,
    prompt: Annotated[list[str], typer.Option("--prompt", "-p", help="The text to continue; may be repeated.")],
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="The most new tokens.")] = 50,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Stop before this text; may be repeated.")] = None,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            help="0: the most probable token; 1: sample from the model's distribution.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0.0,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", help="Sample from this many most probable tokens.", rich_help_panel=SAMPLING),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", help="Sample from the fewest tokens with this total probability.", rich_help_panel=SAMPLING
        ),
    ] = None,
    beams: Annotated[
        int, typer.Option("--beams", help="Beam search with this many beams.", rich_help_panel=SAMPLING)
    ] = 1,
    repetition_penalty: Annotated[
        float,
        typer.Option("--repetition-penalty", help="Above 1: penalise repeated tokens.", rich_help_panel=SAMPLING),
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Makes sampling reproducible.", rich_help_panel=SAMPLING)] = 0,
    device: o.Device = "auto",
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Continue prompts with a language model; the text of a single prompt is streamed."""
    from textgraft.generation.decoding import GenerateOptions
    from textgraft.generation.generation import generate, stream
    from textgraft.models.loading import load_network

    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "beams": beams}
    sampling |= {"repetition_penalty": repetition_penalty, "seed": seed, "precision": precision}
    options = GenerateOptions(max_tokens=max_tokens, stop=tuple(stop or ()), **sampling)
    o.use_threads(threads)
    artifact = load_network(model)
    if len(prompt) == 1 and beams == 1 and not as_json:
        pieces = stream(artifact, prompt[0], options, device=device)
        sys.stdout.write(prompt[0] + next(pieces, ""))  # an error occurs at the first piece, before anything is printed
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        return
    completions = generate(artifact, prompt, options, device=device)
    if as_json:
        rows = [{"prompt": text, **vars(row), "tokens": len(row.ids)} for text, row in zip(prompt, completions)]
        print_json({"texts": rows})
    else:
        for text, row in zip(prompt, completions):
            print(text + row.text)

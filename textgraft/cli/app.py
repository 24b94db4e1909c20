"""The `textgraft` program: its commands, and what becomes of mistakes, Ctrl-C and closed pipes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Annotated, Any

import typer

from textgraft import __version__
from textgraft.cli import (
    check,
    compare,
    convert,
    cove,
    distil,
    explain,
    export,
    fetch,
    generate,
    inspect,
    models,
    prompt,
    qa,
    rates,
    serve,
    tag,
    tokenize,
    train,
    use,
    vectors,
)
from textgraft.cli.console import Interrupted, complain, say, warnings_said
from textgraft.core.errors import UserError
from textgraft.core.interrupts import reliable_interrupts

INTERRUPTED = 130
MISTAKE = 2
FAILED = 1

COMMANDS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("check", check.check, "textgraft check train.csv --test test.csv --unlabelled pool.txt"),
    ("finetune", train.finetune, "textgraft finetune train.csv --out sentiment --test test.csv --unlabelled pool.txt"),
    ("compare", compare.compare, "textgraft compare train.csv --test test.csv --unlabelled pool.txt --out curve"),
    ("evaluate", use.evaluate, "textgraft evaluate sentiment more-test.csv --json"),
    ("predict", use.predict, "textgraft predict sentiment reviews.csv --out predictions.csv --abstain-below 0.8"),
    ("explain", explain.explain, "textgraft explain sentiment reviews.csv --out why.html"),
    ("serve", serve.serve, "textgraft serve sentiment --port 8000"),
    ("embed", use.embed, "textgraft embed en-ulmfit reviews.csv --out vectors.npz --pooling concat"),
    (
        "generate",
        generate.generate,
        "textgraft generate en-ulmfit --prompt 'The film' --temperature 1 --top-p 0.9",
    ),
    (
        "prompt",
        prompt.prompt,
        "textgraft prompt en-ulmfit test.csv --template sentiment --shots 4 --examples train.csv --out answers.csv",
    ),
    ("adapt", train.adapt, "textgraft adapt pool.txt more/*.jsonl --model en-ulmfit --out my-domain"),
    (
        "distil",
        distil.distil,
        "textgraft distil sentiment pool.txt --student en-ulmfit --labelled train.csv --test test.csv --out small",
    ),
    ("pretrain", train.pretrain, "textgraft pretrain wiki/*.jsonl.xz --out en --minutes 600"),
    ("tokenize", tokenize.tokenize, "textgraft tokenize wiki/*.jsonl.xz --recipe en-ulmfit --out wiki-tokens"),
    ("fetch", fetch.fetch, "textgraft fetch distilbert/distilbert-base-cased --out distilbert-folder"),
    ("convert", convert.convert, "textgraft convert hf:distilbert-folder --out distilbert"),
    ("export", export.export, "textgraft export sentiment --onnx sentiment-onnx --int8 --texts pool.txt"),
    ("lr-find", rates.lr_find, "textgraft lr-find train.csv --model my-domain --plot lr.png"),
    ("schedule", rates.schedule, "textgraft schedule ulmfit --steps-per-epoch 50 --plot ulmfit.svg"),
    ("models", models.models, "textgraft models --json"),
    ("recipes", models.recipes, "textgraft recipes"),
)
"""Name, function and an example for --help, in the order that help lists them."""


@cache
def _program() -> Callable[..., Any]:
    """All commands in one, to be called with a command line; its many signatures take a fifth of a second to read."""
    app = typer.Typer(
        help="Transfer learning for text: adapt a language model to your domain, fine-tune it on a few labels.",
        epilog="Example: textgraft finetune train.csv --out sentiment --unlabelled pool.txt",
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for name, function, example in COMMANDS:
        app.command(name, epilog=f"Example: {example}")(function)
    app.add_typer(qa.group(), name="qa")
    app.add_typer(inspect.group(), name="inspect")
    app.add_typer(tag.group(), name="tag")
    app.add_typer(vectors.group(), name="vectors")
    app.add_typer(cove.group(), name="cove")
    return typer.main.get_command(app).main


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=lambda on: _version(on))
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere in the command line.")
    ] = False,
) -> None:
    pass


def _version(wanted: bool) -> None:
    if wanted:
        print(f"textgraft {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit: 0 done, 1 problems found or a defect, 2 the user's mistake, 130 Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"] or ["--help"]
    try:
        with nullcontext() if debug else warnings_said():
            code = _run(arguments)
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        code = _explained(error)
    if code == INTERRUPTED:
        # A key pressed while text is executed, as where a dataclass is made, leaves a mark in CPython (3.11's
        # pythonrun.c) for which `python -m` ends as killed by a signal; the next text that is executed wipes it out.
        exec("")
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    try:
        with reliable_interrupts():
            code = _program()(list(arguments), prog_name="textgraft", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED  # as typer has it
    sys.stdout.flush()
    if code == INTERRUPTED:
        raise Interrupted("stopped.")
    return code or 0


def _explained(error: Exception) -> int:
    """Say what went wrong, and give the exit code for it."""
    if isinstance(error, Interrupted):
        say(f"textgraft: {error}")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return _closed_pipe()
    if isinstance(error, UserError):
        complain(error)
        return MISTAKE
    usage = getattr(error, "format_message", None)  # what typer says of a command line it cannot read
    if usage is not None:
        complain(UserError(usage().rstrip(".") + ".", remedy="See --help."))
        return MISTAKE
    say(f"textgraft: this is a defect ({type(error).__name__}: {error}); --debug shows where.")
    return FAILED


def _closed_pipe() -> int:
    """The reader of our output has seen enough; what Python would still flush at exit goes nowhere."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED

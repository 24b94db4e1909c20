"""The `textgraft` program: its commands, its exit codes, and the handling of errors, Ctrl-C and closed pipes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from textgraft import __version__
from textgraft.cli import (
    adapt,
    check,
    compare,
    convert,
    cove,
    distil,
    embed,
    evaluate,
    explain,
    export,
    fetch,
    finetune,
    generate,
    inspect,
    lr_find,
    models,
    predict,
    pretrain,
    prompt,
    qa,
    recipes,
    schedule,
    serve,
    tag,
    tokenize,
    tune,
    vectors,
    zero_shot,
)
from textgraft.cli.console import Interrupted, print_error, print_note, warnings_on_stderr
from textgraft.cli.output_files import validate_not_read
from textgraft.core.errors import UserError
from textgraft.core.files import FULL, cannot_write
from textgraft.core.interrupts import reliable_interrupts
from textgraft.core.launched import launched

INTERRUPTED = 130
USER_ERROR = 2
FAILED = 1

RENAMED = {
    "--text": "Give a text itself with --input-text; --text names the column of the texts in a table.",
    "--text2": "Give the second text of a pair with --input-text2; --text2 names its column in a table.",
}
"""Remedies for options that a command had or might have, where typer only says that there is none."""
COMMANDS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("check", check.check, "textgraft check train.csv --test test.csv --unlabelled pool.txt"),
    (
        "finetune",
        finetune.finetune,
        "textgraft finetune train.csv --out sentiment --test test.csv --unlabelled pool.txt",
    ),
    (
        "zero-shot",
        zero_shot.zero_shot,
        "textgraft zero-shot reviews.csv --labels 'praise, complaint, question' --out first",
    ),
    ("compare", compare.compare, "textgraft compare train.csv --test test.csv --unlabelled pool.txt --out curve"),
    ("tune", tune.tune, "textgraft tune train.csv --recipe transformer --trials 20 --out tuned"),
    ("evaluate", evaluate.evaluate, "textgraft evaluate sentiment more-test.csv --json"),
    ("predict", predict.predict, "textgraft predict sentiment reviews.csv --out predictions.csv --abstain-below 0.8"),
    ("explain", explain.explain, "textgraft explain sentiment reviews.csv --out why.html"),
    ("serve", serve.serve, "textgraft serve sentiment --port 8000"),
    ("embed", embed.embed, "textgraft embed en-ulmfit reviews.csv --out vectors.npz --pooling concat"),
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
    ("adapt", adapt.adapt, "textgraft adapt pool.txt more/*.jsonl --model en-ulmfit --out my-domain"),
    (
        "distil",
        distil.distil,
        "textgraft distil sentiment pool.txt --student en-ulmfit --labelled train.csv --test test.csv --out small",
    ),
    ("pretrain", pretrain.pretrain, "textgraft pretrain wiki/*.jsonl.xz --out en --minutes 600"),
    ("tokenize", tokenize.tokenize, "textgraft tokenize wiki/*.jsonl.xz --recipe en-ulmfit --out wiki-tokens"),
    ("fetch", fetch.fetch, "textgraft fetch bge-small"),
    ("convert", convert.convert, "textgraft convert hf:distilbert-folder --out distilbert"),
    ("export", export.export, "textgraft export sentiment --onnx sentiment-onnx --int8 --texts pool.txt"),
    ("lr-find", lr_find.lr_find, "textgraft lr-find train.csv --model my-domain --plot lr.png"),
    ("schedule", schedule.schedule, "textgraft schedule ulmfit --steps-per-epoch 50 --plot ulmfit.svg"),
    ("models", models.models, "textgraft models --language th --task classification"),
    ("recipes", recipes.recipes, "textgraft recipes en-gpt-small"),
)
"""Name, function and example of each command, in the order of `textgraft --help`."""


@cache
def _program() -> Callable[..., Any]:
    """The program with all its commands, to be called with a command line; building it takes a fifth of a second."""
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
    program = typer.main.get_command(app)
    _validate_before(program)
    return program.main


def _validate_before(command: Any) -> None:
    """Let each command first see that it does not write over what it reads."""
    for one in getattr(command, "commands", {}).values():
        _validate_before(one)
    if hasattr(command, "commands"):
        return
    invoke = command.invoke

    def validated(context: Any) -> Any:
        validate_not_read(context.params)
        return invoke(context)

    command.invoke = validated


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=lambda on: _version(on))
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print tracebacks; allowed anywhere in the command line.")
    ] = False,
) -> None:
    pass


def _version(requested: bool) -> None:
    if requested:
        print(f"textgraft {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit: 0 success, 1 problems in the data or a bug, 2 a user error, 130 Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"] or ["--help"]
    if launched():
        _on_several_processes(arguments, debug=debug)
    sys.exit(_exit_code(arguments, debug=debug))


def _on_several_processes(arguments: Sequence[str], *, debug: bool) -> NoReturn:
    """Run the command on process 0, whose trainings the others follow; end this process with its exit code."""
    first, code = os.environ["RANK"] == "0", 0
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a warning of each phase, about parameters without gradient
    from textgraft.core import processes
    from textgraft.training.followers import dismiss, follow

    try:
        joined = processes.start()
        if joined.first:
            code = _exit_code(arguments, debug=debug)
            if not dismiss():
                processes.leave(code)  # whoever still waits for this process ends with its connections
        else:
            follow(joined)
    except UserError as error:  # process 0 has the same, or is gone and torchrun reports it
        code = _reported(error) if first or debug else USER_ERROR
    finally:
        processes.finish()
    processes.leave(code)


def _exit_code(arguments: Sequence[str], *, debug: bool) -> int:
    """Run a command and return its exit code."""
    try:
        with nullcontext() if debug else warnings_on_stderr():
            code = _run(arguments)
    except SystemExit as left:  # typer's, for a closed pipe
        code = left.code if isinstance(left.code, int) else FAILED
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        code = _reported(error)
    if code == INTERRUPTED:
        # Ctrl-C during `exec`, as in the definition of a dataclass, sets a flag in CPython (3.11's pythonrun.c) that
        # makes `python -m` exit as if killed by a signal; the next `exec` clears it.
        exec("")
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        with reliable_interrupts():
            code = _program()(list(arguments), prog_name="textgraft", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED  # the code that typer returns
    sys.stdout.flush()
    if code == INTERRUPTED:
        raise Interrupted("stopped.")
    return code or 0


def _reported(error: Exception) -> int:
    """Print an error on stderr and return its exit code."""
    if isinstance(error, Interrupted):
        print_note(f"textgraft: {error}")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return _closed_pipe()
    if isinstance(error, UserError):
        print_error(error)
        return USER_ERROR
    if isinstance(error, OSError) and error.errno in FULL:
        print_error(cannot_write(Path(error.filename or "."), error))
        return USER_ERROR
    usage = getattr(error, "format_message", None)  # an error of typer in the command line
    if usage is not None:
        remedy = RENAMED.get(getattr(error, "option_name", ""), "See --help.")
        print_error(UserError(usage().rstrip(".") + ".", remedy=remedy))
        return USER_ERROR
    print_note(
        f"textgraft: this is a bug in textgraft ({type(error).__name__}: {error}); --debug prints the traceback."
    )
    return FAILED


def _closed_pipe() -> int:
    """Discard what Python would flush to the closed pipe at exit, and return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED

"""Commands that have verbs of their own: `textgraft qa`, `tag`, `cove`, `inspect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

Verb = tuple[str, Callable[..., Any], str]
"""Name, function and an example for --help."""


def group_of(verbs: Sequence[Verb], about: str) -> typer.Typer:
    """A command whose help says what it is `about` and lists the verbs in their order; alone it prints that help."""
    group = typer.Typer(help=about, epilog=f"Example: {verbs[0][2]}")
    # With a callback, because a lone verb would otherwise swallow its own name.
    group.callback(invoke_without_command=True)(_help)
    for name, function, example in verbs:
        group.command(name, epilog=f"Example: {example}")(function)
    return group


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())

"""Groups of commands: `textgraft qa`, `tag`, `cove`, `vectors`, `inspect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

Verb = tuple[str, Callable[..., Any], str]
"""Name, function and example of a command."""


def group_of(verbs: Sequence[Verb], description: str) -> typer.Typer:
    """Return a group with the `description` and the verbs in their order; without a verb it prints its help."""
    group = typer.Typer(help=description, epilog=f"Example: {verbs[0][2]}")
    # The callback keeps the name of the verb required where a group has only one.
    group.callback(invoke_without_command=True)(_help)
    for name, function, example in verbs:
        group.command(name, epilog=f"Example: {example}")(function)
    return group


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())

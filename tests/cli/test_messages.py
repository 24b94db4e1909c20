"""Messages name arguments as Python has them; the command line puts its options in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import textgraft
from textgraft.cli.console import as_options

PACKAGE = Path(textgraft.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z]")
COMMAND = re.compile(r"(?:textgraft|pip|torchrun|ray) [a-z-][^.`]*")


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("Name the column with label=….", "Name the column with --label …."),
        ("Say what separates them: label_separator='|'.", "Say what separates them: --label-separator '|'."),
        ('Leave them out with misplaced="drop".', "Leave them out with --drop-misplaced."),
        ('Use device="cpu", or another.', "Use --device cpu, or another."),
        ("Raise max_tokens.", "Raise --max-tokens."),
        ("Leave out the texts, or give 50.", "Leave out the texts, or give 50."),
        ("Export it without int8=True.", "Export it without --int8."),
    ],
)
def test_arguments_become_options(remedy: str, expected: str) -> None:
    assert as_options(remedy) == expected


def messages() -> Iterator[tuple[str, str]]:
    """Every `remedy` and `message` and every UserError outside cli/, as source, by file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assigned = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("remedy", "message")
            raised = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("UserError")
            if assigned or raised:
                yield path.relative_to(PACKAGE).as_posix(), ast.unparse(node)


@pytest.mark.slow
def test_no_message_of_the_package_names_an_option_but_within_a_command() -> None:
    found = list(messages())
    assert len(found) > 500  # the search finds messages at all
    assert [(path, text) for path, text in found if OPTION.search(COMMAND.sub("", text))] == []

"""The sizes that functions keep to (docs: CONTRIBUTING.md), read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import textgraft

PACKAGE = Path(textgraft.__file__).parent
MOST_PARAMETERS, MOST_LINES = 8, 100
EXCEPTIONS = {
    # scikit-learn reads an estimator's parameters from the signature of its __init__.
    "tasks/classification/estimator.py TextClassifier.__init__",
    "tasks/tagging/estimator.py SequenceTagger.__init__",
    # Public functions with keyword-only options, which help and editors show by name, as pandas.read_csv has them.
    "data/readers.py read",
    "text/tokenizer.py Tokenizer.train",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    """Every function and method outside cli/, by file and name; commands have a parameter for each option."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("cli/"):
            yield from ((f"{name} {inside}", node) for inside, node in _inside(ast.parse(path.read_text()), ""))


def _inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, Function | ast.ClassDef)
        name = f"{prefix}{child.name}" if isinstance(child, Function | ast.ClassDef) else prefix
        if isinstance(child, Function):
            yield name, child
        yield from _inside(child, f"{name}." if named else prefix)


def parameters(function: Function) -> list[str]:
    """Names of the parameters, `self` and `cls` not counted; * and ** as one each."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [one.arg for one in every if one is not None and one.arg not in ("self", "cls")]


def test_no_function_has_more_parameters_than_one_can_remember() -> None:
    found = {name: len(parameters(function)) for name, function in functions()}
    assert {name for name, count in found.items() if count > MOST_PARAMETERS} == EXCEPTIONS


@pytest.mark.slow
def test_no_function_is_longer_than_two_screens() -> None:
    found = {name: function.end_lineno - function.lineno + 1 for name, function in functions() if function.end_lineno}
    assert {name: lines for name, lines in found.items() if lines >= MOST_LINES} == {}


@pytest.mark.parametrize(("source", "count"), [("def f(self, a, *b, c=1, **d): pass", 4), ("async def f(): pass", 0)])
def test_parameters_are_counted_as_promised(source: str, count: int) -> None:
    (function,) = ast.parse(source).body
    assert isinstance(function, Function)
    assert len(parameters(function)) == count

"""Results are short where they are shown, and what they show is escaped."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import textgraft
from textgraft.core.brief import Brief, brief
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.fine_tuned import Member
from textgraft.tasks.fit_report import FitReport

EVIL = "<script>alert('x')</script>\ud800"


def classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and hint.__module__.startswith("textgraft.") and dataclasses.is_dataclass(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from classes_in(argument)


def result_classes() -> set[type]:
    """The dataclasses that public functions return, and the larger ones inside them."""
    functions = [one for name in textgraft._PUBLIC if inspect.isfunction(one := getattr(textgraft, name))]
    hints = [typing.get_type_hints(f)["return"] for f in functions if f.__name__ != "plot_vectors"]  # drawn, not shown
    return {c for hint in hints for c in classes_in(hint)} | {Artifact, Comparison, Outcome, Member, FitReport}


@pytest.mark.parametrize("cls", sorted(result_classes(), key=lambda c: c.__name__))
@pytest.mark.parametrize("value", [list(range(50_000)), EVIL * 1_000, {EVIL: np.zeros((1_000, 3))}])
def test_every_result_class_is_short_and_escaped(cls: type, value: Any) -> None:
    result = object.__new__(cls)
    for f in dataclasses.fields(cls):
        object.__setattr__(result, f.name, value)
    if cls._shown is not Brief._shown or cls._repr_html_ is not Brief._repr_html_:  # of a real result: see its tests
        pytest.skip("it has a form of its own")
    assert len(repr(result)) < 4_000
    page = result._repr_html_()
    assert "<script>" not in page
    page.encode()


def test_a_short_result_is_shown_like_any_dataclass() -> None:
    @dataclass
    class Usual:
        label: str
        scores: dict[str, float]
        place: Path | None = None
        hidden: int = field(default=0, repr=False)

    @dataclass(repr=False)
    class Short(Brief):
        label: str
        scores: dict[str, float]
        place: Path | None = None
        hidden: int = field(default=0, repr=False)

    asked: dict[str, Any] = {"label": "pos", "scores": {"pos": 0.9, "neg": 0.1}, "place": Path("a/b")}
    assert repr(Short(**asked)) == repr(Usual(**asked)).replace(Usual.__qualname__, "Short")


def test_long_values_are_types_and_sizes() -> None:
    assert brief(np.zeros((3, 1_000))) == "<ndarray 3 × 1000>"
    assert brief("a" * 1_000) == f"'{'a' * 160}…'"
    assert brief(np.float64(0.5)) == repr(np.float64(0.5))
    assert brief([[1], [2]]) == "<list of 2>"
    assert brief(object()) == "<object>"


def test_nothing_private_is_listed_and_the_types_are_said_to_be_there() -> None:
    assert not [name for name in dir(textgraft) if name.startswith("_") and name != "__version__"]
    assert {"finetune", "DataWarning", "UserError"} <= set(dir(textgraft))
    assert "Any" not in dir(textgraft)
    assert (Path(textgraft.__file__).parent / "py.typed").is_file()

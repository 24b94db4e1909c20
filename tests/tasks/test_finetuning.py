"""What all fine-tunings say alike: what was asked, what is measured on, and the table."""

from __future__ import annotations

import hashlib

import pytest
from made_up_questions import encoder

from textgraft.core import formatting
from textgraft.core.resource_meter import Meter
from textgraft.models import artifact
from textgraft.tasks.finetuning import asked, cost, examined, given, table
from textgraft.tasks.tagging.finetune import TagOptions
from textgraft.training.recipes import load_recipe


def test_asked_names_all_that_a_result_depends_on() -> None:
    """Word for word, since unfinished work of earlier versions goes on only if it is asked the same."""
    source, recipe, options = encoder("bert"), load_recipe("transformer").finetune, TagOptions()
    weights = hashlib.sha256(artifact.weights(source.model)).hexdigest()
    expected = {
        "stage": "tag",
        "data": {"train": 1},
        "model": weights,
        "tokenizer": source.tokenizer.fingerprint,
        "recipe": recipe.identity,
        "options": repr(options),
    }
    assert asked("tag", {"train": 1}, [source], [recipe], options) == expected
    two = asked("tag", {"train": 1}, [source, source], [recipe, recipe], options)
    assert (two["model"], two["tokenizer"]) == (f"{weights} {weights}", " ".join([source.tokenizer.fingerprint] * 2))
    assert two["recipe"] == recipe.identity
    other = load_recipe("default").finetune
    both = asked("tag", {"train": 1}, [source, source], [recipe, other], options)
    assert both["recipe"] == f"{recipe.identity} {other.identity}"
    mixed = TagOptions(layer_aggregation="mix")
    assert asked("tag", {"train": 1}, [source], [recipe], mixed) == expected | {"layer_aggregation": "mix"}


@pytest.mark.parametrize(
    ("parts", "name"),
    [({"valid": 1}, "valid"), ({"valid": 1, "test": 2}, "test"), ({"held out": 3}, "held out")],
)
def test_what_nothing_is_chosen_by_is_measured_on(parts: dict[str, int], name: str) -> None:
    assert examined(parts) == name


def test_parts_that_are_not_there_are_left_out() -> None:
    assert given(valid=None, test=[]) == {"test": []}


def test_a_run_that_was_resumed_costs_its_own_seconds() -> None:
    with Meter() as meter:
        pass
    assert cost(meter, 90.0)["minutes"] == 1.5
    assert cost(meter)["minutes"] == round(meter.seconds / 60, 3)


def test_the_table_lines_up_and_ends_with_the_verdict() -> None:
    f1 = {"mean": 0.5, "low": 0.4, "high": 0.6}
    methods = {"tagger": {"f1": f1, "minutes": 1.25}, "a much longer name": {"minutes": 0.0}}
    lines = table({"methods": methods, "verdict": "Good."}, ("f1",)).split("\n")
    assert lines == [
        "method              F1 [95 % interval]   minutes",
        "tagger              50.0 % [40.0, 60.0]  1.2",
        "a much longer name  –                    0.0",
        "",
        "Good.",
    ]


def test_aligned() -> None:
    rows = [["a", "b", "c"], ["long", "longer", "longest"]]
    assert formatting.aligned(rows, left={0}) == "a          b        c\nlong  longer  longest"
    assert formatting.aligned(rows, left={2}) == "   a       b  c\nlong  longer  longest"


@pytest.mark.parametrize(
    ("by", "p", "metric", "expected"),
    [
        (0.052, 0.0001, "accuracy", "5.2 points better than LSA: more than chance explains (p < 0.001)."),
        (-0.052, 0.05, "accuracy", "5.2 points worse than LSA: no more than chance could give (p = 0.050)."),
        (0.0, 1.0, "f1", "No different from LSA: no more than chance could give (p = 1.000)."),
        (0.25, 0.049, "rmse", "0.25 better than LSA: more than chance explains (p = 0.049)."),
    ],
)
def test_compared(by: float, p: float, metric: str, expected: str) -> None:
    assert formatting.compared(by, p, metric, "LSA") == expected

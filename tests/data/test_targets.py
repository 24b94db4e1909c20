"""Every kind of target has a class, and nothing but that class and dictionaries by kind depends on the kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import textgraft
from textgraft.data.examples import Examples, TargetKind, reads
from textgraft.data.labels import Labels
from textgraft.data.readers import read
from textgraft.data.targets import TARGETS, target_of

PACKAGE = Path(textgraft.__file__).parent
KINDS = set(get_args(TargetKind))
BY_KIND: Mapping[str, set[str]] = {
    "data.targets:TARGETS": set(),
    "distillation.targets:DISTILLED_TARGETS": {"choice"},  # options differ between questions
    "heads.classification:LOSSES": set(),
    "linear.artifact:LOGITS": {"numeric"},  # no probabilities
    "linear.estimators:ESTIMATORS": {"choice"},  # see linear.multiple_choice
    "linear.fasttext:ACTIVATIONS": {"choice"},
    "linear.fasttext:LOSSES": {"choice"},
    "metrics.calibration:CALIBRATIONS": {"numeric"},
    "metrics.classification:DOCUMENT_SCORES": set(),
    "metrics.classification:SCORES": set(),
    "onnx.heads:ANSWERS": {"choice"},  # its options are gathered first
    "tasks.classification.ensemble_weights:LOSSES": set(),
    "tasks.classification.linear_probe:LAYERS": {"choice"},
    "tasks.classification.prediction_sections:SECTIONS": {"numeric"},
}
"""Dictionaries by kind of target, and the kinds that each leaves out."""
TESTS_OF_KIND: Mapping[str, str] = {
    "conversion.hub": "the labels of a foreign checkpoint have to be made up for the kind of its head",
    "conversion.scikit_learn": "the lines that rebuild an estimator are text, which names the method of its kind",
    "data.readers": "a question with options has other columns",
    "tasks.classification.estimator": "an estimator answers as y was given: with labels, sets, or rows of 0 and 1",
    "tasks.classification.finetune_setup": "a question with options has no linear classifiers",
}
"""Modules that may compare something to the name of a kind, and why."""
EXAMPLES: Mapping[str, Examples] = {
    "single": read((["a", "b", "c"], ["x", "y", "x"])),
    "multi": read((["a", "b", "c"], [["x"], [], ["x", "y"]])),
    "numeric": read((["a", "b", "c"], [0.5, 1.5, 4.0])),
    "choice": read([{"context": "a", "choice1": "b", "choice2": "c", "label": n} for n in ("1", "2", "1")]),
}


def compared_strings(tree: ast.AST) -> Iterator[str]:
    """String constants on either side of a comparison."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for constant in ast.walk(node):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield constant.value


def test_a_class_for_each_kind() -> None:
    assert set(TARGETS) == KINDS
    assert all(target.kind == kind for kind, target in TARGETS.items())


@pytest.mark.parametrize(("place", "left_out"), BY_KIND.items())
def test_dictionaries_have_every_kind_but_those_left_out(place: str, left_out: set[str]) -> None:
    module, name = place.split(":")
    assert set(getattr(import_module(f"textgraft.{module}"), name)) == KINDS - left_out


@pytest.mark.slow
def test_kinds_are_compared_by_name_in_few_modules() -> None:
    found = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if KINDS.intersection(compared_strings(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found <= set(TESTS_OF_KIND)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_encoded_targets_decode_to_the_labels(kind: str) -> None:
    examples = EXAMPLES[kind]
    labels = Labels.fit(examples)
    assert labels.target is target_of(examples) is TARGETS[examples.kind or "single"]
    assert labels.kind == kind
    targets = labels.encode(examples)
    assert labels.decode(targets) == (pytest.approx(examples.labels) if kind == "numeric" else examples.labels)
    assert labels.target.output_count(targets) == labels.num_outputs
    assert labels.target.reads in (None, reads(examples.texts))
    assert Labels.from_json(labels.to_json()) == labels


@pytest.mark.parametrize(
    ("kind", "columns", "outputs", "decisions"),
    [
        ("single", [[0.2, 0.8], [0.7, 0.3]], [[0.2, 0.8], [0.7, 0.3]], [1, 0]),
        ("choice", [[0.2, 0.8], [0.7, 0.3]], [[0.2, 0.8], [0.7, 0.3]], [1, 0]),
        ("multi", [[0.5, 0.8], [0.4, 0.3]], [[0.5, 0.8], [0.4, 0.3]], [[True, True], [False, False]]),
        ("numeric", [[0.5], [-2.0]], [0.5, -2.0], [0.5, -2.0]),
    ],
)
def test_columns_become_outputs_and_decisions(kind: TargetKind, columns: Any, outputs: Any, decisions: Any) -> None:
    target = TARGETS[kind]
    found = target.from_columns(np.array(columns))
    assert found.tolist() == outputs
    assert found.shape == target.output_shape(2, np.shape(columns)[1])
    assert target.decisions(found).tolist() == decisions


@pytest.mark.parametrize(
    ("kind", "before", "after", "agreement"),
    [
        ("single", [[0.2, 0.8], [0.7, 0.3]], [[0.4, 0.6], [0.4, 0.6]], 0.5),
        ("choice", [[0.9, 0.6], [0.2, 0.1]], [[0.6, 0.4], [0.3, 0.2]], 1.0),
        ("multi", [[0.5, 0.8], [0.4, 0.3]], [[0.6, 0.9], [0.4, 0.5]], 0.5),
        ("numeric", [0.5, 1.0, 2.0], [1.0, 2.0, 4.0], 1.0),
        ("numeric", [0.5, 1.0, 2.0], [1.5, 1.0, 0.0], -1.0),
    ],
)
def test_agreement_is_the_share_of_equal_decisions(kind: TargetKind, before: Any, after: Any, agreement: float) -> None:
    assert TARGETS[kind].agreement(np.array(before), np.array(after)) == pytest.approx(agreement)


def test_only_one_label_a_text_has_one_label() -> None:
    assert [kind for kind, target in TARGETS.items() if target.has_one_label] == ["single"]

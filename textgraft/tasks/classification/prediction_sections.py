"""The sections of a report about single predictions, by kind of target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from textgraft.core.files import relative_path
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.metrics.calibration import confidence_and_correct, coverage_table, reliability
from textgraft.metrics.classification import class_scores, confusion_matrix
from textgraft.tasks.classification.report import confident_mistakes

Sections = dict[str, Any]
"""Fields of `tasks.classification.report.Report`."""


def prediction_sections(
    labels: Labels, examples: Examples, targets: NDArray, outputs: NDArray, diagrams: Mapping[str, NDArray]
) -> Sections:
    """Calibration and coverage of predictions, and what the kind of target has besides; none for a quantity.

    Args:
        labels: The labels.
        examples: N texts.
        targets: Their targets.
        outputs: Probabilities (N, C).
        diagrams: Probabilities of each reliability diagram by its name.
    """
    if labels.kind not in SECTIONS:
        return {}
    return {
        "reliability": {name: reliability(probs, targets, labels.kind) for name, probs in diagrams.items()},
        "coverage": coverage_table(*confidence_and_correct(outputs, targets, labels.kind)),
        **SECTIONS[labels.kind](labels, examples, targets, outputs),
    }


def _of_classes(labels: Labels, examples: Examples, targets: NDArray, outputs: NDArray) -> Sections:
    predicted = outputs.argmax(axis=1)
    return {
        "confusion": confusion_matrix(targets, predicted, len(labels.names)),
        "per_class": class_scores(targets, predicted, labels.names),
        **_mistakes(examples, targets, outputs, labels.names),
    }


def _of_sets(labels: Labels, examples: Examples, targets: NDArray, outputs: NDArray) -> Sections:
    return {"per_class": class_scores(targets, labels.decisions(outputs), labels.names)}


def _of_options(labels: Labels, examples: Examples, targets: NDArray, outputs: NDArray) -> Sections:
    options = [str(number + 1) for number in range(outputs.shape[1])]
    return _mistakes(examples, targets, outputs, options)


SECTIONS: Mapping[TargetKind, Callable[[Labels, Examples, NDArray, NDArray], Sections]] = {
    "single": _of_classes,
    "multi": _of_sets,
    "choice": _of_options,
}


def _mistakes(examples: Examples, targets: NDArray, outputs: NDArray, names: Sequence[str]) -> Sections:
    """The mistakes with their places in a file that is named once."""
    of_folder = examples.unit == "file" and examples.ids is not None
    places = list(examples.ids or ()) if of_folder else [str(examples.line(i)) for i in range(len(examples))]
    return {
        "mistakes": confident_mistakes(examples.texts, targets, outputs, names, places),
        "mistakes_in": f"{examples.unit} of {relative_path(examples.source)}",
    }

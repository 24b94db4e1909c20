"""Records of annotation tools: Label Studio's tasks as rows of a table, and what an annotator did not accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

REJECTED = ("reject", "ignore")
"""Answers of Prodigy's annotators that leave an example out."""
_ANNOTATIONS = ("annotations", "completions")
_VALUES = ("choices", "rating", "number", "text")
"""Values of Label Studio's controls that concern a whole text."""


def is_task(value: Mapping[str, Any]) -> bool:
    """True for a task of Label Studio's full export."""
    return isinstance(value.get("data"), dict) and any(key in value for key in _ANNOTATIONS)


def annotation_of(task: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first annotation of a task that was not cancelled; None if there is none."""
    every = next((task[key] for key in _ANNOTATIONS if task.get(key) and isinstance(task[key], list)), ())
    return next((one for one in every if isinstance(one, dict) and not one.get("was_cancelled")), None)


def results_of(annotation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The parts of an annotation, one for each control or span."""
    results = annotation.get("result")
    results = [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []
    return [one for one in results if isinstance(one.get("value"), dict)]


def is_rejected(record: Mapping[str, Any]) -> bool:
    """True for an example of Prodigy that its annotator rejected or left out."""
    return record.get("answer") in REJECTED and "_task_hash" in record


def as_row(record: dict[str, Any]) -> dict[str, Any]:
    """A task of Label Studio as in its short export: the data, and a column for each control; others unchanged.

    >>> choice = {"from_name": "tone", "value": {"choices": ["good"]}}
    >>> as_row({"id": 7, "data": {"text": "Lovely"}, "annotations": [{"result": [choice]}]})
    {'id': 7, 'text': 'Lovely', 'tone': 'good'}
    """
    if not is_task(record):
        return record
    row = {"id": record["id"]} if "id" in record else {}
    row |= record["data"]
    for one in results_of(annotation_of(record) or {}):
        key = next((key for key in _VALUES if key in one["value"]), None)
        if key is None or "start" in one["value"]:
            continue
        value = one["value"][key]
        if isinstance(value, list):
            value = value[0] if len(value) == 1 else {key: value}
        row[str(one.get("from_name", "label"))] = value
    return row

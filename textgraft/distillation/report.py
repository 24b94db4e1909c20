"""Report of a distillation: the student against its teacher, for tasks.classification.report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from textgraft.data.examples import Examples
from textgraft.data.sequences import Truncation
from textgraft.distillation.options import Distilled
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.evaluation import Comparison
from textgraft.tasks.classification.prediction_sections import prediction_sections
from textgraft.tasks.classification.report import Method, Report
from textgraft.training.phases import Stage, schedule_curve, schedule_table

FACTS = (
    *("base", "teacher", "distillation", "agreement", "sizes", "data", "labels", "recipe", "max_tokens"),
    *("settings", "precision", "versions", "machine"),
)


def distil_report(
    distilled: Distilled, artifact: Artifact, stage: Stage, cut: Truncation, test: Examples | None
) -> Report:
    """Assemble the report: agreement of student and teacher, and test scores of both if there is a test set."""
    record, comparison = distilled.record, distilled.comparison
    groups = [group.name for group in artifact.model.layer_groups()]
    steps_per_epoch = math.ceil(record["data"]["train"]["texts"] / stage.batch_size)
    facts = {key: record[key] for key in FACTS if record.get(key) is not None}
    if len(facts["teacher"]) == 1:
        (facts["teacher"],) = facts["teacher"]
    return Report(
        title=record["name"],
        verdict=" ".join([*([comparison.verdict()] if comparison is not None else []), record["verdict"]]),
        classes=_classes(artifact, comparison),
        histories={"student": record["history"]},
        schedule=schedule_table(stage, groups, steps_per_epoch),
        schedule_curves=dict(zip(groups, schedule_curve(stage, len(groups), steps_per_epoch), strict=True)),
        steps_per_epoch=steps_per_epoch,
        truncation=cut,
        facts=facts,
        **(_test_sections(comparison, record, test) if comparison is not None and test is not None else {}),
    )


def _classes(artifact: Artifact, comparison: Comparison | None) -> Sequence[str]:
    """The student's classes, and those that only the test set has."""
    labels = artifact.labels if comparison is None else comparison.labels
    return () if labels is None else labels.names


def _test_sections(comparison: Comparison, record: dict[str, Any], test: Examples) -> dict[str, Any]:
    """The sections that need a test set."""
    first, teacher = comparison.outcomes
    scores = record["results"]["methods"][first.name]
    sections: dict[str, Any] = {
        "metric": comparison.headline,
        "headline": comparison.headline_sentence,
        "texts": comparison.texts,
        "scores": {name: value["mean"] for name, value in scores.items() if isinstance(value, dict)},
        "methods": [
            Method(first.name, comparison.interval(first), minutes=first.minutes, peak_mb=first.peak_mb),
            Method(
                teacher.name,
                comparison.interval(teacher),
                minutes=teacher.minutes,
                about=f"the minutes are those of {teacher.about}",
                difference=comparison.against(teacher),
            ),
        ],
    }
    outputs = first.outputs[0]
    return sections | prediction_sections(comparison.labels, test, comparison.targets, outputs, {"as trained": outputs})

"""The report of a fine-tuning, from its results to the contents of `textgraft.tasks.classification.report`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from textgraft.data.sequences import Truncation
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.fine_tuned import FinetuneResult
from textgraft.tasks.classification.prediction_sections import prediction_sections
from textgraft.tasks.classification.report import Method, Report
from textgraft.training.phases import schedule_curve, schedule_table

FACTS = ("base", "data", "labels", "seeds", "recipe", "max_tokens", "settings", "precision", "versions", "machine")


def finetune_report(done: FinetuneResult) -> Report:
    """The contents of the report.

    Scores are means over the seeds; confusion, calibration, coverage and mistakes are those of the classifier that was
    kept (with cross-validation, of the folds together).
    """
    record, comparison = done.record, done.comparison
    result = record["results"]["methods"][comparison.outcomes[0].name]
    return Report(
        title=record["name"],
        headline=comparison.headline_sentence,
        verdict=" ".join(part for part in (comparison.verdict(), comparison.chosen) if part),
        metric=comparison.headline,
        texts=comparison.texts,
        methods=_methods(comparison),
        scores={name: value["mean"] for name, value in result.items() if isinstance(value, dict)},
        classes=comparison.labels.names,
        histories={
            f"{name} {run_title}" if len(done.members) > 1 else run_title: run.history
            for name, one in done.members.items()
            for run_title, run in zip(_run_titles(record), one.runs, strict=True)
        },
        **_schedule(done),
        truncation=_summed(list(done.cut.values())),
        problems=done.problems,
        facts={key: record[key] for key in FACTS if record.get(key) is not None} | _tried(record),
        note=" ".join(part for part in (_note(record), done.times) if part),
        **_of_the_kept(done),
    )


def _schedule(done: FinetuneResult) -> dict[str, Any]:
    """Learning rates of the layer groups of the first language model that was trained to the end, if there is one."""
    if not done.members:
        return {}
    member = next(iter(done.members.values()))
    stage, groups = member.plan.stage, [group.name for group in member.artifact({}).model.layer_groups()]
    steps_per_epoch = math.ceil(done.record["labels"] / stage.batch_size)
    return {
        "schedule": schedule_table(stage, groups, steps_per_epoch),
        "schedule_curves": dict(zip(groups, schedule_curve(stage, len(groups), steps_per_epoch), strict=True)),
        "steps_per_epoch": steps_per_epoch,
    }


def _note(record: dict[str, Any]) -> str:
    """How the scores were measured, where the sections about single predictions may differ from them."""
    if record["seeds"] > 1:
        kept = "mistakes, confusion, classes and calibration are those of the one that was saved"
        return f"Scores are means over {record['seeds']} seeds; {kept}."
    return ""


def _tried(record: dict[str, Any]) -> dict[str, Any]:
    """Each candidate's out-of-fold scores and its weight, and the candidates that were left out."""
    choice = record.get("ensemble") or {}
    tried = {f"candidate {name}": scores for name, scores in choice.get("candidates", {}).items()}
    return tried | ({"left_out": choice["left_out"]} if choice.get("left_out") else {})


def _run_titles(record: dict[str, Any]) -> list[str]:
    first = record["settings"]["seed"]
    return [f"seed {seed}" for seed in range(first, first + record["seeds"])]


def _methods(comparison: Comparison) -> list[Method]:
    first, *rivals = comparison.outcomes
    return [
        Method(
            name=outcome.name,
            score=comparison.interval(outcome),
            spread=_spread(comparison, outcome),
            minutes=outcome.minutes,
            peak_mb=outcome.peak_mb,
            about=outcome.about,
            difference=None if outcome is first else comparison.against(outcome),
        )
        for outcome in (first, *comparison.parts, *rivals)
    ]


def _spread(comparison: Comparison, outcome: Outcome) -> float | None:
    per_seed = comparison.scores(outcome).mean(axis=1)
    return float(per_seed.std(ddof=1)) if len(per_seed) > 1 else None


def _of_the_kept(done: FinetuneResult) -> dict[str, Any]:
    """The sections about single predictions, of the classifier that is saved."""
    comparison, labels = done.comparison, done.comparison.labels
    if not labels.target.has_classes:
        return {}
    outputs, raw = (_kept(done, scaled=scaled) for scaled in (True, False))
    temperatures = [member.temperature for member in done.members.values()]
    scaled = bool(done.counted) or any(temperature is not None for temperature in temperatures)
    diagrams = {"as trained": raw} | ({"temperature-scaled": outputs} if scaled else {})
    temperature = temperatures[0] if len(temperatures) == 1 and not done.counted else None
    sections = prediction_sections(labels, done.evaluation, comparison.targets, outputs, diagrams)
    return {"temperature": temperature, **sections}


def _kept(done: FinetuneResult, *, scaled: bool) -> np.ndarray:
    """(N, C) probabilities of the classifier that is saved, for the texts of the comparison."""
    comparison = done.comparison
    if done.counted:
        named = {outcome.name: outcome for outcome in (*comparison.parts, *comparison.outcomes)}
        outcomes = [named[name] for name in done.counted]
        best = [done.members[name].best if name in done.members else 0 for name in done.counted]
        weights = list(done.counted.values())
    else:
        outcomes = list(comparison.parts or comparison.outcomes[:1])
        best = [member.best for member in done.members.values()]
        weights = [1.0] * len(best)
    answers = [outcome.outputs if scaled else outcome.raw for outcome in outcomes]
    chosen = [one[min(run, len(one) - 1)] for one, run in zip(answers, best, strict=True)]
    return np.asarray(np.average(chosen, axis=0, weights=weights))


def _summed(cuts: Sequence[Truncation]) -> Truncation:
    return Truncation(
        sum(c.texts for c in cuts),
        sum(c.cut_texts for c in cuts),
        sum(c.tokens for c in cuts),
        sum(c.lost_tokens for c in cuts),
    )

"""The classifiers fine-tuned from one language model: one a seed and one a fold, with their predictions.

A fine-tuning has a member for each of its language models; their probabilities are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core import formatting
from textgraft.core.brief import Brief, html_table
from textgraft.core.errors import UserError
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.problems import Problem
from textgraft.data.sequences import Truncation
from textgraft.data.splits import Split
from textgraft.metrics.calibration import fit_temperature, outputs_from_logits
from textgraft.metrics.classification import predictable
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.early_rejection import MIN_FOLDS, EarlyRejected, EarlyRejection
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.training import (
    EncodedTexts,
    Plan,
    TrainedClassifier,
    as_model,
    train_classifier,
)
from textgraft.tasks.classification.training_config import OverTime, TimeLimit, TrainingConfig
from textgraft.tasks.classification.trainings_ahead import Training, train_ahead
from textgraft.training.driver import TooSlow
from textgraft.training.phases import Stage


@dataclass(frozen=True)
class Folds:
    """Cross-validation: (training, held-out) indices of each fold, and logits (N, C) of the training texts.

    `seconds` is the duration of all its trainings.
    """

    splits: Sequence[Split]
    logits: np.ndarray | None
    seconds: float = 0.0


@dataclass(frozen=True, repr=False)
class Member(Brief):
    """The trained classifiers of one language model.

    Attributes:
        source: The language model.
        plan: The configuration that the classifiers share.
        runs: A classifier for each seed.
        folds: The classifiers' cross-validation, if there is one.
        temperature: Temperature of the probabilities.
        outcome: Predictions of the evaluation split (all training texts, for folds).
        best: Index of the run that is saved.
    """

    source: Artifact
    plan: Plan
    runs: list[TrainedClassifier]
    folds: Folds
    temperature: float | None
    outcome: Outcome
    best: int

    def artifact(self, run: dict[str, object]) -> Artifact:
        """The classifier that is saved, with `run` for its run.json."""
        model, source = as_model(self.plan, self.runs[self.best]), self.source
        more: dict[str, Any] = {"embedding": source.embedding, "text_form": source.text_form}
        return Artifact(model, source.tokenizer, self.plan.labels, run, **more)


@dataclass(frozen=True, repr=False)
class FinetuneResult(Brief):
    """The results of a fine-tuning: the folder, the record as in run.json, and the material of a report.

    Attributes:
        folder: The classifier's folder.
        comparison: Scores beside those of the baselines.
        record: The contents of run.json.
        evaluation: The texts of `comparison`, in its order.
        members: The trained language models, by the names of tasks.classification.sources; none where all were
            rejected.
        stages: The stage that each was trained by.
        cut: The truncation of each part of the data.
        problems: Findings of the check of the data.
        counted: Weights of outcomes, by name, where the result is not the plain mean of the members.
        language_models: Folders of the language models that were adapted to the unlabelled texts.
        seconds: Duration of the whole run, without saving.
        limited: What was done of that for which there was not time enough.
    """

    folder: Path
    comparison: Comparison
    record: dict[str, Any]
    evaluation: Examples
    members: dict[str, Member]
    stages: Mapping[str, Stage]
    cut: dict[str, Truncation]
    problems: list[Problem]
    counted: Mapping[str, float] = field(default_factory=dict)
    language_models: Mapping[str, Path] = field(default_factory=dict)
    seconds: float = 0.0
    limited: Sequence[str] = ()

    @property
    def times(self) -> str:
        """`Time: 42 s; candidates were scored after: linear 2 s, bert 38 s.`, and what was shortened to be in time."""
        ladder = self.record.get("ladder") or ()
        scored = ", ".join(f"{one['candidate']} {formatting.duration(one['seconds'])}" for one in ladder)
        limited = ", ".join(self.limited)
        return (
            f"Time: {formatting.duration(self.seconds)}{f'; candidates were scored after: {scored}' if scored else ''}."
            f"{f' To be in time, not with everything: {limited}.' if limited else ''}"
        )

    def _shown(self) -> dict[str, str]:
        shown = {"folder": repr(self.folder), "result": repr(self.comparison.headline_sentence)}
        return shown | {"seconds": f"{self.seconds:.1f}"}

    def _repr_html_(self) -> str:
        return f"{self.comparison._repr_html_()}{html_table([['folder', 'time'], [str(self.folder), self.times]])}"


@dataclass(frozen=True)
class EncodedData:
    """A language model, the parts of the data as encoded for it, and the truncation of each part."""

    source: Artifact
    parts: dict[str, EncodedTexts]
    cut: dict[str, Truncation] = field(default_factory=dict)


def encode_parts(source: Artifact, parts: Mapping[str, Examples], labels: Labels, max_tokens: int) -> EncodedData:
    """Encode every part of the data for a language model.

    Raises:
        UserError: A part has no texts, or none of its labels occurs in training.
    """
    encoded, cut = {}, {}
    for name, part in parts.items():
        if not part.texts:
            raise UserError(f"the {name} set holds no texts.", where=part.source, remedy="Add some, or leave it out.")
        sequences, cut[name] = source.encoded(part.texts, max_tokens)
        encoded[name] = EncodedTexts(sequences, labels.covering(part).encode(part))
    return EncodedData(source, encoded, cut)


def train_first_fold(
    name: str, plan: Plan, reading: EncodedData, training_config: TrainingConfig, early_rejection: EarlyRejection
) -> float:
    """Train the first fold of a language model that is not adapted to the unlabelled texts; returns its seconds.

    As in `train_member`, which uses other files. Raises EarlyRejected where `early_rejection` rejects it.
    """
    title = f"{name} as it is, " if name else "as it is, "
    with Meter() as meter:
        folds, rejection = _train_folds(
            title, plan, reading.parts["train"], replace(training_config, folds=1), early_rejection
        )
    if rejection is not None:
        raise EarlyRejected(rejection, folds.seconds, meter.peak_mb)
    return folds.seconds


def train_member(
    name: str,
    plan: Plan,
    reading: EncodedData,
    training_config: TrainingConfig,
    early_rejection: EarlyRejection | None = None,
) -> Member:
    """Train all classifiers of one language model, the folds first; finished ones are loaded from the run's folder.

    Args:
        name: Prefix of the files in the folder and of the lines shown; may be empty.
        plan: What the classifiers share.
        reading: The language model and the encoded parts of the data.
        training_config: Seeds, folds and the run.
        early_rejection: The test to pass after every fold; None: no test.

    Raises:
        EarlyRejected: After the fold in which the test rejects it.
        OverTime: As soon as its pace shows that it would take longer than the configuration allows.
    """
    title = f"{name} " if name else ""
    if training_config.steps < 1:
        title = f"{title}{training_config.steps:.0%} of the steps, "
        plan = replace(plan, stage=plan.stage.shortened(training_config.steps))
    source, encoded, context = reading.source, reading.parts, training_config.context
    evaluated = {part: texts for part, texts in encoded.items() if part != "train"}
    seeds = range(context.first_seed, context.first_seed + training_config.seeds)
    adapting = 0.0 if plan.from_scratch else adapt_seconds(source)
    with Meter() as meter:
        if early_rejection is None and training_config.seconds is None:
            final = [Training(f"{title}seed {seed}", seed, encoded["train"], evaluated) for seed in seeds]
            train_ahead(plan, [*_fold_trainings(title, encoded["train"], training_config), *final], context)
        try:
            folds, rejection = _train_folds(title, plan, encoded["train"], training_config, early_rejection)
        except OverTime as slow:
            raise replace(slow, seconds=slow.seconds + adapting, peak_mb=meter.peak_mb) from slow
        runs = [
            train_classifier(
                plan,
                encoded["train"],
                evaluated,
                context=context.with_seed(seed),
                title=f"{title}seed {seed}",
            )
            for seed in seeds
            if rejection is None
        ]
    if rejection is not None:
        raise EarlyRejected(rejection, folds.seconds + adapting, meter.peak_mb)
    temperature = _temperature(plan.labels, runs, folds, encoded)
    outcome = _outcome(training_config.evaluation_split, plan.labels, runs, folds, temperature)
    seconds = sum(run.seconds for run in runs) / len(runs) + adapting
    method = source.model.encoder.method
    outcome = replace(outcome, name=method, minutes=seconds / 60, peak_mb=meter.peak_mb)
    return Member(source, plan, runs, folds, temperature, outcome, _best(runs, encoded))


def adapt_seconds(source: Artifact) -> float:
    """Seconds of the language model's adaptation, which are part of the method's costs; 0 where there was none."""
    return float(source.run.get("seconds", 0.0)) if source.run.get("stage") == "adapt" else 0.0


def averaged_outcome(outcomes: Sequence[Outcome], name: str) -> Outcome:
    """The mean of several members' probabilities, with the costs of all of them."""
    return Outcome(
        name=name,
        outputs=np.mean([o.outputs for o in outcomes], axis=0),
        raw=np.mean([o.raw for o in outcomes], axis=0),
        minutes=sum(o.minutes for o in outcomes),
        peak_mb=max(o.peak_mb for o in outcomes),
        about="the mean of " + " and ".join(o.name for o in outcomes),
    )


def _fold_trainings(title: str, encoded: EncodedTexts, training_config: TrainingConfig) -> list[Training]:
    splits, seed = training_config.splits, training_config.context.first_seed
    return [
        Training(_fold_title(title, number, splits), seed, encoded.take(kept), {"held": encoded.take(held_out)})
        for number, (kept, held_out) in enumerate(splits[: training_config.folds], start=1)
    ]


def _fold_title(title: str, number: int, splits: Sequence[Split]) -> str:
    return f"{title}fold {number} of {len(splits)}"


def _train_folds(
    title: str,
    plan: Plan,
    encoded: EncodedTexts,
    training_config: TrainingConfig,
    early_rejection: EarlyRejection | None,
) -> tuple[Folds, str | None]:
    """One classifier per fold with predictions for its held-out texts, and the reason of an early rejection or None.

    Raises OverTime where the MIN_FOLDS first folds and the final trainings would take longer than there is time.
    """
    if not training_config.splits:
        return Folds([], None), None
    logits = np.full((len(encoded.sequences), plan.labels.num_outputs), np.nan, dtype=np.float32)
    seconds, rejection = 0.0, None
    for number, (kept, held_out) in enumerate(training_config.splits[: training_config.folds], start=1):
        time_limit = TimeLimit(training_config, number, len(encoded.sequences), seconds)
        try:
            trained = train_classifier(
                plan,
                encoded.take(kept),
                {"held": encoded.take(held_out)},
                context=training_config.context,
                title=_fold_title(title, number, training_config.splits),
                max_seconds=time_limit.seconds,
            )
        except TooSlow as slow:
            if number > MIN_FOLDS:
                break
            raise time_limit.exceeded_by(slow) from slow
        predicted = trained.logits["held"]
        logits[held_out] = -np.inf  # where others have more options than any of these
        logits[held_out, : predicted.shape[1]] = predicted
        seconds += trained.seconds
        rejection = early_rejection.rejection(logits, number) if early_rejection is not None else None
        if rejection is not None or (early_rejection is not None and early_rejection.is_accepted(logits, number)):
            break
        if number >= MIN_FOLDS and not training_config.has_time(seconds, seconds / number):
            break
    return Folds(training_config.splits, logits, seconds), rejection


def _temperature(
    labels: Labels, runs: Sequence[TrainedClassifier], folds: Folds, encoded: Mapping[str, EncodedTexts]
) -> float | None:
    """Fitted on texts that no classifier was trained on; None where there are none, or nothing to scale."""
    if not labels.target.has_classes:
        return None
    if "valid" in encoded and encoded["valid"].targets is not None:
        logits = np.concatenate([run.logits["valid"] for run in runs])
        targets, logits = predictable(labels.kind, np.concatenate([encoded["valid"].targets] * len(runs)), logits)
        return fit_temperature(logits, targets, labels.kind)
    if folds.logits is not None and encoded["train"].targets is not None:
        predicted = ~np.isnan(folds.logits[:, 0])
        return fit_temperature(folds.logits[predicted], encoded["train"].targets[predicted], labels.kind)
    return None


def _outcome(
    evaluation_split: str, labels: Labels, runs: Sequence[TrainedClassifier], folds: Folds, temperature: float | None
) -> Outcome:
    if evaluation_split == "folds":
        assert folds.logits is not None
        logits = [folds.logits]
    else:
        logits = [run.logits[evaluation_split] for run in runs]
    with np.errstate(invalid="ignore"):  # a text that no fold holds out has NaN for an answer
        outputs = np.stack([outputs_from_logits(one, labels.kind, temperature or 1.0) for one in logits])
        raw = np.stack([outputs_from_logits(one, labels.kind) for one in logits])
    return Outcome("", outputs, raw, 0.0, 0.0)


def _best(runs: Sequence[TrainedClassifier], encoded: Mapping[str, EncodedTexts]) -> int:
    """The run with the lowest validation loss; the first one if there is no validation set."""
    if "valid" not in encoded:
        return 0
    return int(np.argmin([min(row["loss"] for row in run.history if "loss" in row) for run in runs]))

"""A classifier's scores beside those of the linear baselines, on the same texts, with intervals and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from textgraft.core import formatting
from textgraft.core.brief import Brief, html_table
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import reads
from textgraft.data.labels import Labels
from textgraft.linear.baselines import Baseline, LinearBaseline, LsaBaseline
from textgraft.linear.lsa import plain_and_residual_idf
from textgraft.linear.multiple_choice import FrequentPosition, WordOverlap
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.metrics.classification import (
    Interval,
    PairedTest,
    bootstrap_interval,
    document_scores,
    evaluate,
    mean_and_spread,
    paired_test,
)
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.unseen_labels import UnseenLabels


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(Brief):
    """Predictions of one method for the evaluation split; equal to itself only.

    `outputs` (seeds, N, C) are probabilities, or (seeds, N) standardised values for a numeric target; `raw` the same
    before temperature scaling; `minutes` is for one training.
    """

    name: str
    outputs: np.ndarray
    raw: np.ndarray
    minutes: float
    peak_mb: float
    about: str = ""


@dataclass(frozen=True, repr=False)
class Comparison(Brief):
    """Several methods on the same N texts: the model itself first, then its rivals.

    Attributes:
        labels: The labels of the methods, and after them those that only the texts have (Labels.covering).
        targets: Targets of the texts.
        outcomes: Predictions of each method.
        parts: Members of the first method where that is an ensemble; they are shown, but are no rivals.
        chosen: A sentence on the model selection that led to the first method, if there was one.
        seen: (N,) True for texts that are training texts too: the verdict then has scores on the others as well.
        folds: Number of folds of the cross-validation that predicted the texts; 0 for texts of their own.
        next_step: A sentence on what to do about the result, if there is something.
    """

    labels: Labels
    targets: np.ndarray
    outcomes: tuple[Outcome, ...]
    parts: tuple[Outcome, ...] = ()
    chosen: str = ""
    seen: np.ndarray | None = None
    folds: int = 0
    next_step: str = ""
    _intervals: dict[Outcome, Interval] = field(default_factory=dict, init=False, repr=False, compare=False)

    def scores(self, outcome: Outcome) -> np.ndarray:
        """(seeds, N): the headline metric of each text, for every seed."""
        targets, outputs = self._in_units(self.targets), [self._in_units(o) for o in outcome.outputs]
        return np.stack([document_scores(self.labels.kind, targets, one) for one in outputs])

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        """A numeric target in the user's unit; anything else as it is."""
        return self.labels.unscaled(values)

    @property
    def headline(self) -> str:
        return self.labels.target.metric

    def interval(self, outcome: Outcome) -> Interval:
        """Bootstrap interval of an outcome's score, computed once for table, verdict, report and results.json."""
        if outcome not in self._intervals:
            self._intervals[outcome] = bootstrap_interval(self.scores(outcome))
        return self._intervals[outcome]

    def best_baseline(self) -> Outcome | None:
        """The strongest of all methods but the first."""
        others = self.outcomes[1:]
        if not others:
            return None
        sign = -1 if self.labels.lower_is_better else 1
        return max(others, key=lambda o: sign * self.scores(o).mean())

    def against(self, rival: Outcome) -> PairedTest:
        """A paired test of the first method against `rival` on these texts."""
        return paired_test(self.scores(self.outcomes[0]), self.scores(rival))

    @property
    def headline_sentence(self) -> str:
        """The result in words for anyone: `84 of 100 texts are right.`"""
        mean, count = self.interval(self.outcomes[0]).mean, len(self.targets)
        if not self.labels.target.has_classes:
            return f"Predictions for {count:,} texts are off by {formatting.score(mean, self.headline)} on average."
        seeds = len(self.outcomes[0].outputs)
        right = f"{mean * count:,.0f}" if seeds == 1 else f"{mean * count:,.1f}"
        return f"{right} of {count:,} texts are right{f', on average over {seeds} seeds' if seeds > 1 else ''}."

    @property
    def texts(self) -> str:
        """`100 texts`, or `100 texts, each predicted by a model that was not trained on it (5 folds)`."""
        how = f", each predicted by a model that was not trained on it ({self.folds} folds)" if self.folds else ""
        return f"{len(self.targets):,} texts{how}"

    @property
    def unseen_labels(self) -> UnseenLabels:
        """The labels of these texts that training lacked."""
        return UnseenLabels.of(self.labels, self.outcomes[0].outputs.shape[-1], self.targets)

    def verdict(self) -> str:
        """Score, best baseline, paired test against it, and what limits the score: labels or texts of training."""
        parts = (self._verdict(), self.next_step, str(self.unseen_labels), self._unseen())
        return " ".join(part for part in parts if part)

    def _verdict(self) -> str:
        first, rival, metric = self.outcomes[0], self.best_baseline(), self.headline
        score = formatting.interval(*self.interval(first), metric)
        text = f"{first.name}: {formatting.metric_name(metric)} {score} on {self.texts}"
        if rival is None and len(self.parts) == 1:
            return f"{text}. It is {self.parts[0].name} alone; no other method was trained."
        if rival is None:
            return f"{text}; no baseline was run."
        test = self.against(rival)
        better_by = -test.difference if self.labels.lower_is_better else test.difference
        named = f"{rival.name} ({formatting.score(self.interval(rival).mean, metric)})"
        return f"{text}. {formatting.compared(better_by, test.p, metric, named)}"

    def _unseen(self) -> str:
        """`12 of them are in the training texts too; on the other 488 it has 83.1 % [79.6, 86.3], linear 80.1 %.`"""
        if self.seen is None or not self.seen.any():
            return ""
        count, others = int(self.seen.sum()), int((~self.seen).sum())
        if not others:
            return "All of them are in the training texts too: the score does not hold for new texts."
        first, rival = self.outcomes[0], self.best_baseline()
        interval = bootstrap_interval(self.scores(first)[:, ~self.seen])
        text = f"{count:,} of them {'are' if count > 1 else 'is'} in the training texts too; on the other {others:,} "
        text += f"it has {formatting.interval(*interval, self.headline)}"
        if rival is not None:
            theirs = float(self.scores(rival)[:, ~self.seen].mean())
            text += f", {rival.name} {formatting.score(theirs, self.headline)}"
        return f"{text}."

    def table(self) -> str:
        """Every method with its score, interval and cost, then the result in words and the verdict, as plain text."""
        return "\n".join([formatting.aligned(self._rows(), left={0}), "", *self._sentences()])

    def _repr_html_(self) -> str:
        return html_table(self._rows(), self.headline_sentence, self.verdict(), self.chosen)

    def _sentences(self) -> list[str]:
        return [*([self.chosen] if self.chosen else []), self.headline_sentence, self.verdict()]

    def _rows(self) -> list[list[str]]:
        beside = self.labels.target.other_metrics
        rows = [
            [
                "method",
                f"{formatting.metric_name(self.headline)} [95 % interval]",
                "spread",
                *beside,
                "minutes",
                "peak MB",
            ]
        ]
        for name, result in self._methods().items():
            score = result[self.headline]
            interval = formatting.interval(score["mean"], score["low"], score["high"], self.headline)
            spread = formatting.score(score["spread"], self.headline)
            others = [formatting.score((result[other] or {}).get("mean"), other) for other in beside]
            rows.append([name, interval, spread, *others, f"{result['minutes']:.1f}", f"{result['peak_mb']:,}"])
        return rows

    def results(self, *, labels: int, seeds: int) -> dict[str, Any]:
        """The contents of results.json: methods, each with its metrics, minutes and peak memory."""
        about = {"chosen": self.chosen, "unseen_labels": self.unseen_labels.counts}
        return {
            "labels": labels,
            "test_n": len(self.targets),
            "seeds": seeds,
            "metric": self.headline,
            "verdict": self.verdict(),
            "methods": self._methods(),
        } | {name: value for name, value in about.items() if value}

    def _methods(self) -> dict[str, dict[str, Any]]:
        first, *rivals = self.outcomes
        return {outcome.name: self._result(outcome) for outcome in (first, *self.parts, *rivals)}

    def _result(self, outcome: Outcome) -> dict[str, Any]:
        interval = self.interval(outcome)
        per_seed = [
            evaluate(self.labels.kind, self._in_units(self.targets), self._in_units(one)) for one in outcome.outputs
        ]
        others = {
            name: None if value is None else {"mean": value[0], "spread": value[1]}
            for name, value in mean_and_spread(per_seed).items()
        }
        result: dict[str, Any] = {self.headline: {**(others.get(self.headline) or {}), **interval._asdict()}}
        result |= {name: value for name, value in others.items() if name != self.headline}
        result |= {"minutes": round(outcome.minutes, 3), "peak_mb": round(outcome.peak_mb)}
        return result | ({"about": outcome.about} if outcome.about else {})


def compare_methods(
    selection: SelectionContext, outcome: Outcome, *, baselines: bool = True, parts: Sequence[Outcome] = ()
) -> Comparison:
    """Compare a classifier with the n-gram linear baseline and, where there is unlabelled text, with LSA.

    For multiple choice the baselines use only the words and positions of the options (linear.multiple_choice).

    Args:
        selection: The data. Baselines train on the training texts and predict the evaluation split; where that is the
            folds, they are cross-validated on the same folds.
        outcome: Predictions of the classifier.
        baselines: Whether to train baselines.
        parts: Predictions of the members, where the classifier is an ensemble.
    """
    train, labels, seed = selection.train, selection.labels, selection.seed
    folds, unlabelled = selection.evaluation_folds, selection.unlabelled
    outcomes = [outcome]
    if baselines:
        rivals: list[Baseline] = [LinearBaseline(seed=seed)]
        if labels.target.reads == "choices":
            rivals = [WordOverlap(), FrequentPosition()]
        elif unlabelled and reads(train.texts) == "texts":
            # Feature maps need no labels, so one fit on all texts is used in every fold.
            counted = NgramCounts.of([*train.texts, *unlabelled], seed=seed)
            rivals.append(LsaBaseline(feature_maps=plain_and_residual_idf(counted, seed=seed), seed=seed))
        outcomes += [_predictions(baseline, selection) for baseline in rivals]
    evaluation_labels, evaluation_targets = selection.evaluation_labels, selection.evaluation_targets
    return on_held_out(Comparison(evaluation_labels, evaluation_targets, tuple(outcomes), tuple(parts)), folds)


def on_held_out(comparison: Comparison, folds: Sequence[Sequence[int]] | None) -> Comparison:
    """A comparison on all training texts, restricted to those that `folds` hold out; unchanged without folds."""
    if not folds:
        return comparison
    indices = np.array(sorted(i for held_out in folds for i in held_out), dtype=int)
    return replace(
        comparison,
        folds=len(folds),
        targets=comparison.targets[indices],
        outcomes=tuple(_take(o, indices) for o in comparison.outcomes),
        parts=tuple(_take(o, indices) for o in comparison.parts),
    )


def _predictions(baseline: Baseline, selection: SelectionContext) -> Outcome:
    train, labels, targets, folds = selection.train, selection.labels, selection.targets, selection.evaluation_folds

    def fitted(indices: Sequence[int]) -> Baseline:
        texts = [train.texts[i] for i in indices]
        return baseline.fit(
            texts,
            targets[list(indices)],
            kind=labels.kind,
            num_classes=labels.num_classes,
            unlabelled=selection.unlabelled,
        )

    with Meter() as meter:
        if folds is None:
            assert selection.evaluation is not None
            answers = fitted(range(len(train))).predict_proba(list(selection.evaluation.texts))
        else:
            everything = set(range(len(train)))
            answers = np.full(labels.output_shape(len(train)), np.nan)
            for held_out in folds:
                kept = sorted(everything - set(held_out))
                predicted = fitted(kept).predict_proba([train.texts[i] for i in held_out])
                if predicted.ndim > 1:  # none of these may have as many options as others
                    predicted = np.pad(predicted, ((0, 0), (0, answers.shape[1] - predicted.shape[1])))
                answers[list(held_out)] = predicted
    return Outcome(baseline.name, answers[None], answers[None], meter.seconds / 60, meter.peak_mb, baseline.about)


def _take(outcome: Outcome, indices: np.ndarray) -> Outcome:
    return replace(outcome, outputs=outcome.outputs[:, indices], raw=outcome.raw[:, indices])

"""Model selection of `finetune`: a weighted ensemble of candidates, by their predictions for held-out texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from textgraft.core import formatting
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.splits import Split, stratified_folds, stratified_split
from textgraft.metrics.calibration import fit_temperature, outputs_from_logits
from textgraft.metrics.classification import HEADLINE
from textgraft.models.artifact import Predictor
from textgraft.tasks.classification.early_rejection import EarlyRejected
from textgraft.tasks.classification.ensemble_weights import LOSS_NAMES, ensemble_weights, mean_loss
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.fine_tuned import Member
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.selection_context import SelectionContext

FOLDS = 5
HELD_OUT = 0.2
FOLDS_UP_TO = 2_000
"""Labelled texts. With more, five trainings of a language model are not worth their cost: on a fifth of 2,000 texts
the standard error of an accuracy of 85 % is 1.8 points, and that of a difference between two candidates less."""
LANGUAGE_MODEL = "the fine-tuned model"


@dataclass(frozen=True)
class WeightedEnsemble:
    """Candidates and their weights in the mean of their predictions.

    Attributes:
        candidates: All candidates with held-out predictions.
        weights: By name; 0 leaves a candidate out.
        scores: By name, of the held-out predictions: the loss that the weights minimise, and the headline metric.
        chosen: The choice in a sentence.
        left_out: Names of methods that do not apply, with reasons.
        rejected: Language models that were rejected, with reasons and costs.
        folds: The folds that the weights were fitted on.
    """

    candidates: tuple[Candidate, ...]
    weights: Mapping[str, float]
    scores: Mapping[str, Mapping[str, float]]
    chosen: str
    left_out: Mapping[str, str]
    rejected: Mapping[str, EarlyRejected] = field(default_factory=dict)
    folds: int = 0

    @property
    def kept(self) -> list[Candidate]:
        """The candidates with a weight, the heaviest first."""
        counted = [c for c in self.candidates if self.weights[c.name] > 0]
        return sorted(counted, key=lambda c: -self.weights[c.name])

    @property
    def seconds(self) -> float:
        """Duration of all trainings, with those of rejected candidates, without what candidates share."""
        return sum(c.seconds for c in self.candidates) + sum(lost.seconds for lost in self.rejected.values())

    def outcome(self, shared_seconds: float) -> Outcome:
        """The predictions of the ensemble for the evaluation split; its costs are those of all candidates."""
        weights = [self.weights[c.name] for c in self.kept]
        mean = partial(np.average, axis=0, weights=weights)
        return Outcome(
            name="ensemble",
            outputs=mean(np.broadcast_arrays(*(c.outcome.outputs for c in self.kept))),
            raw=mean(np.broadcast_arrays(*(c.outcome.raw for c in self.kept))),
            minutes=(shared_seconds + self.seconds) / 60,
            peak_mb=max([c.peak_mb for c in self.candidates] + [lost.peak_mb for lost in self.rejected.values()]),
            about=" + ".join(f"{100 * w:.0f} % {c.name}" for w, c in zip(weights, self.kept)),
        )

    def rivals(self) -> tuple[list[Outcome], list[Outcome]]:
        """Outcomes of candidates: the one that the ensemble consists of, if it is a single one, and the others.

        Slow candidates without a weight are not among them: their predictions are not worth their time.
        """
        alone = self.kept if len(self.kept) == 1 else []
        others = [c for c in self.candidates if c not in alone and (c in self.kept or not c.slow)]
        return [c.outcome for c in alone], [c.outcome for c in others]

    def record(self) -> dict[str, Any]:
        """The choice as in run.json."""
        tried = {c.name: {**self.scores[c.name], "weight": self.weights[c.name]} for c in self.candidates}
        left_out = {**self.left_out, **{name: lost.reason for name, lost in self.rejected.items()}}
        return {"chosen": self.chosen, "candidates": tried, "left_out": left_out}

    def predictors(self, run: Mapping[str, Any]) -> dict[str, Predictor]:
        """The classifiers to save, by name; `run` is the run.json of the whole."""
        return {c.name: c.predictor(run) for c in self.kept}


def selection_splits(train: Examples, seed: int) -> Sequence[Split]:
    """The held-out texts of a model selection: five folds, fewer of few texts, one fifth of many.

    Empty where no text could be held out and its class still be trained on.
    """
    if len(train) > FOLDS_UP_TO:
        try:
            return [stratified_split(train, HELD_OUT, seed)]
        except UserError:  # thousands of classes of one text each
            pass
    for count in range(FOLDS, 1, -1):
        try:
            folds = [split for split in stratified_folds(train, count, seed) if split[1]]
        except UserError:
            continue
        if len(folds) > 1:  # of label sets, all texts of a fold may be needed in training
            return folds
    return ()


def predicted(outputs: np.ndarray) -> np.ndarray:
    """Indices of the texts that have predictions: no fold holds the others out, or theirs was not trained."""
    return np.flatnonzero(~np.isnan(outputs.reshape(len(outputs), -1)[:, 0]))


def completed_folds(candidates: Sequence[Candidate], selection: SelectionContext) -> int:
    """The number of folds that all candidates have predicted: a fine-tuning may stop before the last."""
    counts = [
        next((i for i, fold in enumerate(selection.held_out_folds) if np.isnan(c.held_out[fold]).any()), None)
        for c in candidates
    ]
    return min((count for count in counts if count is not None), default=len(selection.splits))


def language_candidate(name: str, member: Member, selection: SelectionContext, run: Mapping[str, Any]) -> Candidate:
    """The trained classifiers of a language model as a candidate; `run` are the keys of run.json of this member."""
    logits, kind = member.folds.logits, selection.labels.kind
    assert logits is not None, "folds come first"
    indices = predicted(logits)
    temperature = fit_temperature(logits[indices], selection.targets[indices], kind)
    with np.errstate(invalid="ignore"):  # a text that no fold holds out has NaN for an answer
        held_out = outputs_from_logits(logits, kind, temperature)
    more = sum(other.seconds for other in member.runs[1:]) + member.folds.seconds
    outcome = replace(member.outcome, name=name)
    seconds = 60 * outcome.minutes + more

    def predictor(whole: Mapping[str, Any]) -> Predictor:
        return member.artifact({**whole, **run})

    return Candidate(name, held_out, lambda: outcome, seconds, outcome.peak_mb, predictor)


def weighted_ensemble(
    candidates: Sequence[Candidate],
    selection: SelectionContext,
    *,
    language_models: Sequence[str],
    left_out: Mapping[str, str],
    rejected: Mapping[str, EarlyRejected],
) -> WeightedEnsemble:
    """Compute the candidates' weights by their predictions for held-out training texts (ensemble_weights.py).

    Args:
        candidates: All candidates with held-out predictions.
        selection: The data and the folds.
        language_models: Names of the language models, with those that were rejected.
        left_out: Names of methods that do not apply, with reasons.
        rejected: Language models that were rejected.
    """
    weights = candidate_weights(candidates, selection)
    full = len(selection.splits)
    if completed_folds(candidates, selection) < full:
        # A candidate that was trained on some folds only and has no weight there does not limit the others' evidence.
        whole = [c for c in candidates if completed_folds([c], selection) == full]
        if whole and all(weights[c.name] == 0 for c in candidates if c not in whole):
            weights |= candidate_weights(whole, selection)
        else:
            selection = selection.first_folds(completed_folds(candidates, selection))
    labels = selection.labels
    metric, loss = HEADLINE[labels.kind], LOSS_NAMES[labels.kind]
    scores = {}
    for candidate in candidates:
        texts = np.intersect1d(selection.held_out, predicted(candidate.held_out))
        targets, answer = selection.targets[texts], candidate.held_out[texts]
        alone = Comparison(labels, targets, (Outcome(candidate.name, answer[None], answer[None], 0.0, 0.0),))
        score = float(alone.scores(alone.outcomes[0]).mean())
        scores[candidate.name] = {metric: score, loss: mean_loss(labels.kind, targets, answer)}
    shares = _shares(weights, scores, language_models, rejected)
    chosen = f"Chosen on {len(selection.train):,} labels by {evidence(selection, full)}: {shares}."
    if len(candidates) + len(rejected) > 1:
        chosen += f" The {formatting.metric_name(loss)} decides, not the {formatting.metric_name(metric)}."
    if selection.evaluation is None:
        chosen += " The scores are of the same texts, which is slightly optimistic for the ensemble."
    return WeightedEnsemble(tuple(candidates), weights, scores, chosen, left_out, rejected, len(selection.splits))


def candidate_weights(candidates: Sequence[Candidate], selection: SelectionContext) -> dict[str, float]:
    """Weights by name, by the predictions for the texts of the folds that all candidates have completed."""
    texts = selection.first_folds(completed_folds(candidates, selection)).held_out
    answers = [c.held_out[texts] for c in candidates]
    favoured = [c.favoured for c in candidates]
    weights = ensemble_weights(answers, selection.targets[texts], selection.labels.kind, favoured=favoured)
    return dict(zip((c.name for c in candidates), weights.tolist(), strict=True))


def evidence(selection: SelectionContext, whole: int | None = None) -> str:
    """`5-fold cross-validation`, `2 of 5 folds (40 texts)`, or `one held-out fifth (500 texts)`.

    `whole` is the number of folds that there are; None: those of `selection`.
    """
    folds, texts = len(selection.splits), len(selection.held_out)
    if whole is not None and folds < whole:
        return f"{folds} of {whole} folds ({texts:,} texts)"
    return f"{folds}-fold cross-validation" if folds > 1 else f"one held-out fifth ({texts:,} texts)"


def _shares(
    weights: Mapping[str, float],
    scores: Mapping[str, Mapping[str, float]],
    language_models: Sequence[str],
    rejected: Mapping[str, EarlyRejected],
) -> str:
    """`60 % co-training, 40 % lsa; the fine-tuned model (accuracy 64.1 %, log loss 0.83 out of fold) adds nothing`."""
    titles = {
        name: LANGUAGE_MODEL if i == 0 else f"{LANGUAGE_MODEL} ({name})" for i, name in enumerate(language_models)
    }
    kept = sorted((n for n in weights if weights[n] > 0), key=lambda name: -weights[name])
    shown = [f"{100 * weights[name]:.0f} % {titles.get(name, name)}" for name in kept]
    text = ", ".join(shown) if len(kept) > 1 else f"{titles.get(kept[0], kept[0])} alone"
    for name in language_models:
        if name in rejected:
            text += f"; {titles[name]} was {rejected[name].reason}"
        elif name not in kept:
            both = (f"{formatting.metric_name(key)} {formatting.score(v, key)}" for key, v in scores[name].items())
            text += f"; {titles[name]} ({', '.join(both)} out of fold) adds nothing"
    return text

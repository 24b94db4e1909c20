"""What `finetune` makes of several candidates: a mean of their answers, weighed by what each said of unseen texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from textgraft.core import formatting
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.splits import Split, stratified_folds, stratified_split
from textgraft.metrics.calibration import fit_temperature
from textgraft.metrics.classification import HEADLINE
from textgraft.models.artifact import Predictor
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.ensemble_weights import ensemble_weights, mean_loss
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.fine_tuned import EarlyRejected, Member, Reading
from textgraft.tasks.classification.linear_candidates import Candidate, LinearCandidates, SelectionContext
from textgraft.tasks.classification.linear_probe import linear_probe_candidate, linear_probe_name
from textgraft.tasks.classification.training import outputs_from_logits

FOLDS = 5
HELD_OUT = 0.2
FOLDS_UP_TO = 2_000
"""Labelled texts. With more, five trainings of a language model cost more than they tell: on a fifth of 2,000 texts
the standard error of an accuracy of 85 % is 1.8 points, and that of a difference between two candidates less."""
LANGUAGE_MODEL = "the language model"
LOSSES = {"single": "log_loss", "multi": "log_loss", "numeric": "squared_error"}


@dataclass(frozen=True)
class WeightedEnsemble:
    """Candidates, and how much each counts in the mean of their answers; a weight of 0 leaves one out.

    `scores` are those of the held-out answers by which the weights were chosen: the loss that was to be small and the
    headline metric, by name. `left_out` says of what could not be tried why; `given_up` are language models whose
    training was not worth its end, and probes that would have taken too long.
    """

    candidates: tuple[Candidate, ...]
    weights: Mapping[str, float]
    scores: Mapping[str, Mapping[str, float]]
    chosen: str
    left_out: Mapping[str, str]
    given_up: Mapping[str, EarlyRejected] = field(default_factory=dict)

    @property
    def kept(self) -> list[Candidate]:
        """Those that count, the heaviest first."""
        counted = [c for c in self.candidates if self.weights[c.name] > 0]
        return sorted(counted, key=lambda c: -self.weights[c.name])

    @property
    def seconds(self) -> float:
        """What all trainings took, also those of what was given up, without what candidates share."""
        return sum(c.seconds for c in self.candidates) + sum(lost.seconds for lost in self.given_up.values())

    def outcome(self, shared_seconds: float) -> Outcome:
        """What the mean answers for the examined texts; it costs what all candidates cost, also those left out."""
        weights = [self.weights[c.name] for c in self.kept]
        mean = partial(np.average, axis=0, weights=weights)
        return Outcome(
            name="blend",
            outputs=mean(np.broadcast_arrays(*(c.outcome.outputs for c in self.kept))),
            raw=mean(np.broadcast_arrays(*(c.outcome.raw for c in self.kept))),
            minutes=(shared_seconds + self.seconds) / 60,
            peak_mb=max([c.peak_mb for c in self.candidates] + [lost.peak_mb for lost in self.given_up.values()]),
            about=" + ".join(f"{100 * w:.0f} % {c.name}" for w, c in zip(weights, self.kept)),
        )

    def rivals(self) -> tuple[list[Outcome], list[Outcome]]:
        """The candidates' own outcomes: the one that the blend consists of, if it is a single one, and the others.

        Slow ones that do not count are not among them: what they would answer is not worth its time.
        """
        alone = self.kept if len(self.kept) == 1 else []
        others = [c for c in self.candidates if c not in alone and (c in self.kept or not c.slow)]
        return [c.outcome for c in alone], [c.outcome for c in others]

    def record(self) -> dict[str, Any]:
        """What run.json says of the choice."""
        tried = {c.name: {**self.scores[c.name], "weight": self.weights[c.name]} for c in self.candidates}
        left_out = {**self.left_out, **{name: lost.why for name, lost in self.given_up.items()}}
        return {"chosen": self.chosen, "candidates": tried, "left_out": left_out}

    def predictors(self, run: Mapping[str, Any]) -> dict[str, Predictor]:
        """What is to be saved, by name; `run` is what run.json says of the whole."""
        return {c.name: c.predictor(run) for c in self.kept}


def selection_splits(train: Examples, seed: int) -> Sequence[Split]:
    """What the candidates answer for: five folds, fewer where the texts are too few, one fifth where they are many.

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


def language_candidate(name: str, member: Member, ground: SelectionContext, run: Mapping[str, Any]) -> Candidate:
    """A trained language model's classifiers as a candidate; `run` is what its run.json says beside the whole's."""
    logits, kind, known = member.folds.logits, ground.labels.kind, ground.known
    assert logits is not None, "folds come first"
    temperature = 1.0 if kind == "numeric" else fit_temperature(logits[known], ground.targets[known], kind)
    with np.errstate(invalid="ignore"):  # a text that no fold holds out has NaN for an answer
        held_out = outputs_from_logits(logits, kind, temperature)
    more = sum(other.seconds for other in member.runs[1:]) + member.folds.seconds
    outcome = replace(member.outcome, name=name)
    seconds = 60 * outcome.minutes + more

    def predictor(whole: Mapping[str, Any]) -> Predictor:
        return member.artifact({**whole, **run})

    return Candidate(name, held_out, lambda: outcome, seconds, outcome.peak_mb, predictor)


@dataclass(frozen=True)
class FineTuningCandidate:
    """A language model that has its chance: what it is called, the parts of the data as it reads them, its training.

    `train` raises EarlyRejected where the race is lost; `own` is what run.json says of the classifier beside the
    whole's. Where there are unlabelled texts for it to read, `adapted` does so. Before that `try_out`, if there is one,
    trains the first fold without them, for which it raises EarlyRejected too, and gives seconds: reading takes long,
    and gains little beside what a model lacks that is surely worse than what has answered already (docs/lab-notes.md).
    """

    name: str
    reading: Reading
    train: Callable[[Reading, EarlyRejection], Member]
    own: Callable[[Member], Mapping[str, Any]] = lambda member: {}
    try_out: Callable[[EarlyRejection], float] | None = None
    adapted: Callable[[], Reading] | None = None


def select_models(
    linear: LinearCandidates,
    entrants: Sequence[FineTuningCandidate],
    ground: SelectionContext,
    *,
    examined: str,
    precision: str,
    within: float | None = None,
) -> tuple[WeightedEnsemble, dict[str, Member]]:
    """The linear candidates and the language models', each as a probe and fine-tuned, weighed; and who was trained.

    A fine-tuning goes to its end only if it keeps up with what has answered before it. `examined`, `precision` and
    `within` as in probe.linear_probe_candidate, but that somebody must answer, however long it takes.
    """
    candidates = list(linear.candidates)
    members: dict[str, Member] = {}
    given_up: dict[str, EarlyRejected] = {}
    for one in entrants:
        reading, spent = one.reading, 0.0
        try:
            if one.try_out is not None:
                spent = one.try_out(EarlyRejection(candidates, ground, before_adapting=True))
            if one.adapted is not None:
                reading = one.adapted()
        except EarlyRejected as lost:
            given_up[one.name] = lost
        try:
            probe = linear_probe_candidate(
                linear_probe_name(one.name),
                reading.source,
                reading.parts,
                ground,
                examined=examined,
                precision=precision,
                within=within if candidates else None,
            )
        except EarlyRejected as lost:
            given_up[linear_probe_name(one.name)] = lost
        else:
            candidates.append(probe)
        if one.name in given_up:
            continue
        try:
            member = members[one.name] = one.train(reading, EarlyRejection(candidates, ground))
        except EarlyRejected as lost:
            given_up[one.name] = replace(lost, seconds=lost.seconds + spent)
        else:
            found = language_candidate(one.name, member, ground, one.own(member))
            candidates.append(replace(found, seconds=found.seconds + spent))
    names = [one.name for one in entrants]
    return blend(candidates, ground, language_models=names, left_out=linear.left_out, given_up=given_up), members


def blend(
    candidates: Sequence[Candidate],
    ground: SelectionContext,
    *,
    language_models: Sequence[str],
    left_out: Mapping[str, str],
    given_up: Mapping[str, EarlyRejected],
) -> WeightedEnsemble:
    """Weigh the candidates by their answers for held-out training texts
    (textgraft.tasks.classification.ensemble_weights).

    `language_models` names those that were fine-tuned, the ones `given_up` among them; `left_out` says what could not
    be tried and why.
    """
    kind, targets = ground.labels.kind, ground.targets[ground.known]
    answers = [c.held_out[ground.known] for c in candidates]
    weights = dict(zip((c.name for c in candidates), ensemble_weights(answers, targets, kind).tolist(), strict=True))
    metric, loss = HEADLINE[kind], LOSSES[kind]
    scores = {}
    for candidate, answer in zip(candidates, answers, strict=True):
        alone = Comparison(ground.labels, targets, (Outcome(candidate.name, answer[None], answer[None], 0.0, 0.0),))
        score = float(alone.scores(alone.outcomes[0]).mean())
        scores[candidate.name] = {metric: score, loss: mean_loss(kind, targets, answer)}
    folds, texts = len(ground.splits), len(ground.known)
    how = f"{folds}-fold cross-validation" if folds > 1 else f"one held-out fifth ({texts:,} texts)"
    shares = _shares(weights, scores, metric, language_models, given_up)
    chosen = f"Chosen on {len(ground.train):,} labels by {how}: {shares}."
    if ground.examined is None:
        chosen += " The scores are of the same texts, which flatters the blend a little."
    return WeightedEnsemble(tuple(candidates), weights, scores, chosen, left_out, given_up)


def _shares(
    weights: Mapping[str, float],
    scores: Mapping[str, Mapping[str, float]],
    metric: str,
    language_models: Sequence[str],
    given_up: Mapping[str, EarlyRejected],
) -> str:
    """`60 % self-trained, 40 % lsa; the language model (64.1 % out of fold) adds nothing`."""
    spoken = {
        name: LANGUAGE_MODEL if i == 0 else f"{LANGUAGE_MODEL} ({name})" for i, name in enumerate(language_models)
    }
    kept = sorted((n for n in weights if weights[n] > 0), key=lambda name: -weights[name])
    shown = [f"{100 * weights[name]:.0f} % {spoken.get(name, name)}" for name in kept]
    text = ", ".join(shown) if len(kept) > 1 else f"{spoken.get(kept[0], kept[0])} alone"
    unit = "" if metric == "accuracy" else f"{formatting.metric_name(metric)} "
    for name in language_models:
        if linear_probe_name(name) in given_up:
            text += f"; a probe of {spoken[name]} was {given_up[linear_probe_name(name)].why}"
        if name in given_up:
            text += f"; {spoken[name]} was {given_up[name].why}"
        elif name not in kept:
            text += (
                f"; {spoken[name]} ({unit}{formatting.score(scores[name][metric], metric)} out of fold) adds nothing"
            )
    return text

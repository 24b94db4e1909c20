"""The ladder of `finetune`: candidates in order of cost, each begun only if the budget allows it.

n-grams; a linear probe of the encoder, and with few labels a class one that begins with their names; co-training on the
unlabelled texts with a sentence encoder's vectors as a view, and its contrastive fine-tuning; LSA and co-training
without the encoder; fine-tuning of other language models, which may begin with adaptation to the unlabelled texts.
Every candidate predicts the held-out texts, and the weighted ensemble (model_selection.py) decides which are kept.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.linear.co_training import CoTrainedClassifier
from textgraft.linear.methods import LINEAR_METHODS, FeatureMaps
from textgraft.linear.ngram_counts import random_subset
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.budget import Budget
from textgraft.tasks.classification.costs import TRAINING, Costs
from textgraft.tasks.classification.early_rejection import MIN_FOLDS, EarlyRejected, EarlyRejection
from textgraft.tasks.classification.encoder_candidates import encoder_co_training_name, encoder_pool, pool_sizes
from textgraft.tasks.classification.fine_tuned import EncodedData, Member
from textgraft.tasks.classification.fine_tuning_candidate import FineTuningCandidate
from textgraft.tasks.classification.label_names_candidate import knows_by_name, label_names_candidate, label_names_name
from textgraft.tasks.classification.linear_candidates import Candidate, linear_candidate, why_left_out
from textgraft.tasks.classification.linear_probe import linear_probe_candidate, linear_probe_name
from textgraft.tasks.classification.model_selection import (
    WeightedEnsemble,
    completed_folds,
    language_candidate,
    weighted_ensemble,
)
from textgraft.tasks.classification.rung_result import RungResult
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.self_training import MAX_POOL_TEXTS
from textgraft.tasks.classification.training_config import OverTime
from textgraft.tasks.classification.vector_cache import VectorCache

POOL_SHARE = 0.4
"""Share of the time left that a candidate on the unlabelled texts may take, so that there is some for fine-tuning, and
for the candidates after it."""


SHORTEST = 25
"""Percentage of its steps below which a fine-tuning is not worth its time."""
MARGIN = 0.7
"""Share of the time left that the shortened steps are planned for: the pace of a machine is not constant, and what
trains the head alone is not shortened."""


def steps_name(name: str) -> str:
    """The name of the decision on the percentage of its steps that a language model is fine-tuned with."""
    return f"{name}-steps-percent"


def adapted_name(name: str) -> str:
    """The name of a language model once it is adapted to the unlabelled texts."""
    return f"{name}-adapted"


def candidate_names(language_model: str) -> set[str]:
    """The names of all candidates that a language model is part of."""
    names = (linear_probe_name, label_names_name, encoder_co_training_name)
    return {language_model, *(name(language_model) for name in names)}


def rung_names(language_model: str) -> set[str]:
    """The names of all decisions on a language model."""
    return candidate_names(language_model) | {adapted_name(language_model), steps_name(language_model)}


def feature_maps(selection: SelectionContext) -> FeatureMaps:
    """Feature maps of the unlabelled texts alone: on training texts too, held-out ones would not be new to them."""
    return FeatureMaps(selection.unlabelled, selection.run.work / "feature_maps", seed=selection.seed)


@dataclass
class Ladder:
    """Candidates in the order of their costs.

    Args:
        selection: The data, the folds and the run.
        budget: The time limit.
        feature_maps: Feature maps of the unlabelled texts.
        max_tokens: Length in tokens that longer texts are cut to.
        evaluated: Vectors of the texts that are measured on, by encoder, which the ladders of other training samples
            with the same texts share; filled on demand.

    Attributes:
        candidates: Those that predict the held-out texts, by name.
        left_out: Methods that do not apply or were not begun, with reasons.
        rejected: Language models that were rejected, with reasons and costs.
        members: The language models that were trained.
        results: The score of each candidate on the held-out texts, in the order in which they were there.
    """

    selection: SelectionContext
    budget: Budget
    feature_maps: FeatureMaps
    max_tokens: int = 512
    evaluated: dict[str, VectorCache] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, EarlyRejected] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    results: list[RungResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.costs = Costs(self.selection)
        self._vectors: dict[str, VectorCache] = {}
        self._to_fine_tune: list[FineTuningCandidate] = []

    def climb(self, methods: Sequence[str], language_models: Sequence[FineTuningCandidate]) -> None:
        """Fit all candidates that the data and the budget allow.

        Args:
            methods: Names of linear.methods.LINEAR_METHODS.
            language_models: The language models.
        """
        known = set(methods).union(*(rung_names(one.name) for one in language_models))
        self.budget.validate_repeated(sorted(known))
        for rung in (steps_name(one.name) for one in language_models):
            if self.budget.decided(rung) > 100:
                raise UserError(f"{rung} is above 100.", where="rungs", remedy="It is a percentage.")
        self._reserve(one.reading.source for one in language_models)
        self._to_fine_tune = [one for one in language_models if one.train is not None]
        on_the_pool = [name for name in methods if LINEAR_METHODS[name].feature_maps]
        for name in methods:
            if name not in on_the_pool:
                self.linear(name)
        for one in language_models:
            self.linear_probe(one.name, one.reading)
        sentence_encoders = [one for one in language_models if one.reading.source.compares]
        if "co-training" in methods:
            for one in sentence_encoders:
                self.label_names(one)
            for one in sentence_encoders:
                self.encoder_co_training(one)
        for one in sentence_encoders:  # they have a view of the unlabelled texts already, and much to gain from labels
            self.fine_tuning(one)
        for name in on_the_pool:
            self.linear(name)
        self.feature_maps.release()
        for one in language_models:
            if one not in sentence_encoders:
                self.fine_tuning(one)

    def _reserve(self, sources: Iterable[Artifact]) -> None:
        """Keep time for encoding the texts that are measured on."""
        evaluation = self.selection.evaluation
        if evaluation is not None and self.budget.remaining < math.inf:
            self.budget.reserve(sum(self.costs.encoding(source, evaluation.texts) for source in sources))

    def ensemble(self, language_models: Sequence[str]) -> WeightedEnsemble:
        """The weighted ensemble of the candidates; `language_models` are those that were fine-tuned or rejected."""
        skipped = {name: why for name, why in self.budget.skipped.items() if name not in self.rejected}
        return weighted_ensemble(
            list(self.candidates.values()),
            self.selection,
            language_models=language_models,
            left_out=self.left_out | skipped,
            rejected=self.rejected,
        )

    @property
    def shared_seconds(self) -> float:
        """Duration of fitting the feature maps, which several candidates share."""
        return sum(self.feature_maps.seconds.values())

    def linear(self, name: str) -> None:
        """A linear method; on the unlabelled texts if it has feature maps."""
        method = LINEAR_METHODS[name]
        reason = why_left_out(name, self.selection)
        if reason is not None:
            self.left_out |= {name: reason} if reason else {}
            return
        if method.feature_maps and not self._begin_on_pool(name):
            return
        try:
            for family in method.feature_maps:
                self.feature_maps.of(family)
        except UserError as error:
            self.left_out[name] = str(error)
            return
        seconds = self.feature_maps.seconds
        candidate = linear_candidate(
            name,
            self.selection,
            lambda: method.classifier(self.feature_maps, self.selection.seed),
            lambda: sum(seconds[family] for family in method.feature_maps),
        )
        self._add(replace(candidate, favoured=name == "co-training"))

    def _begin_on_pool(self, name: str) -> bool:
        """True if the unlabelled texts can be counted and the method be fitted to them in time."""
        texts = len(self.selection.unlabelled)
        decision = self.budget.choose(name, [1], lambda _: self.costs.linear(name, texts), share=self._pool_share())
        return bool(decision.amount)

    def _pool_share(self) -> float:
        """The share for a linear method: all of it where no language model could be fine-tuned in the time left."""
        left, done = self.budget.remaining, self.members.keys() | self.rejected.keys()
        if left == math.inf:  # nothing is estimated
            return 1.0
        waiting = (one for one in self._to_fine_tune if one.name not in done)
        return POOL_SHARE if any(one.seconds(self.costs, MIN_FOLDS) <= left for one in waiting) else 1.0

    def linear_probe(self, name: str, reading: EncodedData) -> None:
        """A linear layer on the frozen encoder."""
        probe, texts = linear_probe_name(name), self.selection.train.texts
        if not self.budget.choose(probe, [1], lambda _: self.costs.encoding(reading.source, texts)).amount:
            return
        self._add(self._probe(probe, name, reading.source))

    def _probe(self, probe: str, name: str, source: Artifact) -> Candidate:
        def vectors(part: str) -> NDArray[np.float32]:
            if part == "train":
                return self._vectors_of(name, source)(self.selection.train.texts)
            assert self.selection.evaluation is not None
            return self._evaluated_by(name, source)(self.selection.evaluation.texts)

        return linear_probe_candidate(probe, source, self.selection, vectors)

    def _add_adapted_probe(self, name: str, reading: EncodedData) -> None:
        """The linear probe of the adapted model, in place of the one before."""
        adapted = self._probe(linear_probe_name(adapted_name(name)), adapted_name(name), reading.source)
        probe = linear_probe_name(name)
        self._add(replace(adapted, name=probe, evaluate=lambda: replace(adapted.outcome, name=probe)))

    def label_names(self, one: FineTuningCandidate) -> None:
        """Classification by the names of the classes, a few labels and the unlabelled texts."""
        name, selection, source = label_names_name(one.name), self.selection, one.reading.source
        if not knows_by_name(selection):
            return
        texts, limit = selection.unlabelled, min(len(selection.unlabelled), MAX_POOL_TEXTS)
        sizes = pool_sizes(limit) if limit else [1]
        amount = self.budget.choose(name, sizes, partial(self._on_pool, one), share=POOL_SHARE).amount
        if not amount:
            return
        sample = [texts[i] for i in random_subset(len(texts), amount, selection.seed)]
        vectors, evaluated = self._vectors_of(one.name, source), self._evaluated_by(one.name, source)
        candidate = label_names_candidate(name, source, selection, vectors, evaluated, sample)
        self._add(replace(candidate, favoured=True))

    def _on_pool(self, one: FineTuningCandidate, texts: int) -> float:
        """Estimated seconds of regressions on so many unlabelled texts, and of encoding those that are not yet."""
        source, pool = one.reading.source, self.selection.unlabelled
        missing = max(0, texts - self._vectors_of(one.name, source).known(pool))
        encoding = self.costs.encoding(source, pool) * missing / max(1, len(pool))
        return encoding + self.costs.co_training(texts, source.model.encoder.output_dim)

    def encoder_co_training(self, one: FineTuningCandidate) -> None:
        """Co-training on the unlabelled texts with the encoder's vectors as a view."""
        name, selection, source = encoder_co_training_name(one.name), self.selection, one.reading.source
        reason = why_left_out("co-training", selection)
        if reason is not None:
            self.left_out |= {name: reason} if reason else {}
            return
        texts = selection.unlabelled

        def seconds(count: int) -> float:
            return self._on_pool(one, count) + self.costs.linear("lsa", len(texts))

        amount = self.budget.choose(name, pool_sizes(len(texts)), seconds, share=POOL_SHARE).amount
        if not amount:
            return
        vectors, spent = self._vectors_of(one.name, source), [0.0]

        def classifier() -> CoTrainedClassifier:
            pool, spent[0] = encoder_pool(vectors, self.feature_maps, amount)
            return CoTrainedClassifier(pool, seed=selection.seed)

        try:
            embed = self._evaluated_by(one.name, source)
            candidate = linear_candidate(name, selection, classifier, lambda: spent[0], embed)
            self._add(replace(candidate, favoured=True))
        except UserError as error:
            self.left_out[name] = str(error)

    def _vectors_of(self, name: str, source: Artifact) -> VectorCache:
        """Vectors of the labelled and the unlabelled texts, kept in the run's folder."""
        return self._cache(self._vectors, name, source, self.selection.run.work / "vectors" / name)

    def _evaluated_by(self, name: str, source: Artifact) -> VectorCache:
        """Vectors of the texts that are measured on, kept in memory."""
        return self._cache(self.evaluated, name, source, None)

    def _cache(self, caches: dict[str, VectorCache], name: str, source: Artifact, folder: Path | None) -> VectorCache:
        if name not in caches:
            title, precision = f"{name}: encoding" if self.selection.run.show else "", self.selection.run.precision
            caches[name] = VectorCache(
                source, folder, precision=precision or "auto", max_tokens=self.max_tokens, title=title
            )
        return caches[name]

    def fine_tuning(self, one: FineTuningCandidate) -> None:
        """A fine-tuned language model, adapted to the unlabelled texts first if that is likely to pay."""
        reading, spent = one.reading, 0.0
        try:
            if one.adaptation is not None and self._begin_adaptation(one):
                if one.adaptation.try_out is not None:
                    spent = one.adaptation.try_out(self._early_rejection(one, before_adapting=True))
                reading = one.adaptation.adapted()
                self._add_adapted_probe(one.name, reading)
            if one.train is None:
                return
            whole = len(self.selection.splits)
            amounts = sorted({whole, min(3, whole), min(2, whole)}, reverse=True)

            def seconds(folds: int) -> float:  # with the fewest folds, of the fewest steps
                shortest = SHORTEST / 100 if one.may_be_shortened and folds == amounts[-1] else 1.0
                return shortest * one.seconds(self.costs, folds)

            decision = self.budget.choose(one.name, amounts, seconds)
            if not decision.amount:
                raise EarlyRejected(decision.reason, 0.0, 0.0)
            member = self._trained(one, reading, decision.amount)
        except EarlyRejected as lost:
            self.rejected[one.name] = replace(lost, seconds=lost.seconds + spent)
            if isinstance(lost, OverTime):  # a run without a clock repeats it by not beginning
                self.budget.correct(one.name, 0, lost.reason)
            return
        self.members[one.name] = member
        candidate = language_candidate(one.name, member, self.selection, one.record(member))
        self.budget.correct(one.name, completed_folds([candidate], self.selection))
        self._add(replace(candidate, seconds=candidate.seconds + spent, favoured=one.favoured))

    def _trained(self, one: FineTuningCandidate, reading: EncodedData, folds: int) -> Member:
        """Trained with all steps or, where they turn out to take too long, with as many as there is time for."""
        assert one.train is not None
        rung = steps_name(one.name)
        percent = self.budget.decided(rung)
        if not percent:
            try:
                return one.train(reading, self._early_rejection(one), folds, self._seconds_left(), 1.0)
            except OverTime as slow:
                percent = int(100 * MARGIN * slow.share)
                if percent < SHORTEST or not one.may_be_shortened:
                    raise
        self.budget.correct(rung, percent, f"{one.name} {percent} % of the steps")
        try:
            return one.train(reading, self._early_rejection(one), folds, self._seconds_left(), percent / 100)
        except OverTime:
            self.budget.correct(rung, 0)
            raise

    def _seconds_left(self) -> float | None:
        return None if self.budget.remaining == math.inf else self.budget.remaining

    def _begin_adaptation(self, one: FineTuningCandidate) -> bool:
        assert one.adaptation is not None
        adaptation, source = one.adaptation, one.reading.source
        a_text = self.costs.encoding(source, self.selection.train.texts)
        tokens = sum(map(len, one.reading.parts["train"].sequences)) or 1
        seconds = TRAINING * a_text * adaptation.tokens / tokens + one.seconds(self.costs, 2)
        return bool(self.budget.choose(adapted_name(one.name), [1], lambda _: seconds).amount)

    def _early_rejection(self, one: FineTuningCandidate, *, before_adapting: bool = False) -> EarlyRejection:
        rivals = list(self.candidates.values())
        return EarlyRejection(rivals, self.selection, favoured=one.favoured, before_adapting=before_adapting)

    def _add(self, candidate: Candidate) -> None:
        """Keep a candidate, and its score on the held-out texts, which is shown."""
        self.candidates[candidate.name] = candidate
        self.results.append(RungResult.of(candidate, self.selection, self.budget.elapsed))
        if self.selection.run.show:
            print(self.results[-1], file=sys.stderr, flush=True)

    def record(self) -> dict[str, Any]:
        """The results as in run.json."""
        return {"ladder": [result.record() for result in self.results]}

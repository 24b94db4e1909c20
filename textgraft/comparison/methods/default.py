"""The default of `finetune`, a weighted ensemble, as a method beside its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from textgraft.comparison.methods.base import KINDS, MIN_UNLABELLED, MethodOptions, Predictions
from textgraft.comparison.methods.fine_tuned import Ulmfit, mean_answers
from textgraft.core.context import RunContext
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import Split
from textgraft.linear.methods import FeatureMaps
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model_folder import models_of
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.fine_tuned import Member, Reading, TrainingConfig, adapt_seconds, train_member
from textgraft.tasks.classification.first_fold import tokens_to_read, trial
from textgraft.tasks.classification.linear_candidates import linear_candidates
from textgraft.tasks.classification.model_selection import (
    FineTuningCandidate,
    WeightedEnsemble,
    select_models,
    selection_splits,
)
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.sources import outcome_names
from textgraft.training.driver import allowed_seconds, content_hash
from textgraft.training.phases import Stage
from textgraft.training.recipes import load_recipe


class EnsembleModel(Ulmfit):
    """A language model that takes part in a blend: it reads the unlabelled texts once it is asked to."""

    name = "default"

    def __init__(self, options: MethodOptions) -> None:
        super().__init__(options)
        self._pool: Sequence[str] = ()
        self._folder: Path | None = None

    def _adapt_stage(self) -> Stage:
        return load_recipe(self._suited).adapt

    def _recipe_stages(self) -> str:
        within = "" if self.options.minutes is None else f", within {self.options.minutes} minutes"
        return f"{super()._recipe_stages()}, tried out before it reads{within}"

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._pool, self._folder = pool, folder
        return 0.0

    @cached_property
    def as_it_is(self) -> Artifact:
        """The language model before it has read the unlabelled texts."""
        return loading.load_network(self.options.named_model)

    @property
    def _adapts(self) -> bool:
        return len(self._pool) >= MIN_UNLABELLED and bool(self._adapt_stage().phases)

    def _adapted(self) -> Artifact:
        """The language model that has read the unlabelled texts, now or for an earlier training."""
        if self._source is None:
            assert self._folder is not None, "prepare comes first"
            super().prepare(self._pool, self._folder)
        assert self._source is not None
        return self._source

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        """The answers of the language model alone."""
        self._source = self._adapted() if self._adapts else self.as_it_is
        alone = super().answer(train, texts, labels, seed, folder)
        return replace(alone, seconds=alone.seconds + adapt_seconds(self._source))

    def candidate(
        self, name: str, train: Examples, texts: Sequence[str], labels: Labels, training_config: TrainingConfig
    ) -> FineTuningCandidate:
        """The language model as a candidate for these labels, by a name that differs from the other candidates'."""
        title = f"{self.name}, {len(train):,} labels, seed {training_config.context.first_seed}, {name}"

        def reading(source: Artifact) -> Reading:
            return Reading(source, self._encoded(source, train, texts, labels))

        def training(adapted: Reading, early_rejection: EarlyRejection) -> Member:
            plan = self._plan(adapted.source, labels)
            return train_member(title, plan, adapted, training_config, early_rejection)

        as_it_is = reading(self.as_it_is)
        if not self._adapts:
            return FineTuningCandidate(name, as_it_is, training)
        to_read = tokens_to_read(self._pool, self.as_it_is, self._adapt_stage(), self.options.adapt_minutes)
        trying = trial(title, self._plan(self.as_it_is, labels), as_it_is, training_config, to_read)
        return FineTuningCandidate(name, as_it_is, training, try_out=trying, adapted=lambda: reading(self._adapted()))


class Default:
    """The mean of the linear ways and of the language models, weighed by their answers for held-out training texts.

    A language model reads the unlabelled texts first, if there are any and a first fold has shown that it is worth it:
    so that is not prepared but done for the first training that asks, and counts in each that did. Where there are too
    few labels to hold some out, the language models answer alone, as in `finetune`. Raises UserError as `ulmfit` does.
    """

    name = "default"
    about = "What finetune makes: the mean of the linear classifiers and the language model that held-out folds favour."
    needs_pool = False
    model = ""
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        self.options = options
        self._models = [EnsembleModel(replace(options, model=model)) for model in models_of(options.named_model)]
        self._feature_maps: FeatureMaps | None = None
        prints = [one.fingerprint for one in self._models]
        self.fingerprint = prints[0] if len(prints) == 1 else content_hash(prints)

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._feature_maps = FeatureMaps(pool, folder / "feature_maps", seed=self.options.seed)
        return sum(one.prepare(pool, folder) for one in self._models)

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        splits = selection_splits(train, seed)
        if not splits:
            return mean_answers(self._models, train, texts, labels, seed, folder)
        context = RunContext(folder, seed, precision=self.options.precision, show=self.options.show)
        chosen, shared_seconds = self.selected(train, texts, labels, splits, context)
        size = sum(len(data) for p in chosen.predictors({}).values() for data in p.files().values())
        outcome = chosen.outcome(shared_seconds)
        return Predictions(outcome.outputs[0], size, f"{outcome.about}, chosen on held-out folds", 60 * outcome.minutes)

    def selected(
        self, train: Examples, texts: Sequence[str], labels: Labels, splits: Sequence[Split], context: RunContext
    ) -> tuple[WeightedEnsemble, float]:
        """The weighted ensemble with its predictions for `texts`, and the seconds that candidates share."""
        assert self._feature_maps is not None, "prepare comes first"
        test, quiet = Examples(list(texts)), replace(context, show=False)
        selection = SelectionContext(train, test, "test", labels, self._feature_maps.texts, splits, quiet)
        linear = linear_candidates(selection, self._feature_maps)
        seconds = allowed_seconds(self.options.minutes)
        config = TrainingConfig("test", 1, splits, context, seconds)
        names = outcome_names([one.as_it_is for one in self._models])
        models = [one.candidate(name, train, texts, labels, config) for one, name in zip(self._models, names)]
        chosen, _ = select_models(linear, models, selection, within=seconds)
        return chosen, linear.shared_seconds

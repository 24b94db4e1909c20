"""The default of `finetune` as one of the methods to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from textgraft.comparison.methods.base import KINDS, MIN_UNLABELLED, MethodOptions, Predictions
from textgraft.comparison.methods.fine_tuned import Ulmfit, mean_predictions
from textgraft.core.context import RunContext
from textgraft.core.identity import content_hash
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import Split
from textgraft.linear.methods import FeatureMaps
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model_folder import models_of
from textgraft.tasks.classification.budget import Budget
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.fine_tuned import EncodedData, Member, adapt_seconds, train_member
from textgraft.tasks.classification.fine_tuning_candidate import Adaptation, FineTuningCandidate
from textgraft.tasks.classification.first_fold import count_adaptation_tokens, trial
from textgraft.tasks.classification.ladder import Ladder
from textgraft.tasks.classification.linear_candidates import CANDIDATE_METHODS
from textgraft.tasks.classification.model_selection import WeightedEnsemble, selection_splits
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.sources import outcome_names
from textgraft.tasks.classification.training_config import TrainingConfig
from textgraft.tasks.classification.vector_cache import VectorCache
from textgraft.training.driver import allowed_seconds
from textgraft.training.phases import Stage
from textgraft.training.recipes import load_recipe


class EnsembleModel(Ulmfit):
    """A language model in a weighted ensemble; it is adapted to the unlabelled texts on demand."""

    name = "default"

    def __init__(self, options: MethodOptions) -> None:
        super().__init__(options)
        self._pool: Sequence[str] = ()
        self._folder: Path | None = None

    def _adapt_stage(self) -> Stage:
        return load_recipe(self._recommended_recipe).adapt

    def _recipe_stages(self) -> str:
        time_limit = "" if self.options.minutes is None else f", within {self.options.minutes} minutes"
        return f"{super()._recipe_stages()}, tried out before it reads{time_limit}"

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._pool, self._folder = pool, folder
        return 0.0

    @cached_property
    def pretrained(self) -> Artifact:
        """The language model before adaptation to the unlabelled texts."""
        return loading.load_network(self.options.named_model)

    @property
    def _adapts(self) -> bool:
        return len(self._pool) >= MIN_UNLABELLED and bool(self._adapt_stage().phases)

    def _adapted(self) -> Artifact:
        """The language model adapted to the unlabelled texts, now or for an earlier training."""
        if self._source is None:
            assert self._folder is not None, "prepare comes first"
            super().prepare(self._pool, self._folder)
        assert self._source is not None
        return self._source

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        """Predictions of the language model alone."""
        self._source = self._adapted() if self._adapts else self.pretrained
        alone = super().train_and_predict(train, texts, labels, seed, folder)
        return replace(alone, seconds=alone.seconds + adapt_seconds(self._source))

    def candidate(
        self, name: str, train: Examples, texts: Sequence[str], labels: Labels, training_config: TrainingConfig
    ) -> FineTuningCandidate:
        """The candidate for model selection on these labels; `name` is its name beside the other candidates."""
        title = f"{self.name}, {len(train):,} labels, seed {training_config.context.first_seed}, {name}"

        def encoded(source: Artifact) -> EncodedData:
            return EncodedData(source, self._encoded(source, train, texts, labels))

        def train_candidate(
            read: EncodedData, early_rejection: EarlyRejection, folds: int, seconds: float | None, steps: float
        ) -> Member:
            config = replace(training_config, folds=folds, seconds=seconds, steps=steps)
            return train_member(title, self._plan(read.source, labels), read, config, early_rejection)

        pretrained, plan = encoded(self.pretrained), self._plan(self.pretrained, labels)
        adaptation = None
        if self._adapts and not self.pretrained.compares:
            tokens = count_adaptation_tokens(
                self._pool, self.pretrained, self._adapt_stage(), self.options.adapt_minutes
            )
            trial_run = trial(title, plan, pretrained, training_config, tokens)
            adaptation = Adaptation(tokens, lambda: encoded(self._adapted()), trial_run)
        return FineTuningCandidate(
            name,
            pretrained,
            train_candidate,
            lambda costs, folds: costs.training(plan, pretrained, training_config, folds),
            adaptation=adaptation,
        )


class Default:
    """Weighted ensemble of linear classifiers and language models; the weights are fitted on held-out training texts.

    A language model is adapted to the unlabelled texts first if the first fold shows that it pays. This is therefore
    not part of `prepare` but happens in the first training that needs it, and counts in each that uses it. Where there
    are too few labels to hold some out, the language models predict alone, as in `finetune`. Raises UserError as
    `ulmfit` does.
    """

    name = "default"
    about = "The default of finetune: linear classifiers and language model, weighted by held-out folds."
    needs_pool = False
    model = ""
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        self.options = options
        self._models = [EnsembleModel(replace(options, model=model)) for model in models_of(options.named_model)]
        self._feature_maps: FeatureMaps | None = None
        self._evaluated: dict[str, VectorCache] = {}
        fingerprints = [member.fingerprint for member in self._models]
        self.fingerprint = fingerprints[0] if len(fingerprints) == 1 else content_hash(fingerprints)

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._feature_maps = FeatureMaps(pool, folder / "feature_maps", seed=self.options.seed)
        return sum(member.prepare(pool, folder) for member in self._models)

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        splits = selection_splits(train, seed)
        if not splits:
            return mean_predictions(self._models, train, texts, labels, seed, folder)
        context = RunContext(folder, seed, precision=self.options.precision, show=self.options.show)
        chosen, shared_seconds = self.weighted_ensemble(train, texts, labels, splits, context)
        size = sum(len(data) for p in chosen.predictors({}).values() for data in p.files().values())
        outcome = chosen.outcome(shared_seconds)
        return Predictions(outcome.outputs[0], size, f"{outcome.about}, chosen on held-out folds", 60 * outcome.minutes)

    def weighted_ensemble(
        self, train: Examples, texts: Sequence[str], labels: Labels, splits: Sequence[Split], context: RunContext
    ) -> tuple[WeightedEnsemble, float]:
        """The candidates with their predictions for `texts` and their weights, and the seconds that they share."""
        assert self._feature_maps is not None, "prepare comes first"
        test, quiet = Examples(list(texts)), replace(context, show=False)
        selection = SelectionContext(train, test, "test", labels, self._feature_maps.texts, splits, quiet)
        config = TrainingConfig("test", 1, splits, context)
        names = outcome_names([member.pretrained for member in self._models])
        models = [member.candidate(name, train, texts, labels, config) for member, name in zip(self._models, names)]
        budget = Budget(allowed_seconds(self.options.minutes))
        maps, max_tokens = self._feature_maps, self.options.max_tokens
        ladder = Ladder(selection, budget, maps, max_tokens, self._evaluated)
        ladder.climb(CANDIDATE_METHODS, models)
        return ladder.ensemble(names), ladder.shared_seconds

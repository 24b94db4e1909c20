"""The tasks of `inspect layers`: taggers and classifiers on a frozen encoder, through one layer aggregation each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash, identity_of
from textgraft.data.conll import Tagged
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.metrics.classification import HEADLINE, document_scores
from textgraft.models.artifact import Artifact
from textgraft.models.default_recipes import DEFAULT
from textgraft.models.inference import frozen_layer_aggregation
from textgraft.nn.layer_aggregation import LAST, LAYER_AGGREGATIONS, new_layer_aggregation, validate_layer_aggregation
from textgraft.tasks.classification.fine_tuned import encode_parts
from textgraft.tasks.classification.training import Plan, train_classifier
from textgraft.tasks.classification.unseen_labels import warn_of_unseen_labels
from textgraft.tasks.tagging.finetune import TagOptions, resolved_options, train_tagger
from textgraft.tasks.tagging.network import NetworkTagger
from textgraft.tasks.tagging.predictor import scores, tag_all
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings
from textgraft.word_embeddings.sources import FrozenModel
from textgraft.word_embeddings.stack import Stack

FROZEN_RECIPE, NETWORK_RECIPE = "frozen", "tagger"
"""The recipes of a linear head and of a network over frozen vectors, where none is named."""
Cell = dict[str, Any]
"""One training: each example's contribution to both sides of the score ("part", "whole"), and "minutes"."""


@dataclass(frozen=True)
class LayerOptions:
    """Options of the experiment.

    Args:
        recipe: The training recipe. None: with `network` its own, else "frozen", which trains the head only; the
            encoder's dropouts stay active meanwhile.
        layer_aggregations: Names in nn.layer_aggregation.LAYER_AGGREGATIONS; those that the model's layers do not allow
            are left out.
        seeds: Number of trainings of each, with seeds from `settings.seed` upwards.
        max_tokens: Maximum length of a text.
        settings: Seed, precision, limits.
        network: A network over words in place of the linear layer, for tagged sentences. Its input is computed once
            for each sentence and layer aggregation, without dropouts, and kept on disk.
    """

    recipe: str | None = None
    layer_aggregations: tuple[str, ...] = tuple(LAYER_AGGREGATIONS)
    seeds: int = 3
    max_tokens: int = 256
    settings: Settings = field(default_factory=Settings)
    network: Network | None = None

    def __post_init__(self) -> None:
        for name in self.layer_aggregations:
            validate_layer_aggregation(name)
        if self.seeds < 1:
            raise UserError(f"seeds is {self.seeds}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change the results."""
        return identity_of(self)


class Task(Protocol):
    """A task to learn through a layer aggregation, and its metric."""

    unit: str
    metric: str
    recipe: str

    def validate(self, layer_aggregation: str) -> None:
        """Raise UserError where the model's layers do not allow the layer aggregation."""

    def described(self) -> dict[str, Any]:
        """Identity of the task: everything that it depends on."""

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        """Train once, with unfinished work in `folder`; only the contributions to the score are kept."""


class Tagging:
    """Tagging: accuracy over words, or F1 of entities. Raises UserError as `tag_finetune` does."""

    unit = "sentences"

    def __init__(self, source: Artifact, train: Tagged, test: Tagged, options: LayerOptions) -> None:
        if (train.scheme == "plain") != (test.scheme == "plain"):
            message = f"these tags are {test.scheme}, the training tags {train.scheme}."
            raise UserError(message, where=test.source, remedy="Use the same kind of column in both.")
        self.source, self.train, self.test, self.options = source, train, test, options
        self.metric, self.recipe = "accuracy" if test.scheme == "plain" else "f1", self._recipe()
        load_recipe(self.recipe).finetune.validate_no_classifier_settings(self.recipe)

    def _recipe(self) -> str:
        return self.source.recommended_recipe(self.options.recipe or FROZEN_RECIPE)

    def validate(self, layer_aggregation: str) -> None:
        new_layer_aggregation(layer_aggregation, self.source.model.encoder.widths)

    def described(self) -> dict[str, Any]:
        parts = {"train": self.train, "test": self.test}
        return {name: {"sentences": len(p), "words": p.words, "sha256": p.content_hash()} for name, p in parts.items()}

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        options = replace(self._options(seed), layer_aggregation=layer_aggregation)
        context = RunContext(folder, seed, show=show)
        return self._measured(self.source, options, context, f"{layer_aggregation}, seed {seed}")

    def _options(self, seed: int) -> TagOptions:
        settings = replace(self.options.settings, seed=seed)
        return TagOptions(recipe=self.recipe, max_tokens=self.options.max_tokens, settings=settings)

    def _measured(self, source: Artifact, options: TagOptions, context: RunContext, title: str) -> Cell:
        """Train a tagger on `source` and measure it."""
        options = resolved_options(options, source)
        tagger, _ = train_tagger(source, self.train, options, context, title=title)
        network = NetworkTagger(tagger, options.settings.precision)
        predictions, _ = tag_all(network, self.test.sentences, options.max_tokens)
        headline = scores(self.test, predictions).headline
        minutes = tagger.run["seconds"] / 60
        return {"part": headline.part.tolist(), "whole": headline.whole.tolist(), "minutes": minutes}


class NetworkTagging(Tagging):
    """Tagging by a network over the frozen model's vectors, which are computed once and kept on disk for all seeds."""

    def __init__(self, source: Artifact, train: Tagged, test: Tagged, options: LayerOptions, network: Network) -> None:
        self.network = network
        super().__init__(source, train, test, options)

    def _recipe(self) -> str:
        return NETWORK_RECIPE if self.options.recipe in (None, DEFAULT) else self.options.recipe

    def validate(self, layer_aggregation: str) -> None:
        frozen_layer_aggregation(self.source.model, layer_aggregation)

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        began, settings = time.perf_counter(), self.options.settings
        about: dict[str, Any] = {"max_tokens": self.options.max_tokens, "precision": settings.precision}
        frozen = FrozenModel(self.source, self.source.run.get("name") or "model", layer_aggregation, **about)
        stack = Stack([frozen]).to(resolve_device(settings.device))
        kept = self.network.kept(stack, [self.train, self.test], folder.parent, show=show)
        encoding = (time.perf_counter() - began) / 60
        own = LAST if self.network.num_layers else "first"  # of the network itself, whose input is its layer 0
        options = replace(self._options(seed), network=self.network, layer_aggregation=own)
        context = RunContext(folder, seed, show=show)
        cell = self._measured(self.network.over(kept, seed), options, context, f"{layer_aggregation}, seed {seed}")
        return cell | {"minutes": cell["minutes"] + encoding}


class Labelling:
    """Classification of texts, pairs or questions with options, by the headline metric of their kind.

    The head sees the aggregated layers alone, without the embedding layer beside them. Raises UserError for labels that
    do not occur in training.
    """

    unit = "texts"

    def __init__(self, source: Artifact, train: Examples, test: Examples, options: LayerOptions) -> None:
        self.labels = Labels.fit(train)
        warn_of_unseen_labels(self.labels, test)
        self.metric, self.options, self.widths = HEADLINE[self.labels.kind], options, source.model.encoder.widths
        self.recipe = source.recommended_recipe(options.recipe or FROZEN_RECIPE)
        self.encoded = encode_parts(source, {"train": train, "test": test}, self.labels, options.max_tokens).parts
        self._parts, stage = {"train": train, "test": test}, load_recipe(self.recipe).finetune
        if self.encoded["test"].targets is None:
            raise UserError("these texts have no labels.", where=test.source, remedy="Give labelled texts.")
        self.plan = Plan(
            language_model=source.model,
            from_scratch=False,
            stage=stage,
            settings=options.settings,
            labels=self.labels,
            class_weights=None,
            pad_id=source.tokenizer.pad_id,
            pooling=source.pooling,
            words=False,
        )

    def validate(self, layer_aggregation: str) -> None:
        new_layer_aggregation(layer_aggregation, self.widths)

    def described(self) -> dict[str, Any]:
        def digest(part: Examples) -> str:
            return content_hash(item for pair in zip(part.texts, part.labels or (), strict=True) for item in pair)

        return {name: {"texts": len(part), "sha256": digest(part)} for name, part in self._parts.items()}

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        plan, kind = replace(self.plan, layer_aggregation=layer_aggregation), self.labels.kind
        test, title = {"test": self.encoded["test"]}, f"{layer_aggregation}, seed {seed}"
        context = RunContext(folder, seed, show=show)
        trained = train_classifier(plan, self.encoded["train"], test, context=context, title=title)
        targets = self.encoded["test"].targets
        assert targets is not None
        scores = document_scores(kind, targets, outputs_from_logits(trained.logits["test"], kind))
        scores = self.labels.unscaled_errors(scores)
        return {"part": scores.tolist(), "whole": [1] * len(scores), "minutes": trained.seconds / 60}

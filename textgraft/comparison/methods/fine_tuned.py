"""Methods that fine-tune a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from textgraft.comparison.methods.base import KINDS, MethodOptions, Predictions, validate_family
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash, identity_text
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model
from textgraft.tasks.classification.training import EncodedTexts, Plan, train_classifier
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.training.phases import Stage
from textgraft.training.recipes import load_recipe

SINGLE_PHASE_RECIPES = ("transformer", "contrastive")
"""Recipes recommended for transformers that train all layers at once."""


class NoAdapt:
    """The pretrained language model, fine-tuned by the recipe, without adaptation."""

    name = "no-adapt"
    about = "The pretrained language model, fine-tuned on the labels, without adaptation to the unlabelled texts."
    needs_pool = False
    model = ""
    kinds = KINDS
    from_scratch: ClassVar[bool] = False

    def __init__(self, options: MethodOptions) -> None:
        self.options = options
        self._source: Artifact | None = None
        self._encoded_tests: WeakKeyDictionary[Model, tuple[Sequence[str], EncodedTexts]] = WeakKeyDictionary()
        language_model = options.language_model
        self._recommended_recipe = language_model.recipe
        self._stage.plan(language_model.groups + 1)  # and the head
        self.fingerprint = content_hash([language_model.identity, self._recipe_stages()])

    @property
    def _recipe(self) -> str:
        return self._recommended_recipe

    @property
    def _stage(self) -> Stage:
        stage = load_recipe(self._recipe).finetune
        if not stage.phases:
            raise UserError(
                "this recipe has no fine-tuning phases.", where=self._recipe, remedy="Name a recipe that has."
            )
        return stage

    def _recipe_stages(self) -> str:
        return identity_text(self._stage.identity())

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._source = loading.load_network(self.options.named_model)
        return 0.0

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        assert self._source is not None, "prepare comes first"
        parts = self._encoded(self._source, train, texts, labels)
        trained = train_classifier(
            self._plan(self._source, labels),
            parts["train"],
            {"test": parts["test"]},
            context=RunContext(folder, seed, show=self.options.show),
            title=f"{self.name}, {len(train):,} labels, seed {seed}",
        )
        tokenizer = len(self._source.tokenizer.to_json().encode())
        size = sum(value.nbytes for value in trained.values.values()) + tokenizer
        outputs = outputs_from_logits(trained.logits["test"], labels.kind)
        about = f"{self.about[:-1]} (model {Path(self.options.named_model).name}, recipe {Path(self._recipe).stem})."
        return Predictions(outputs, size, about, trained.seconds)

    def _encoded(
        self, source: Artifact, train: Examples, texts: Sequence[str], labels: Labels
    ) -> dict[str, EncodedTexts]:
        """Encoded "train" and "test" texts; the latter are the same for all trainings and cached."""
        train_sequences, _ = source.encoded(train.texts, self.options.max_tokens)
        cached_texts, encoded_tests = self._encoded_tests.get(source.model, (None, None))
        if encoded_tests is None or cached_texts is not texts:
            encoded_tests = EncodedTexts(source.encoded(texts, self.options.max_tokens)[0], read={})
            self._encoded_tests[source.model] = texts, encoded_tests
        return {"train": EncodedTexts(train_sequences, labels.encode(train)), "test": encoded_tests}

    def _plan(self, source: Artifact, labels: Labels) -> Plan:
        return Plan.of(source, self._stage, self.options.settings, labels, from_scratch=self.from_scratch)


class Scratch(NoAdapt):
    """The same network with random initial weights, to measure the effect of pretraining."""

    name = "scratch"
    about = "The same network from random weights, trained by the same recipe on the labels alone."
    from_scratch = True


class Frozen(NoAdapt):
    """Feature extraction: only the head is trained, by the recipe "frozen"."""

    name = "frozen"
    about = "The frozen pretrained language model; only the head on top is trained."

    @property
    def _recipe(self) -> str:
        return "frozen"


class Ulmfit(NoAdapt):
    """ULMFiT (Howard & Ruder 2018): adapt the language model to the unlabelled texts, then fine-tune it."""

    name = "ulmfit"
    about = "The language model is adapted to the unlabelled texts, then fine-tuned (Howard & Ruder 2018)."
    needs_pool = True

    def _adapt_stage(self) -> Stage:
        stage = load_recipe(self._recommended_recipe).adapt
        if not stage.phases:
            raise UserError(
                "this recipe has no adaptation phases, which 'ulmfit' needs.",
                where=self._recommended_recipe,
                remedy="Name a recipe that has, or compare 'no-adapt' instead.",
            )
        return stage

    def _recipe_stages(self) -> str:
        adaptation = [self._adapt_stage().identity(), self.options.adapt_minutes, self.options.seed]
        return f"{super()._recipe_stages()} {identity_text(adaptation)}"

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        options = self.options
        # Methods with the same model and adaptation share the adapted model.
        identity = content_hash([options.language_model.identity, identity_text(self._adapt_stage().identity())])
        adapted = adapt(
            pool,
            folder / f"adapted-{identity[:12]}",
            model=options.named_model,
            recipe=options.recipe,
            settings=replace(options.settings, minutes=options.adapt_minutes),
            reuse=True,
            context=RunContext(show=options.show),
        )
        self._source = loading.load_network(adapted)
        return float(self._source.run["seconds"])


class Bert(Ulmfit):
    """ULMFiT's procedure with BERT: adaptation by masked tokens, then gradual unfreezing from the top.

    The recipe is the model's own, or "transformer-staged" where it has none, since ULMFiT consists of adaptation,
    gradual unfreezing and discriminative learning rates. BERT's own procedure, all layers at one rate, is the recipe
    "transformer".
    """

    name = "bert"
    about = "A BERT is adapted to the unlabelled texts, then fine-tuned on the labels from the top layers down."
    model = "en-bert-small"
    family: ClassVar[str] = "bert"

    def __init__(self, options: MethodOptions) -> None:
        validate_family(self.name, self.family, options.language_model.family, options.named_model)
        use_staged = options.recipe == "default" and options.language_model.recipe in SINGLE_PHASE_RECIPES
        super().__init__(replace(options, recipe="transformer-staged") if use_staged else options)


class Gpt(Bert):
    """The same procedure with a GPT, adapted by next-token prediction."""

    name = "gpt"
    about = "A GPT is adapted to the unlabelled texts, then fine-tuned on the labels from the top layers down."
    model = "en-gpt-small"
    family = "gpt"


class MeanOf:
    """Mean of one method over several models, as in `finetune --recipe`. Raises UserError as the method does."""

    def __init__(self, kind: type[NoAdapt], options: MethodOptions, models: Sequence[str]) -> None:
        self._members = [kind(replace(options, model=model)) for model in models]
        self.name, self.about, self.model = kind.name, kind.about, kind.model
        self.needs_pool, self.kinds = kind.needs_pool, kind.kinds
        self.fingerprint = content_hash(member.fingerprint for member in self._members)

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        return sum(member.prepare(pool, folder) for member in self._members)

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        return mean_predictions(self._members, train, texts, labels, seed, folder)


def mean_predictions(
    members: Sequence[NoAdapt], train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
) -> Predictions:
    """Mean of the members' probabilities or standardised values, with their costs added."""
    folders = [folder] if len(members) == 1 else [folder / str(i) for i in range(len(members))]
    predictions = [
        m.train_and_predict(train, texts, labels, seed, place) for m, place in zip(members, folders, strict=True)
    ]
    return Predictions(
        np.mean([member.outputs for member in predictions], axis=0),
        sum(member.model_bytes for member in predictions),
        " Averaged with: ".join(member.about for member in predictions),
        sum(member.seconds for member in predictions),
    )
